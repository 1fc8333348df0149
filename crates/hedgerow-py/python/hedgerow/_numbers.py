"""Numbers from columns and rows: what is one becomes a float, what is missing NaN, and text is never read."""

from __future__ import annotations

from collections.abc import Iterable
from math import isnan, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def number(value: Any, what: str) -> float:
    """A float of a number; ``what`` says in errors whose it is. None is missing.

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
        # Unlike float(), this reads no text.
        isnan(value)
        return float(value)
    except OverflowError:
        raise ValueError(f"{what} is too large for a number") from None
    except TypeError:
        raise TypeError(f"{what} must be a number, but is {value!r:.50}") from None


def numbers(values: Iterable[Any], what: str) -> NDArray[np.float32] | NDArray[np.float64]:
    """The same of many: a vector, not copied if it is one of floats."""
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
    """The same of a column of pandas, polars or narwhals."""
    values = series.to_numpy()
    if values.dtype.kind != "O":
        return numbers(values, what)
    # What stands for a missing value there needn't be a number.
    missing = series.isna() if hasattr(series, "isna") else series.is_null()
    return numbers(np.where(missing.to_numpy(), None, values), what)


def is_missing(label: Any) -> bool:
    """Whether it is None, NaN or another sign for what isn't there.

    >>> is_missing(float("nan")), is_missing(None), is_missing("a")
    (True, True, False)
    """
    try:
        return label is None or bool(label != label)
    except TypeError:
        # What doesn't know whether it is the same as itself.
        return True
