"""Data and settings of :func:`simulate` and :func:`compare`, from their arguments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from hedgerow._numbers import is_missing
from hedgerow._samples import Samples, check_owners, from_frame, is_frame, is_sparse, pieces

# Rows of an iterator that are read at a time.
_ROWS = 4096

# Arguments that are settings of a run.
_OF_RUNS = {
    "method": "federation.methods",
    "nodes": "federation.nodes",
    "budget": "federation.budget",
    "partition": "federation.partition",
    "trials": "run.trials",
    "rounds": "run.rounds",
    "seed": "run.seed",
    "threads": "run.threads",
    "scaling": "data.scaling",
    "lags": "data.lags",
    "horizon": "data.horizon",
    "dropout": "participation.dropout",
}

# Arguments that say how tables are found and read. The first three have a meaning for frames that
# need not be read.
_OF_FRAMES = ("target", "features", "node")
_OF_TABLES = {
    "target": "data.target",
    "features": "data.features",
    "node": "data.node",
    "drop": "data.drop",
    "time": "data.time",
    "missing": "data.missing",
    "categories": "data.categories",
    "calendar": "data.calendar",
    "data_dir": "data.dir",
}

# The file of a model.
_MODEL = "run.save_model"

# Arguments that may be one name or several.
_LISTS = {"method", "features", "drop", "missing"}

# Settings of the data that apply to samples in memory.
_OF_SAMPLES = {"lags", "lagged", "horizon", "exogenous", "scaling"}

# Settings with which a round is not simply the next sample of each node.
_READS_MORE = ("participation.", "federation.partition", "data.lag", "data.horizon", "data.exogenous")


class Request(NamedTuple):
    """Settings of a run, and the samples if they are in memory."""

    changes: dict[str, Any]
    samples: Samples | None

    @property
    def native(self) -> tuple[Any, ...]:
        """As the native functions take it."""
        if self.samples is None:
            return (self.changes,)
        X, y, node = self.samples
        return self.changes, X, y, None if node is None else [str(name) for name in np.asarray(node).tolist()]


@contextmanager
def request(arguments: Mapping[str, Any]) -> Iterator[Request]:
    """What the arguments of a function ask for. Files that it needs exist within the block."""
    data, settings = arguments["data"], arguments["settings"]
    if not isinstance(settings, (Mapping, NoneType)):
        example = '{"learning.ridge": 0.1}'
        raise TypeError(f"settings must be a dictionary such as {example}, but is {settings!r:.50}")
    settings = dict(settings or {})
    if arguments.get("save_model") is not None:
        settings[_MODEL] = fspath(arguments["save_model"])
    table = _named(arguments, _OF_TABLES)
    changes = _named(arguments, _OF_RUNS)
    if isinstance(data, (str, PathLike)):
        if arguments["y"] is not None:
            raise TypeError("y comes with an array; a file's label is named by target")
        yield Request(changes | table | {"data.name": fspath(data)} | settings, None)
        return
    others = [name for name in _OF_TABLES if name not in _OF_FRAMES and arguments[name] is not None]
    reading = [key for key in settings if _reads(key)]
    # The model of a frame knows its columns, as that of a file does.
    as_file = [*others, *reading, *(key for key in settings if key == _MODEL)]
    if is_frame(data) and as_file:
        with TemporaryDirectory(prefix="hedgerow-") as folder:
            file = _written(data, arguments, Path(folder), as_file[0])
            yield Request(changes | file | settings, None)
        return
    if others:
        raise TypeError(f"{others[0]} is about columns of a file or frame, but an array has none")
    if reading:
        raise ValueError(f"{reading[0]} says how data is found and read, but the samples are here already")
    samples = _samples(arguments, table.get("data.features"), _most(changes | settings))
    yield Request(changes | settings, samples)


def _named(arguments: Mapping[str, Any], keys: Mapping[str, str]) -> dict[str, Any]:
    """Settings from the arguments that were given."""
    found: dict[str, Any] = {}
    for name, key in keys.items():
        value = arguments[name]
        if value is None:
            continue
        if name in _LISTS:
            value = names(value)
        elif isinstance(value, PathLike):
            value = fspath(value)
        found[key] = value
    return found


def names(given: str | Iterable[str]) -> list[str]:
    """Names as on the command line: a string may hold several.

    >>> names("gr, mk"), names(("gr",))
    (['gr', 'mk'], ['gr'])
    """
    return [name.strip() for name in given.split(",")] if isinstance(given, str) else list(given)


def _reads(key: str) -> bool:
    of, _, rest = key.partition(".")
    return of == "data" and rest not in _OF_SAMPLES


def _written(data: Any, arguments: Mapping[str, Any], folder: Path, because: str) -> dict[str, Any]:
    """Writes a frame to a file, so that it is read like one. Returns the settings to read it."""
    target, node, y = arguments["target"], arguments["node"], arguments["y"]
    for name, given in (("y", y), ("node", node)):
        if given is not None and not isinstance(given, str):
            raise TypeError(f"{name} must be the name of a column of the frame, because {because} is given")
    if target is not None and y is not None:
        raise TypeError("the label is named once, by y or by target")
    file = write_frame(data, folder)
    table = _named({**arguments, "target": target if y is None else y}, _OF_TABLES)
    return table | {"data.name": str(file)}


def write_frame(data: Any, folder: Path) -> Path:
    """Writes a frame of pandas or polars to a file of this folder. Returns its path."""
    if getattr(getattr(data, "index", None), "name", None) is not None:
        # Where pandas has the time.
        data = data.reset_index()
    file = folder / "frame.csv"
    if hasattr(data, "write_csv"):
        data.write_csv(file)
    else:
        data.to_csv(file, index=False)
    return file


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


def _samples(arguments: Mapping[str, Any], features: Sequence[str] | None, most: int | None) -> Samples:
    data, y, node, target = (arguments[name] for name in ("data", "y", "node", "target"))
    if is_frame(data):
        return from_frame(data, y, node, columns=features or (), target=target or "")
    if target is not None or features is not None:
        raise TypeError("target and features name columns, but an array has none")
    if is_sparse(data):
        raise TypeError(
            "a run keeps all samples in memory, so a sparse matrix can't stay sparse: give X.toarray() if "
            "that fits, or use Learner, Federation or the estimators for scikit-learn, which read it in parts"
        )
    if y is not None:
        return Samples(data, y, check_owners(node))
    if isinstance(data, np.ndarray) or not isinstance(data, Iterable):
        raise TypeError("y is missing: the labels, one for each row of the data")
    parts = list(pieces(data if most is None else _first(data, most), (), _ROWS))
    if not parts:
        raise ValueError("there are no samples")
    nodes = None if parts[0].node is None else [name for part in parts for name in part.node]
    return Samples(np.concatenate([part.X for part in parts]), [y for part in parts for y in part.y], nodes)
