"""Samples from arrays, frames (pandas, polars) and iterators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hedgerow._numbers import column, label, number, numbers, unmarked


class Samples(NamedTuple):
    """Inputs, labels, and the node of each sample."""

    X: Any
    y: Any
    node: Any


def is_frame(data: object) -> bool:
    """Whether it has named columns, like frames of pandas and polars.

    >>> is_frame([[1.0]])
    False
    """
    return hasattr(data, "columns") and hasattr(data, "to_numpy")


def is_sparse(data: object) -> bool:
    """Whether it is a sparse matrix or array of scipy.

    >>> is_sparse([[1.0]])
    False
    """
    return hasattr(data, "tocsr") and hasattr(data, "toarray")


def with_levels(data: Any, wanted: Iterable[str] | None = None) -> Any:
    """A frame of pandas with the wanted levels of its index as columns, or with all named ones."""
    index = getattr(data, "index", None)
    named = [name for name in getattr(index, "names", ()) if name is not None and name not in data.columns]
    known = set(named if wanted is None else wanted)
    levels = [name for name in named if name in known]
    return data.reset_index(level=levels) if levels else data


def label_names(data: Any, named: Any, node: Any = None, columns: Sequence[str] = ()) -> list[str]:
    """Names of the columns with the labels of a frame. ``named`` may have several, with commas.

    Without it, it is the last column that has no other role.
    """
    keys = [str(key) for key in data.columns]
    if named:
        return [str(named)] if str(named) in keys else [name.strip() for name in str(named).split(",")]
    return [name for name in reversed(keys) if name not in (*columns, _name(node))][:1]


def from_frame(
    data: Any,
    y: Any,
    node: Any,
    *,
    columns: Sequence[str] = (),
    target: str = "",
    classes: bool = False,
) -> Samples:
    """Samples from the columns of a frame. Labels and nodes are columns of it, or separate arrays.

    Without ``y`` and ``target`` the label is the last column that has no other role. It is never an
    input. Labels are numbers, unless they are ``classes``.
    """
    owner = _name(node)
    named = _name(y) if y is not None else target
    data = with_levels(data, [*columns, *(named or "").split(","), owner or ""])
    keys: dict[str, Any] = {}
    for key in data.columns:
        if str(key) in keys:
            raise ValueError(f"the frame has two columns {str(key)!r}")
        keys[str(key)] = key
    labels = [] if named is None else label_names(data, named, node, columns)
    if named is not None and not labels:
        raise ValueError(f"no column is left to be the label; the frame has {', '.join(keys)}")
    inputs = list(columns) or [name for name in keys if name not in (*labels, owner, target)]
    for name in [*inputs, *labels, *([] if owner is None else [owner])]:
        if name not in keys:
            raise ValueError(f"the frame has no column {name!r}; it has {', '.join(keys)}")
    for name in labels:
        if name in inputs:
            raise ValueError(f"column {name!r} is the label, so it can't be an input")
    if not inputs:
        raise ValueError("the frame has no column to predict from")

    def numbers_of(name: str) -> NDArray[Any]:
        return column(data[keys[name]], f"the frame's column {name!r}")

    read = [unmarked(data[keys[name]]) if classes else numbers_of(name) for name in labels]
    return Samples(
        np.column_stack([numbers_of(name) for name in inputs]),
        y if not labels else read[0] if len(read) == 1 else np.column_stack(read),
        check_owners(node) if owner is None else data[keys[owner]].to_numpy(),
    )


def check_owners(node: Any) -> Any:
    """Returns the nodes of the rows of an array. Refuses a single value, such as a string.

    >>> check_owners("station")
    Traceback (most recent call last):
        ...
    TypeError: node must be a sequence with the node of each row, but is 'station'; ...
    """
    if node is None or np.ndim(node) > 0:
        return node
    more = "; only frames have columns" if isinstance(node, str) else ""
    raise TypeError(f"node must be a sequence with the node of each row, but is {node!r:.50}{more}")


def pieces(
    items: Iterable[Any],
    columns: Sequence[str],
    rows: int,
    inputs: int = 0,
    label: Callable[[Any], Any] = label,
) -> Iterator[Samples]:
    """Splits an iterator over ``(x, y)`` or ``(x, y, node)`` into pieces of ``rows`` rows.

    The last piece may be shorter. Without ``inputs``, all samples must be as long as the first one.
    """
    iterator = iter(items)
    parts = 0
    while piece := list(islice(iterator, rows)):
        table: list[NDArray[Any]] = []
        for item in piece:
            if not isinstance(item, (tuple, list)) or len(item) not in (2, 3):
                raise TypeError(f"samples must be (x, y) or (x, y, node), but one is {item!r:.100}")
            parts = parts or len(item)
            if len(item) != parts:
                raise ValueError(f"all samples must be (x, y), or all (x, y, node), but one is {item!r:.100}")
            table.append(_row(item[0], columns))
            inputs = inputs or table[-1].size
            if table[-1].shape != (inputs,):
                shape = table[-1].shape
                raise ValueError(f"a sample has {inputs} numbers, but one of the shape {shape} came")
        labels = [label(item[1]) for item in piece]
        yield Samples(np.stack(table), labels, [item[2] for item in piece] if parts == 3 else None)


def _name(given: Any) -> str | None:
    """The name of a column, or None for a vector. Frames of pandas may have numbers as names."""
    is_name = isinstance(given, (str, int, np.integer)) and not isinstance(given, bool)
    return str(given) if is_name else None


def _row(x: Any, columns: Sequence[str]) -> NDArray[Any]:
    if not isinstance(x, Mapping):
        return numbers(x, "a sample")
    if not columns:
        raise ValueError(
            "a sample has names, but nothing says in which order they come: give a plan with columns=[...], "
            "a frame, or numbers"
        )
    if not any(name in x for name in columns):
        raise ValueError(
            f"a sample has none of the columns {', '.join(columns)}, but {', '.join(map(str, x))}"
        )
    return np.array([number(x.get(name), f"feature {name!r}") for name in columns])
