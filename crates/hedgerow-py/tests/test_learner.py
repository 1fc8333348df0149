"""Learning on one machine."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hedgerow import Engine, Learner, Plan, Server

from .conftest import METHODS, Array

Samples = tuple[Array, Array]


@pytest.mark.parametrize("method", METHODS)
def test_one_by_one_is_the_same_as_all_at_once(method: str, samples: Samples) -> None:
    x, y = samples
    plan = Plan(method=method, inputs=3)
    together, alone = Learner(plan), Learner(plan)
    before = together.learn(x, y)
    ones = [alone.learn_one(row, label) for row, label in zip(x.tolist(), y.tolist(), strict=True)]
    assert before.dtype == np.float32
    assert before.tolist() == ones
    assert (together.samples, together.round) == (600, alone.round)
    assert np.array_equal(together.predict(x), [alone.predict_one(row) for row in x])
    # Better than the mean. The score excludes the first sixteen, which have no model.
    errors = (before[16:] - y[16:]) ** 2
    assert together.mse == pytest.approx(errors.mean(), rel=1e-5)
    late = np.mean((before[300:] - y[300:]) ** 2)
    # With one node and three kernels per round, pof has not converged.
    assert late < {"gr": 0.5, "mk": 0.5, "naive": 0.5, "pof": 1.5}.get(method, 1.0) * y.var()


@pytest.mark.parametrize("method", METHODS)
def test_a_saved_learner_goes_on_to_the_bit(method: str, samples: Samples) -> None:
    x, y = samples
    learner = Learner(Plan(method=method, inputs=3, personal=True))
    # Within the first sixteen samples, and later.
    for begin, end in ((0, 9), (9, 333), (333, 600)):
        others = [
            pickle.loads(pickle.dumps(learner)),
            copy.deepcopy(learner),
            Learner.restore(learner.save()),
        ]
        expected = learner.learn(x[begin:end], y[begin:end])
        for other in others:
            assert np.array_equal(other.learn(x[begin:end], y[begin:end]), expected)
            assert (other.mse, other.samples, other.shares()) == (
                learner.mse,
                learner.samples,
                learner.shares(),
            )


def test_it_is_a_node_and_a_server(samples: Samples) -> None:
    x, y = samples
    plan = Plan(method="mk", inputs=3)
    learner, node, server = Learner(plan), Engine(plan), Server(plan)
    node.connected()
    for row, label in zip(x, y, strict=True):
        if server.scale is not None:
            node.hear_scale(*server.scale)
        told = server.broadcast
        node.hear_broadcast(told.round, told.kernels, told.numbers, taken=server.taken(0))
        assert node.learn_one(row, label) == learner.learn_one(row, label)
        said = node.speak()
        if said.report is not None:
            server.accept_report(0, said.report)
        if said.upload is not None:
            server.accept_upload(0, said.upload)
        server.close_round()
    assert node.tally["mse"] == learner.mse


def test_names_find_their_numbers_and_what_is_missing_is_filled_in() -> None:
    named, listed = (Learner(Plan(columns=["a", "b"], scaling="none")) for _ in range(2))
    for t in range(50):
        a, b = t % 7 / 7, t % 3 / 3
        assert named.learn_one({"b": b, "a": a, "c": "unused"}, a * b) == listed.learn_one((a, b), a * b)
    for same in ([0.5, None], [0.5, np.nan], np.array([0.5, np.nan], dtype=np.float32), (0.5, np.inf)):
        assert named.predict_one({"a": 0.5}) == listed.predict_one(same)
    assert named.predict_one({"a": np.float32(0.5), "b": 1}) == listed.predict_one([0.5, True])


def test_two_classes() -> None:
    rng = np.random.default_rng(5)
    x = rng.uniform(-1, 1, size=(800, 2))
    y = np.where((x**2).sum(axis=1) < 0.5, 1.0, -1.0)
    learner = Learner(Plan(method="mk", inputs=2, loss="logistic"))
    before = learner.learn(x, y)
    assert np.mean(np.sign(before[400:]) == y[400:]) > 0.8
    with pytest.raises(ValueError, match=r"label 0 is neither -1 nor \+1"):
        learner.learn_one([0.0, 0.0], 0)


def test_bad_labels_change_nothing(samples: Samples) -> None:
    x, y = samples
    learner = Learner(Plan(inputs=3))
    learner.learn(x[:100], y[:100])
    before = learner.save()
    spoilt = y[:100].copy()
    spoilt[7], spoilt[77] = np.nan, np.inf
    with pytest.raises(ValueError, match="row 77: label inf"):
        learner.learn(x[:100], spoilt)
    for bad, error in (
        (np.inf, ValueError),
        (1e300, ValueError),
        ("x", TypeError),
        ([1.0, 2.0], TypeError),
    ):
        with pytest.raises(error):
            learner.learn_one(x[0], bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"y must have the shape \(100,\), as X has rows, but has \(99,\)"):
        learner.learn(x[:100], y[:99])
    with pytest.raises(ValueError, match="shape"):
        learner.learn(x[:100], y[:100, None])
    assert learner.save() == before


@pytest.mark.parametrize(
    ("x", "error"),
    [
        ([1.0, 2.0], ValueError),
        ([], ValueError),
        (np.zeros((1, 3)), ValueError),
        (5, ValueError),
        ("abc", TypeError),
        (b"abc", TypeError),
        (None, TypeError),
        (["a", "b", "c"], TypeError),
        ([1.0, 2.0, 3j], TypeError),
        (np.array(["a", "b", "c"]), TypeError),
        ({"a": 1.0}, ValueError),
        ({1.0, 2.0, 3.0}, TypeError),
        (object(), TypeError),
    ],
)
def test_bad_samples(x: Any, error: type[Exception]) -> None:
    learner = Learner(Plan(inputs=3))
    with pytest.raises(error):
        learner.predict_one(x)
    with pytest.raises(error):
        learner.learn_one(x, 1.0)
    assert learner.samples == 0


def test_an_item_that_asks_the_learner_itself() -> None:
    learner = Learner(Plan(inputs=1))

    class Item:
        def __float__(self) -> float:
            return learner.predict_one([0.0]) + 1.0

    assert learner.learn_one([Item()], Item()) == 0.0  # type: ignore[list-item, arg-type]

    class Bad:
        def __float__(self) -> float:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        learner.learn_one([Bad()], 1.0)  # type: ignore[list-item]


@pytest.mark.parametrize("saved", [b"", b"x", b"\xff" * 100])
def test_other_bytes_are_no_learner(saved: bytes) -> None:
    with pytest.raises(ValueError, match="saved learner"):
        Learner.restore(saved)


def test_spoilt_bytes_are_refused_or_harmless(samples: Samples) -> None:
    x, y = samples
    learner = Learner(Plan(inputs=3, budget=16))
    learner.learn(x[:40], y[:40])
    saved = learner.save()
    rng = np.random.default_rng(2)
    for at in rng.integers(0, len(saved), size=300):
        spoilt = bytearray(saved)
        spoilt[at] ^= int(rng.integers(1, 256))
        try:
            other = Learner.restore(bytes(spoilt))
        except ValueError:
            continue
        other.learn(x[:3], y[:3])
    for end in range(0, len(saved), 97):
        with pytest.raises(ValueError, match="saved learner"):
            Learner.restore(saved[:end])


def test_what_has_no_meaning_on_one_machine() -> None:
    for plan in (Plan(inputs=1, compression="q8"), Plan(inputs=1, part=2)):
        with pytest.raises(ValueError, match="nothing travels"):
            Learner(plan)
    with pytest.raises(TypeError):
        Learner("gr")  # type: ignore[arg-type]


def test_threads_take_turns_and_run_beside_each_other() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(1000, 5)), rng.normal(size=1000)
    learner = Learner(Plan(method="naive", inputs=5))
    threads = [threading.Thread(target=learner.learn, args=(x, y)) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        learner.predict_one(x[0])
    assert learner.samples == 4000


def test_an_interruption_ends_a_long_call(interrupt: Callable[[float], None]) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(400_000, 20)), rng.normal(size=400_000)
    learner = Learner(Plan(method="naive", inputs=20))
    interrupt(0.3)
    with pytest.raises(KeyboardInterrupt):
        learner.learn(x, y)
    assert 0 < learner.samples < 400_000


def test_arrays_that_lie_apart_or_askew_are_read_as_they_are() -> None:
    values = np.arange(12.0).reshape(4, 3)
    learner = Learner(Plan(inputs=3, scaling="none", method="linear"))
    expected = learner.predict(values)
    for kind in ("f4", "f8"):
        packed = np.zeros((4, 3), dtype=[("value", kind), ("flag", "u1")])
        packed["value"] = values
        askew = np.frombuffer(b"x" + values.astype(kind).tobytes(), kind, offset=1).reshape(4, 3)
        for array in (packed["value"], askew):
            assert np.array_equal(learner.predict(array), expected)
            assert learner.predict_one(array[1]) == learner.predict_one(values[1])


def test_masked_numbers_are_missing() -> None:
    plan = Plan(inputs=2)
    one, other = Learner(plan), Learner(plan)
    x = np.random.default_rng(0).normal(size=(100, 2))
    hidden = x.copy()
    hidden[::3, 1] = np.nan
    y = x.sum(axis=1)
    told = one.learn(np.ma.masked_array(np.where(np.isnan(hidden), 1e9, x), np.isnan(hidden)), y)
    assert np.array_equal(told, other.learn(hidden, y))


def test_frames_and_rows_go_by_their_names() -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    learner = Learner(Plan(columns=["a", "b"], scaling="none"))
    x = np.random.default_rng(0).uniform(size=(300, 2))
    learner.learn(x, x[:, 0])
    expected = learner.predict(x)
    turned = {"flag": np.arange(300) % 2 == 0, "b": x[:, 1], "a": x[:, 0]}
    for frame in (pandas.DataFrame(turned), polars.DataFrame(turned)):
        assert np.array_equal(learner.predict(frame), expected)
    row = pandas.DataFrame(turned).drop(columns="flag").iloc[3]
    for named in (row, {"b": x[3, 1], "a": x[3, 0]}, MappingProxyType({"b": x[3, 1], "a": x[3, 0]})):
        assert learner.predict_one(named) == pytest.approx(expected[3])
    with pytest.raises(ValueError, match='column "b"'):
        learner.predict(pandas.DataFrame({"a": [1.0]}))
    with pytest.raises(TypeError, match='"b"'):
        learner.predict(pandas.DataFrame({"a": [1.0], "b": ["x"]}))
    with pytest.raises(ValueError, match="a, b"):
        learner.predict_one({"A": 1.0, "B": 2.0})


def test_what_is_too_large_is_an_exception() -> None:
    learner = Learner(Plan(inputs=3))

    class Stubborn(np.ndarray):  # type: ignore[type-arg]
        def astype(self, *_: Any, **__: Any) -> Any:
            return self

    assert len(learner.predict(np.zeros((2, 3), dtype="i4").view(Stubborn))) == 2
    for kind in ("f4", "f8", "i4"):
        with pytest.raises((MemoryError, ValueError)):
            learner.predict(np.broadcast_to(np.zeros((), kind), (2**44, 3)))
    with pytest.raises(ValueError, match="shape"):
        learner.predict(np.zeros((1,) * 40))
    with pytest.raises(ValueError, match="too large"):
        learner.predict_one([10**400, 0, 0])
    with pytest.raises(ValueError, match="too large"):
        learner.learn_one([0, 0, 0], 10**400)


def test_intervals_contain_their_share_of_the_labels() -> None:
    random = np.random.default_rng(3)
    x = random.uniform(-1, 1, (1500, 2))
    y = np.sin(3 * x[:, 0]) + 0.3 * random.normal(size=1500)
    learner = Learner(Plan(inputs=2, scaling="none"))
    assert np.isnan(learner.predict_interval(x[:3])).all()
    covered = {0.5: 0, 0.85: 0, 0.9: 0}
    for row, label in zip(x, y, strict=True):
        for level in covered:
            lower, upper = learner.predict_interval([row], level)[0]
            covered[level] += int(lower <= label <= upper)
        learner.learn_one(row, label)
    for level, count in covered.items():
        assert abs(count / 1500 - level) < 0.03, (level, count)
    assert learner.predict_interval(x[:4]).shape == (4, 2)


@pytest.mark.parametrize("level", [0.0, 0.4, 1.0, float("nan")])
def test_levels_have_bounds(level: float) -> None:
    with pytest.raises(ValueError, match=r"between 0\.5 and 0\.99"):
        Learner(Plan(inputs=1)).predict_interval([[0.0]], level)
