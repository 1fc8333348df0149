"""Estimators for River: ``pip install 'hedgerow[river]'``.

They accept dictionaries whose features may appear and disappear, and frames of pandas or polars
with several samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce
from random import getrandbits
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hedgerow._classes import OneAgainstRest
from hedgerow._extras import need
from hedgerow._growing import Growing, Names
from hedgerow._hedgerow import FeatureMap, Plan
from hedgerow._numbers import column, is_missing, number

need("river", "river")

from river import base  # noqa: E402
from river.utils import dataframe  # noqa: E402

__all__ = ["FourierFeatures", "HedgerowClassifier", "HedgerowRegressor"]

_Sample = dict[Any, Any]
_Kernels = Sequence[float | tuple[str, float]]


def _seed(seed: int | None) -> int:
    if seed is None:
        return getrandbits(48)
    if seed < 0:
        raise ValueError(f"seed must be at least 0, but is {seed}")
    return seed


class HedgerowRegressor(base.MiniBatchRegressor):
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
        self._names = Names(max_inputs)
        self._missing_labels = 0
        self._learner = Growing(_settings(self, ("loss", "huber_delta")))

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {}
        yield {"seed": None, "method": "mk", "kernels": (0.1, 1.0, 10.0)}
        yield {"method": "linear-newton", "loss": "huber"}

    @property
    def missing_labels(self) -> int:
        """The number of samples that came without a label."""
        return self._missing_labels

    def learn_one(self, x: _Sample, y: float) -> None:
        """Learns the label of a sample. One without a label is skipped and counted."""
        if is_missing(y):
            self._missing_labels += 1
            return
        row, new = self._names.meet(x)
        try:
            self._learner.learn_one(row, y)
        except (TypeError, ValueError, OverflowError) as error:
            raise self._names.explain(error, row, new, y) from None
        if new:
            self._names.add(new)

    def predict_one(self, x: _Sample) -> float:
        """Predicts the label of a sample."""
        row = self._names.row(x)
        try:
            return self._learner.predict_one(row)
        except (TypeError, ValueError, OverflowError) as error:
            raise self._names.explain(error, row) from None

    def predict_interval_one(self, x: _Sample, level: float = 0.9) -> tuple[float, float]:
        """The interval in which the label of a sample is expected with this probability.

        Its width follows the errors of predictions so far. Both ends are NaN before the
        sixteenth label.
        """
        row = self._names.row(x)
        try:
            return self._learner.predict_interval(row, level)
        except (TypeError, ValueError, OverflowError) as error:
            raise self._names.explain(error, row) from None

    def learn_many(self, X: Any, y: Any) -> None:
        """Learns the rows of a frame in order: the same as ``learn_one`` for each."""
        frame, labels = dataframe.into_frame(X), dataframe.into_series(y)
        new = self._names.new(frame.columns)
        rows = _table(self._names, frame, new)
        _check_lengths(rows, labels)
        y = np.asarray(column(labels, "y"), dtype=np.float64)
        known = ~np.isnan(y)
        self._learner.learn(rows[known], y[known])
        self._missing_labels += int(np.sum(~known))
        self._names.add(new)

    def predict_many(self, X: Any) -> Any:
        """Predicts the labels of the rows of a frame."""
        frame = dataframe.into_frame(X)
        predictions = self._learner.predict(_table(self._names, frame)).astype(np.float64)
        return dataframe.to_native_series(predictions, name=None, like=frame)

    @property
    def _raw_memory_usage(self) -> int:
        # River counts Python objects only, so the native learner is added.
        return super()._raw_memory_usage + sum(len(learner.save()) for learner in self._learner.learners)


class HedgerowClassifier(base.MiniBatchClassifier):
    """Online classification with many kernels, on one machine, for any number of classes.

    Each class has a learner that separates it from all others; two classes share one. Classes and
    features may appear at any time. A sample whose class is None or NaN is skipped and counted. For
    the parameters see :class:`HedgerowRegressor`.

    Parameters
    ----------
    method
        As for the regressor.
    budget
    kernels
    draw
    loss
        ``"squared"`` (labels are -1 and +1, and a prediction p is a probability of (1 + p)/2) or
        ``"logistic"``.
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
    Accuracy: 89...%
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
        self._names = Names(max_inputs)
        self._missing_labels = 0
        # A node's own layer would learn the order in which classes come.
        settings = {**_settings(self, ("loss",)), "personal": False}
        self._classes = OneAgainstRest(partial(Growing, settings), loss)

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {}
        yield {"seed": None, "method": "mk", "kernels": (0.1, 1.0, 10.0), "loss": "logistic"}

    @property
    def _multiclass(self) -> bool:
        return True

    @property
    def missing_labels(self) -> int:
        """The number of samples that came without a class."""
        return self._missing_labels

    def learn_one(self, x: _Sample, y: Any) -> None:
        """Learns the class of a sample. One without a class is skipped and counted."""
        if is_missing(y):
            self._missing_labels += 1
            return
        row, new = self._names.meet(x)
        try:
            self._classes.learn_one(row, y)
        except (TypeError, ValueError, OverflowError) as error:
            raise self._names.explain(error, row, new) from None
        if new:
            self._names.add(new)

    def predict_proba_one(self, x: _Sample, **kwargs: Any) -> dict[Any, float]:
        """The probability of each class. Empty before the first label."""
        row = self._names.row(x)
        try:
            return self._classes.probabilities_one(row)
        except (TypeError, ValueError, OverflowError) as error:
            raise self._names.explain(error, row) from None

    def learn_many(self, X: Any, y: Any) -> None:
        """Learns the rows of a frame in order: the same as ``learn_one`` for each."""
        frame, labels = dataframe.into_frame(X), dataframe.into_series(y)
        new = self._names.new(frame.columns)
        rows, classes = _table(self._names, frame, new), labels.to_list()
        _check_lengths(rows, labels)
        known = [at for at, name in enumerate(classes) if not is_missing(name)]
        self._classes.learn(rows[known], [classes[at] for at in known])
        self._missing_labels += len(classes) - len(known)
        self._names.add(new)

    def predict_proba_many(self, X: Any) -> Any:
        """The probability of each class, for each row of a frame."""
        frame = dataframe.into_frame(X)
        each = self._classes.probabilities(_table(self._names, frame))
        columns = dict(zip(self._classes.classes, each.T, strict=True))
        return dataframe.to_native_frame(columns, like=frame)

    def predict_many(self, X: Any) -> Any:
        """The most likely class of each row of a frame. None before the first label."""
        frame = dataframe.into_frame(X)
        each = self._classes.probabilities(_table(self._names, frame))
        names: list[Any] = list(self._classes.classes) or [None]
        likely = each.argmax(axis=1).tolist() if each.size else [0] * len(frame)
        return dataframe.to_native_series([names[at] for at in likely], name=None, like=frame)

    @property
    def _raw_memory_usage(self) -> int:
        learners = [learner for growing in self._classes.scorers for learner in growing.learners]
        return super()._raw_memory_usage + sum(len(learner.save()) for learner in learners)


class FourierFeatures(base.MiniBatchTransformer):
    """Random Fourier features: a sine and a cosine of each random projection of the whole sample.

    The product of two samples' features estimates a kernel's value, so a linear model on them is a
    kernel method. Samples should be scaled. A missing feature counts as zero. The frequencies of a
    name are drawn when it first appears, and stay. For Matérn kernels, the kernel of later names is
    multiplied with that of earlier names. For all other kernels, the result is the same as if all
    names had appeared at once.

    Parameters
    ----------
    kernels
        Squared bandwidths v of Gaussians exp(-‖x - x'‖²/2v), or pairs of a family and a squared
        bandwidth. Other libraries call 1/2v gamma.
    frequencies
        The number per kernel. Each gives a sine and a cosine.
    draw
        ``"shared"``, ``"independent"``, ``"orthogonal"`` or ``"structured"``.
    max_inputs
        Further features are left out, with a warning.
    seed
        The seed of the frequencies. None draws one.

    Examples
    --------
    >>> from hedgerow.river import FourierFeatures
    >>> features = FourierFeatures(kernels=(1.0,), frequencies=1000)
    >>> a = features.transform_one({"u": 0.0, "v": 0.5})
    >>> b = features.transform_one({"u": 0.3, "v": 0.1})
    >>> round(sum(a[i] * b[i] for i in a), 1)  # exp(-(0.3² + 0.4²)/2) = 0.88
    0.9
    """

    def __init__(
        self,
        kernels: _Kernels = (1.0,),
        frequencies: int = 50,
        draw: str = "shared",
        max_inputs: int = 1024,
        seed: int | None = 1,
    ) -> None:
        self.kernels = kernels
        self.frequencies = frequencies
        self.draw = draw
        self.max_inputs = max_inputs
        self.seed = seed
        self._names = Names(max_inputs)
        self._first_seed = _seed(seed)
        # Frequencies of the first names, then of later names.
        self._maps: list[FeatureMap] = []
        self._room = 0
        width = self._new_map(1).width
        self._outputs = [f"fourier{at}" for at in range(width)]

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {}
        yield {"seed": None, "kernels": (0.1, ("laplacian", 1.0)), "frequencies": 7}

    def learn_one(self, x: _Sample) -> None:
        """Draws frequencies for new names."""
        row, new = self._names.meet(x, 0.0)
        if new:
            self._check(row, new)
            self._names.add(new)
        self._make_room()

    def transform_one(self, x: _Sample) -> dict[Any, Any]:
        """Features of a sample."""
        row, new = self._names.meet(x, 0.0)
        if new:
            # A refused sample adds no names.
            self._check(row, new)
            self._names.add(new)
        if len(row) != self._room or not row:
            self._make_room()
            row = [*row, *[0.0] * (self._room - len(row))]
        try:
            features = self._maps[0].transform_one(row) if len(self._maps) == 1 else self._joined(row)
        except (TypeError, ValueError, OverflowError):
            self._check(row)
            raise
        return dict(zip(self._outputs, features.tolist(), strict=True))

    def learn_many(self, X: Any) -> None:
        """Draws frequencies for new columns."""
        frame = dataframe.into_frame(X)
        new = self._names.new(frame.columns)
        _table(self._names, frame, new)
        self._names.add(new)
        self._make_room()

    def transform_many(self, X: Any) -> Any:
        """Features of the rows of a frame."""
        frame = dataframe.into_frame(X)
        new = self._names.new(frame.columns)
        table = _table(self._names, frame, new)
        names = self._names.order(new)
        present = set(frame.columns)
        for at, values in enumerate(table.T):
            if names[at] not in present:
                values[:] = 0.0
            elif not np.all(np.isfinite(values)):
                bad = float(values[~np.isfinite(values)][0])
                raise ValueError(f"feature {names[at]!r} must be a finite number, but is {bad}")
        self._names.add(new)
        self._make_room()
        rows = np.zeros((len(frame), self._room))
        rows[:, : len(self._names)] = table
        ends = np.cumsum([feature_map.inputs for feature_map in self._maps])[:-1]
        pieces = zip(self._maps, np.split(rows, ends, axis=1), strict=True)
        features = self._join([feature_map.transform(piece) for feature_map, piece in pieces])
        return dataframe.to_native_frame(features.astype(np.float64), like=frame, columns=self._outputs)

    @property
    def _raw_memory_usage(self) -> int:
        # Frequencies are native: four bytes per frequency and input.
        frequencies = sum(feature_map.inputs * feature_map.width // 2 for feature_map in self._maps)
        return super()._raw_memory_usage + 4 * frequencies

    def _new_map(self, inputs: int) -> FeatureMap:
        seed = (self._first_seed + (len(self._maps) << 32)) % 2**63
        return FeatureMap(
            self.kernels, inputs=inputs, frequencies=self.frequencies, draw=self.draw, seed=seed
        )

    def _make_room(self) -> None:
        missing = max(len(self._names), 1) - self._room
        if missing > 0:
            # Later maps have spare inputs, so that there are few maps.
            room = missing if not self._maps else max(missing, self._room // 2, 4)
            self._maps.append(self._new_map(room))
            self._room += room

    def _joined(self, row: Sequence[Any]) -> NDArray[np.float32]:
        """Features of a full row from all maps."""
        parts, begin = [], 0
        for feature_map in self._maps:
            parts.append(feature_map.transform_one(row[begin : begin + feature_map.inputs])[None])
            begin += feature_map.inputs
        joined: NDArray[np.float32] = self._join(parts)[0]
        return joined

    def _join(self, parts: list[NDArray[np.float32]]) -> NDArray[np.float32]:
        """Joins maps: the angle over all names is the sum of the angles over each part."""
        shaped = (part.reshape(len(part), -1, 2, self.frequencies) for part in parts)
        joined: NDArray[np.float32] = reduce(_turned, shaped).reshape(len(parts[0]), -1)
        return joined

    def _check(self, row: Sequence[Any], new: Sequence[Any] = ()) -> None:
        for name, value in zip(self._names.order(new), row, strict=False):
            if not np.isfinite(number(value, f"feature {name!r}")):
                raise ValueError(f"feature {name!r} must be a finite number, but is {value!r}")


def _settings(estimator: Any, more: tuple[str, ...]) -> Mapping[str, Any]:
    """The settings of a plan from an estimator's parameters, checked at once."""
    names = ("method", "budget", "kernels", "draw", "ridge", "step_size", "step_schedule", "scaling", *more)
    settings = {name: getattr(estimator, name) for name in names} | {"seed": _seed(estimator.seed)}
    Plan(inputs=1, **settings)
    return settings


def _table(names: Names, frame: Any, new: Sequence[Any] = ()) -> NDArray[np.float64]:
    values = frame.to_numpy()
    if values.dtype.kind in "biuf":
        columns = dict(zip(frame.columns, values.T, strict=True))
    else:
        used = [name for name in names.order(new) if name in frame.columns]
        columns = {name: column(frame.get_column(name), f"feature {name!r}") for name in used}
    return names.table(columns, len(frame), new)


def _check_lengths(rows: NDArray[np.float64], labels: Any) -> None:
    if len(labels) != len(rows):
        raise ValueError(f"y must have {len(rows)} labels, as X has rows, but has {len(labels)}")


def _turned(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float32]:
    """Sines and cosines of sums of angles. Both arguments have the length 1/√D."""
    sines, cosines = one[:, :, 0], one[:, :, 1]
    more_sines, more_cosines = other[:, :, 0], other[:, :, 1]
    length = np.float32(np.sqrt(one.shape[-1]))
    return length * np.stack(
        [sines * more_cosines + cosines * more_sines, cosines * more_cosines - sines * more_sines], axis=2
    )
