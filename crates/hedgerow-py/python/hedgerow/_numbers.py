"""Conversion of columns and rows to floats. Missing values become NaN; strings are refused."""

from __future__ import annotations

from collections.abc import Iterable
from math import isnan, nan
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def number(value: Any, what: str) -> float:
    """Converts a number to a float. ``what`` names it in errors. A missing value becomes NaN.

    >>> number(True, "feature 'a'")
    1.0
    >>> number("1.5", "feature 'a'")
    Traceback (most recent call last):
        ...
    TypeError: feature 'a' must be a number, but is '1.5'
    """
    if value is None:
        return nan
    try:
        if isinstance(value, np.complexfloating):
            raise TypeError
        # Unlike float(), isnan() accepts no strings.
        isnan(value)
        return float(value)
    except OverflowError:
        raise ValueError(f"{what} is too large for a number") from None
    except TypeError:
        if np.ndim(value) == 0 and is_missing(value):
            return nan
        raise TypeError(f"{what} must be a number, but is {value!r:.50}") from None


def numbers(values: Iterable[Any], what: str) -> NDArray[np.float32] | NDArray[np.float64]:
    """Converts many numbers to a vector. A vector of floats is not copied."""
    array = np.asarray(values)
    if array.dtype in _FLOATS:
        return array
    if array.dtype.kind in "biuf":
        return array.astype(np.float64)
    if array.dtype.kind != "O":
        raise TypeError(f"{what} must be numbers, but its dtype is {array.dtype}")
    floats = [number(value, what) for value in array.ravel().tolist()]
    return np.array(floats, dtype=np.float64).reshape(array.shape)


def column(series: Any, what: str) -> NDArray[np.float32] | NDArray[np.float64]:
    """Converts a column of pandas, polars or narwhals."""
    values = series.to_numpy()
    if values.dtype.kind != "O":
        return numbers(values, what)
    rows = enumerate(unmarked(series).tolist())
    return np.array([number(value, f"row {at} of {what}") for at, value in rows])


def unmarked(series: Any) -> NDArray[Any]:
    """The values of a column. Those that are missing are None, whatever their mark is."""
    missing = series.isna() if hasattr(series, "isna") else series.is_null()
    values: NDArray[Any] = series.to_numpy().astype(object)
    values[missing.to_numpy()] = None
    return values


def is_text(values: NDArray[Any]) -> bool:
    """Whether it has texts.

    >>> is_text(np.array(["a", "b"])), is_text(np.array([1.0, None], dtype=object))
    (True, False)
    """
    kind = values.dtype.kind
    return kind in "UST" or (kind == "O" and any(isinstance(value, str) for value in values.ravel().tolist()))


def is_truth(series: Any) -> bool:
    """Whether a column has truth values only, or missing ones beside them."""
    kind = str(getattr(series, "dtype", "")).lower()
    if kind != "object":
        return kind.startswith("bool")
    kinds = {type(value) for value in unmarked(series).tolist()}
    return bool(kinds & {bool, np.bool_}) and kinds <= {bool, np.bool_, NoneType}


def label(y: Any) -> Any:
    """A label: a number, a text, or a list of numbers. A missing one is NaN.

    >>> label(True), label("a"), label((1, None))
    (1.0, 'a', [1.0, nan])
    """
    if isinstance(y, str):
        return y
    if isinstance(y, (list, tuple, np.ndarray)) and np.ndim(y) == 1:
        return [number(one, "a label") for one in y]
    return number(y, "a label")


def is_missing(label: Any) -> bool:
    """Whether it is None, NaN or another mark of a missing value.

    >>> is_missing(float("nan")), is_missing(None), is_missing("a")
    (True, True, False)
    """
    try:
        return label is None or bool(label != label)
    except TypeError:
        # Some marks of missing values can't be compared with themselves.
        return True
