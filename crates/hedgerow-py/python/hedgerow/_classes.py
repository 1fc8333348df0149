"""Classification with learners of numbers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Sequence
from math import tanh
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

# Probabilities stay this far from 0 and 1: scores of least squares may leave that range.
_DOUBT = 1e-6


class Scorer(Protocol):
    """A learner of the labels -1 and +1."""

    def predict_one(self, row: Any, /) -> float: ...
    def learn_one(self, row: Any, y: float, /) -> float: ...
    def predict(self, rows: Any, /) -> NDArray[np.float32]: ...
    def learn(self, rows: Any, y: Any, /) -> Any: ...


_Scorer = TypeVar("_Scorer", bound=Scorer)


class OneAgainstRest(Generic[_Scorer]):
    """One scorer per class, against all other classes. Two classes share one scorer.

    The first two classes are -1 and +1 of the shared scorer. When a third class appears, each of
    the two continues with a copy of that scorer, and the third starts with a new one.
    """

    def __init__(self, new: Callable[[], _Scorer], loss: str, classes: Iterable[Hashable] = ()) -> None:
        self._new = new
        self._is_logistic = loss == "logistic"
        self.classes: dict[Hashable, int] = {}
        # Each scorer with the sign of its class.
        self._scorers: list[tuple[_Scorer, int]] = [(new(), 1)]
        for name in classes:
            self._add(name)

    @property
    def scorers(self) -> list[_Scorer]:
        """The scorers of all classes."""
        return [scorer for scorer, _ in self._scorers]

    def learn_one(self, row: Any, name: Hashable) -> None:
        """Learns the class of a row."""
        which = self.classes.get(name)
        if which is not None:
            self._learn_one(row, which)
            return
        before = dict(self.classes), list(self._scorers)
        try:
            self._learn_one(row, self._add(name))
        except BaseException:
            # A refused sample adds no class.
            self.classes, self._scorers = before
            raise

    def learn(self, rows: NDArray[Any], names: Sequence[Hashable]) -> None:
        """Learns the classes of rows, in order."""
        begin = 0
        unknown = [at for at, name in enumerate(names) if name not in self.classes]
        for end in unknown:
            if names[end] not in self.classes:
                # Up to here all classes are known.
                self._learn_known(rows[begin:end], names[begin:end])
                self._add(names[end])
                begin = end
        self._learn_known(rows[begin:], names[begin:])

    def probabilities_one(self, row: Any) -> dict[Any, float]:
        """The probability of each class."""
        if len(self.classes) < 2:
            return dict.fromkeys(self.classes, 1.0)
        if len(self._scorers) == 1:
            second = self._probability(self._scorers[0][0].predict_one(row))
            return dict(zip(self.classes, (1.0 - second, second), strict=True))
        each = [self._probability(sign * scorer.predict_one(row)) for scorer, sign in self._scorers]
        total = sum(each)
        return {name: one / total for name, one in zip(self.classes, each, strict=True)}

    def probabilities(self, rows: NDArray[Any]) -> NDArray[np.float64]:
        """Probabilities per row: one column per class, in order of appearance."""
        if len(self.classes) < 2:
            return np.ones((rows.shape[0], len(self.classes)))
        scores = [sign * scorer.predict(rows).astype(np.float64) for scorer, sign in self._scorers]
        if self._is_logistic:
            scores = [np.tanh(0.5 * score) for score in scores]
        each = np.clip(0.5 + 0.5 * np.column_stack(scores), _DOUBT, 1.0 - _DOUBT)
        if len(scores) == 1:
            return np.hstack([1.0 - each, each])
        return np.asarray(each / each.sum(axis=1, keepdims=True))

    def _add(self, name: Hashable) -> int:
        self.classes[name] = len(self.classes)
        if len(self.classes) == 3:
            shared = self._scorers[0][0]
            self._scorers = [(copy.deepcopy(shared), -1), (shared, 1)]
        if len(self.classes) > 2:
            self._scorers.append((self._new(), 1))
        return self.classes[name]

    def _learn_one(self, row: Any, which: int) -> None:
        if len(self._scorers) == 1:
            self._scorers[0][0].learn_one(row, 2.0 * which - 1.0)
            return
        for at, (scorer, sign) in enumerate(self._scorers):
            scorer.learn_one(row, float(sign if at == which else -sign))

    def _learn_known(self, rows: NDArray[Any], names: Sequence[Hashable]) -> None:
        if len(names) == 0:
            return
        codes = np.array([self.classes[name] for name in names])
        if len(self._scorers) == 1:
            self._scorers[0][0].learn(rows, 2.0 * codes - 1.0)
            return
        for at, (scorer, sign) in enumerate(self._scorers):
            scorer.learn(rows, np.where(codes == at, float(sign), float(-sign)))

    def _probability(self, score: float) -> float:
        if self._is_logistic:
            score = tanh(0.5 * score)
        return min(max(0.5 + 0.5 * score, _DOUBT), 1.0 - _DOUBT)
