"""Data and settings of :func:`simulate` and :func:`compare`, from their arguments."""

from __future__ import annotations

import csv
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory
from types import NoneType
from typing import Any, NamedTuple, TypedDict, TypeVar

import numpy as np

from hedgerow._numbers import is_missing, is_text, is_truth
from hedgerow._samples import (
    Samples,
    check_owners,
    from_frame,
    is_frame,
    is_sparse,
    label_names,
    pieces,
    with_levels,
)

# Rows of an iterator that are read at a time.
_ROWS = 4096


class Options(TypedDict, total=False):
    """The arguments that :func:`simulate` and :func:`compare` share. None is their default."""

    target: str | Sequence[str] | None
    task: str | None
    features: str | Sequence[str] | None
    drop: str | Sequence[str] | None
    time: str | None
    node: Any
    missing: str | Sequence[str] | None
    categories: str | None
    calendar: str | None
    lags: int | None
    horizon: int | None
    scaling: str | PathLike[str] | None
    data_dir: str | PathLike[str] | None
    method: str | Sequence[str] | None
    nodes: int | None
    trials: int | None
    rounds: int | None
    seed: int | None
    dropout: float | None
    threads: int | None
    settings: Mapping[str, Any] | None


_Function = TypeVar("_Function", bound=Callable[..., Any])


def with_options(function: _Function) -> _Function:
    """Lists the shared arguments in a function's signature, for ``help`` and editors."""
    signature = inspect.signature(function)
    own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    names = dict.fromkeys(Options.__annotations__, None)
    hints = {name: Options.__annotations__[name].__forward_arg__ for name in names}
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hints[name])
        for name in names
    ]
    first = [one for one in own if one.kind is not one.KEYWORD_ONLY]
    rest = [one for one in own if one.kind is one.KEYWORD_ONLY]
    function.__signature__ = signature.replace(parameters=[*first, *shared, *rest])  # type: ignore[attr-defined]
    return function


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
    "task": "data.task",
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

# How the files of samples in memory are read: names of columns may be numbers.
_WRITTEN = {"data.header": "yes"}

# The file of a model.
_MODEL = "run.save_model"

# Arguments that may be one name or several.
_LISTS = {"method", "features", "drop", "missing"}

# All arguments that make settings.
_KNOWN = {*_OF_RUNS, *_OF_TABLES, "settings", "save_model"}

# Settings of the data that apply to samples in memory.
_OF_SAMPLES = {"lags", "lagged", "horizon", "exogenous", "scaling", "task"}

# Settings with which a round is not simply the next sample of each node.
_READS_MORE = ("participation.", "federation.partition", "data.lag", "data.horizon", "data.exogenous")


class Request(NamedTuple):
    """Settings of a run, and the samples if they are in memory. Native functions take it."""

    changes: dict[str, Any]
    x: Any = None
    y: Any = None
    # The node of each sample.
    node: list[str] | None = None
    # What the samples are called, and their file if they were written to one.
    name: str | None = None
    file: str = ""


@contextmanager
def request(
    data: Any, y: Any, options: Mapping[str, Any], folder: str | PathLike[str] | None = None
) -> Iterator[Request]:
    """What the arguments of a function ask for. Files that it needs exist within the block.

    They are in ``folder`` if it is given. Errors name arguments of Python instead of flags.
    """
    with _reworded(_in_python), _request(data, y, options, folder) as asked:
        yield asked


@contextmanager
def _request(
    data: Any, y: Any, options: Mapping[str, Any], folder: str | PathLike[str] | None
) -> Iterator[Request]:
    unknown = [name for name in options if name not in _KNOWN]
    if unknown:
        raise TypeError(f"there is no argument {unknown[0]!r}")
    settings = options.get("settings")
    if not isinstance(settings, (Mapping, NoneType)):
        example = '{"learning.ridge": 0.1}'
        raise TypeError(f"settings must be a dictionary such as {example}, but is {settings!r:.50}")
    settings = dict(settings or {})
    if options.get("save_model") is not None:
        settings[_MODEL] = fspath(options["save_model"])
    table = _named(options, _OF_TABLES)
    changes = _named(options, _OF_RUNS)
    if isinstance(data, (str, PathLike)):
        if y is not None:
            raise TypeError("y comes with an array; a file's label is named by target")
        yield Request(changes | table | {"data.name": fspath(data)} | settings)
        return
    others = [name for name in _OF_TABLES if name not in _OF_FRAMES and options.get(name) is not None]
    reading = [key for key in settings if _reads(key)]
    if is_frame(data):
        # The model of a frame knows its columns, as that of a file does.
        as_file = [*others, *reading, *(key for key in settings if key == _MODEL)]
        as_file += _special_labels(data, y, options, table)
        if as_file:
            columns = _columns_of(y, options, as_file[0])
            with _written("frame", folder) as file:
                _write(with_levels(data, _mentioned(columns | settings)), file)
                changes |= columns | _WRITTEN | {"data.name": str(file)} | settings
                yield Request(changes, name="frame", file=str(file))
            return
    if others:
        raise TypeError(f"{others[0]} is about columns of a file or frame, but an array has none")
    if reading:
        raise ValueError(f"{reading[0]} says how data is found and read, but the samples are here already")
    samples = _samples(data, y, options, table.get("data.features"), _most(changes | settings))
    node = None if samples.node is None else [str(name) for name in np.asarray(samples.node).tolist()]
    # A list may have texts beside missing values.
    has_texts = isinstance(samples.y, list) and any(isinstance(one, str) for one in samples.y)
    labels = np.asarray(samples.y, dtype=object if has_texts else None)
    if labels.ndim == 2 or is_text(labels):
        with _written("arrays", folder) as file:
            columns = _write_arrays(samples.X, labels, node, file)
            changes |= columns | _WRITTEN | {"data.name": str(file)} | settings
            yield Request(changes, name="arrays", file=str(file))
        return
    name = "frame" if is_frame(data) else "arrays"
    yield Request(changes | settings, samples.X, samples.y, node, name)


def _named(arguments: Mapping[str, Any], keys: Mapping[str, str]) -> dict[str, Any]:
    """Settings from the arguments that were given."""
    found: dict[str, Any] = {}
    for name, key in keys.items():
        value = arguments.get(name)
        if value is None:
            continue
        if name in _LISTS:
            value = names(value, name)
        elif name == "target" and not isinstance(value, str):
            value = ",".join(names(value, "target"))
        elif isinstance(value, PathLike):
            value = fspath(value)
        found[key] = value
    return found


def names(given: str | Iterable[str], what: str) -> list[str]:
    """Names as on the command line: a string may hold several.

    >>> names("gr, mk", "method"), names(("gr",), "method")
    (['gr', 'mk'], ['gr'])
    """
    if isinstance(given, str):
        return [name.strip() for name in given.split(",")]
    known = list(given) if isinstance(given, Iterable) else [given]
    for name in known:
        if not isinstance(name, str):
            raise TypeError(f"{what} must be a name or a list of names, but has {name!r:.50}")
    return known


def _mentioned(settings: Mapping[str, Any]) -> Iterator[str]:
    """Texts in the settings of the data, which may be names of columns."""
    for key, value in settings.items():
        if _reads(key) and isinstance(value, (str, list)):
            yield from [value, *names(value, key)] if isinstance(value, str) else value


def _reads(key: str) -> bool:
    of, _, rest = key.partition(".")
    return of == "data" and rest not in _OF_SAMPLES


def _special_labels(data: Any, y: Any, options: Mapping[str, Any], table: Mapping[str, Any]) -> Iterator[str]:
    """Why the labels of a frame can't be one column of numbers, if so."""
    named = y if isinstance(y, str) else table.get("data.target")
    if y is not None and named is None:
        return
    labels = label_names(data, named, options.get("node"), table.get("data.features", ()))
    if len(labels) > 1:
        yield "several targets"
    elif labels and labels[0] in data.columns and is_text(data[labels[0]].to_numpy()):
        yield "a target of texts"


def _columns_of(y: Any, options: Mapping[str, Any], because: str) -> dict[str, Any]:
    """The settings to read a frame that is written to a file, because of something."""
    target = options.get("target")
    for name, given in (("y", y), ("node", options.get("node"))):
        if given is not None and not isinstance(given, str):
            raise TypeError(f"{name} must be the name of a column of the frame, because {because} is given")
    if target is not None and y is not None:
        raise TypeError("the label is named once, by y or by target")
    return _named({**options, "target": target if y is None else y}, _OF_TABLES)


@contextmanager
def _written(what: str, folder: str | PathLike[str] | None = None) -> Iterator[Path]:
    """A file for samples that are in memory. Within a folder it has the same path in each call.

    Errors about it say what it is instead of its path, and count the rows from 0.
    """
    with TemporaryDirectory(prefix="hedgerow-") as own:
        home = Path(own) if folder is None else Path(folder, ".samples")
        home.mkdir(parents=True, exist_ok=True)
        file = home / f"{what}.csv"

        def place(found: re.Match[str]) -> str:
            row = f", row {int(found[1]) - 2}" if found[1] else ""
            return f"the {what}{row}"

        with _reworded(lambda said: re.sub(rf"{re.escape(str(file))}(?:, row (\d+))?", place, said)):
            try:
                yield file
            finally:
                file.unlink(missing_ok=True)
                with suppress(OSError):
                    home.rmdir()


@contextmanager
def _reworded(change: Callable[[str], str]) -> Iterator[None]:
    """Errors within the block are told in other words."""
    try:
        yield
    except (OSError, TypeError, ValueError) as error:
        said = change(str(error))
        if said != str(error):
            error.args = (said,)
        raise


def _in_python(said: str) -> str:
    """What an error says with arguments in the place of flags.

    >>> _in_python("--drop leaves it out, or --node COLUMN (--set data.disorder=sort)")
    'drop= leaves it out, or node=COLUMN (settings={"data.disorder": "sort"})'
    """
    said = said.replace("; `hedgerow data info` suggests flags", "")
    said = re.sub(r"--set ([a-z.]+)=(\w+)", r'settings={"\1": "\2"}', said)
    known = "|".join(Options.__annotations__)
    return re.sub(rf"--({known})\b( (?=[A-Z]|one-hot|hashed))?", r"\1=", said)


@contextmanager
def written_frame(data: Any) -> Iterator[Path]:
    """A file with a frame of pandas or polars. Errors about it name the frame."""
    with _written("frame") as file:
        _write(with_levels(data), file)
        yield file


def _write(data: Any, file: Path) -> None:
    truths = [key for key in data.columns if is_truth(data[key])]
    if hasattr(data, "write_csv"):
        data.with_columns(data[key].cast(int) for key in truths).write_csv(file)
        return
    data = data.copy(deep=False)
    for key in truths:
        data[key] = data[key].astype("boolean").astype("Int8")
    data.to_csv(file, index=False)


def _write_arrays(X: Any, y: Any, node: Sequence[str] | None, file: Path) -> dict[str, Any]:
    """Writes samples to a file. Returns the settings to read it."""
    X = np.asarray(X)
    if X.ndim != 2 or len(X) != len(y):
        raise ValueError(f"X must have the shape ({len(y)}, d), as y has rows, but has {X.shape}")
    if node is not None and len(node) != len(y):
        raise ValueError(f"node must have {len(y)} entries, as X has rows, but has {len(node)}")
    labels = y.reshape(len(y), -1)
    targets = ["y"] if labels.shape[1] == 1 else [f"y{at + 1}" for at in range(labels.shape[1])]
    owner = [] if node is None else ["node"]
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow([*(f"x{at + 1}" for at in range(X.shape[1])), *targets, *owner])
        for at, (row, label) in enumerate(zip(X.tolist(), labels.tolist(), strict=True)):
            cells = (int(cell) if isinstance(cell, (bool, np.bool_)) else cell for cell in (*row, *label))
            cells = ("" if is_missing(cell) else cell for cell in cells)
            writer.writerow([*cells, *([] if node is None else [node[at]])])
    return {"data.target": ",".join(targets)} | ({} if node is None else {"data.node": "node"})


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
    data: Any, y: Any, options: Mapping[str, Any], features: Sequence[str] | None, most: int | None
) -> Samples:
    node, target = options.get("node"), options.get("target")
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
