"""Classes and several targets: learners, federations, nodes and simulations."""

from __future__ import annotations

import inspect
import pickle
import subprocess
from pathlib import Path
from typing import Any

import hedgerow
import numpy as np
import pytest
from hedgerow import Engine, Federation, Learner, Node, Plan, Server, compare, simulate
from numpy.typing import NDArray

from .conftest import Array, Serve, until

NAMES = ["a", "b", "c"]


def regions(count: int = 600) -> tuple[Array, NDArray[Any]]:
    """Points, and the region of each."""
    x = np.random.default_rng(3).uniform(size=(count, 2))
    return x, np.where(x[:, 0] > 0.6, "c", np.where(x[:, 1] > 0.5, "b", "a"))


def two_targets(count: int = 600) -> tuple[Array, Array]:
    """Points, and two labels of different size."""
    x = np.random.default_rng(4).uniform(size=(count, 2))
    return x, np.column_stack([x[:, 0] * x[:, 1], 1000 + 50 * x[:, 1]])


def test_learners_of_classes() -> None:
    x, y = regions()
    many, one = Learner(Plan(inputs=2, classes=NAMES)), Learner(Plan(inputs=2, classes=NAMES))
    predictions = many.learn(x, y)
    assert [one.learn_one(row, label) for row, label in zip(x, y, strict=True)] == predictions.tolist()
    assert np.mean(predictions[100:] == y[100:]) > 0.9
    assert many.plan.classes == NAMES
    # The share of wrong classes, once there is a model.
    assert many.mse == pytest.approx(np.mean(predictions[16:] != y[16:]))
    each = many.predict_proba(x)
    assert each.shape == (600, 3)
    assert np.allclose(each.sum(axis=1), 1.0, atol=1e-6)
    assert np.array_equal(np.array(NAMES)[each.argmax(axis=1)], many.predict(x))
    again = pickle.loads(pickle.dumps(many))
    assert again.predict_proba_one(x[0]) == dict(zip(NAMES, each[0].astype(float).tolist(), strict=True))
    assert again.predict_one(x[0]) == many.predict(x)[0]
    assert np.isnan(many.predict_interval(x[:3])).all()
    # Without a class a sample is only predicted.
    for missing in (None, float("nan")):
        assert many.learn_one(x[0], missing) in NAMES
    many.learn(x[:2], np.array(["a", None], dtype=object))
    assert (many.samples, many.missing_labels) == (601, 3)
    with pytest.raises(ValueError, match="one of the classes a, b, c, but is 'd'"):
        many.learn_one(x[0], "d")
    with pytest.raises(ValueError, match=r"row 1: a label must be one of the classes a, b, c, but is 'd'"):
        many.learn(x[:2], ["a", "d"])
    with pytest.raises(ValueError, match=r"y must have the shape \(2,\), as X has rows, but has \(1,\)"):
        many.learn(x[:2], ["a"])
    with pytest.raises(TypeError):
        many.learn_one(x[0], [1.0])
    assert many.samples == 601
    with pytest.raises(ValueError, match="the plan has no classes"):
        Learner(Plan(inputs=2)).predict_proba(x)


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["0", "1"], [False, True]),
        (["0", "1"], [0, 1]),
        (["0", "1"], [0.0, np.int64(1)]),
        (["false", "true"], [False, True]),
        (["False", "True"], [np.bool_(False), np.bool_(True)]),
        (["-1.5", "2"], [-1.5, 2]),
    ],
)
def test_classes_may_be_numbers_or_truth_values(names: list[str], labels: list[Any]) -> None:
    x = np.random.default_rng(1).uniform(-1, 1, size=(100, 1))
    which = (x[:, 0] > 0).astype(int)
    plan = Plan(inputs=1, classes=names)
    texts, others, rows = Learner(plan), Learner(plan), Learner(plan)
    texts.learn(x, np.array(names)[which])
    rows.learn(x, np.array(labels)[which])
    for row, at in zip(x, which, strict=True):
        others.learn_one(row, labels[at])
    assert texts.save() == others.save() == rows.save()


def test_learners_of_several_targets() -> None:
    x, y = two_targets()
    plan = Plan(inputs=2, target="product,load")
    many, one = Learner(plan), Learner(plan)
    predictions = many.learn(x, y)
    assert predictions.shape == (600, 2)
    each = [one.learn_one(row, labels) for row, labels in zip(x, y, strict=True)]
    assert np.array_equal(np.array(each, dtype=np.float32), predictions)
    assert np.mean((predictions[200:] - y[200:]) ** 2, axis=0) / y.var(axis=0) == pytest.approx(
        [0, 0], abs=0.02
    )
    ends = many.predict_interval(x)
    assert ends.shape == (600, 2, 2)
    assert (ends[:, :, 0] < many.predict(x)).all()
    assert (ends[:, :, 1] > many.predict(x)).all()
    # A target alone has the same predictions, but for its own layer's view of the other: none.
    alone = Learner(Plan(inputs=2))
    alone.learn(x, y[:, 1])
    assert np.allclose(alone.predict(x), many.predict(x)[:, 1], rtol=1e-5)
    twin = pickle.loads(pickle.dumps(one))
    assert twin.learn_one(x[0], {"load": 1000.0, "product": 0.5}) == one.learn_one(x[0], (0.5, 1000.0))
    assert twin.save() == one.save()
    for missing in (None, (None, 1.0), {"product": 0.5}, [np.nan, np.nan]):
        one.learn_one(x[0], missing)
    one.learn(x[:2], [[1.0, np.nan], [1.0, 2.0]])
    assert (one.samples, one.missing_labels) == (602, 5)
    with pytest.raises(ValueError, match="y: a sample has 2 numbers, but 3 came"):
        one.learn_one(x[0], (1.0, 2.0, 3.0))
    with pytest.raises(TypeError, match="y: "):
        one.learn_one(x[0], ("a", 1.0))
    with pytest.raises(
        ValueError, match=r"y must have the shape \(600, 2\), as X has rows, but has \(600,\)"
    ):
        one.learn(x, y[:, 0])
    with pytest.raises(ValueError, match="row 1: "):
        one.learn(x[:2], [[1.0, 2.0], [1.0, np.inf]])


def test_federations_are_simulations() -> None:
    pandas = pytest.importorskip("pandas")
    x, y = regions()
    plan = Plan(inputs=2, nodes=3, classes=NAMES, columns=["u", "v"], target="kind", scaling="none")
    federation = Federation(plan)
    result = federation.run(x, y)
    simulated = simulate(
        x, y, nodes=3, method="tr", trials=1, scaling="none", predictions=True, settings={"run.seed": 1}
    )
    assert isinstance(simulated.predictions, hedgerow.Frame)
    assert simulated.predictions["prediction"].tolist() == np.asarray(result.predictions).tolist()
    assert result.mse["tr"] == federation.mse == simulated.mse["tr"] < 0.2
    assert result.summary["classes"] == NAMES
    # Frames and iterators are the same.
    frame = pandas.DataFrame(x, columns=["u", "v"]).assign(kind=y)
    for given in ((frame,), (frame, "kind"), (zip(x, y, strict=True),)):
        again = Federation(plan)
        assert np.mean(again.run(*given).predictions == y) > 0.8
        assert again.samples == 600
        assert np.array_equal(again.predict_proba(x, 1).shape, (600, 3))
    assert federation.predict_one(x[0], 2) == federation.predict(x[:1], 2)[0]
    assert list(federation.predict_proba_one(x[0])) == NAMES
    gaps = Federation(plan)
    gaps.run(frame.assign(kind=frame["kind"].where(frame.index % 10 > 0)))
    assert (gaps.samples, gaps.missing_labels) == (540, 60)


def test_federations_of_several_targets() -> None:
    pandas = pytest.importorskip("pandas")
    x, y = two_targets()
    plan = Plan(columns=["u", "v"], nodes=3, target="product,load")
    federation = Federation(plan)
    result = federation.run(x, y)
    predictions = np.asarray(result.predictions)
    assert predictions.shape == (600, 2)
    frame = pandas.DataFrame(np.hstack([x, y]), columns=["u", "v", "product", "load"])
    for given in ((frame,), (zip(x, y.tolist(), strict=True),)):
        again = Federation(plan).run(*given)
        assert np.allclose(np.asarray(again.predictions)[-100:], y[-100:], rtol=0.1, atol=0.05)
    assert result.mse["tr"] == pytest.approx(federation.mse)
    assert federation.predict_interval(x, 1).shape == (600, 2, 2)
    assert len(federation.predict_one(x[0])) == 2


def test_messages_have_one_output() -> None:
    plan = Plan(inputs=2, classes=["no", "yes"])
    engine, server = Engine(plan), Server(plan)
    engine.connected()
    engine.hear_broadcast(server.broadcast.round, server.broadcast.kernels, server.broadcast.numbers)
    assert engine.learn_one([0.0, 1.0], "yes") in ("no", "yes")
    later = engine.predict_later("q", [0.0, 1.0])
    assert engine.learn_by_id("q", "no") == later
    assert sum(engine.predict_proba_one([0.0, 1.0]).values()) == pytest.approx(1.0)
    for several in (Plan(inputs=2, classes=NAMES), Plan(inputs=2, target="a,b")):
        for kind in (Engine, Server):
            words = r"one output \(one target, or two classes\), but the plan has [23]: use Federation"
            with pytest.raises(ValueError, match=words):
                kind(several)


def test_nodes_of_classes(serve: Serve) -> None:
    x, y = regions(300)
    classes = 'learning.classes=["a", "b", "c"]'
    _, address = serve("learning.inputs=2", classes, "learning.nodes=1", "rounds.least=1", "rounds.quorum=1")
    with Node(address, name="n") as node:
        until(lambda: node.is_connected, "it is connected")
        assert node.plan.classes == NAMES
        for row, label in zip(x, y, strict=True):
            assert node.learn_one(row, label) in NAMES
        each = node.predict_proba_one(x[0])
        assert list(each) == NAMES
        assert sum(each.values()) == pytest.approx(1.0, abs=1e-5)
        assert node.predict_one(x[0]) == max(each, key=lambda name: each[name])
        assert np.isnan(node.predict_interval_one(x[0])).all()
        later = node.predict_later("q", x[1])
        assert node.learn_by_id("q", "b") == later
        with pytest.raises(ValueError, match="one of the classes a, b, c, but is 'd'"):
            node.learn_one(x[0], "d")
        assert node.learn_one(x[0], None) in NAMES
        assert node.status()["node"]["samples"] == 301


def test_nodes_of_several_targets(serve: Serve) -> None:
    x, y = two_targets(300)
    y += np.random.default_rng(2).normal(size=y.shape) * [0.1, 5.0]
    _, address = serve(
        "learning.inputs=2", "learning.target=product,load", "learning.nodes=1", "rounds.least=1"
    )
    with Node(address, name="n", settings={"samples.interval": 0.5}) as node:
        until(lambda: node.is_connected, "it is connected")
        for row, labels in zip(x, y, strict=True):
            assert len(node.learn_one(row, labels)) == 2
        until(lambda: bool(node.status()["node"]["scaled"]), "it has a scale")
        for row, labels in zip(x, y, strict=True):
            node.learn_one(row, tuple(labels))
        product, load = node.predict_one(x[0])
        ends = node.predict_interval_one(x[0])
        for value, (lower, upper) in zip((product, load), ends, strict=True):
            assert lower < value < upper
        with pytest.raises(ValueError, match="there are no probabilities"):
            node.predict_proba_one(x[0])
        with pytest.raises(ValueError, match="a sample has 2 numbers, but 1 came"):
            node.learn_one(x[0], [1.0])


def tables(tmp_path: Path) -> dict[str, tuple[Any, str]]:
    """Frames, and what the command line is told of each."""
    pandas = pytest.importorskip("pandas")
    x, y = regions(200)
    frame = pandas.DataFrame(x, columns=["u", "v"])
    _, both = two_targets(200)
    return {
        "classes": (frame.assign(kind=y), "--target kind"),
        "numbers": (frame.assign(kind=(x[:, 0] > 0.5).astype(int)), "--target kind --task classes"),
        "targets": (frame.assign(one=both[:, 0], two=both[:, 1]), "--target one,two"),
    }


@pytest.mark.parametrize("kind", ["classes", "numbers", "targets"])
def test_predictions_have_the_columns_of_the_command_line(kind: str, program: Path, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame, flags = tables(tmp_path)[kind]
    frame.to_csv(tmp_path / "data.csv", index=False)
    command = f"simulate --quiet --data data.csv --method tr --nodes 3 --trials 1 --predictions p.csv {flags}"
    subprocess.run([program, *command.split(), "--out", "out"], cwd=tmp_path, check=True)
    written = pandas.read_csv(tmp_path / "p.csv")
    named: dict[str, Any] = {"target": "one,two"} if kind == "targets" else {"target": "kind"}
    named |= {"task": "classes"} if kind == "numbers" else {}
    options: dict[str, Any] = {"method": "tr", "nodes": 3, "trials": 1, "predictions": True}
    result = simulate(frame, **named, **options)
    table = result.predictions.to_pandas()
    assert [name for name in written.columns if name != "time"] == list(table.columns)
    assert len(written) == len(table) > 150
    # The first row of a frame is row 1; that of its file is row 2, below the names.
    assert (written["row"] - 1).tolist() == table["row"].tolist()
    for name in table.columns.drop("row"):
        if table[name].dtype.kind == "f":
            assert np.allclose(written[name], table[name], rtol=1e-6, equal_nan=True), name
        else:
            assert written[name].astype(str).tolist() == table[name].astype(str).tolist(), name
    # Arrays are the same, and named so.
    y = frame[["one", "two"]].to_numpy() if kind == "targets" else frame["kind"].to_numpy()
    arrays = simulate(frame[["u", "v"]].to_numpy(), y, **options, task=named.get("task"))
    assert arrays.mse == result.mse
    assert (result.summary["data"]["name"], arrays.summary["data"]["name"]) == ("frame", "arrays")
    samples = list(zip(frame[["u", "v"]].to_numpy(), y, strict=True))
    assert simulate(samples, **options, task=named.get("task")).mse == result.mse
    unlabelled = (samples[0][0], [np.nan, 1.0] if kind == "targets" else None)
    skipped = simulate([*samples, unlabelled], **options, task=named.get("task"))
    assert skipped.summary["data"]["missing_labels"] == 1


def test_comparisons_of_classes() -> None:
    x, y = regions(200)
    comparison = compare(x, y, method="mk,linear", nodes=2, trials=2)
    assert comparison.ranking["data"].tolist() == ["arrays", "arrays"]
    assert "/" not in comparison.summary["runs"][0]["data"]
    assert "hedgerow-" not in str(comparison)


def test_errors_name_the_frame_and_not_a_file() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"when": range(50), "u": np.arange(50) * 1.0, "y": np.arange(50) * 1.0})
    text = frame.astype({"u": object})
    text.loc[7, "u"] = "high"
    with pytest.raises(TypeError, match="row 7 of the frame's column 'u' must be a number, but is 'high'"):
        simulate(text, target="y", trials=1)
    with pytest.raises(ValueError, match=r"^the frame, row 2: label 10+ is beyond the bound of 1e12"):
        simulate(frame.assign(y=[1.0, 2.0, 1e20] + [0.0] * 47), target="y", trials=1)
    for call in (simulate, compare):
        with pytest.raises(ValueError, match=r'^the frame, row 7, column "u": "high" is ') as said:
            call(text, target="y", time="when", trials=1)
        assert "csv" not in str(said.value)
        with pytest.raises(ValueError, match="the frame: no column"):
            call(frame, target="z", time="when", trials=1)
    big = frame.assign(y=np.where(frame.index == 3, 1e30, frame["y"]))
    with pytest.raises(ValueError, match=r'^the frame, row 3, column "y": 1e30 is beyond'):
        simulate(big, target="y", time="when", trials=1)
    many = np.array([f"class {at}" for at in range(200)])
    with pytest.raises(ValueError, match=r'^the arrays, .*column "y": more than 100 different values'):
        simulate(np.arange(200.0)[:, None], many, trials=1)


def test_the_arguments_are_described_once() -> None:
    simulated, compared = (inspect.signature(one).parameters for one in (simulate, compare))
    shared = set(simulated) & set(compared)
    assert {"target", "task", "node", "method", "settings", "budget", "partition"} < shared
    assert set(simulated) - shared == {"predictions", "save_model", "callbacks"}
    assert set(compared) - shared == {"against", "folder"}
    for one in (simulate, compare):
        with pytest.raises(TypeError, match="there is no argument 'taget'"):
            one("friedman", taget="y")  # type: ignore[call-arg]


def test_what_cant_be_done_is_refused_before_the_run() -> None:
    # Such a run would take hours.
    long: dict[str, Any] = {"rounds": 10**5, "nodes": 1000, "trials": 1000}
    with pytest.raises(TypeError, match="a callback must have the method on_round, but 5 has none"):
        simulate("friedman", callbacks=[5], **long)  # type: ignore[list-item]
    with pytest.raises(TypeError, match="callbacks must be a list of callbacks, but is 5"):
        simulate("friedman", callbacks=5, **long)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"run\.predictions"):
        simulate("friedman", settings={"run.predictions": "p.txt"}, **long)
