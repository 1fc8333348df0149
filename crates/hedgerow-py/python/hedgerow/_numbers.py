"""Conversion of columns and rows to floats. Missing values become NaN; strings are refused."""

from __future__ import annotations

from collections.abc import Iterable
from math import isnan, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def number(value: Any, what: str) -> float:
    """Converts a number to a float. ``what`` names it in errors. None becomes NaN.

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
    # The mark of a missing value need not be a number.
    missing = series.isna() if hasattr(series, "isna") else series.is_null()
    return numbers(np.where(missing.to_numpy(), None, values), what)


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
