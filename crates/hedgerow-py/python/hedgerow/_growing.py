"""Samples whose features appear and disappear, and learners that make room for more."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from operator import itemgetter
from random import getrandbits
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hedgerow._hedgerow import Learner, Plan
from hedgerow._numbers import column, number

# Samples that a new learner sees before it may replace the old one, and the factor by which old
# errors decay meanwhile.
_TRIAL = 32
_KEPT = 0.99

# Samples with classes that are kept for a new learner.
_KEPT_SAMPLES = 256

# The largest number of classes of a plan.
MOST_CLASSES = 100


class Names:
    """Positions of names in a row.

    A name gets its position when it first appears and keeps it. Names that appear together are
    sorted, so the order of a dictionary doesn't matter.

    >>> names = Names(most=3)
    >>> names.meet({"b": 2.0, "a": 1.0})
    ([1.0, 2.0], ['a', 'b'])
    >>> names.add(["a", "b"])
    >>> names.row({"c": 3.0, "a": 4.0}, missing=0.0)
    [4.0, 0.0]
    """

    def __init__(self, most: int) -> None:
        if not isinstance(most, (int, np.integer)) or most < 1:
            raise ValueError(f"max_inputs must be a whole number of at least 1, but is {most!r}")
        self.most = most
        self.known: dict[Hashable, int] = {}
        self._all: itemgetter[Any] | None = None
        self._has_warned = False

    def __len__(self) -> int:
        return len(self.known)

    def row(self, x: Mapping[Any, Any], missing: float | None = None) -> Sequence[Any]:
        """The numbers of a sample, without unknown names."""
        # Other mappings may return values for keys they don't have.
        if self._all is not None and type(x) is dict:
            try:
                row: tuple[Any, ...] = self._all(x)
            except KeyError:
                pass
            else:
                return row
        if not isinstance(x, Mapping):
            raise TypeError(f"a sample must be a dictionary of features, but is {x!r:.50}")
        return [x.get(name, missing) for name in self.known]

    def meet(self, x: Mapping[Any, Any], missing: float | None = None) -> tuple[Sequence[Any], Sequence[Any]]:
        """The numbers of a sample with new names at the end, and the new names.

        New names have no position before they are added.
        """
        row = self.row(x, missing)
        # The sample has all known names and no other.
        if len(x) == len(self.known) and type(row) is tuple:
            return row, ()
        new = self.new(x)
        return ([*row, *(x[name] for name in new[: self._room])], new) if new else (row, ())

    def new(self, names: Iterable[Hashable]) -> list[Hashable]:
        """The unknown names, in the order in which they would be added."""
        new = [name for name in names if name not in self.known]
        new.sort(key=lambda name: (type(name).__name__, repr(name)))
        return new

    def add(self, new: Sequence[Hashable]) -> None:
        """Gives positions to new names, up to the limit."""
        room = self._room
        if len(new) > room and not self._has_warned:
            self._has_warned = True
            message = (
                f"there are more than max_inputs={self.most} features: {new[room]!r} and others are left out"
            )
            warnings.warn(message, stacklevel=3)
        for name in new[:room]:
            self.known[name] = len(self.known)
        if new[:room]:
            self._all = itemgetter(*self.known) if len(self.known) > 1 else None

    def order(self, new: Sequence[Hashable] = ()) -> list[Hashable]:
        """The known names, then the new names up to the limit."""
        return [*self.known, *new[: self._room]]

    @property
    def _room(self) -> int:
        return self.most - len(self.known)

    def table(
        self, columns: Mapping[Any, NDArray[Any]], rows: int, new: Sequence[Hashable] = ()
    ) -> NDArray[np.float64]:
        """Rows of a table with these columns, new names last. Missing values are NaN."""
        names = self.order(new)
        table = np.full((rows, len(names)), np.nan)
        for at, name in enumerate(names):
            if name in columns:
                table[:, at] = columns[name]
        return table

    def explain(
        self, error: Exception, row: Sequence[Any], new: Sequence[Hashable] = (), label: Any = 0.0
    ) -> Exception:
        """An error that names the bad feature or the label, if one of them is bad."""
        for name, value in zip(self.order(new), row, strict=False):
            try:
                number(value, f"feature {name!r}")
            except (TypeError, ValueError) as better:
                return better
        try:
            check_label(label)
        except (TypeError, ValueError) as better:
            return better
        return error


class Growing:
    """A learner whose samples may become longer, and whose classes may become more.

    A learner's random features are drawn for a fixed number of inputs, and its classes are fixed.
    When a sample has more, a larger learner starts beside the current one. The current one
    continues without the new inputs until the larger one has smaller recent errors.

    With ``classes``, labels are whole numbers from 0, and the latest samples are kept: a larger
    learner starts with them, and replaces the current one at once if there were no others. With
    several targets labels are tuples.

    >>> learner = Growing({"scaling": "none"})
    >>> for t in range(200):
    ...     _ = learner.learn_one([t % 5] if t < 100 else [t % 5, t % 7], t % 7)
    >>> learner.room
    4
    """

    def __init__(self, settings: Mapping[str, Any], *, classes: bool = False) -> None:
        self._settings = dict(settings)
        self._has_classes = classes
        self._learner: Learner | None = None
        self._younger: Learner | None = None
        self.room = 0
        self._younger_room = 0
        # Room for classes.
        self.classes = 0
        self._younger_classes = 0
        self._latest: deque[tuple[Sequence[Any], int]] = deque(maxlen=_KEPT_SAMPLES if classes else 0)
        self._samples = 0
        self._errors = (0.0, 0.0)
        self._tried = 0

    @property
    def learners(self) -> list[Learner]:
        """The current learners. The first one predicts."""
        return [learner for learner in (self._learner, self._younger) if learner is not None]

    def predict_one(self, row: Sequence[Any]) -> float | Any:
        """Predicts the label of a row."""
        if self._learner is None:
            return 0.0
        return self._learner.predict_one(row if len(row) == self.room else _fit(row, self.room))

    def probabilities_one(self, row: Sequence[Any], classes: int) -> list[float]:
        """The probability of each of the first classes."""
        if self._learner is None:
            return [1.0 / classes] * classes
        each = self._learner.predict_proba_one(_fit(row, self.room))
        known = list(each.values())[:classes]
        total = sum(known)
        return [one / total for one in known] + [0.0] * (classes - len(known))

    def probabilities(self, rows: NDArray[np.float64], classes: int) -> NDArray[np.float64]:
        """The probability of each of the first classes, for each row."""
        if self._learner is None:
            return np.full((len(rows), classes), 1.0 / max(classes, 1))
        each = self._learner.predict_proba(_fit_table(rows, self.room)).astype(np.float64)[:, :classes]
        each /= each.sum(axis=1, keepdims=True)
        return np.hstack([each, np.zeros((len(rows), classes - each.shape[1]))])

    def learn_one(self, row: Sequence[Any], y: Any) -> float | Any:
        """Learns the label of a row. Returns the prediction made before."""
        if self._younger is None and self._learner is not None and len(row) == self.room:
            if not self._has_classes:
                return self._learner.learn_one(row, y)
            if y < self.classes:
                before = self._learner.learn_one(row, y)
                self._remember(row, y)
                return before
        # Check the whole row before any learner changes.
        row = [number(value, "a feature") for value in row]
        y = y if self._has_classes or isinstance(y, tuple) else check_label(y)
        before = dict(vars(self))
        try:
            return self._learn_one(row, y)
        except BaseException:
            vars(self).update(before)
            raise

    def predict(self, rows: NDArray[np.float64]) -> NDArray[Any]:
        """Predicts the labels of rows."""
        if self._learner is None:
            return np.zeros(len(rows), dtype=np.float32)
        return self._learner.predict(_fit_table(rows, self.room))

    def predict_interval(self, row: Sequence[Any], level: float) -> NDArray[np.float64] | None:
        """The intervals in which the labels of a row are expected; None if nothing is known."""
        if self._learner is None:
            return None
        rows = np.array([[number(value, "a feature") for value in row]], dtype=np.float64)
        ends = self._learner.predict_interval(_fit_table(rows, self.room), level)
        return np.asarray(ends[0], dtype=np.float64)

    def learn(self, rows: NDArray[np.float64], y: NDArray[Any]) -> None:
        """Learns rows, in order."""
        if len(rows) == 0:
            return
        before = dict(vars(self))
        try:
            begin = 0
            if self._has_classes:
                # Up to a new class all rows are learned together.
                for end in np.sort(np.unique(y, return_index=True)[1]).tolist():
                    if end > begin and y[end] >= max(self.classes, self._younger_classes):
                        self._learn(rows[begin:end], y[begin:end])
                        begin = end
            self._learn(rows[begin:], y[begin:])
        except BaseException:
            vars(self).update(before)
            raise

    def _learn_one(self, row: Sequence[Any], y: Any) -> float | Any:
        learner = self._grown(len(row), y + 1 if self._has_classes else 0)
        before = None
        if not self._has_classes or y < self.classes:
            before = learner.learn_one(_fit(row, self.room), y)
        if self._younger is not None:
            other = self._younger.learn_one(_fit(row, self._younger_room), y)
            self._compare(before, other, y)
        self._remember(row, y)
        return before

    def _learn(self, rows: NDArray[np.float64], y: NDArray[Any]) -> None:
        learner = self._grown(rows.shape[1], int(y.max()) + 1 if self._has_classes else 0)
        known = y < self.classes if self._has_classes else np.full(len(y), True)
        learned = learner.learn(_fit_table(rows[known], self.room), y[known])
        if self._younger is not None:
            others = self._younger.learn(_fit_table(rows, self._younger_room), y).tolist()
            before: list[Any] = [None] * len(y)
            for at, prediction in zip(np.flatnonzero(known).tolist(), learned.tolist(), strict=True):
                before[at] = prediction
            for older, younger, label in zip(before, others, y.tolist(), strict=True):
                if self._compare(older, younger, label):
                    break
        if self._has_classes:
            for row, label in zip(rows[-_KEPT_SAMPLES:].tolist(), y[-_KEPT_SAMPLES:].tolist(), strict=True):
                self._remember(row, label)
            self._samples += max(len(y) - _KEPT_SAMPLES, 0)

    def _remember(self, row: Sequence[Any], y: Any) -> None:
        self._latest.append((row, y))
        self._samples += 1

    def _grown(self, inputs: int, classes: int) -> Learner:
        """The learner that predicts. Starts a larger one beside it if it has too little room."""
        inputs = max(inputs, 1)
        if self._learner is None:
            self.room, self.classes = inputs, max(classes, 2)
            self._learner = self._new(self.room, self.classes)
            return self._learner
        room, known = max(self.room, self._younger_room), max(self.classes, self._younger_classes)
        if inputs <= room and classes <= known:
            return self._learner
        has_all = self._has_classes and self._samples == len(self._latest)
        if inputs > room:
            # Some spare room, so that this happens rarely.
            room = inputs + max(inputs // 2, 2)
        if classes > known:
            known = classes if has_all else min(classes + max(classes // 2, 1), MOST_CLASSES)
        younger = self._new(room, known)
        for row, y in self._latest:
            younger.learn_one(_fit(row, room), y)
        if has_all:
            self._learner, self.room, self.classes = younger, room, known
            self._younger, self._younger_room, self._younger_classes = None, 0, 0
        else:
            self._younger, self._younger_room, self._younger_classes = younger, room, known
            self._errors, self._tried = (0.0, 0.0), 0
        return self._learner

    def _new(self, inputs: int, classes: int) -> Learner:
        names = [str(at) for at in range(classes)] if self._has_classes else []
        return Learner(Plan(inputs=inputs, classes=names, **self._settings))

    def _compare(self, older: Any, younger: Any, y: Any) -> bool:
        """Replaces the old learner if the new one is better. Returns whether it did."""
        errors = self._errors
        now = (
            (float(older != str(y)), float(younger != str(y)))
            if self._has_classes
            else _errors(older, younger, y)
        )
        self._errors = (_KEPT * errors[0] + now[0], _KEPT * errors[1] + now[1])
        self._tried += 1
        if self._tried < _TRIAL or self._errors[1] > self._errors[0]:
            return False
        self._learner, self.room, self.classes = self._younger, self._younger_room, self._younger_classes
        self._younger, self._younger_room, self._younger_classes = None, 0, 0
        return True


def _errors(older: Any, younger: Any, y: Any) -> tuple[float, float]:
    """How wrong two predictions are. Of several targets each counts alike, whatever its unit."""
    if not isinstance(y, (tuple, list)):
        return (older - y) ** 2, (younger - y) ** 2
    first, second = np.square(np.subtract(older, y)), np.square(np.subtract(younger, y))
    total = np.maximum(first + second, np.finfo(float).tiny)
    return float(np.mean(first / total)), float(np.mean(second / total))


def check_label(y: Any) -> float:
    """Converts a label to a number. It must not be missing."""
    if y is None:
        raise TypeError("a label must be a number, but is None")
    return number(y, "a label")


def _fit(row: Sequence[Any], room: int) -> Sequence[Any]:
    return [*row[:room], *[None] * (room - len(row))]


def _fit_table(rows: NDArray[np.float64], room: int) -> NDArray[np.float64]:
    missing = room - rows.shape[1]
    if missing <= 0:
        return rows[:, :room]
    return np.hstack([rows, np.full((len(rows), missing), np.nan)])


def table_of(names: Names, frame: Any, new: Sequence[Any] = ()) -> NDArray[np.float64]:
    """The rows of a frame, in the order of names."""
    values = frame.to_numpy()
    if values.dtype.kind in "biuf":
        columns = dict(zip(frame.columns, values.T, strict=True))
    else:
        used = [name for name in names.order(new) if name in frame.columns]
        columns = {name: column(frame.get_column(name), f"feature {name!r}") for name in used}
    return names.table(columns, len(frame), new)


def first_seed(seed: int | None) -> int:
    """The seed of random features. None draws one."""
    if seed is None:
        return getrandbits(48)
    if not isinstance(seed, (int, np.integer)):
        raise TypeError(f"seed must be a whole number or None, but is {seed!r:.50}")
    if seed < 0:
        raise ValueError(f"seed must be at least 0, but is {seed}")
    return seed
