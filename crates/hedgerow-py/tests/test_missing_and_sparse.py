"""One rule for missing labels, and sparse matrices, wherever samples are taken."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hedgerow import Engine, FeatureMap, Federation, Learner, Plan, Server, compare, simulate

from tests.conftest import Array

pandas = pytest.importorskip("pandas")
sparse = pytest.importorskip("scipy.sparse")

Samples = tuple[Array, Array]

# Rows whose labels are missing.
GONE = [3, 4, 50, 119]


@pytest.fixture
def gaps(samples: Samples) -> tuple[Array, Array, Array]:
    """Samples, labels with gaps, and the rows that have labels."""
    x, y = samples[0][:120], samples[1][:120].copy()
    y[GONE] = np.nan
    return x, y, np.setdiff1d(np.arange(120), GONE)


def test_a_learner_predicts_and_skips(gaps: tuple[Array, Array, Array]) -> None:
    x, y, kept = gaps
    learner, twin, single = (Learner(Plan(inputs=3)) for _ in range(3))
    predictions = learner.learn(x, y)
    assert np.all(np.isfinite(predictions))
    assert np.array_equal(predictions[kept], twin.learn(x[kept], y[kept]))
    for row, label in zip(x.tolist(), y.tolist(), strict=True):
        single.learn_one(row, None if np.isnan(label) else label)
    for one in (learner, single, pickle.loads(pickle.dumps(learner))):
        assert (one.samples, one.missing_labels, one.mse) == (116, 4, twin.mse)
        assert np.array_equal(one.predict(x), twin.predict(x))
    assert twin.missing_labels == 0
    assert np.all(np.isfinite(Learner(Plan(inputs=3)).learn(x, np.full(120, np.nan))))


def test_a_learner_of_an_earlier_version_has_counted_none(gaps: tuple[Array, Array, Array]) -> None:
    x, y, kept = gaps
    learner = Learner(Plan(inputs=3))
    learner.learn(x[kept], y[kept])
    # The count is the last byte.
    restored = Learner.restore(learner.save()[:-1])
    assert (restored.samples, restored.missing_labels) == (116, 0)
    with pytest.raises(ValueError, match="saved learner"):
        Learner.restore(learner.save()[:-2])


def test_a_federation_predicts_and_skips(gaps: tuple[Array, Array, Array]) -> None:
    x, y, kept = gaps
    nodes = np.arange(120) % 3
    federation = Federation(Plan(inputs=3, nodes=3))
    result = federation.run(x, y, nodes)
    assert (federation.samples, federation.missing_labels) == (116, 4)
    assert result.summary["data"]["missing_labels"] == 4
    assert np.all(np.isfinite(result.predictions))  # type: ignore[arg-type]
    assert np.isfinite(result.mse["tr"])
    assert np.all(np.isfinite(result.curves["mse"][-5:]))
    assert result.mse["tr"] == pytest.approx(federation.mse, rel=1e-4)
    again = Federation.restore(federation.save())
    assert again.missing_labels == 4
    assert np.array_equal(again.predict(x), federation.predict(x))
    # In one round a missing label changes nothing at all.
    one, other = Federation(Plan(inputs=3, nodes=3)), Federation(Plan(inputs=3, nodes=3))
    one.round(x, y, nodes)
    other.round(x[kept], y[kept], nodes[kept])
    assert np.array_equal(one.predict(x), other.predict(x))


def test_an_engine_predicts_and_skips(gaps: tuple[Array, Array, Array]) -> None:
    x, y, _ = gaps
    plan = Plan(inputs=3, scaling="none")
    engine, told = Engine(plan), Server(plan).broadcast
    engine.connected()
    engine.hear_broadcast(told.round, told.kernels, told.numbers)
    assert np.all(np.isfinite(engine.learn(x, y)))
    engine.learn_one(x[0], None)
    assert (engine.tally["samples"], engine.tally["missing_labels"]) == (116, 5)


def test_runs_skip(gaps: tuple[Array, Array, Array]) -> None:
    x, y, _ = gaps
    asked: dict[str, Any] = {"method": "linear", "trials": 1, "nodes": 2, "scaling": "online"}
    for result in (simulate(x, y, **asked), simulate(zip(x, y, strict=True), **asked)):
        assert result.summary["data"]["missing_labels"] == 4
        assert result.summary["data"]["samples"] == 116
    assert compare(x, y, **asked).summary["runs"][0]["samples"] == 116


def test_estimators_of_scikit_learn_skip(gaps: tuple[Array, Array, Array]) -> None:
    pytest.importorskip("sklearn")
    from hedgerow.sklearn import HedgerowClassifier, HedgerowRegressor

    x, y, kept = gaps
    classes = np.where(np.isnan(y), None, np.where(y > 100, "high", "low"))  # type: ignore[call-overload]
    for kind, labels in ((HedgerowRegressor, y), (HedgerowClassifier, classes)):
        twin = kind().fit(x[kept], labels[kept])
        frame = pandas.DataFrame(x, columns=["a", "b", "c"])
        for rows, given in ((x, labels), (x.tolist(), list(labels)), (frame, pandas.Series(labels))):
            model = kind().fit(rows, given)
            assert np.array_equal(model.predict(rows), twin.predict(rows if rows is not frame else x))
            assert (model.n_samples_seen_, model.n_missing_labels_) == (116, 4)
        model = kind().fit(x, labels).partial_fit(x, labels)
        assert (model.n_samples_seen_, model.n_missing_labels_) == (232, 8)
        assert twin.n_missing_labels_ == 0
        with pytest.raises(ValueError, match=r"NaN|None|label"):
            kind().fit(x, np.full(120, np.nan))
    with pytest.raises(ValueError, match="infinity"):
        HedgerowRegressor().fit(x, np.where(np.isnan(y), np.inf, y))


def test_estimators_of_river_skip(gaps: tuple[Array, Array, Array]) -> None:
    pytest.importorskip("river")
    from hedgerow.river import HedgerowClassifier, HedgerowRegressor

    x, y, kept = gaps
    frame = pandas.DataFrame(x, columns=["a", "b", "c"])
    classes = np.where(np.isnan(y), None, np.where(y > 100, "high", "low"))  # type: ignore[call-overload]
    for kind, labels in ((HedgerowRegressor, y), (HedgerowClassifier, classes)):
        twin, one, many = kind(), kind(), kind()
        twin.learn_many(frame.iloc[kept], pandas.Series(labels[kept]))
        many.learn_many(frame, pandas.Series(labels))
        for row, label in zip(frame.to_dict("records"), labels, strict=True):
            one.learn_one(row, label)
        for model in (one, many, pickle.loads(pickle.dumps(many))):
            assert model.predict_many(frame).equals(twin.predict_many(frame))
            assert model.missing_labels == 4
        assert twin.missing_labels == 0
    classifier = HedgerowClassifier()
    for missing in (None, float("nan"), pandas.NA, pandas.NaT):
        classifier.learn_one({"a": 1.0}, missing)
    assert (classifier.missing_labels, len(classifier._classes), len(classifier._names)) == (4, 0, 0)


def counts(rows: int = 300, columns: int = 40) -> tuple[Any, Array]:
    """A sparse table of counts, and labels."""
    rng = np.random.default_rng(3)
    dense = rng.poisson(0.1, size=(rows, columns)).astype(np.float64)
    return sparse.csr_matrix(dense), dense @ np.linspace(-1, 1, columns)


@pytest.mark.parametrize("form", ["csr_matrix", "csr_array", "csc_array", "coo_array"])
def test_sparse_tables_are_those_that_are_dense(form: str) -> None:
    table, y = counts()
    x, dense = getattr(sparse, form)(table), table.toarray()
    plan = Plan(inputs=40)
    one, other = Learner(plan), Learner(plan)
    assert np.array_equal(one.learn(x, y), other.learn(dense, y))
    assert np.array_equal(one.predict(x), other.predict(dense))
    assert np.array_equal(one.predict_interval(x), other.predict_interval(dense))
    nodes = np.random.default_rng(1).integers(0, 3, size=300)
    plan = Plan(inputs=40, nodes=3)
    for node in (None, nodes):
        one, other = Federation(plan), Federation(plan)
        sparse_run, dense_run = one.run(x, y, node), other.run(dense, y, node)
        assert np.array_equal(sparse_run.predictions, dense_run.predictions)  # type: ignore[arg-type]
        assert np.array_equal(one.predict(x), other.predict(dense))
        assert one.save() == other.save()
    features = FeatureMap([1.0], inputs=40)
    assert np.array_equal(features.transform(x), features.transform(dense))


class Watched:
    """A sparse table that remembers how much of it was made dense at once."""

    def __init__(self, table: Any) -> None:
        self.table, self.largest = table, 0
        self.shape, self.dtype = table.shape, table.dtype

    def tocsr(self) -> Watched:
        return self

    def toarray(self) -> Any:
        pytest.fail("all of it was made dense")

    def __getitem__(self, rows: slice) -> Any:
        self.largest = max(self.largest, rows.stop - rows.start)
        return self.table[rows]


def test_sparse_tables_are_read_in_parts() -> None:
    table = sparse.random(1000, 10_000, density=1e-4, format="csr", random_state=1)
    features = FeatureMap([1.0], inputs=10_000, frequencies=1)
    watched = Watched(table)
    made = features.transform(watched)  # type: ignore[arg-type]
    # 4 MiB of doubles.
    assert watched.largest == 52
    assert np.array_equal(made[500:510], features.transform(table[500:510].toarray()))


def test_sparse_tables_that_are_refused() -> None:
    table, y = counts()
    learner = Learner(Plan(inputs=41))
    with pytest.raises(ValueError, match=r"X must have the shape \(n, 41\), but has \(300, 40\)"):
        learner.learn(table, y)
    learner = Learner(Plan(inputs=40))
    with pytest.raises(TypeError, match="matrix of numbers was expected, but its dtype is complex"):
        learner.predict(table.astype(np.complex128))
    with pytest.raises(ValueError, match="row 5: label inf"):
        learner.learn(table, np.where(np.arange(300) == 5, np.inf, y))
    assert learner.samples == 0
    for run in (simulate, compare):
        with pytest.raises(TypeError, match="a sparse matrix can't stay sparse"):
            run(table, y)  # type: ignore[operator]


def test_estimators_of_scikit_learn_take_sparse_tables() -> None:
    pytest.importorskip("sklearn")
    from hedgerow.sklearn import FourierFeatures, HedgerowClassifier, HedgerowRegressor

    x, y = counts()
    dense = x.toarray()
    for model, labels in ((HedgerowRegressor(), y), (HedgerowClassifier(), np.digitize(y, [-0.5, 0.5]))):
        sparse_fit = model.fit(x, labels).predict(x)
        assert np.array_equal(sparse_fit, model.fit(dense, labels).predict(dense))
    gaps = np.where(np.arange(300) % 50 == 7, np.nan, y)
    assert HedgerowRegressor().fit(x, gaps).n_missing_labels_ == 6
    assert np.array_equal(FourierFeatures().fit_transform(x), FourierFeatures().fit_transform(dense))
