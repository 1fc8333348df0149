"""Estimators for scikit-learn: ``pip install 'hedgerow[sklearn]'``.

They learn sample by sample in the order of the rows. ``fit`` is ``partial_fit`` on a new model, and
the same rows give the same model.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hedgerow._extras import need
from hedgerow._hedgerow import FeatureMap, Learner, Plan
from hedgerow._numbers import is_missing
from hedgerow._weights import MOST_WEIGHT, repetitions

need("sklearn", "sklearn")

from sklearn.base import (  # type: ignore[import-untyped]  # noqa: E402
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    RegressorMixin,
    TransformerMixin,
)
from sklearn.utils import (  # type: ignore[import-untyped]  # noqa: E402
    _safe_indexing,
    check_random_state,
    column_or_1d,
)
from sklearn.utils.multiclass import (  # type: ignore[import-untyped]  # noqa: E402
    check_classification_targets,
    unique_labels,
)
from sklearn.utils.validation import (  # type: ignore[import-untyped]  # noqa: E402
    _num_samples,
    check_is_fitted,
    validate_data,
)

__all__ = ["FourierFeatures", "HedgerowClassifier", "HedgerowRegressor"]

_Kernels = Sequence[float | tuple[str, float]]
_FLOATS = [np.float64, np.float32]

# Rows that are repeated at a time.
_PIECE = 4096


class HedgerowRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Online regression with many kernels.

    Rows are learned once and in order, like a stream. Rows sorted by label give bad models: shuffle
    them first (``sklearn.utils.shuffle``; the ``shuffle=True`` of a splitter keeps the order within
    each part), or use ``passes=5``.

    Inputs and labels needn't be scaled: ``scaling="online"`` learns their units. A NaN input is
    replaced by the mean of its column so far. Rows without a label (NaN) are skipped and counted.
    Sparse matrices are made dense in parts of a few megabytes.

    ``y`` may have several columns: then each is a target. They share the random features, and each
    has a model.

    Parameters
    ----------
    method : str, default="tr"
        ``"tr"`` has the lowest errors. ``"sk:1"`` (with one kernel) is online gradient descent on
        random features. ``"mk"`` and ``"naive"`` weight several kernels. ``"linear"`` and
        ``"linear-newton"`` use none.
    budget : int, default=100
        The approximate number of numbers in a model.
    kernels : sequence, default=None
        The dictionary: squared bandwidths of Gaussians, or pairs of a family and a squared
        bandwidth. The default is eleven Gaussians from 1e-5 to 1e5.
    draw : str, default="shared"
        ``"shared"``, ``"independent"``, ``"orthogonal"`` or ``"structured"`` random frequencies.
    loss : str, default="squared"
        ``"squared"``, or ``"huber"``, which gives large errors less weight. ``"logistic"`` is for
        classes: :class:`HedgerowClassifier`.
    huber_delta : float, default=1.0
        The error at which the Huber loss becomes linear.
    ridge : float, default=0.01
        Weight of the ridge term.
    step_size : float, default=1.0
        The factor of a gradient step.
    step_schedule : str, default="anytime"
        ``"anytime"`` (decreases with the square root of time) or ``"constant"``.
    scaling : str, default="online"
        ``"online"``, ``"online-range"`` or ``"none"``.
    passes : int, default=1
        How often ``fit`` reads the rows. ``partial_fit`` reads them once.
    random_state : int, RandomState instance or None, default=1
        The seed of the random features.

    Attributes
    ----------
    learner_ : hedgerow.Learner
        The native learner.
    n_samples_seen_ : int
        The number of learned samples, counting every pass.
    n_missing_labels_ : int
        The number of rows that had no label.
    n_features_in_ : int
    feature_names_in_ : ndarray
        Only if all names of columns are strings.

    Examples
    --------
    >>> import numpy as np
    >>> from hedgerow.sklearn import HedgerowRegressor
    >>> X = np.random.default_rng(1).uniform(-3, 3, size=(500, 2))
    >>> y = np.sin(X[:, 0]) + 0.5 * X[:, 1]
    >>> HedgerowRegressor().fit(X, y).score(X, y) > 0.95
    True
    """

    learner_: Learner
    n_samples_seen_: int
    n_missing_labels_: int

    def __init__(
        self,
        *,
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
        passes: int = 1,
        random_state: Any = 1,
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
        self.passes = passes
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learns the rows in order, ``passes`` times, with a new model.

        A row of weight w is learned ``floor(S + w) - floor(S)`` times in a row, where S is the sum
        of the weights before it: k times if all weights are whole numbers and w is k. Weights (0 to
        1000) whose mean, over those above 0, is below 1 are divided by it first.
        """
        return self._learn(X, y, sample_weight, is_new=True, passes=_passes(self))

    def partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learns more rows, in order.

        Weights are those of ``fit``, but never divided, and S goes on from call to call.
        """
        return self._learn(X, y, sample_weight, is_new=not self.__sklearn_is_fitted__())

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Predicts the labels of rows."""
        check_is_fitted(self)
        rows = _rows(self, X)
        return self.learner_.predict(rows).astype(np.float64)

    def predict_interval(self, X: ArrayLike, level: float = 0.9) -> NDArray[np.float64]:
        """The intervals in which labels of rows are expected with this probability.

        A row has the lower and the upper end, or these of each target. Widths follow the errors of
        predictions before their label was learned. With ``passes`` above 1 these errors are smaller
        than those of new rows, so that intervals are too narrow.
        """
        check_is_fitted(self)
        rows = _rows(self, X)
        return self.learner_.predict_interval(rows, level).astype(np.float64)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "learner_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = True
        return tags

    def _learn(
        self, X: ArrayLike, y: ArrayLike, weights: ArrayLike | None, *, is_new: bool, passes: int = 0
    ) -> Self:
        """Learns rows. Without ``passes`` this is a part of more."""
        if is_new:
            _forget(self, *_LEARNED)
        if self.loss == "logistic":
            raise ValueError('loss must be "squared" or "huber" for a regressor, but is "logistic"')
        X, y, has_label = _labelled(X, y)
        rows, labels = _rows(self, X, y, reset=is_new, y_numeric=True, multi_output=True)
        if labels.ndim != 2 or labels.shape[1] == 1:
            labels = column_or_1d(labels, dtype=np.float64, warn=True)
        pieces, rest = _repeated(self, rows, weights, has_label, is_fit=passes > 0)
        if is_new:
            settings: dict[str, Any] = {"loss": self.loss, "huber_delta": self.huber_delta}
            if labels.ndim == 2:
                settings["target"] = ",".join(str(target) for target in range(labels.shape[1]))
            learner = Learner(_plan(self, settings))
        else:
            learner = self.learner_
        for _ in range(max(passes, 1)):
            for piece in pieces:
                learner.learn(rows[piece], labels[piece])
        _learned(self, learner, has_label, rest)
        return self


class HedgerowClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Online classification with many kernels, for any number of classes.

    Rows are learned once and in order, like a stream. Rows sorted by class give bad models: shuffle
    them first (``sklearn.utils.shuffle``; the ``shuffle=True`` of a splitter keeps the order within
    each part), or use ``passes=5``.

    Each class has a model that separates it from all others; two classes share one. There may be
    100 classes. Probabilities are calibrated by the classes so far. See :class:`HedgerowRegressor`
    for the other parameters, and for what is missing or sparse.

    Parameters
    ----------
    method : str, default="tr"
        As for the regressor.
    budget : int, default=100
    kernels : sequence, default=None
    draw : str, default="shared"
    loss : str, default="squared"
        ``"squared"`` (of labels -1 and +1) or ``"logistic"``.
    ridge : float, default=0.01
    step_size : float, default=1.0
    step_schedule : str, default="anytime"
    scaling : str, default="online"
    passes : int, default=1
        How often ``fit`` reads the rows.
    random_state : int, RandomState instance or None, default=1

    Attributes
    ----------
    classes_ : ndarray
        The classes, sorted.
    learner_ : hedgerow.Learner
        The native learner. Its classes are numbered.
    n_samples_seen_ : int
    n_missing_labels_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.utils import shuffle
    >>> from hedgerow.sklearn import HedgerowClassifier
    >>> X, y = shuffle(*load_iris(return_X_y=True), random_state=1)
    >>> HedgerowClassifier(passes=2).fit(X[:100], y[:100]).score(X[100:], y[100:]) > 0.9
    True
    """

    classes_: NDArray[Any]
    learner_: Learner
    n_samples_seen_: int
    n_missing_labels_: int

    def __init__(
        self,
        *,
        method: str = "tr",
        budget: int = 100,
        kernels: _Kernels | None = None,
        draw: str = "shared",
        loss: str = "squared",
        ridge: float = 0.01,
        step_size: float = 1.0,
        step_schedule: str = "anytime",
        scaling: str = "online",
        passes: int = 1,
        random_state: Any = 1,
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
        self.passes = passes
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learns the rows in order, ``passes`` times, with a new model.

        Weights are those of :meth:`HedgerowRegressor.fit`.
        """
        return self._learn(X, y, None, sample_weight, is_new=True, passes=_passes(self))

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learns more rows, in order. The first call needs all ``classes``.

        Weights are those of :meth:`HedgerowRegressor.partial_fit`.
        """
        is_new = not self.__sklearn_is_fitted__()
        return self._learn(X, y, classes, sample_weight, is_new=is_new)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """The probability of each class, for each row."""
        check_is_fitted(self)
        rows = _rows(self, X)
        each = self.learner_.predict_proba(rows)[:, : len(self.classes_)].astype(np.float64)
        likely: NDArray[np.float64] = each / each.sum(axis=1, keepdims=True)
        return likely

    def predict_log_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """The logarithm of the probability of each class, for each row."""
        logs: NDArray[np.float64] = np.log(self.predict_proba(X))
        return logs

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most likely class of each row."""
        likely = self.predict_proba(X).argmax(axis=1)
        names: NDArray[Any] = self.classes_[likely]
        return names

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "learner_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags

    def _learn(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None,
        weights: ArrayLike | None,
        *,
        is_new: bool,
        passes: int = 0,
    ) -> Self:
        if is_new:
            _forget(self, "classes_", *_LEARNED)
        if self.loss == "huber":
            raise ValueError('loss must be "squared" or "logistic" for a classifier, but is "huber"')
        X, y, has_label = _labelled(X, y)
        rows, labels = _rows(self, X, y, reset=is_new)
        labels = column_or_1d(labels, warn=True)
        check_classification_targets(labels)
        pieces, rest = _repeated(self, rows, weights, has_label, is_fit=passes > 0)
        if is_new:
            known = unique_labels(labels if classes is None else classes)
            # A plan has two classes at least.
            names = [str(code) for code in range(max(len(known), 2))]
            learner = Learner(_plan(self, {"loss": self.loss, "classes": names}))
        else:
            known, learner = self.classes_, self.learner_
            if classes is not None and not np.array_equal(known, unique_labels(classes)):
                raise ValueError(f"classes must be those of the first call, {known}, but are {classes}")
        codes = np.searchsorted(known, labels).clip(max=len(known) - 1)
        if np.any(unknown := known[codes] != labels):
            stranger = labels[unknown].tolist()[0]
            raise ValueError(f"class {stranger!r} isn't among those of the first call: {known}")
        for _ in range(max(passes, 1)):
            for piece in pieces:
                learner.learn(rows[piece], codes[piece])
        self.classes_ = known
        _learned(self, learner, has_label, rest)
        return self


class FourierFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Random Fourier features of one or more kernels: sines and cosines of random projections.

    Parameters
    ----------
    kernels : sequence, default=(1.0,)
        Squared bandwidths v of Gaussians exp(-‖x - x'‖²/2v), or pairs of a family and a squared
        bandwidth. Other libraries call 1/2v gamma.
    frequencies : int, default=50
        The number per kernel. Each gives a sine and a cosine.
    draw : str, default="shared"
        ``"shared"``, ``"independent"``, ``"orthogonal"`` or ``"structured"``.
    random_state : int, RandomState instance or None, default=1
        The seed of the frequencies.

    Attributes
    ----------
    feature_map_ : hedgerow.FeatureMap
        The native feature map.
    n_features_in_ : int
    feature_names_in_ : ndarray

    Examples
    --------
    >>> import numpy as np
    >>> from hedgerow.sklearn import FourierFeatures
    >>> features = FourierFeatures(frequencies=1000)
    >>> a, b = features.fit_transform([[0.0, 0.5], [0.3, 0.1]])
    >>> bool(abs(a @ b - np.exp(-(0.3**2 + 0.4**2) / 2)) < 0.05)
    True
    """

    def __init__(
        self,
        *,
        kernels: _Kernels = (1.0,),
        frequencies: int = 50,
        draw: str = "shared",
        random_state: Any = 1,
    ) -> None:
        self.kernels = kernels
        self.frequencies = frequencies
        self.draw = draw
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Draws the frequencies. Only the length of the rows matters."""
        _forget(self, "feature_map_")
        validate_data(self, X, accept_sparse="csr", dtype=_FLOATS)
        self.feature_map_ = FeatureMap(
            self.kernels,
            inputs=self.n_features_in_,
            frequencies=self.frequencies,
            draw=self.draw,
            seed=_seed(self.random_state),
        )
        return self

    def partial_fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Draws the frequencies in the first call."""
        if not self.__sklearn_is_fitted__():
            return self.fit(X)
        validate_data(self, X, reset=False, accept_sparse="csr", dtype=_FLOATS)
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.floating[Any]]:
        """Features of rows. They have the type of the rows but only single precision."""
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, accept_sparse="csr", dtype=_FLOATS)
        features: NDArray[np.floating[Any]] = self.feature_map_.transform(rows).astype(rows.dtype, copy=False)
        return features

    @property
    def _n_features_out(self) -> int:
        return self.feature_map_.width

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "feature_map_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _forget(estimator: Any, *attributes: str) -> None:
    """Removes what was learned before, so that a failed fit leaves an unfitted model."""
    for name in attributes:
        vars(estimator).pop(name, None)


def _plan(estimator: Any, settings: dict[str, Any]) -> Plan:
    names = ("method", "budget", "kernels", "draw", "ridge", "step_size", "step_schedule", "scaling")
    settings |= {name: getattr(estimator, name) for name in names}
    # Rows to predict don't follow those that were learned, as a node's own layer assumes.
    settings["personal"] = False
    return Plan(inputs=estimator.n_features_in_, seed=_seed(estimator.random_state), **settings)


def _seed(random_state: Any) -> int:
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _rows(estimator: Any, X: Any, *y: Any, reset: bool = False, **more: Any) -> Any:
    """Rows, with labels if they are given, after scikit-learn's checks. Sparse rows stay so."""
    known = {"accept_sparse": "csr", "dtype": _FLOATS, "ensure_all_finite": "allow-nan"}
    return validate_data(estimator, X, *y, reset=reset, **known, **more)


def _labelled(X: Any, y: Any) -> tuple[Any, Any, NDArray[np.bool_] | None]:
    """The rows that have all their labels, and which these are; None is all.

    All are returned if none has one, which scikit-learn refuses.
    """
    labels = np.asarray(y)
    if labels.dtype.kind == "f":
        missing = np.isnan(labels)
    elif labels.dtype.kind == "O":
        missing = np.array([is_missing(label) for label in labels.ravel().tolist()]).reshape(labels.shape)
    else:
        return X, y, None
    if labels.ndim == 2:
        missing = missing.any(axis=1)
    if labels.ndim not in (1, 2) or not missing.any() or missing.all() or len(missing) != _num_samples(X):
        return X, y, None
    kept = np.flatnonzero(~missing)
    return _safe_indexing(X, kept), labels[kept], ~missing


def _repeated(
    estimator: Any, rows: Any, weights: Any, known: NDArray[np.bool_] | None, *, is_fit: bool
) -> tuple[list[Any], float]:
    """The rows to learn, piece by piece: each as often as its weight says.

    Also the rest of the weights for later rows.
    """
    rest = 0.0 if is_fit else getattr(estimator, "_rest", 0.0)
    if weights is None:
        return [slice(None)], rest
    weights = np.asarray(weights)
    if weights.dtype.kind not in "biuf" or weights.ndim != 1:
        raise ValueError(f"sample_weight must be a vector of numbers, but is {weights!r:.50}")
    count = rows.shape[0] if known is None else len(known)
    if len(weights) != count:
        raise ValueError(f"sample_weight must have {count} numbers, as X has rows, but has {len(weights)}")
    numbers = weights.astype(np.float64)
    kept = np.full(count, True) if known is None else known
    above = numbers[kept & (numbers > 0) & np.isfinite(numbers)]
    mean = min(float(above.mean()), 1.0) if is_fit and len(above) else 1.0
    numbers = numbers / mean
    bad = ~((numbers >= 0) & (numbers <= MOST_WEIGHT))
    if bad.any():
        at = int(bad.argmax())
        divided = f", divided by the mean {mean:.4g}," if mean < 1.0 else ""
        raise ValueError(
            f"sample_weight{divided} must be from 0 to {MOST_WEIGHT}, as a row of weight k is learned k "
            f"times, but row {at} has {numbers[at]}"
        )
    counts, rest = repetitions(numbers[kept].tolist(), rest)
    order = np.repeat(np.arange(len(counts)), counts)
    if is_fit and len(order) == 0:
        raise ValueError("sample_weight is zero for every row: nothing is left to learn")
    return [order[begin : begin + _PIECE] for begin in range(0, len(order), _PIECE)], rest


# What was learned.
_LEARNED = ("learner_", "n_samples_seen_", "n_missing_labels_", "_rest")


def _learned(estimator: Any, learner: Learner, known: NDArray[np.bool_] | None, rest: float) -> None:
    missing = 0 if known is None else int(np.sum(~known))
    estimator.n_missing_labels_ = missing + getattr(estimator, "n_missing_labels_", 0)
    estimator.learner_, estimator.n_samples_seen_, estimator._rest = learner, learner.samples, rest


def _passes(estimator: Any) -> int:
    passes = estimator.passes
    if not isinstance(passes, Integral) or passes < 1:
        raise ValueError(f"passes must be a whole number of at least 1, but is {passes!r}")
    return int(passes)
