"""River's own checks of estimators, by name, and further tests."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("river")

import pandas as pd
from hedgerow import FeatureMap, Learner, Plan
from hedgerow._growing import Growing, Names
from hedgerow.river import (
    FourierFeatures,
    HedgerowClassifier,
    HedgerowMultiTargetRegressor,
    HedgerowRegressor,
)
from river import checks, compose, datasets, evaluate, linear_model, metrics, optim, preprocessing

ESTIMATORS = [HedgerowRegressor, HedgerowMultiTargetRegressor, HedgerowClassifier, FourierFeatures]


def every_check() -> Iterator[Any]:
    """One case per check, estimator and set of test parameters."""
    for kind in ESTIMATORS:
        for number, params in enumerate(kind._unit_test_params()):
            model = kind(**params)
            for at, check in enumerate(checks.yield_checks(model)):
                name = f"{kind.__name__}-{number}-{check.__name__}-{at}"
                yield pytest.param(model, check, id=name)


CASES = list(every_check())


@pytest.mark.parametrize(("model", "check"), CASES)
def test_of_river(model: Any, check: Callable[[Any], None]) -> None:
    assert check.__name__ not in model._unit_test_skips()
    check(model.clone())


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_no_check_is_skipped(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cases above are all checks that ``check_estimator`` runs."""
    above = [str(case.id).split("-")[2] for case in CASES if str(case.id).startswith(f"{kind.__name__}-0-")]
    ran: list[str] = []
    each = checks.yield_checks

    def noted(model: Any) -> Iterator[Any]:
        for check in each(model):

            def note(model: Any, name: str = check.__name__) -> None:
                ran.append(name)

            note.__name__ = check.__name__
            yield note

    monkeypatch.setattr(checks, "yield_checks", noted)
    checks.check_estimator(kind())
    assert len(ran) > 15
    assert ran == above


def test_the_regressor_is_a_learner() -> None:
    model, learner = HedgerowRegressor(method="mk", seed=3), Learner(Plan(method="mk", inputs=6, seed=3))
    for x, y in datasets.TrumpApproval().take(300):
        row = [x[name] for name in sorted(x)]
        assert model.predict_one(x) == learner.predict_one(row)
        model.learn_one(x, y)
        learner.learn_one(row, y)


def test_errors_on_real_streams() -> None:
    stream = datasets.TrumpApproval
    ours = evaluate.progressive_val_score(stream(), HedgerowRegressor(), metrics.MAE()).get()
    linear = preprocessing.StandardScaler() | linear_model.LinearRegression()
    assert ours < 0.5 * evaluate.progressive_val_score(stream(), linear, metrics.MAE()).get()
    model = HedgerowClassifier()
    many = evaluate.progressive_val_score(datasets.ImageSegments(), model, metrics.Accuracy()).get()
    assert many > 0.84
    assert len(model._classes) == 7


def test_a_third_class_loses_nothing_of_the_first_two() -> None:
    rng = np.random.default_rng(4)
    model = HedgerowClassifier(budget=48)

    def sample(kind: str) -> dict[str, float]:
        centre = {"a": (0, 0), "b": (3, 0), "c": (0, 3)}[kind]
        return dict(zip("uv", rng.normal(centre, 0.6).tolist(), strict=True))

    assert model.predict_proba_one({"u": 0.0}) == {}
    assert model.predict_one({"u": 0.0}) is None
    model.learn_one(sample("a"), "a")
    assert model.predict_proba_one(sample("b")) == {"a": 1.0}
    for t in range(200):
        model.learn_one(sample("ab"[t % 2]), "ab"[t % 2])
    assert len(model._learner.learners) == 1
    assert model._learner.classes == 2
    before = model.predict_proba_one({"u": 0.2, "v": 0.1})
    model.learn_one(sample("c"), "c")
    after = model.predict_proba_one({"u": 0.2, "v": 0.1})
    assert before["a"] > 0.85
    # The new class takes at most half of the probability; the other two keep their order.
    assert after["a"] > 5 * after["b"]
    for t in range(300):
        model.learn_one(sample("abc"[t % 3]), "abc"[t % 3])
    right = sum(model.predict_one(sample("abc"[t % 3])) == "abc"[t % 3] for t in range(300))
    assert right > 280


def test_a_sample_that_cannot_be_learned_brings_no_class() -> None:
    model = HedgerowClassifier(budget=16)
    for known in range(4):
        with pytest.raises(TypeError, match="feature 'u' must be a number"):
            model.learn_one({"u": "?"}, "stranger")
        assert list(model._classes) == [0, 1, 2, 3][:known]
        assert model._learner.classes == (0 if known == 0 else max(known, 2))
        model.learn_one({"u": float(known)}, known)


def test_batches_before_anything_is_learned() -> None:
    table = pd.DataFrame({"a": [1.0, 2.0], "b": [0.0, 1.0]}, index=[7, 9])
    model = HedgerowClassifier()
    assert model.predict_proba_many(table).shape == (2, 0)
    assert model.predict_many(table).tolist() == [None, None]
    assert HedgerowRegressor().predict_many(table).tolist() == [0.0, 0.0]
    assert model.predict_many(table).index.tolist() == [7, 9]
    empty = table.iloc[:0]
    model.learn_many(empty, pd.Series([], dtype=bool))
    assert model.predict_many(empty).tolist() == []


@pytest.mark.parametrize("kind", ["squared", "logistic"])
def test_probabilities_are_honest(kind: str) -> None:
    """Probabilities are calibrated: of samples with probability p, a share of p has the class."""
    rng = np.random.default_rng(0)
    method = "gr" if kind == "squared" else "linear-newton"
    model, said, was = HedgerowClassifier(method=method, loss=kind, ridge=1e-5), [], []
    for t in range(4000):
        x = float(rng.uniform(-1, 1))
        y = bool(rng.uniform() < 0.5 + 0.4 * x)
        if t > 1000:
            said.append(model.predict_proba_one({"x": x})[True])
            was.append(y)
        model.learn_one({"x": x}, y)
    guess, truth = np.array(said), np.array(was)
    for low, high in ((0.0, 0.35), (0.35, 0.65), (0.65, 1.0)):
        inside = (guess >= low) & (guess < high)
        assert inside.sum() > 300
        assert guess[inside].mean() == pytest.approx(truth[inside].mean(), abs=0.06)


def test_features_that_come_later_are_learned_and_nothing_is_forgotten() -> None:
    rng = np.random.default_rng(8)
    model = Growing({"method": "gr"})
    errors: dict[int, list[float]] = {0: [], 1: [], 2: []}
    for t in range(1500):
        row = rng.uniform(-1, 1, size=4).tolist()
        score = np.sin(2 * row[0]) + (2 * row[1] if t >= 500 else 0.0)
        y = float(score)
        seen = row[:1] if t < 500 else row
        guess = model.predict_one(seen)
        assert guess == model.learn_one(seen, y)
        errors[t // 500].append((guess - y) ** 2)
        # While the new learner learns, the old one continues.
        assert len(model.learners) == 1 or 500 <= t < 1000
        assert model.room == (1 if len(model.learners) == 2 or t < 500 else 6)
    before, after = np.mean(errors[0][-200:]), np.mean(errors[2])
    assert before < 0.1
    assert after < 0.1


def test_a_younger_learner_waits_until_it_is_better() -> None:
    rng = np.random.default_rng(8)
    model = Growing({"method": "gr"})
    for _ in range(1000):
        x = rng.uniform(-1, 1)
        model.learn_one([x], float(np.sin(5 * x)))
    worst = 0.0
    # Features without information must not change predictions.
    for _ in range(60):
        x = rng.uniform(-1, 1)
        worst = max(worst, abs(model.predict_one([x, rng.normal()]) - np.sin(5 * x)))
        model.learn_one([x, rng.normal()], float(np.sin(5 * x)))
    assert worst < 0.1
    # Further features replace the new learner, not the old one.
    model = Growing({"method": "gr"})
    for width in range(1, 30):
        model.learn_one([0.1] * width, 1.0)
        assert len(model.learners) == (1 if width == 1 else 2)
        assert model.room == 1


def test_classes_that_come_late_are_learned_and_nothing_is_forgotten() -> None:
    """More samples came before them than are kept."""
    rng = np.random.default_rng(5)
    model, many = HedgerowClassifier(budget=32), HedgerowClassifier(budget=32)
    centres = np.array([(0, 0), (3, 0), (0, 3), (3, 3)])
    kinds = [*rng.integers(0, 2, size=600), *rng.integers(0, 4, size=600)]
    right: list[bool] = []
    rows = pd.DataFrame([rng.normal(centres[kind], 0.5) for kind in kinds], columns=["u", "v"])
    for row, kind in zip(rows.to_dict("records"), kinds, strict=True):
        right.append(model.predict_one(row) == kind)
        model.learn_one(row, kind)
        # The older learner answers until the younger one is better.
        assert len(model._learner.learners) == 1 or len(right) > 600
    assert np.mean(right[100:600]) > 0.95
    assert np.mean(right[700:]) > 0.95
    assert len(model._learner.learners) == 1
    for begin in (0, 250, 700):
        end = {0: 250, 250: 700, 700: 1200}[begin]
        many.learn_many(rows[begin:end], pd.Series(kinds[begin:end]))
    assert many.predict_proba_many(rows).equals(model.predict_proba_many(rows))


def test_there_are_100_classes_at_most() -> None:
    model = HedgerowClassifier(method="linear")
    model.learn_many(pd.DataFrame({"a": np.arange(100.0)}), pd.Series(range(100)))
    for learn in (
        lambda: model.learn_one({"a": 1.0}, "more"),
        lambda: model.learn_many(pd.DataFrame({"a": [1.0]}), pd.Series(["more"])),
    ):
        with pytest.raises(ValueError, match="100 classes, but 'more' is another"):
            learn()
    assert len(model.predict_proba_one({"a": 3.0})) == 100


@pytest.mark.parametrize("kind", [HedgerowRegressor, HedgerowClassifier, HedgerowMultiTargetRegressor])
def test_weights_are_how_often_samples_are_learned(kind: Any) -> None:
    rng = np.random.default_rng(3)
    weights = [0.5, 0.25, 0.25, 2.0, 0.0, 1.5, 0.75, 0.75, *rng.uniform(0, 2, size=200).tolist()]
    # Whether the sum of the weights passes whole numbers.
    sums = np.floor(np.concatenate([[0.0], np.cumsum(weights)])).astype(int)
    times = np.diff(sums)
    assert times[:8].tolist() == [0, 0, 1, 2, 0, 1, 1, 1]
    model, twin, many = kind(budget=16), kind(budget=16), kind(budget=16)
    x = pd.DataFrame(rng.normal(size=(len(weights), 2)), columns=["a", "b"])
    for at, (row, weight) in enumerate(zip(x.to_dict("records"), weights, strict=True)):
        y: Any = "even" if at % 2 == 0 else "odd"
        if kind is HedgerowRegressor:
            y = row["a"]
        if kind is HedgerowMultiTargetRegressor:
            y = {"sum": row["a"] + row["b"], "difference": row["a"] - row["b"]}
        model.learn_one(row, y, w=weight)
        if at % 50 == 0:
            model = pickle.loads(pickle.dumps(model))
        for _ in range(times[at]):
            twin.learn_one(row, y)
    for row in x.to_dict("records"):
        answers = [one.predict_one(row) for one in (model, twin)]
        assert answers[0] == answers[1]
    assert model._learner.learners[0].samples == times.sum()
    if kind is not HedgerowMultiTargetRegressor:
        labels = x["a"] if kind is HedgerowRegressor else pd.Series(["even", "odd"] * (len(x) // 2))
        many.learn_many(x[:70], labels[:70], w=weights[:70])
        many.learn_many(x[70:], labels[70:], w=pd.Series(weights[70:]))
        assert many.predict_many(x).equals(model.predict_many(x))
        with pytest.raises(ValueError, match=r"the weight of row 1 must be from 0 to 1000, but is -1"):
            many.learn_many(x[:2], labels[:2], w=[1, -1])
        with pytest.raises(ValueError, match="w must have 2 weights, as X has rows, but has 1"):
            many.learn_many(x[:2], labels[:2], w=[1])
    for bad in (-0.5, 1001, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="the weight must be from 0 to 1000, but is"):
            model.learn_one({"a": 1.0, "b": 1.0}, y, w=bad)
    with pytest.raises(TypeError, match="the weight must be a number, but is 'x'"):
        model.learn_one({"a": 1.0, "b": 1.0}, y, w="x")


def test_several_targets() -> None:
    rng = np.random.default_rng(3)
    model = HedgerowMultiTargetRegressor()
    assert model.predict_one({"a": 1.0}) == {}
    assert model.predict_interval_one({"a": 1.0}) == {}
    twin = Learner(Plan(inputs=2, target="0,1"))
    for t in range(400):
        a, b = rng.uniform(-1, 1, size=2).tolist()
        y = {"small": 0.01 * np.sin(3 * a), "large": 1000 * a * b}
        model.learn_one({"a": a, "b": b}, y)
        twin.learn_one([a, b], [y["large"], y["small"]])
        if t % 100 == 50:
            # Without one of the labels it is skipped.
            model.learn_one({"a": a, "b": b}, {"large": 1.0})
            model.learn_one({"a": a, "b": b}, {"large": 1.0, "small": float("nan")})
    assert model.missing_labels == 8
    predicted = model.predict_one({"a": 0.5, "b": -0.5})
    assert tuple(predicted.values()) == twin.predict_one([0.5, -0.5])
    assert predicted["large"] == pytest.approx(-250, abs=30)
    assert predicted["small"] == pytest.approx(0.01 * np.sin(1.5), abs=2e-3)
    for name, (lower, upper) in model.predict_interval_one({"a": 0.5, "b": -0.5}).items():
        assert lower < predicted[name] < upper
    # A feature that comes later counts for all targets alike.
    for _ in range(300):
        a, b, c = rng.uniform(-1, 1, size=3).tolist()
        y = {"small": 0.01 * (np.sin(3 * a) + c), "large": 1000 * (a * b + c)}
        model.learn_one({"a": a, "b": b, "c": c}, y)
    assert model._learner.room == 5
    with pytest.raises(ValueError, match=r"targets must be those of the first sample, .* one is 'other'"):
        model.learn_one({"a": 1.0}, {"other": 1.0})
    with pytest.raises(TypeError, match="labels must be a dictionary of targets"):
        model.learn_one({"a": 1.0}, 1.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="target 'large' must be a number"):
        model.learn_one({"a": 1.0}, {"large": "x", "small": 1.0})
    one = HedgerowMultiTargetRegressor()
    for t in range(40):
        one.learn_one({"a": t % 5}, {"only": float(t % 5)})
    assert one.predict_one({"a": 2})["only"] == pytest.approx(2.0, abs=0.5)


def test_names_beyond_the_most_are_left_out_and_said_so() -> None:
    model = HedgerowRegressor(max_inputs=3)
    model.learn_one({"a": 1.0, "b": 2.0}, 1.0)
    with pytest.warns(UserWarning, match=r"more than max_inputs=3 features: 'd' and others are left out"):
        model.learn_one({"e": 1.0, "c": 1.0, "d": 3.0}, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.learn_one({"f": 1.0}, 1.0)
    assert list(model._names.known) == ["a", "b", "c"]


def test_names_of_any_kind() -> None:
    names = Names(10)
    row, new = names.meet({("t", 1): 1.0, 3: 2.0, "x": 3.0, 1.5: 4.0})
    assert (row, new) == ([4.0, 2.0, 3.0, 1.0], [1.5, 3, "x", ("t", 1)])
    assert len(names) == 0
    names.add(new)
    # A mapping that creates missing keys is not changed.
    inventive: defaultdict[Any, float] = defaultdict(float, {3: 5.0})
    assert names.row(inventive) == [None, 5.0, None, None]
    assert list(inventive) == [3]
    one = Names(10)
    assert one.meet({"only": 1.0}) == ([1.0], ["only"])
    one.add(["only"])
    assert one.meet({}) == ([None], ())


@pytest.mark.parametrize("kind", [HedgerowRegressor, HedgerowClassifier, FourierFeatures])
def test_text_is_refused_by_name(kind: Any) -> None:
    model = kind()
    learn: Any = model.learn_one if kind is not FourierFeatures else lambda x, y: model.transform_one(x)
    for bad in ("red", "1.5", b"1", [1.0], {}, 1j):
        with pytest.raises(TypeError, match="feature 'colour' must be a number, but is"):
            learn({"size": 1.0, "colour": bad}, 1.0)
    learn({"size": 1.0, "colour": np.float32(2.0)}, True)
    learn({"size": True, "colour": 7}, False)


REFUSED = ["1.5", 10**400, [1.0]]


@pytest.mark.parametrize("bad", REFUSED, ids=["text", "huge", "list"])
@pytest.mark.parametrize("kind", [HedgerowRegressor, HedgerowClassifier])
def test_a_sample_that_is_refused_leaves_nothing(kind: Any, bad: Any) -> None:
    rng = np.random.default_rng(2)
    model, twin = kind(budget=16), kind(budget=16)

    def learn(one: Any, t: int, x: dict[str, Any]) -> None:
        one.learn_one(x, t % 4 if kind is HedgerowClassifier else float(t))

    for t in range(60):
        names = "a" if t < 20 else "abc"
        x = dict(zip(names, rng.normal(size=len(names)).tolist(), strict=True))
        # Among known names and new ones, before there is a learner, with one, and with two.
        for name in ("a", "c", "z"):
            with pytest.raises((TypeError, ValueError), match=f"feature '{name}' "):
                learn(model, t, x | {name: bad})
        learn(model, t, x)
        learn(twin, t, x)
    assert list(model._names.known) == list(twin._names.known) == ["a", "b", "c"]
    mine, other = model._learner, twin._learner
    assert (mine.room, mine.classes) == (other.room, other.classes)
    assert [one.save() for one in mine.learners] == [one.save() for one in other.learners]


@pytest.mark.parametrize("bad", [*REFUSED, None, float("nan")], ids=["text", "huge", "list", "None", "NaN"])
def test_features_that_are_refused_leave_no_names(bad: Any) -> None:
    features = FourierFeatures()
    for x in ({"a": bad}, {"b": 1.0, "c": bad}):
        for method in (features.transform_one, features.learn_one):
            with pytest.raises((TypeError, ValueError), match=r"feature '[ac]' "):
                method(x)
        for many in (features.transform_many, features.learn_many):
            if many == features.transform_many or isinstance(bad, (str, int, list)):
                with pytest.raises((TypeError, ValueError), match=r"feature '[ac]' "):
                    many(pd.DataFrame({name: [value] for name, value in x.items()}))
    assert (len(features._names), features._maps) == (0, [])
    assert len(features.transform_one({"a": 1.0})) == 100


def test_what_is_left_out_is_not_looked_at() -> None:
    for model in (HedgerowRegressor(max_inputs=1), HedgerowClassifier(max_inputs=1)):
        with pytest.warns(UserWarning, match="'b' and others are left out"):
            model.learn_one({"a": 1.0, "b": "text"}, 1)
        model.learn_many(pd.DataFrame({"a": [1.0], "b": ["text"]}), pd.Series([1]))
        model.predict_many(pd.DataFrame({"a": [1.0], "b": ["text"]}))
    features = FourierFeatures(max_inputs=1)
    with pytest.warns(UserWarning, match="'b' and others are left out"):
        features.transform_one({"a": 1.0, "b": "text"})
    assert features.transform_many(pd.DataFrame({"a": [1.0], "b": ["text"]})).shape == (1, 100)


@pytest.mark.parametrize("kind", [HedgerowRegressor, HedgerowClassifier])
def test_batches_that_are_refused_leave_nothing(kind: Any) -> None:
    pl = pytest.importorskip("polars")
    model = kind()
    good = {"a": [1.0, 2.0], "b": [True, False], "c": [1, 2]}
    for frame, series in ((pd.DataFrame, pd.Series), (pl.DataFrame, pl.Series)):
        for name in ("a", "c"):
            with pytest.raises(TypeError, match=f"feature '{name}' must be "):
                model.learn_many(frame(good | {name: ["1.5", "2"]}), series([1.0, 2.0]))
        for y in ([1.0], [1.0, 2.0, 3.0]):
            with pytest.raises(ValueError, match=f"y must have 2 labels, as X has rows, but has {len(y)}"):
                model.learn_many(frame(good), series(y))
        if kind is HedgerowRegressor:
            for bad in (["1.5", "2"], [1.0, float("inf")]):
                with pytest.raises((TypeError, ValueError), match=r"y must be|label inf"):
                    model.learn_many(frame(good), series(bad))
    assert len(model._names) == 0
    assert model._learner.learners == []
    # Columns of different types, and names that are not strings.
    model.learn_many(pd.DataFrame(good), pd.Series([1.0, 2.0]))
    twin = kind()
    for row, y in zip(pd.DataFrame(good).to_dict("records"), (1.0, 2.0), strict=True):
        twin.learn_one(row, y)
    assert model.predict_many(pd.DataFrame(good)).equals(twin.predict_many(pd.DataFrame(good)))
    model.learn_many(pd.DataFrame({0: [1.0], 1: [True]}), pd.Series([1.0]))
    assert list(model._names.known) == ["a", "b", "c", 0, 1]


@pytest.mark.parametrize("bad", [[1.0, 2.0], (1.0,), 3.0, "ab", None])
def test_a_sample_is_a_dictionary(bad: Any) -> None:
    regressor, classifier, features = HedgerowRegressor(), HedgerowClassifier(), FourierFeatures()
    for _ in range(2):
        for call in (
            lambda: regressor.learn_one(bad, 1.0),
            lambda: regressor.predict_one(bad),
            lambda: classifier.learn_one(bad, "c"),
            lambda: classifier.predict_one(bad),
            lambda: features.learn_one(bad),
            lambda: features.transform_one(bad),
        ):
            with pytest.raises(TypeError, match="a sample must be a dictionary of features, but is"):
                call()
        # Also when names are known.
        regressor.learn_one({"a": 1.0, "b": 2.0}, 1.0)
        classifier.learn_one({"a": 1.0, "b": 2.0}, "c")
        features.learn_one({"a": 1.0, "b": 2.0})


def test_a_bad_label_says_that_it_is_the_label() -> None:
    model = HedgerowRegressor()
    for x in ({"a": 1.0}, {"a": 2.0}, {"a": 1.0, "b": 2.0}):
        for bad in ("x", [1.0]):
            with pytest.raises(TypeError, match="a label must be a number, but is"):
                model.learn_one(x, bad)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="feature 'a' must be a number, but is 'z'"):
            model.learn_one(x | {"a": "z"}, "x")  # type: ignore[arg-type]
        model.learn_one(x, 1.0)


def test_bad_labels_and_empty_samples() -> None:
    model = HedgerowRegressor()
    model.learn_one({}, 1.0)
    assert np.isfinite(model.predict_one({}))
    for bad, error in ((float("inf"), ValueError), ("x", TypeError)):
        with pytest.raises(error):
            model.learn_one({"a": 1.0}, bad)
        # Also with a new name.
        with pytest.raises(error):
            model.learn_one({"a": 1.0, "b": 2.0}, bad)
    for x in ({"a": 1.0}, {"a": 1.0, "b": 2.0}):
        with pytest.raises(ValueError, match="a label is too large"):
            model.learn_one(x, 10**400)
    assert list(model._names.known) == []
    assert FourierFeatures().transform_one({})["fourier0"] == 0.0


@pytest.mark.parametrize(
    ("kind", "params", "message"),
    [
        (HedgerowRegressor, {"loss": "logistic"}, 'loss must be "squared" or "huber"'),
        (HedgerowClassifier, {"loss": "huber"}, 'loss must be "squared" or "logistic"'),
        (HedgerowRegressor, {"method": "best"}, "best"),
        (HedgerowRegressor, {"budget": 3}, "at least 16"),
        (FourierFeatures, {"frequencies": 0}, "frequencies must be at least 1"),
        (FourierFeatures, {"kernels": (-1.0,)}, "positive"),
        (FourierFeatures, {"draw": "lots"}, "draw must be one of"),
        (FourierFeatures, {"seed": -1}, "seed must be at least 0, but is -1"),
        (HedgerowRegressor, {"seed": -1}, "seed must be at least 0, but is -1"),
        (HedgerowRegressor, {"max_inputs": 0}, "max_inputs must be a whole number of at least 1, but is 0"),
        (HedgerowClassifier, {"max_inputs": -3}, "max_inputs must be .* but is -3"),
        (FourierFeatures, {"max_inputs": 1.5}, r"max_inputs must be .* but is 1\.5"),
    ],
)
def test_mistakes_are_told_at_once(kind: Any, params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**params)


def test_missing_values_of_features() -> None:
    features = FourierFeatures()
    features.learn_one({"a": 1.0, "b": 2.0})
    without = features.transform_one({"a": 1.0})
    assert without == features.transform_one({"a": 1.0, "b": 0.0})
    assert features.transform_many(pd.DataFrame({"a": [1.0]})).iloc[0].to_dict() == without
    for bad in (None, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="feature 'b' must be a finite number"):
            features.transform_one({"a": 1.0, "b": bad})


@pytest.mark.parametrize("family", ["gaussian", "laplacian", "cauchy"])
def test_features_are_honest_and_stay_so_when_names_appear(family: str) -> None:
    """Products of features are kernel values, for any order in which names appear."""
    rng = np.random.default_rng(1)
    features = FourierFeatures(kernels=((family, 2.0), (family, 0.5)), frequencies=4000)
    features.learn_one({"n0": 1.0})
    first = features.transform_one({"n0": 0.7})
    for count in range(2, 14):
        features.learn_one({f"n{at}": 1.0 for at in range(count)})
    assert len(features._maps) == 4
    # Earlier features are unchanged.
    assert features.transform_one({"n0": 0.7}) == pytest.approx(first, abs=1e-6)
    at_once = FeatureMap([(family, 2.0), (family, 0.5)], inputs=13, frequencies=4000, seed=5)
    for _ in range(4):
        x, y = rng.normal(size=(2, 13)) * 0.3
        a, b = (features.transform_one({f"n{at}": v for at, v in enumerate(row)}) for row in (x, y))
        grown = np.array(list(a.values())) * np.array(list(b.values()))
        whole = np.prod(at_once.transform(np.stack([x, y])), axis=0)
        for part in (slice(0, 8000), slice(8000, None)):
            assert grown[part].sum() == pytest.approx(whole[part].sum(), abs=0.06)
        assert np.sum(np.square(list(a.values()))) == pytest.approx(2.0, abs=1e-3)


def test_features_are_those_of_the_map() -> None:
    x = {"b": 0.2, "a": -0.4, "c": 1.0}
    expected = FeatureMap([1.0], inputs=3, frequencies=8, draw="orthogonal", seed=9).transform_one(
        [-0.4, 0.2, 1.0]
    )
    features = FourierFeatures(frequencies=8, draw="orthogonal", seed=9)
    # Before there is a map, and after.
    for _ in range(2):
        assert list(features.transform_one(x).values()) == expected.tolist()


def test_pipelines_of_features_and_linear_models() -> None:
    rng = np.random.default_rng(3)

    def error(model: Any) -> float:
        total = 0.0
        for t in range(1500):
            x = dict(zip("abc", rng.uniform(-1, 1, size=3).tolist(), strict=True))
            y = float(np.sin(3 * x["a"]) * x["b"])
            total += (model.predict_one(x) - y) ** 2 if t >= 1000 else 0.0
            model.learn_one(x, y)
        return total / 500

    def features() -> FourierFeatures:
        return FourierFeatures(kernels=(0.5,))

    linear = error(linear_model.LinearRegression())
    newton = HedgerowRegressor(method="linear-newton", scaling="none", ridge=1e-4)
    assert error(features() | newton) < 0.1 * linear
    assert error(features() | linear_model.LinearRegression(optimizer=optim.SGD(0.3))) < 0.5 * linear
    both = features() + compose.Select("a") | HedgerowRegressor(method="linear-newton", scaling="none")
    assert error(both) < 0.5 * linear


def test_pickles_and_copies_go_on_to_the_bit() -> None:
    model = HedgerowClassifier(budget=32)
    stream = list(datasets.ImageSegments().take(500))
    for x, y in stream[:250]:
        model.learn_one(x, y)
    others = [pickle.loads(pickle.dumps(model)), copy.deepcopy(model), model.clone(include_attributes=True)]
    for x, y in stream[250:]:
        expected = model.predict_proba_one(x)
        for other in others:
            assert other.predict_proba_one(x) == expected
            other.learn_one(x, y)
        model.learn_one(x, y)
    assert model.clone().predict_proba_one(x) == {}


def test_frames_of_polars() -> None:
    pl = pytest.importorskip("polars")
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(300, 2)), rng.normal(size=300)
    results = []
    for frame, series in ((pd.DataFrame, pd.Series), (pl.DataFrame, pl.Series)):
        model, features, classes = (
            HedgerowRegressor(budget=32),
            FourierFeatures(),
            HedgerowClassifier(budget=32),
        )
        table = frame({"a": x[:, 0], "b": x[:, 1]})
        model.learn_many(table, series(y))
        classes.learn_many(table, series(np.where(y > 0, "up", "down").tolist()))
        results.append(
            (
                model.predict_many(table).to_numpy(),
                features.transform_many(table).to_numpy(),
                classes.predict_proba_many(table)[["up", "down"]].to_numpy(),
                classes.predict_many(table).to_numpy(),
            )
        )
    for one, other in zip(*results, strict=True):
        assert np.array_equal(one, other)


def test_batches_in_which_classes_and_columns_appear() -> None:
    rng = np.random.default_rng(6)
    x = rng.normal(size=(400, 3))
    y = [["a", "b", "c", "d"][min(t // 60, int(rng.integers(4)))] for t in range(400)]
    one, many = HedgerowClassifier(budget=16), HedgerowClassifier(budget=16)
    for begin in range(0, 400, 100):
        columns = ["u", "v", "w"][: 1 + begin // 100]
        part = pd.DataFrame(x[begin : begin + 100, : len(columns)], columns=columns)
        many.learn_many(part, pd.Series(y[begin : begin + 100]))
        for row, label in zip(part.to_dict("records"), y[begin : begin + 100], strict=True):
            one.learn_one(row, label)
        assert one.predict_proba_many(part).equals(many.predict_proba_many(part))
        assert list(one.predict_many(part)) == [one.predict_one(row) for row in part.to_dict("records")]


def test_memory_counts_what_is_native() -> None:
    small, large = HedgerowRegressor(budget=32), HedgerowRegressor(budget=100)
    for model in (small, large):
        model.learn_one({"a": 1.0}, 1.0)
    assert large._raw_memory_usage > small._raw_memory_usage + 10_000
    wide, narrow = FourierFeatures(frequencies=1000), FourierFeatures(frequencies=1000)
    wide.learn_one({str(at): 1.0 for at in range(50)})
    narrow.learn_one({"a": 1.0})
    assert wide._raw_memory_usage > narrow._raw_memory_usage + 4 * 49 * 1000


def test_intervals_are_around_predictions() -> None:
    model = HedgerowRegressor()
    lower, upper = model.predict_interval_one({"a": 1.0})
    assert np.isnan(lower)
    assert np.isnan(upper)
    random = np.random.default_rng(1)
    for value in random.uniform(size=200):
        model.learn_one({"a": value}, 2 * value + 0.1 * random.normal())
    sample = {"a": 0.5, "new": 3.0}
    lower, upper = model.predict_interval_one(sample, level=0.8)
    assert lower < model.predict_one(sample) < upper
    with pytest.raises(ValueError, match="level"):
        model.predict_interval_one(sample, level=2.0)
