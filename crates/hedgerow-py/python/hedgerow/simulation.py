"""Trials of several methods on the same samples, as ``hedgerow simulate`` runs them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Unpack

import numpy as np

from hedgerow import _hedgerow
from hedgerow._requests import Options, request, with_options
from hedgerow.callbacks import Callback, checked, tell
from hedgerow.frames import Frame
from hedgerow.results import Result


@with_options
def simulate(
    data: Any = "friedman",
    y: Any = None,
    *,
    budget: int | None = None,
    partition: str | None = None,
    predictions: bool = False,
    save_model: str | PathLike[str] | None = None,
    callbacks: Sequence[Callback] = (),
    **options: Unpack[Options],
) -> Result:
    """Runs trials of one or more methods on the same samples.

    Every prediction is scored before its label is learned. ``data`` is the name of a built-in
    stream or of a data set, the path of a file, an array ``X`` with labels ``y``, a frame of pandas
    or polars, or an iterator over ``(x, y)`` or ``(x, y, node)``. ``target``, ``features``,
    ``drop``, ``time`` and ``node`` name columns of a file or frame. With an array, ``node`` has the
    node of each sample. ``method`` is a name, a list of names, or names with commas. Other
    arguments are those of ``hedgerow simulate``. Settings without an argument go to ``settings``,
    under the names that ``hedgerow config`` prints.

    Labels that are texts are classes; ``task="classes"`` makes classes of numbers. Several targets
    are names in ``target``, or columns of ``y``.

    A frame with ``time``, ``drop``, ``missing``, ``categories``, ``save_model``, texts as labels or
    several targets is written to a temporary file and read like one, and so are such arrays.

    A run ends with the samples, even if ``rounds`` is larger; ``result.summary["rounds"]`` has the
    real number. An iterator is read to its end before the run starts, so it must be finite.
    Exception: if ``nodes`` and ``rounds`` are given, each node gets one sample per round and no
    sample names its node, then only the needed samples are read. Samples with a missing label are
    skipped and counted in ``summary["data"]["missing_labels"]``. NaN inputs are filled in.

    With ``predictions=True`` the result has every prediction of the first trial, in the columns
    that ``hedgerow simulate --predictions`` writes. Each takes about 100 bytes per method until the
    run has ended, and 50 afterwards; a run that doesn't fit into memory is refused. ``save_model``
    is a file for what the first federated method has learned: :func:`hedgerow.load` reads it.
    ``callbacks`` hear of the errors when the run has ended, because
    they are means over trials: see :mod:`hedgerow.callbacks`.

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
    heard = checked(callbacks)
    asked_for = {**options, "budget": budget, "partition": partition, "save_model": save_model}
    with request(data, y, asked_for) as asked:
        run, scored = _hedgerow.simulate(asked, predictions=predictions)
    curves = Frame(run.curves())
    curves["method"] = np.asarray(curves["method"], dtype=object)
    result = Result(
        json.loads(run.summary_json()),
        curves,
        predictions=None if scored is None else _frame(scored, 1 if asked.file else 0),
        run=run,
    )
    tell(heard, result)
    return result


def _frame(scored: Mapping[str, Any], headers: int) -> Frame:
    """Predictions with names instead of their numbers, with times, and without rows of headers."""
    frame = Frame(scored["columns"])
    named = {"node": "nodes", "method": "methods", "target": "targets"}
    if scored["classes"]:
        named |= {"truth": "classes", "prediction": "classes"}
    for column, known in named.items():
        if column in frame:
            frame[column] = np.array(scored[known], dtype=object)[frame[column]]
    frame["row"] -= np.uint64(headers)
    if scored["has_dates"]:
        microseconds = np.round(frame["time"] * 1e6).astype(np.int64)
        frame["time"] = microseconds.astype("datetime64[us]")
    return frame
