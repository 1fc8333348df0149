"""scikit-learn's own checks of estimators, by name, and further tests."""

from __future__ import annotations

import pickle
import unittest
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

import pandas as pd
from hedgerow import FeatureMap, Learner, Plan
from hedgerow.sklearn import FourierFeatures, HedgerowClassifier, HedgerowRegressor
from sklearn.base import clone
from sklearn.datasets import load_iris, make_circles
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import shuffle
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

ESTIMATORS = [
    HedgerowRegressor(),
    HedgerowRegressor(method="mk", loss="huber", passes=5),
    HedgerowClassifier(),
    HedgerowClassifier(method="linear-newton", loss="logistic", passes=2),
    FourierFeatures(),
    FourierFeatures(kernels=(0.1, ("laplacian", 1.0)), frequencies=7),
]


# Checks that may be skipped, and why: none.
SKIPPED: dict[str, str] = {}


def run_check(estimator: Any, check: Any) -> None:
    try:
        check(estimator)
    except unittest.SkipTest as skip:
        if check.func.__name__ not in SKIPPED:
            pytest.fail(f"it was skipped, which nobody has given a reason for: {skip}")


# scikit-learn compares weights with repeated rows after it has shuffled one of them. Here a weight
# repeats a row where it is, and the order of rows matters.
EXPECTED = dict.fromkeys(
    ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data"),
    "the order of rows matters",
)


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=lambda _: EXPECTED, xfail_strict=True)
def test_of_sklearn(estimator: Any, check: Callable[[Any], None]) -> None:
    run_check(estimator, check)


def test_a_check_that_is_skipped_fails() -> None:
    def check_nothing(estimator: Any) -> None:
        raise unittest.SkipTest("not today")

    with pytest.raises(pytest.fail.Exception, match="not today"):
        run_check(HedgerowRegressor(), partial(check_nothing))


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
def test_no_check_is_skipped_by_tags(estimator: Any) -> None:
    names = [check.func.__name__ for _, check in estimator_checks_generator(estimator, mark=None)]
    assert len(names) > 40
    tags = estimator.__sklearn_tags__()
    assert not tags._skip_test
    assert not tags.non_deterministic
    assert tags.regressor_tags is None or not tags.regressor_tags.poor_score
    assert tags.classifier_tags is None or not tags.classifier_tags.poor_score


def wave(count: int = 600, seed: int = 1) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, size=(count, 2)) * [1.0, 100.0]
    return x, 10.0 + np.sin(2 * x[:, 0]) + 0.01 * x[:, 1]


def test_the_regressor_is_a_learner_in_the_order_of_rows() -> None:
    x, y = wave()
    learner = Learner(Plan(inputs=2, seed=5, personal=False))
    learner.learn(x, y)
    model = HedgerowRegressor(random_state=5).fit(x, y)
    assert np.array_equal(model.predict(x), learner.predict(x))
    assert model.n_samples_seen_ == 600
    pieces = HedgerowRegressor(random_state=5)
    for begin in range(0, 600, 50):
        pieces.partial_fit(x[begin : begin + 50], y[begin : begin + 50])
    assert np.array_equal(model.predict(x), pieces.predict(x))
    assert not np.array_equal(model.predict(x), clone(model).fit(x[::-1], y[::-1]).predict(x))
    twice = HedgerowRegressor(random_state=5, passes=2).fit(x, y)
    assert np.array_equal(twice.predict(x), model.partial_fit(x, y).predict(x))
    assert twice.n_samples_seen_ == model.n_samples_seen_ == 1200


def test_random_states() -> None:
    x, y = wave(100)

    def predictions(state: Any) -> Any:
        return HedgerowRegressor(random_state=state).fit(x, y).predict(x)

    assert np.array_equal(predictions(3), predictions(np.int64(3)))
    assert np.array_equal(predictions(np.random.RandomState(3)), predictions(np.random.RandomState(3)))
    assert not np.array_equal(predictions(None), predictions(None))


def test_missing_values_are_filled_in() -> None:
    x, y = wave()
    holes = x.copy()
    holes[::7, 1] = np.nan
    model = HedgerowRegressor().fit(holes, y)
    assert model.score(x, y) > 0.8
    assert np.all(np.isfinite(model.predict(holes)))
    with pytest.raises(ValueError, match="infinity"):
        model.predict(np.full((1, 2), np.inf))
    with pytest.raises(ValueError, match="NaN"):
        FourierFeatures().fit(x).transform(holes)


def test_weights_repeat_rows() -> None:
    x, y = wave(200)
    weights = np.random.default_rng(2).integers(0, 4, size=200)
    holes = np.where(np.arange(200) % 40 == 3, np.nan, y)
    kept = ~np.isnan(holes)
    frame = pd.DataFrame(x, columns=["a", "b"])
    classes = np.where(y > 10, "high", "low")
    for kind, labels in ((HedgerowRegressor, y), (HedgerowClassifier, classes)):
        repeated = kind(passes=2).fit(x.repeat(weights, axis=0), labels.repeat(weights))
        for given in (weights, weights.tolist(), weights.astype(float), pd.Series(weights)):
            model = kind(passes=2).fit(x, labels, sample_weight=given)
            assert np.array_equal(model.predict(x), repeated.predict(x))
            assert model.n_samples_seen_ == repeated.n_samples_seen_ == 2 * weights.sum()
    more = HedgerowRegressor().partial_fit(x, holes, sample_weight=weights)
    less = HedgerowRegressor().partial_fit(x[kept], y[kept], sample_weight=weights[kept])
    assert np.array_equal(more.predict(x), less.predict(x))
    assert more.n_missing_labels_ == 5
    sparse = pytest.importorskip("scipy.sparse").csr_array(x)
    weighted = HedgerowRegressor().fit(sparse, y, sample_weight=weights)
    assert np.array_equal(
        weighted.predict(x), HedgerowRegressor().fit(x, y, sample_weight=weights).predict(x)
    )
    assert HedgerowRegressor().fit(frame, y, sample_weight=weights).feature_names_in_.tolist() == ["a", "b"]
    one = np.ones(200)
    for bad, part in (
        (-one, r"from 0 to 1000, .* row 0 has -1\.0"),
        (2000 * one, r"row 0 has 2000\.0"),
        (np.where(np.arange(200) == 7, np.nan, 1.0), "row 7 has nan"),
        (np.where(np.arange(200) == 7, np.inf, 1.0), "row 7 has inf"),
        (one[:9], "must have 200 numbers, as X has rows, but has 9"),
        (one[:, None], "a vector of numbers"),
        (0 * one, "is zero for every row"),
    ):
        with pytest.raises(ValueError, match=part):
            HedgerowRegressor().fit(x, y, sample_weight=bad)
    tiny = np.where(np.arange(2000) == 7, 1e-3, 1e-9)
    with pytest.raises(ValueError, match=r"divided by the mean 5\.01e-07, .* to 1000, .* row 7 has 199\d\."):
        HedgerowRegressor().fit(x.repeat(10, axis=0), y.repeat(10), sample_weight=tiny)


def test_weights_of_any_size() -> None:
    x, y = wave(200)
    weights = np.random.default_rng(2).uniform(0.2, 2.5, size=200)
    counts = np.diff(np.floor(np.concatenate([[0.0], np.cumsum(weights)]))).astype(int)
    repeated = HedgerowRegressor().fit(x.repeat(counts, axis=0), y.repeat(counts))
    model = HedgerowRegressor().fit(x, y, sample_weight=weights)
    assert weights.mean() > 1
    assert np.array_equal(model.predict(x), repeated.predict(x))
    assert abs(model.n_samples_seen_ - weights.sum()) < 1
    # Parts of the rows are the same as all, also after a pickle.
    parts = HedgerowRegressor()
    for begin in range(0, 200, 7):
        parts.partial_fit(
            x[begin : begin + 7], y[begin : begin + 7], sample_weight=weights[begin : begin + 7]
        )
        parts = pickle.loads(pickle.dumps(parts))
    assert np.array_equal(parts.predict(x), repeated.predict(x))
    # Weights with a sum of 1 are those with a mean of 1; rows of weight 0 don't count in it.
    plain = HedgerowRegressor().fit(x, y)
    assert np.array_equal(HedgerowRegressor().fit(x, y, np.full(200, 1 / 256)).predict(x), plain.predict(x))
    masked = np.where(np.arange(200) < 100, 0.0, 0.25)
    half = HedgerowRegressor().fit(x[100:], y[100:])
    assert np.array_equal(HedgerowRegressor().fit(x, y, masked).predict(x), half.predict(x))
    # In parts they are as they are.
    assert HedgerowRegressor().partial_fit(x, y, np.full(200, 0.25)).n_samples_seen_ == 50


def test_weights_change_the_balance_of_classes() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(2000, 1))
    # One in ten, and no better known by the input than by chance for most.
    y = rng.uniform(size=2000) < 0.1 / (1 + np.exp(-x[:, 0]))
    plain = HedgerowClassifier(method="linear-newton").fit(x, y)
    balanced = compute_sample_weight("balanced", y)
    assert not np.array_equal(balanced, np.floor(balanced))
    weighted = HedgerowClassifier(method="linear-newton").fit(x, y, sample_weight=balanced)
    assert plain.predict(x).mean() < 0.02
    assert 0.3 < weighted.predict(x).mean() < 0.7
    assert abs(weighted.n_samples_seen_ - 2000) <= 1


def test_several_targets() -> None:
    x, y = wave()
    both = np.column_stack([y, 1000 * x[:, 0]])
    model = HedgerowRegressor(random_state=5).fit(x, both)
    learner = Learner(Plan(inputs=2, seed=5, personal=False, target="a,b"))
    learner.learn(x, both)
    assert np.array_equal(model.predict(x), learner.predict(x))
    assert model.score(x, both) > 0.9
    assert model.predict_interval(x).shape == (600, 2, 2)
    holes = both.copy()
    holes[5, 0] = holes[9, 1] = np.nan
    kept = ~np.isnan(holes).any(axis=1)
    skipped = HedgerowRegressor().fit(x, pd.DataFrame(holes))
    assert np.array_equal(skipped.predict(x), HedgerowRegressor().fit(x[kept], both[kept]).predict(x))
    assert skipped.n_missing_labels_ == 2
    with pytest.raises(ValueError, match=r"y must have the shape \(600, 2\)"):
        model.partial_fit(x, np.column_stack([both, y]))
    assert cross_val_score(HedgerowRegressor(), x, both, cv=3).min() > 0.7


def test_probabilities_are_calibrated_by_the_learner() -> None:
    x, y = shuffle(*load_iris(return_X_y=True), random_state=1)
    model = HedgerowClassifier(random_state=3).fit(x, y)
    learner = Learner(Plan(inputs=4, seed=3, personal=False, classes=["0", "1", "2"]))
    learner.learn(x, y)
    assert np.allclose(model.predict_proba(x), learner.predict_proba(x))
    assert model.predict(x).tolist() == [int(name) for name in learner.predict(x)]
    one = HedgerowClassifier().fit(x, np.full(150, "only"))
    assert np.array_equal(one.predict_proba(x), np.ones((150, 1)))


def test_grid_search_in_a_pipeline() -> None:
    x, y = wave()
    pipeline = make_pipeline(StandardScaler(), FourierFeatures(), Ridge(alpha=1e-3))
    grid = {"fourierfeatures__kernels": [(0.2,), (1e6,)], "fourierfeatures__frequencies": [5, 50]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(x, y)
    assert search.best_params_ == {"fourierfeatures__kernels": (0.2,), "fourierfeatures__frequencies": 50}
    assert search.best_score_ > 0.95
    direct = GridSearchCV(HedgerowRegressor(), {"method": ["gr", "linear-newton"]}, cv=3).fit(x, y)
    assert direct.best_params_ == {"method": "gr"}
    assert direct.best_score_ > 0.85


def test_classes_of_any_name() -> None:
    x, y = shuffle(*load_iris(return_X_y=True), random_state=1)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = HedgerowClassifier(passes=2)
    assert cross_val_score(model, x, names, cv=5).min() > 0.85
    model.partial_fit(x[:3], names[:3], classes=["virginica", "versicolor", "setosa"])
    assert model.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    for begin in range(3, 150, 7):
        model.partial_fit(x[begin : begin + 7], names[begin : begin + 7])
    model.partial_fit(x, names)
    assert model.score(x, names) > 0.9
    assert np.array_equal(model.predict(x), clone(model).fit(x, names).predict(x))
    for stranger in ("acorn", "rose", "zinnia"):
        with pytest.raises(ValueError, match=f"class '{stranger}' isn't among those of the first call"):
            model.partial_fit(x[:1], [stranger])
    with pytest.raises(ValueError, match="classes must be those of the first call"):
        model.partial_fit(x[:1], names[:1], classes=["setosa", "rose"])


@pytest.mark.parametrize("params", [{}, {"method": "naive", "loss": "logistic", "passes": 20}])
def test_circles(params: dict[str, Any]) -> None:
    x, y = make_circles(600, noise=0.1, factor=0.5, random_state=0)
    model = HedgerowClassifier(**params).fit(x[:400], y[:400])
    assert LogisticRegression().fit(x[:400], y[:400]).score(x[400:], y[400:]) < 0.6
    assert model.score(x[400:], y[400:]) > 0.9
    likely = model.predict_proba(x)
    assert np.allclose(likely.sum(axis=1), 1.0)
    assert np.array_equal(model.classes_[likely.argmax(axis=1)], model.predict(x))


def test_names_of_columns() -> None:
    x, y = wave()
    frame = pd.DataFrame(x, columns=["angle", "slope"])
    model = HedgerowRegressor().fit(frame, y)
    assert model.feature_names_in_.tolist() == ["angle", "slope"]
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["slope", "angle"]])
    features = FourierFeatures(frequencies=2).set_output(transform="pandas")
    expected = ["fourierfeatures0", "fourierfeatures1", "fourierfeatures2", "fourierfeatures3"]
    assert features.fit_transform(frame).columns.tolist() == expected
    assert features.get_feature_names_out().tolist() == expected


def test_features_are_those_of_the_map() -> None:
    x, _ = wave(20)
    feature_map = FeatureMap([0.5, 2.0], inputs=2, frequencies=9, draw="orthogonal", seed=4)
    features = FourierFeatures(kernels=[0.5, 2.0], frequencies=9, draw="orthogonal", random_state=4)
    assert np.array_equal(features.fit_transform(x), feature_map.transform(x))
    assert features.partial_fit(x).transform(x.astype(np.float32)).dtype == np.float32
    with pytest.raises(ValueError, match="3 features"):
        features.partial_fit(np.zeros((1, 3)))


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
def test_pickles_go_on_to_the_bit(estimator: Any) -> None:
    x, y = wave()
    labels = y if isinstance(estimator, HedgerowRegressor) else (y > 10).astype(int)
    model = clone(estimator).fit(x[:300], labels[:300])
    other = pickle.loads(pickle.dumps(model))
    name = "transform" if hasattr(model, "transform") else "predict"
    for one in (model, other):
        one.partial_fit(x[300:], labels[300:])
    assert np.array_equal(getattr(model, name)(x), getattr(other, name)(x))


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (HedgerowRegressor(loss="logistic"), 'loss must be "squared" or "huber"'),
        (HedgerowClassifier(loss="huber"), 'loss must be "squared" or "logistic"'),
        (HedgerowRegressor(passes=0), "passes must be a whole number of at least 1, but is 0"),
        (HedgerowClassifier(passes=1.5), r"passes must be a whole number of at least 1, but is 1\.5"),
        (HedgerowRegressor(method="best"), "best"),
        (HedgerowRegressor(budget=3), "at least 16"),
        (FourierFeatures(frequencies=-1), "frequencies must be at least 1"),
    ],
    ids=str,
)
def test_mistakes(estimator: Any, message: str) -> None:
    x, y = wave(20)
    with pytest.raises(ValueError, match=message):
        estimator.fit(x, (y > 10).astype(int))


@pytest.mark.parametrize(
    ("estimator", "bad"),
    [
        (HedgerowRegressor(), {"budget": 3}),
        (HedgerowRegressor(), {"loss": "logistic"}),
        (HedgerowClassifier(), {"budget": 3}),
        (HedgerowClassifier(), {"loss": "huber"}),
        (FourierFeatures(), {"frequencies": -1}),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_fitted", [False, True])
def test_a_fit_that_failed_is_none_and_does_no_harm(
    estimator: Any, bad: dict[str, Any], is_fitted: bool
) -> None:
    x, y = wave(50)
    labels = (y > 10).astype(int)
    model, good = clone(estimator), {name: estimator.get_params()[name] for name in bad}
    if is_fitted:
        model.fit(x, labels)
    fits = ["fit"] if is_fitted else ["fit", "partial_fit"]
    answer = "transform" if hasattr(model, "transform") else "predict"
    for name in fits:
        with pytest.raises(ValueError, match=r"must be|at least"):
            getattr(model.set_params(**bad), name)(x[:, :1], labels)
        with pytest.raises(NotFittedError):
            getattr(model, answer)(x)
        # After the parameters are corrected, a new fit works as usual.
        getattr(model.set_params(**good), name)(x, labels)
        expected = getattr(clone(estimator).fit(x, labels), answer)(x)
        assert np.array_equal(getattr(model, answer)(x), expected)
        model = clone(estimator)


def test_labels_that_are_refused_leave_nothing() -> None:
    x, _ = wave(20)
    model = HedgerowRegressor()
    with pytest.raises(ValueError, match="label"):
        model.fit(x, np.full(20, 1e20))
    with pytest.raises(NotFittedError):
        model.predict(x)
    classes = HedgerowClassifier()
    with pytest.raises(ValueError, match="class 2 isn't among"):
        classes.partial_fit(x, [2] * 20, classes=[0, 1])
    with pytest.raises(NotFittedError):
        classes.predict(x)
    classes.partial_fit(x, [2] * 10 + [1] * 10, classes=[1, 2])
    assert classes.classes_.tolist() == [1, 2]


def test_intervals_are_around_predictions() -> None:
    random = np.random.default_rng(1)
    X = random.uniform(size=(400, 2))
    y = X[:, 0] + 0.1 * random.normal(size=400)
    model = HedgerowRegressor().fit(X[:300], y[:300])
    ends = model.predict_interval(X[300:], level=0.9)
    middle = model.predict(X[300:])
    assert ends.shape == (100, 2)
    assert ((ends[:, 0] < middle) & (middle < ends[:, 1])).all()
    within = ((ends[:, 0] <= y[300:]) & (y[300:] <= ends[:, 1])).mean()
    assert within > 0.75
