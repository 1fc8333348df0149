"""Estimators for River: ``pip install 'hedgerow[river]'``.

They accept dictionaries whose features may appear and disappear, and frames of pandas or polars
with several samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hedgerow._extras import need
from hedgerow._growing import MOST_CLASSES, Growing, Names, first_seed, table_of
from hedgerow._hedgerow import Plan
from hedgerow._numbers import column, is_missing, number
from hedgerow._weights import check_weight, repetitions

need("river", "river")

from river import base  # noqa: E402
from river.utils import dataframe  # noqa: E402

from hedgerow._river_features import FourierFeatures  # noqa: E402

__all__ = ["FourierFeatures", "HedgerowClassifier", "HedgerowMultiTargetRegressor", "HedgerowRegressor"]

_Sample = dict[Any, Any]
_Kernels = Sequence[float | tuple[str, float]]


class _Online:
    """What the estimators share: names of features, samples without a label, and weights."""

    _names: Names
    _learner: Growing

    def _start(self, learner: Growing, max_inputs: int) -> None:
        self._names = Names(max_inputs)
        self._learner = learner
        self._missing_labels = 0
        # Of the sum of all weights, what is above a whole number.
        self._rest = 0.0

    @property
    def missing_labels(self) -> int:
        """The number of samples that came without a label."""
        return self._missing_labels

    def _learn_one(self, x: _Sample, y: Any, w: float, shown: Any = 0.0) -> None:
        """Learns a sample as often as its weight says. Errors name the label that was ``shown``."""
        (times,), rest = repetitions([check_weight(w, "the weight")], self._rest)
        row, new = self._names.meet(x)
        try:
            for value in () if times else row:
                number(value, "a feature")
            for _ in range(times):
                self._learner.learn_one(row, y)
        except (TypeError, ValueError, OverflowError) as error:
            raise self._names.explain(error, row, new, shown) from None
        if new:
            self._names.add(new)
        self._rest = rest

    def _learn_rows(
        self, rows: NDArray[np.float64], y: NDArray[Any], known: NDArray[np.bool_], w: Any, new: Sequence[Any]
    ) -> None:
        """Learns those rows of a table whose labels are known, as often as their weights say."""
        weights = np.asarray(w, dtype=object).ravel().tolist() if np.ndim(w) else [w] * len(rows)
        if len(weights) != len(rows):
            raise ValueError(f"w must have {len(rows)} weights, as X has rows, but has {len(weights)}")
        checked = [check_weight(weight, f"the weight of row {at}") for at, weight in enumerate(weights)]
        counts, rest = repetitions(
            (w for w, is_known in zip(checked, known, strict=True) if is_known), self._rest
        )
        self._learner.learn(rows[known].repeat(counts, axis=0), y.repeat(counts, axis=0))
        self._rest = rest
        self._missing_labels += int(np.sum(~known))
        self._names.add(new)

    def _row(self, x: _Sample, ask: Callable[[Sequence[Any]], Any]) -> Any:
        """The answer to a sample."""
        row = self._names.row(x)
        try:
            return ask(row)
        except (TypeError, ValueError, OverflowError) as error:
            raise self._names.explain(error, row) from None

    @property
    def _raw_memory_usage(self) -> int:
        # River counts Python objects only, so the native learners are added.
        counted: int = super()._raw_memory_usage  # type: ignore[misc]
        return counted + sum(len(learner.save()) for learner in self._learner.learners)


class HedgerowRegressor(_Online, base.MiniBatchRegressor):
    """Online regression with many kernels, on one machine.

    Inputs and labels needn't be scaled: ``scaling="online"`` learns their units. Until the
    sixteenth label, predictions are the mean of the labels. A missing feature is replaced by its
    mean so far. A sample without a label is skipped and counted. Strings are refused: encode them
    first. Don't put a scaler before it: its units change with every sample, which distorts what was
    already learned.

    When new features appear, a larger learner starts beside the current one and replaces it once
    its errors are smaller.

    Parameters
    ----------
    method
        ``"tr"`` has the lowest errors. ``"sk:1"`` (with one kernel) is online gradient descent on
        random features. ``"mk"`` and ``"naive"`` weight several kernels. ``"linear"`` and
        ``"linear-newton"`` use none.
    budget
        The approximate number of numbers in a model.
    kernels
        The dictionary: squared bandwidths of Gaussians, or pairs of a family and a squared
        bandwidth. The default is eleven Gaussians from 1e-5 to 1e5.
    draw
        ``"shared"``, ``"independent"``, ``"orthogonal"`` or ``"structured"`` random frequencies.
    loss
        ``"squared"`` or ``"huber"``.
    huber_delta
        The error at which the Huber loss becomes linear.
    ridge
        Weight of the ridge term.
    step_size
        The factor of a gradient step.
    step_schedule
        ``"anytime"`` (decreases with the square root of time) or ``"constant"``.
    scaling
        ``"online"``, ``"online-range"`` or ``"none"``.
    max_inputs
        Further features are left out, with a warning.
    seed
        The seed of the random features. None draws one.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> from hedgerow.river import HedgerowRegressor
    >>> stream, model = datasets.TrumpApproval(), HedgerowRegressor()
    >>> evaluate.progressive_val_score(stream, model, metrics.MAE())  # doctest: +ELLIPSIS
    MAE: 0.19...
    """

    def __init__(
        self,
        method: str = "tr",
        budget: int = 100,
        kernels: _Kernels | None = None,
        draw: str = "shared",
        loss: str = "squared",
        huber_delta: float = 1.0,
        ridge: float = 0.01,
        step_size: float = 1.0,
        step_schedule: str = "anytime",
        scaling: str = "online",
        max_inputs: int = 1024,
        seed: int | None = 1,
    ) -> None:
        self.method = method
        self.budget = budget
        self.kernels = kernels
        self.draw = draw
        self.loss = loss
        self.huber_delta = huber_delta
        self.ridge = ridge
        self.step_size = step_size
        self.step_schedule = step_schedule
        self.scaling = scaling
        self.max_inputs = max_inputs
        self.seed = seed
        if loss == "logistic":
            raise ValueError('loss must be "squared" or "huber" for a regressor, but is "logistic"')
        self._start(Growing(_settings(self, ("loss", "huber_delta"))), max_inputs)

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {}
        yield {"seed": None, "method": "mk", "kernels": (0.1, 1.0, 10.0)}
        yield {"method": "linear-newton", "loss": "huber"}

    def learn_one(self, x: _Sample, y: float, w: float = 1.0) -> None:
        """Learns the label of a sample. One without a label is skipped and counted.

        With S, the sum of the weights before, a sample of weight w (0 to 1000) is learned
        ``floor(S + w) - floor(S)`` times.
        """
        if is_missing(y):
            self._missing_labels += 1
            return
        self._learn_one(x, y, w, y)

    def predict_one(self, x: _Sample) -> float:
        """Predicts the label of a sample."""
        return float(self._row(x, self._learner.predict_one))

    def predict_interval_one(self, x: _Sample, level: float = 0.9) -> tuple[float, float]:
        """The interval in which the label of a sample is expected with this probability.

        Its width follows the errors of predictions so far. Both ends are NaN before the
        sixteenth label.
        """
        ends = self._row(x, lambda row: self._learner.predict_interval(row, level))
        return (nan, nan) if ends is None else (float(ends[0]), float(ends[1]))

    def learn_many(self, X: Any, y: Any, w: Any = 1.0) -> None:
        """Learns the rows of a frame in order: the same as ``learn_one`` for each.

        ``w`` is the weight of all rows, or has one for each.
        """
        frame, labels = dataframe.into_frame(X), dataframe.into_series(y)
        new = self._names.new(frame.columns)
        rows = table_of(self._names, frame, new)
        _check_lengths(rows, labels)
        y = np.asarray(column(labels, "y"), dtype=np.float64)
        known = ~np.isnan(y)
        self._learn_rows(rows, y[known], known, w, new)

    def predict_many(self, X: Any) -> Any:
        """Predicts the labels of the rows of a frame."""
        frame = dataframe.into_frame(X)
        predictions = self._learner.predict(table_of(self._names, frame)).astype(np.float64)
        return dataframe.to_native_series(predictions, name=None, like=frame)


class HedgerowMultiTargetRegressor(_Online, base.MultiTargetRegressor):
    """Online regression of several targets with many kernels, on one machine.

    Targets are those of the first sample that has all its labels. They share the random features;
    each has a model. A sample of which a label is missing is skipped and counted. For the
    parameters see :class:`HedgerowRegressor`.

    Parameters
    ----------
    method
        As for the regressor.
    budget
    kernels
    draw
    loss
    huber_delta
    ridge
    step_size
    step_schedule
    scaling
    max_inputs
    seed

    Examples
    --------
    >>> from hedgerow.river import HedgerowMultiTargetRegressor
    >>> model = HedgerowMultiTargetRegressor()
    >>> for t in range(300):
    ...     a, b = t % 10 / 10, t % 7 / 7
    ...     model.learn_one({"a": a, "b": b}, {"sum": a + b, "product": a * b})
    >>> predicted = model.predict_one({"a": 0.5, "b": 0.5})
    >>> abs(predicted["sum"] - 1.0) < 0.1, abs(predicted["product"] - 0.25) < 0.1
    (True, True)
    """

    def __init__(
        self,
        method: str = "tr",
        budget: int = 100,
        kernels: _Kernels | None = None,
        draw: str = "shared",
        loss: str = "squared",
        huber_delta: float = 1.0,
        ridge: float = 0.01,
        step_size: float = 1.0,
        step_schedule: str = "anytime",
        scaling: str = "online",
        max_inputs: int = 1024,
        seed: int | None = 1,
    ) -> None:
        self.method = method
        self.budget = budget
        self.kernels = kernels
        self.draw = draw
        self.loss = loss
        self.huber_delta = huber_delta
        self.ridge = ridge
        self.step_size = step_size
        self.step_schedule = step_schedule
        self.scaling = scaling
        self.max_inputs = max_inputs
        self.seed = seed
        if loss == "logistic":
            raise ValueError('loss must be "squared" or "huber" for a regressor, but is "logistic"')
        # Checks the parameters; how many targets there are is not known yet.
        self._fixed = _settings(self, ("loss", "huber_delta"))
        self._targets: list[Any] = []
        self._start(Growing(self._fixed), max_inputs)

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {}
        yield {"method": "linear-newton", "loss": "huber"}

    def learn_one(self, x: _Sample, y: dict[Any, Any], w: float = 1.0, **kwargs: Any) -> None:
        """Learns the labels of a sample. The weight is that of :class:`HedgerowRegressor`."""
        if not isinstance(y, Mapping):
            raise TypeError(f"labels must be a dictionary of targets, but are {y!r:.50}")
        targets = self._targets or sorted(y, key=lambda name: (type(name).__name__, repr(name)))
        if any(name not in targets for name in y):
            stranger = next(name for name in y if name not in targets)
            raise ValueError(f"targets must be those of the first sample, {targets}, but one is {stranger!r}")
        if not targets or any(is_missing(y.get(name)) for name in targets):
            self._missing_labels += 1
            return
        labels = tuple(number(y[name], f"target {name!r}") for name in targets)
        learner = self._learner
        if not self._targets:
            numbered = ",".join(str(at) for at in range(len(targets)))
            self._learner = Growing({**self._fixed, "target": numbered})
        try:
            # A single target is a number.
            self._learn_one(x, labels if len(labels) > 1 else labels[0], w)
        except BaseException:
            self._learner = learner
            raise
        self._targets = targets

    def predict_one(self, x: _Sample) -> dict[Any, Any]:
        """Predicts each target of a sample. Empty before the first label."""
        values = self._row(x, self._learner.predict_one)
        return dict(
            zip(self._targets, values if isinstance(values, tuple) else (values,), strict=bool(self._targets))
        )

    def predict_interval_one(self, x: _Sample, level: float = 0.9) -> dict[Any, tuple[float, float]]:
        """The interval in which each target of a sample is expected with this probability.

        Ends are NaN before the sixteenth label.
        """
        ends = self._row(x, lambda row: self._learner.predict_interval(row, level))
        if ends is None:
            return {}
        pairs = ((float(lower), float(upper)) for lower, upper in ends.reshape(-1, 2))
        return dict(zip(self._targets, pairs, strict=True))


class HedgerowClassifier(_Online, base.MiniBatchClassifier):
    """Online classification with many kernels, on one machine, for any number of classes.

    Each class has a model that separates it from all others; two classes share one. Probabilities
    are calibrated by the classes so far. Classes (at most 100) and features may appear at any time:
    then a larger learner starts with the latest 256 samples. It replaces the current one at once if
    there were no others, else once its errors are smaller. A sample whose class is None or NaN is
    skipped and counted. For the parameters see :class:`HedgerowRegressor`.

    Parameters
    ----------
    method
        As for the regressor.
    budget
    kernels
    draw
    loss
        ``"squared"`` (of labels -1 and +1) or ``"logistic"``.
    ridge
    step_size
    step_schedule
    scaling
    max_inputs
    seed

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> from hedgerow.river import HedgerowClassifier
    >>> stream, model = datasets.Phishing(), HedgerowClassifier()
    >>> evaluate.progressive_val_score(stream, model, metrics.Accuracy())  # doctest: +ELLIPSIS
    Accuracy: 90...%
    """

    def __init__(
        self,
        method: str = "tr",
        budget: int = 100,
        kernels: _Kernels | None = None,
        draw: str = "shared",
        loss: str = "squared",
        ridge: float = 0.01,
        step_size: float = 1.0,
        step_schedule: str = "anytime",
        scaling: str = "online",
        max_inputs: int = 1024,
        seed: int | None = 1,
    ) -> None:
        self.method = method
        self.budget = budget
        self.kernels = kernels
        self.draw = draw
        self.loss = loss
        self.ridge = ridge
        self.step_size = step_size
        self.step_schedule = step_schedule
        self.scaling = scaling
        self.max_inputs = max_inputs
        self.seed = seed
        if loss == "huber":
            raise ValueError('loss must be "squared" or "logistic" for a classifier, but is "huber"')
        self._classes: dict[Any, int] = {}
        # A node's own layer would learn the order in which classes come.
        settings = {**_settings(self, ("loss",)), "personal": False}
        self._start(Growing(settings, classes=True), max_inputs)

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {}
        yield {"seed": None, "method": "mk", "kernels": (0.1, 1.0, 10.0), "loss": "logistic"}

    @property
    def _multiclass(self) -> bool:
        return True

    def learn_one(self, x: _Sample, y: Any, w: float = 1.0) -> None:
        """Learns the class of a sample. One without a class is skipped and counted.

        The weight is that of :class:`HedgerowRegressor`.
        """
        if is_missing(y):
            self._missing_labels += 1
            return
        known = self._with([y])
        self._learn_one(x, known[y], w)
        self._classes = known

    def predict_proba_one(self, x: _Sample, **kwargs: Any) -> dict[Any, float]:
        """The probability of each class. Empty before the first label."""
        count = len(self._classes)
        each = self._row(x, lambda row: self._learner.probabilities_one(row, count) if count else [])
        return dict(zip(self._classes, each, strict=True))

    def learn_many(self, X: Any, y: Any, w: Any = 1.0) -> None:
        """Learns the rows of a frame in order: the same as ``learn_one`` for each.

        ``w`` is the weight of all rows, or has one for each.
        """
        frame, labels = dataframe.into_frame(X), dataframe.into_series(y)
        new = self._names.new(frame.columns)
        rows, names = table_of(self._names, frame, new), labels.to_list()
        _check_lengths(rows, labels)
        known = np.array([not is_missing(name) for name in names], dtype=bool)
        classes = self._with(name for name in names if not is_missing(name))
        codes = np.array([classes[name] for name in names if not is_missing(name)], dtype=np.int64)
        self._learn_rows(rows, codes, known, w, new)
        self._classes = classes

    def predict_proba_many(self, X: Any) -> Any:
        """The probability of each class, for each row of a frame."""
        frame = dataframe.into_frame(X)
        columns = dict(zip(self._classes, self._probabilities(frame).T, strict=True))
        return dataframe.to_native_frame(columns, like=frame)

    def predict_many(self, X: Any) -> Any:
        """The most likely class of each row of a frame. None before the first label."""
        frame = dataframe.into_frame(X)
        each = self._probabilities(frame)
        names: list[Any] = list(self._classes) or [None]
        likely = each.argmax(axis=1).tolist() if each.size else [0] * len(frame)
        return dataframe.to_native_series([names[at] for at in likely], name=None, like=frame)

    def _probabilities(self, frame: Any) -> NDArray[np.float64]:
        return self._learner.probabilities(table_of(self._names, frame), len(self._classes))

    def _with(self, names: Iterable[Any]) -> dict[Any, int]:
        """The numbers of all classes, with new ones."""
        known = self._classes
        for name in names:
            if name not in known:
                known = {**known, name: len(known)}
        if len(known) > MOST_CLASSES:
            raise ValueError(
                f"there may be {MOST_CLASSES} classes, but {list(known)[MOST_CLASSES]!r} is another"
            )
        return known


def _settings(estimator: Any, more: tuple[str, ...]) -> Mapping[str, Any]:
    """The settings of a plan from an estimator's parameters, checked at once."""
    names = ("method", "budget", "kernels", "draw", "ridge", "step_size", "step_schedule", "scaling", *more)
    settings = {name: getattr(estimator, name) for name in names} | {"seed": first_seed(estimator.seed)}
    Plan(inputs=1, **settings)
    return settings


def _check_lengths(rows: NDArray[np.float64], labels: Any) -> None:
    if len(labels) != len(rows):
        raise ValueError(f"y must have {len(rows)} labels, as X has rows, but has {len(labels)}")
