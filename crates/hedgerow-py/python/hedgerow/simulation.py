"""Trials of several methods on the same samples, as ``hedgerow simulate`` runs them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from types import NoneType
from typing import Any

import numpy as np

from hedgerow import _hedgerow
from hedgerow._numbers import is_missing
from hedgerow._samples import Samples, check_owners, from_frame, is_frame, pieces
from hedgerow.results import Result

# Rows of an iterator that are read at a time.
_ROWS = 4096

# Settings of the data that apply to samples in memory.
_OF_SAMPLES = {"lags", "lagged", "horizon", "exogenous", "scaling"}

# Settings with which a round is not simply the next sample of each node.
_READS_MORE = ("participation.", "federation.partition", "data.lag", "data.horizon", "data.exogenous")


def simulate(
    data: Any = "friedman",
    y: Any = None,
    *,
    node: Any = None,
    method: str | Sequence[str] | None = None,
    nodes: int | None = None,
    budget: int | None = None,
    trials: int | None = None,
    rounds: int | None = None,
    seed: int | None = None,
    partition: str | None = None,
    scaling: str | None = None,
    dropout: float | None = None,
    threads: int | None = None,
    target: str | None = None,
    features: Sequence[str] | None = None,
    lags: int | None = None,
    horizon: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Result:
    """Runs trials of one or more methods on the same samples.

    Every prediction is scored before its label is learned. ``data`` is the name of a built-in
    stream or of a data set, the path of a file, an array ``X`` with labels ``y``, a frame of pandas
    or polars, or an iterator over ``(x, y)`` or ``(x, y, node)``. ``target``, ``features`` and
    ``node`` name columns of a file or frame. With an array, ``node`` has the node of each sample.
    ``method`` is a name, a list of names, or names with commas. Other arguments are those of
    ``hedgerow simulate``. Settings without an argument go to ``settings``, under the names that
    ``hedgerow config`` prints.

    A run ends with the samples, even if ``rounds`` is larger; ``result.summary["rounds"]`` has the
    real number. An iterator is read to its end before the run starts, so it must be finite.
    Exception: if ``nodes`` and ``rounds`` are given, each node gets one sample per round and no
    sample names its node, then only the needed samples are read. Samples with a NaN label are
    skipped and counted in ``summary["data"]``. NaN inputs are filled in.

    >>> from hedgerow import simulate
    >>> ridge = {"learning.ridge": 0.001}
    >>> result = simulate("drift", method="mk", nodes=5, rounds=40, trials=1, settings=ridge)
    >>> result.summary["rounds"], result.summary["nodes"]
    (40, 5)
    >>> simulate("drift", method="km")
    Traceback (most recent call last):
        ...
    ValueError: ...
    """
    changes: dict[str, Any] = {
        "federation.methods": _methods(method),
        "federation.nodes": nodes,
        "federation.budget": budget,
        "federation.partition": partition,
        "run.trials": trials,
        "run.rounds": rounds,
        "run.seed": seed,
        "run.threads": threads,
        "data.scaling": scaling,
        "data.lags": lags,
        "data.horizon": horizon,
        "participation.dropout": dropout,
    }
    if not isinstance(settings, (Mapping, NoneType)):
        example = '{"learning.ridge": 0.1}'
        raise TypeError(f"settings must be a dictionary such as {example}, but is {settings!r:.50}")
    settings = dict(settings or {})
    columns = None if features is None else [features] if isinstance(features, str) else list(features)
    given: Samples | None = None
    if isinstance(data, (str, PathLike)):
        if y is not None:
            raise TypeError("y comes with an array; a file's label is named by target")
        changes |= {
            "data.name": fspath(data),
            "data.target": target,
            "data.features": columns,
            "data.node": node,
        }
    else:
        for key in settings:
            of, _, rest = key.partition(".")
            if of == "data" and rest not in _OF_SAMPLES:
                raise ValueError(f"{key} says how data is found and read, but the samples are here already")
        given = _samples(data, y, node, target, columns, _most(changes | settings))
    changes = {key: list(value) if isinstance(value, tuple) else value for key, value in changes.items()}
    changes |= settings
    changes = {key: value for key, value in changes.items() if value is not None}
    if given is None:
        run = _hedgerow.simulate(changes)
    else:
        owners = None if given.node is None else [str(name) for name in np.asarray(given.node).tolist()]
        run = _hedgerow.simulate(changes, given.X, given.y, owners)
    curves = run.curves()
    curves["method"] = np.asarray(curves["method"], dtype=object)
    return Result(json.loads(run.summary_json()), curves, run=run)


def _methods(method: str | Sequence[str] | None) -> list[str] | None:
    """Names as on the command line: a string may hold several."""
    if method is None:
        return None
    return [name.strip() for name in method.split(",")] if isinstance(method, str) else list(method)


def _most(changes: Mapping[str, Any]) -> int | None:
    """How many samples such a run needs if samples name no nodes; None means all."""
    plain = {"federation.partition": ("auto", "round-robin"), "participation.dropout": (0, 0.0)}
    for key, value in changes.items():
        is_known = value is None or value in plain.get(key, ())
        if key.startswith(_READS_MORE) and not is_known:
            return None
    nodes, rounds = changes.get("federation.nodes"), changes.get("run.rounds")
    counts = isinstance(nodes, int) and isinstance(rounds, int) and nodes > 0 and rounds > 0
    return nodes * rounds if counts else None  # type: ignore[operator]


def _first(items: Iterable[Any], most: int) -> Iterator[Any]:
    """The first ``most`` samples with labels; all samples if they name their nodes."""
    labels = 0
    for item in items:
        yield item
        if isinstance(item, (tuple, list)) and len(item) == 2:
            labels += not is_missing(item[1])
            if labels == most:
                return


def _samples(
    data: Any, y: Any, node: Any, target: str | None, features: Sequence[str] | None, most: int | None
) -> Samples:
    if is_frame(data):
        return from_frame(data, y, node, columns=features or (), target=target or "")
    if target is not None or features is not None:
        raise TypeError("target and features name columns, but an array has none")
    if y is not None:
        return Samples(data, y, check_owners(node))
    if isinstance(data, np.ndarray) or not isinstance(data, Iterable):
        raise TypeError("y is missing: the labels, one for each row of the data")
    parts = list(pieces(data if most is None else _first(data, most), (), _ROWS))
    if not parts:
        raise ValueError("there are no samples")
    nodes = None if parts[0].node is None else [name for part in parts for name in part.node]
    return Samples(np.concatenate([part.X for part in parts]), [y for part in parts for y in part.y], nodes)
