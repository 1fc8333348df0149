"""Weights of samples: how often each is learned."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Any

from hedgerow._numbers import number

# The largest weight.
MOST_WEIGHT = 1000


def check_weight(weight: Any, what: str) -> float:
    """Converts a weight to a float. ``what`` names it in errors.

    >>> check_weight(-1, "the weight")
    Traceback (most recent call last):
        ...
    ValueError: the weight must be from 0 to 1000, but is -1
    """
    found = number(weight, what)
    if not (isfinite(found) and 0 <= found <= MOST_WEIGHT):
        raise ValueError(f"{what} must be from 0 to {MOST_WEIGHT}, but is {weight!r}")
    return found


def repetitions(weights: Iterable[float], rest: float = 0.0) -> tuple[list[int], float]:
    """How often samples with these weights are learned, and the rest for those that follow.

    A sample of weight w is learned ``floor(S + w) - floor(S)`` times, where S is the sum of the
    weights before it. The rest is ``S - floor(S)`` at the end.

    >>> repetitions([1, 0.5, 0.5, 0, 2.25])
    ([1, 0, 1, 0, 2], 0.25)
    """
    counts = []
    for weight in weights:
        total = rest + weight
        counts.append(int(total))
        rest = total - counts[-1]
    return counts, rest
