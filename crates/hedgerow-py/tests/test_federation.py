"""Many nodes in one process, and simulations."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hedgerow import Federation, Plan, Result, simulate

from .conftest import METHODS, Array

Samples = tuple[Array, Array]


@pytest.mark.parametrize("method", METHODS)
def test_saved_copied_and_pickled_federations_go_on_to_the_bit(method: str, samples: Samples) -> None:
    x, y = samples
    federation = Federation(Plan(method=method, inputs=3, nodes=4))
    federation.run(x[:301], y[:301])
    others = [
        pickle.loads(pickle.dumps(federation)),
        copy.deepcopy(federation),
        Federation.restore(federation.save()),
    ]
    expected = federation.run(x[301:], y[301:]).predictions
    assert expected is not None
    for other in others:
        assert type(other) is Federation
        assert np.array_equal(other.run(x[301:], y[301:]).predictions, expected)
        assert (other.rounds, other.mse, other.traffic) == (
            federation.rounds,
            federation.mse,
            federation.traffic,
        )
    # With few samples per node, pof has not converged.
    assert federation.mse < {"pof": 1.2}.get(method, 1.0) * y.var()


@pytest.mark.parametrize("method", METHODS)
def test_a_federation_is_a_simulation_though_scales_change(method: str) -> None:
    rng = np.random.default_rng(7)
    x = (rng.normal(size=(800, 2)) * (1 + np.arange(800)[:, None] / 40) + [300.0, -9.0]).astype(np.float32)
    y = (1000 * np.sin(x[:, 0] / 5) + 10 * x[:, 1]).astype(np.float32)
    variances = [0.1 * 10**at for at in range(6)]
    played = Federation(Plan(method=method, inputs=2, nodes=4, kernels=variances)).run(x, y)
    settings = {"kernels.variances": variances}
    name = method.split(":")[0]
    simulated = simulate(x, y, nodes=4, method=name, trials=1, scaling="online", settings=settings)
    assert played.mse[method] == simulated.mse[method]
    assert played.summary["rounds"] == simulated.summary["rounds"] == 200


def test_frames_iterators_and_arrays_are_the_same(samples: Samples) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    x, y = samples
    columns = {"b": x[:, 1], "time": np.arange(600), "a": x[:, 0], "y": y, "c": x[:, 2]}
    plan = Plan(method="mk", columns=["a", "b", "c"], nodes=4)

    def predictions(*arguments: Any, **named: Any) -> Any:
        return Federation(plan).run(*arguments, **named).predictions

    expected = predictions(x, y)
    for frame in (pandas.DataFrame(columns), polars.DataFrame(columns)):
        assert np.array_equal(predictions(frame), expected)
        assert np.array_equal(predictions(frame, y), expected)
        assert np.array_equal(predictions(frame, "y"), expected)
        with pytest.raises(ValueError, match="no column 'z'; it has b, time"):
            predictions(frame, "z")
    assert np.array_equal(predictions(zip(x, y, strict=True)), expected)
    names = [dict(zip("abc", row, strict=True)) for row in x]
    assert np.array_equal(predictions((name, label) for name, label in zip(names, y, strict=True)), expected)
    node = np.arange(600) % 4
    assert np.array_equal(predictions(x, y, node), expected)
    assert np.array_equal(predictions(x, y, node=[f"n{number}" for number in node]), expected)
    assert np.array_equal(predictions(zip(x, y, node, strict=True)), expected)
    named = pandas.DataFrame(columns | {"who": node})
    assert np.array_equal(predictions(named, "y", "who"), expected)


def test_names_of_columns_that_are_no_text_or_there_twice(samples: Samples) -> None:
    pandas = pytest.importorskip("pandas")
    x, y = samples
    frame = pandas.DataFrame(np.column_stack([x, y]))
    expected = Federation(Plan(inputs=3, nodes=2)).run(x, y).predictions
    counted = Plan(columns=["0", "1", "2"], target="3", nodes=2)
    for plan, label in ((counted, None), (counted, 3), (Plan(inputs=3, nodes=2), "3")):
        assert np.array_equal(Federation(plan).run(frame, label).predictions, expected)
    assert simulate(frame, 3, nodes=2, method="linear", trials=1).mse
    for columns in (["a", "b", "a", "y"], ["a", 1, "1", "y"]):
        federation = Federation(Plan(columns=["a", "b"], nodes=2))
        with pytest.raises(ValueError, match=f"two columns '{columns[2]}'"):
            federation.run(frame.set_axis(columns, axis=1))


def test_a_label_is_never_an_input(samples: Samples) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(samples[0], columns=["a", "b", "c"])
    federation = Federation(Plan(columns=["a", "b", "c"], target="price", nodes=2))
    for method in (federation.run, federation.round):
        with pytest.raises(ValueError, match="no column 'price'; it has a, b, c"):
            method(frame)
        with pytest.raises(ValueError, match="column 'b' is the label"):
            method(frame, "b")
    assert federation.samples == 0
    # Also if the plan has no names of columns, and labels are a separate array.
    priced = frame.assign(price=samples[1])
    result = Federation(Plan(inputs=3, target="price", nodes=2)).run(priced, samples[1])
    assert np.array_equal(result.predictions, federation.run(priced).predictions)
    with pytest.raises(ValueError, match="column 'c' is the label"):
        simulate(frame, target="c", features=["a", "c"])
    with pytest.raises(ValueError, match="no column is left to be the label"):
        simulate(frame, features=["a", "b", "c"])
    with pytest.raises(ValueError, match="no column to predict from"):
        simulate(frame[["c"]])
    # As in a file, the label is the last column without another role.
    settings: dict[str, Any] = {"method": "linear", "trials": 1}
    named = simulate(frame, target="b", features=["a", "c"], **settings)
    assert simulate(frame, features=["a", "c"], **settings).mse == named.mse
    owned = frame.assign(who=np.arange(600) % 3)
    assert simulate(owned, node="who", **settings).summary["data"]["features"] == 2


def test_columns_of_any_kind_of_number(samples: Samples) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    x, y = samples
    whole, flag = (10 * x[:, 0]).astype(int), x[:, 0] > 0
    expected = Federation(Plan(inputs=3)).run(np.column_stack([x[:, 1], whole, flag]), y).predictions
    columns = {"a": x[:, 1], "b": whole, "c": flag, "y": y}
    for frame in (
        pandas.DataFrame(columns),
        polars.DataFrame(columns),
        pandas.DataFrame(columns).astype({"b": "Int64", "c": "boolean"}),
        pandas.DataFrame(columns).astype({"a": object, "y": object}),
    ):
        plan = Plan(columns=["a", "b", "c"])
        assert np.array_equal(Federation(plan).run(frame).predictions, expected)
    assert simulate(pandas.DataFrame(columns), method="linear", trials=1).mse
    for bad, words in (("1.5", "column 'b' must be"), (10**400, "column 'b' is too large")):
        mixed = pandas.DataFrame(columns).astype({"b": object})
        mixed.loc[3, "b"] = bad
        with pytest.raises((TypeError, ValueError), match=words):
            Federation(plan).run(mixed)
        with pytest.raises((TypeError, ValueError), match=words):
            simulate(mixed)
    with pytest.raises(TypeError, match="column 'y' must be"):
        Federation(plan).run(polars.DataFrame(columns | {"y": y.astype(str)}))
    # Every mark of a missing value is filled in.
    holes = pandas.DataFrame(columns).astype({"b": "Int64"})
    holes.loc[5, "b"] = pandas.NA
    table = np.column_stack([x[:, 1], whole, flag])
    table[5, 1] = np.nan
    assert np.array_equal(
        Federation(plan).run(holes).predictions, Federation(Plan(inputs=3)).run(table, y).predictions
    )


def test_the_same_name_is_the_same_node_always(samples: Samples) -> None:
    x, y = samples
    numbers = np.arange(600) % 4
    names = np.array(["north", "east", "south", "west"])[numbers]
    # Each call sees the names in another order.
    parts = [np.arange(at, at + 60)[:: (-1) ** (at // 60)] for at in range(0, 600, 60)]
    counted, named = (Federation(Plan(method="mk", inputs=3, nodes=4, personal=True)) for _ in range(2))
    for at, part in enumerate(parts):
        # For each way to continue.
        named = [
            lambda one: one,
            copy.copy,
            copy.deepcopy,
            lambda one: pickle.loads(pickle.dumps(one)),
            lambda one: Federation.restore(one.save()),
        ][at % 5](named)
        for node, one in ((numbers, counted), (names, named)):
            if at % 2:
                one.run(x[part], y[part], node[part])
            else:
                one.round(x[part], y[part], node[part])
    assert named.names == {"north": 0, "east": 1, "south": 2, "west": 3}
    for node in range(4):
        assert np.array_equal(named.predict(x, node=node), counted.predict(x, node=node))
    # Refused samples add no names, and copies have their own names.
    federation = Federation(Plan(inputs=3, nodes=2))
    with pytest.raises(ValueError, match="label"):
        federation.run(x[:1], [np.inf], ["typo"])
    federation.run(x[:1], y[:1], ["a"])
    other = copy.copy(federation)
    other.run(x[:1], y[:1], ["b"])
    assert (federation.names, other.names) == ({"a": 0}, {"a": 0, "b": 1})
    with pytest.raises(ValueError, match="2 nodes, but 3 are named"):
        other.run(x[:1], y[:1], ["c"])


def test_names_in_saved_states_are_checked(samples: Samples) -> None:
    plan = Plan(inputs=3, nodes=2)
    federation = Federation(plan)
    federation.run(samples[0][:2], samples[1][:2], ["a\n", "b"])
    saved = federation.save()
    head, names, native = saved.split(b"\n", 2)
    assert json.loads(names) == ["a\n", "b"]
    # A state saved without names.
    assert Federation.restore(native).names == {}
    assert Federation.restore(native).samples == 2
    for bad in (b"", b"{}", b"[1]", b'["a", "a"]', b'["a", "b", "c"]', b"[" * 100_000, b"\xff"):
        with pytest.raises(ValueError, match="the saved federation"):
            Federation.restore(b"\n".join([head, bad, native]))


def test_nodes_can_be_asked_by_their_names(samples: Samples) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    x, y = samples
    federation = Federation(Plan(method="pof", columns=["a", "b", "c"], nodes=2))
    with pytest.raises(ValueError, match="no node has the name 'north': none has a name"):
        federation.predict(x, node="north")
    federation.run(x[:150], y[:150], np.where(np.arange(150) % 3, "north", "south"))
    assert federation.names == {"south": 0, "north": 1}
    assert not np.array_equal(federation.predict(x, node=0), federation.predict(x, node=1))
    assert federation.predict_one(x[7], 0) != federation.predict_one(x[7], 1)
    assert federation.shares(0) != federation.shares(1)
    for name, number in federation.names.items():
        expected = federation.predict(x, node=number)
        assert np.array_equal(federation.predict(x, node=name), expected)
        assert federation.predict_one(x[7], name) == federation.predict_one(x[7], number)
        assert federation.shares(name) == federation.shares(number)
        # Columns of a frame are found by name; others are ignored.
        columns = {"y": y, "c": x[:, 2], "b": x[:, 1], "a": x[:, 0], "place": ["here"] * 600}
        for frame in (pandas.DataFrame(columns), polars.DataFrame(columns)):
            assert np.array_equal(federation.predict(frame, node=name), expected)
    for call in (federation.predict, federation.predict_one):
        with pytest.raises(ValueError, match="no node has the name 'nroth': there are south, north"):
            call(x[:1] if call == federation.predict else x[0], node="nroth")  # type: ignore[operator]
    with pytest.raises(TypeError, match='column "c"'):
        federation.predict(pandas.DataFrame({"a": [1.0], "b": [1.0], "c": ["x"]}))


@pytest.mark.parametrize("node", ["abcabc", 3, 2.5, b"abcabc", iter("abcabc")])
def test_a_text_is_one_name(node: Any) -> None:
    x, y = np.random.default_rng(1).uniform(size=(6, 2)), np.arange(6.0)
    federation = Federation(Plan(inputs=2, nodes=3))
    for play in (federation.run, federation.round, simulate):
        with pytest.raises(TypeError, match="node must be a sequence with the node of each row, but is"):
            play(x, y, node=node)
    assert (federation.samples, federation.names) == (0, {})


def test_no_more_is_read_than_is_needed(samples: Samples) -> None:
    x, y = samples
    read = 0

    def stream(*, named: bool = False) -> Iterator[tuple[Any, ...]]:
        nonlocal read
        read = 0
        for row, label in zip(x, y, strict=True):
            read += 1
            # One of the needed samples has no label.
            yield (row, np.nan if read == 5 else label, *([f"n{read % 3}"] if named else []))

    def reads(*, named: bool = False, **more: Any) -> tuple[int, int]:
        result = simulate(stream(named=named), method="linear", trials=1, rounds=30, **more)
        return read, result.summary["rounds"]

    assert reads(nodes=3) == (91, 30)
    assert reads(settings={"federation.nodes": 3}, partition="round-robin", dropout=0.0) == (91, 30)
    # Here the number of needed samples or the node of the next one is unknown.
    assert reads()[0] == 600
    assert reads(nodes=3, lags=2)[0] == 600
    assert reads(nodes=3, dropout=0.5)[0] == 600
    assert reads(nodes=3, settings={"participation.late": 0.1})[0] == 600
    assert reads(named=True) == (600, 30)
    # Every sample that is read is used.
    expected = simulate(x, y, nodes=3, rounds=30, method="linear", trials=1, scaling="online")
    again = simulate(zip(x, y, strict=True), nodes=3, rounds=30, method="linear", trials=1, scaling="online")
    assert again.mse == expected.mse
    assert simulate(x, y, nodes=3, rounds=3000, method="linear", trials=1).summary["rounds"] == 200


class Tagged(Federation):
    """A subclass with its own attributes and arguments."""

    __slots__ = ("place",)

    def __new__(cls, plan: Plan, tag: list[str]) -> Tagged:
        return super().__new__(cls, plan)

    def __init__(self, plan: Plan, tag: list[str]) -> None:
        self.tag, self.place = tag, "attic"


def test_what_subclasses_know_survives(samples: Samples) -> None:
    x, y = samples
    federation = Tagged(Plan(inputs=3, nodes=2), ["a"])
    federation.run(x[:100], y[:100])
    expected = federation.predict(x)
    shallow, deep = copy.copy(federation), copy.deepcopy(federation)
    for other in (shallow, deep, pickle.loads(pickle.dumps(federation))):
        assert (type(other), other.tag, other.place) == (Tagged, ["a"], "attic")
        assert np.array_equal(other.predict(x), expected)
    assert shallow.tag is federation.tag
    assert deep.tag is not federation.tag


def test_an_iterator_is_learned_in_pieces(samples: Samples) -> None:
    """With unequal nodes, pieces differ from one call with all samples, as documented."""
    x, y = samples
    node = np.where(np.arange(600) % 5 == 0, 1, 0)
    by_iterator, by_pieces = (Federation(Plan(inputs=3, nodes=2)) for _ in range(2))
    result = by_iterator.run(zip(x, y, node, strict=True))
    runs = [
        by_pieces.run(x[at : at + 128], y[at : at + 128], node[at : at + 128]) for at in range(0, 600, 128)
    ]
    assert result.predictions is not None
    assert result.predictions.tolist() == [one for run in runs for one in run.predictions.tolist()]  # type: ignore[union-attr]
    assert by_iterator.save() == by_pieces.save()


def test_iterators_take_numbers_as_arrays_do(samples: Samples) -> None:
    x, y = samples
    x = x.copy()
    x[3, 1], x[5, 2] = 1e300, np.nan
    expected = Federation(Plan(inputs=3)).run(x, y).predictions
    rows = [[None if np.isnan(value) else value for value in row] for row in x.tolist()]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(Federation(Plan(inputs=3)).run(zip(x, y, strict=True)).predictions, expected)
        assert np.array_equal(Federation(Plan(inputs=3)).run(zip(rows, y, strict=True)).predictions, expected)
    named = Plan(columns=["a", "b", "c"])
    with pytest.raises(ValueError, match="none of the columns a, b, c, but A, B"):
        Federation(named).run([({"A": 1.0, "B": 2.0}, 1.0)])
    with pytest.raises(TypeError, match=r"feature 'b' must be a number, but is '1\.5'"):
        Federation(named).run([({"a": 1.0, "b": "1.5"}, 1.0)])

    def late() -> Iterator[Any]:
        yield from zip(x[:64], y[:64], strict=True)
        yield x[64], y[64], 0

    with pytest.raises(ValueError, match="or all"):
        Federation(Plan(inputs=3)).run(late())


def test_a_round_takes_any_number_of_samples(samples: Samples) -> None:
    x, y = samples
    federation = Federation(Plan(inputs=3, nodes=2, scaling="none", personal=False))
    before = federation.round(x[:7] / 1000, y[:7], node=[0, 0, 0, 1, 0, 0, 0])
    assert (before.shape, federation.rounds, federation.samples) == ((7,), 2, 7)
    assert not before.any(), "all of them were predicted by the model that the round began with"
    federation.round(x[:0], y[:0])
    assert federation.rounds == 2
    assert federation.predict_one(x[0] / 1000, node=1) == federation.predict(x[:1] / 1000, node=1)[0]
    assert len(federation.shares(1)) == 11


@pytest.mark.parametrize(
    ("arguments", "error", "part"),
    [
        ((np.zeros((4, 3)),), TypeError, "without y"),
        ((np.zeros((4, 2)), np.zeros(4)), ValueError, "shape"),
        ((np.zeros((4, 3)), np.zeros(3)), ValueError, "shape"),
        ((np.zeros((4, 3)), np.zeros(4), [0, 1, 2, 5]), ValueError, "row 3 has 5"),
        ((np.zeros((4, 3)), np.zeros(4), [0, 1, 2, -1]), ValueError, "row 3 has -1"),
        ((np.zeros((4, 3)), np.zeros(4), [0, 1]), ValueError, "4 numbers"),
        ((np.zeros((4, 3)), np.zeros(4), [0.5] * 4), TypeError, "node"),
        ((np.zeros((4, 3)), np.zeros(4), list("abcd")), ValueError, "3 nodes, but 4 are named"),
        ((np.zeros((4, 3)), [0.0, 1.0, np.inf, 1.0]), ValueError, "row 2: label inf"),
        (("friedman",), TypeError, "iterator"),
        (([],), ValueError, "no samples"),
        (([1, 2, 3],), TypeError, "but one is 1"),
        (([([0, 0, 0], 1.0), ([0, 0, 0], 1.0, 1)],), ValueError, "or all .* but one is"),
        (([([0, "1.5", 0], 1.0)],), TypeError, "a sample must be numbers, but its dtype is"),
        (([([0, 0, 0], "1.5")],), TypeError, "a label must be a number, but is '1.5'"),
        (([([0, 0, 10**400], 1.0)],), ValueError, "a sample is too large"),
        (([([0, 0, 0], 1.0), ([0, 0], 1.0)],), ValueError, r"has 3 numbers, but one of the shape \(2,\)"),
        (([(None, 1.0)],), ValueError, r"shape \(\)"),
        (([([0, 0, 1j], 1.0)],), TypeError, "dtype is complex"),
        (([([0, 0, 0], 1.0)], None, [0]), TypeError, r"\(x, y, node\)"),
        ((np.zeros((2, 3)), np.zeros(2), ["a", None]), TypeError, "but one is None"),
        ((np.zeros((2, 3)), np.zeros(2), [b"a", b"b"]), TypeError, "but one is b'a'"),
        (([({"a": 1.0}, 1.0)],), ValueError, "columns"),
        ((5,), TypeError, "iterator"),
    ],
)
def test_samples_that_a_federation_refuses(arguments: Any, error: type[Exception], part: str) -> None:
    federation = Federation(Plan(inputs=3, nodes=3))
    with pytest.raises(error, match=part):
        federation.run(*arguments)
    assert (federation.samples, federation.rounds) == (0, 1)


def test_other_bytes_are_no_federation() -> None:
    federation = Federation(Plan(inputs=3, nodes=3))
    for saved in (b"", b"x" * 50):
        with pytest.raises(ValueError, match="saved federation"):
            Federation.restore(saved)
    with pytest.raises(ValueError, match="another plan"):
        federation.__setstate__(Federation(Plan(inputs=3, nodes=2)).save())
    with pytest.raises(ValueError, match="simulate"):
        Federation(Plan(inputs=3, compression="q8"))
    with pytest.raises(ValueError, match=r"nodes must be at most \d+, .* 16 GiB, but is 1000000000"):
        Federation(Plan(inputs=3, nodes=10**9))
    with pytest.raises(ValueError, match="from 0 to 2, but is 3"):
        federation.shares(3)


def test_a_simulation_is_that_of_the_command_line(program: Path, tmp_path: Path) -> None:
    flags = (
        "--data drift --method mk,linear --nodes 5 --rounds 60 --trials 2 --seed 3 --set learning.ridge=0.1"
    )
    subprocess.run([program, "simulate", "--quiet", "--out", "cli", *flags.split()], cwd=tmp_path, check=True)
    result = simulate(
        "drift",
        method=["mk", "linear"],
        nodes=5,
        rounds=60,
        trials=2,
        seed=3,
        settings={"learning.ridge": 0.1},
    )
    joined = simulate(
        "drift",
        method="mk, linear",
        nodes=5,
        rounds=60,
        trials=2,
        seed=3,
        settings={"learning.ridge": 0.1},
    )
    assert joined.mse == result.mse
    written = result.write(tmp_path / "python")
    assert {Path(file).name for file in written} >= {"summary.json", "curves.csv", "report.html"}
    curves = [(tmp_path / folder / "curves.csv").read_text() for folder in ("cli", "python")]
    assert curves[0] == curves[1]
    assert result.report().startswith("<!DOCTYPE html>") or "<html" in result.report()


def test_arrays_are_simulated_like_files(tmp_path: Path, samples: Samples) -> None:
    pandas = pytest.importorskip("pandas")
    x, y = samples
    x, y = x.astype(np.float32), y.astype(np.float32)
    frame = pandas.DataFrame(x, columns=["a", "b", "c"]).assign(
        y=y, who=[f"n{row % 3}" for row in range(600)]
    )
    file = tmp_path / "samples.csv"
    frame.to_csv(file, index=False)
    settings: dict[str, Any] = {"method": ["gr", "mk"], "trials": 2, "scaling": "online"}
    read = simulate(file, target="y", node="who", **settings)
    for same in (
        simulate(x, y, node=frame["who"], **settings),
        simulate(frame, "y", node="who", **settings),
        simulate(frame, target="y", node="who", features=["a", "b", "c"], **settings),
        simulate(frame, target="y", node="who", features=frame.columns[:3], **settings),
        simulate(file, target="y", node="who", features=frame.columns[:3], **settings),
        simulate(zip(x, y, frame["who"], strict=True), **settings),
    ):
        assert same.mse == read.mse
        assert same.summary["nodes"] == 3
    dealt = simulate(x, y, nodes=4, **settings)
    assert (dealt.summary["nodes"], dealt.summary["rounds"]) == (4, 150)
    # Numbers of this size are scaled automatically.
    assert simulate(x, y, nodes=4, **settings | {"scaling": None}).mse == dealt.mse
    lagged = simulate(x, y, nodes=1, lags=2, method="gr", trials=1)
    assert lagged.summary["data"]["features"] == 5
    assert {"last", "mean"} < set(lagged.mse)


@pytest.mark.parametrize(
    ("arguments", "named", "error", "part"),
    [
        (("no-such-file.csv",), {}, FileNotFoundError, "no-such-file.csv"),
        (("friedman",), {"method": "km"}, ValueError, "km"),
        (("friedman",), {"nodes": -1}, ValueError, "nodes"),
        (("friedman",), {"trials": "3"}, TypeError, "trials"),
        (("friedman",), {"settings": {"learning.rigde": 1}}, TypeError, "ridge"),
        (("friedman",), {"settings": ["x"]}, TypeError, r"settings must be a dictionary .* is \['x'\]"),
        (("friedman",), {"method": "gr,km"}, ValueError, "km"),
        (("friedman", [1.0]), {}, TypeError, "target"),
        ((np.zeros((3, 2)),), {}, TypeError, "y is missing"),
        ((np.zeros((3, 2)), [1.0, 2.0]), {}, ValueError, "shape"),
        ((np.zeros((0, 2)), []), {}, ValueError, "at least 1 row"),
        ((np.zeros((3, 2)), [1.0, 1.0, 1.0]), {}, ValueError, "arrays"),
        ((np.zeros((3, 2)), [1.0, 2.0, 1e20]), {}, ValueError, "row 2"),
        ((np.zeros((3, 2)), [np.nan] * 3), {}, ValueError, "arrays"),
        ((np.zeros((3, 2)), [1.0, 2.0, 3.0]), {"node": ["a"]}, ValueError, "3 entries"),
        ((np.zeros((3, 2)), [1.0, 2.0, 3.0]), {"target": "y"}, TypeError, "columns"),
        ((np.array([["a", "b"]]), [1.0]), {}, TypeError, "dtype"),
        ((5,), {}, TypeError, "y is missing"),
        ((iter([]),), {}, ValueError, "no samples"),
        (([({"a": 1.0}, 1.0)],), {}, ValueError, "a sample has names, .* a frame, or numbers"),
        ((np.ones((3, 2)), [1.0, 2.0, 3.0]), {"settings": {"data.name": "x"}}, ValueError, "data.name says"),
        ((np.ones((3, 2)), [1.0, 2.0, 3.0]), {"settings": {"data.rows": 2}}, ValueError, "data.rows says"),
    ],
)
def test_simulations_that_make_no_sense(
    arguments: Any, named: dict[str, Any], error: type[Exception], part: str
) -> None:
    with pytest.raises(error, match=part):
        simulate(*arguments, **named)


def test_an_interruption_ends_a_simulation(interrupt: Callable[[float], None]) -> None:
    interrupt(0.5)
    with pytest.raises(KeyboardInterrupt):
        simulate("friedman", method="naive", rounds=100_000, nodes=50, trials=4)
    # The next run is not affected.
    assert simulate("friedman", method="linear", rounds=20, trials=1).mse["linear"] > 0


def results() -> list[Result]:
    rng = np.random.default_rng(0)
    federation = Federation(Plan(inputs=2, nodes=3, scaling="none"))
    run = federation.run(rng.uniform(size=(90, 2)), rng.uniform(size=90))
    return [run, simulate("friedman", method=["gr", "sk"], nodes=3, rounds=40, trials=2)]


def test_results_as_frames_tables_and_figures() -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    for result in results():
        lengths = {len(column) for column in result.curves.values()}
        assert len(lengths) == 1
        for frame, kind in ((result.to_pandas(), pandas.DataFrame), (result.to_polars(), polars.DataFrame)):
            assert isinstance(frame, kind)
            assert list(frame.columns) == list(result.curves)
            assert frame["mse"].to_numpy()[-1] == result.curves["mse"][-1]
        page = result._repr_html_()
        assert page.count("<tr>") == len(result.mse) + 1
        assert ("± sd" in page) == (result.summary["trials"] > 1)
        assert page.count("per node and round") == 2
        axes = result.plot()
        assert len(axes.get_lines()) == len(result.mse)
        assert result.plot(axes, column="mse_window") is axes
        with pytest.raises(ValueError, match="mse, "):
            result.plot(column="round")
        assert all(name in repr(result) for name in result.mse)


def test_a_figure_of_many_methods_can_be_read() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    methods = ["tr", "gr", "mk", "sk", "naive", "central", "local", "hindsight"]
    settings = {"run.window": 7, "federation.methods": methods}
    many = simulate("friedman", nodes=3, rounds=60, trials=2, settings=settings)

    def legend(axes: Any) -> list[str]:
        return [text.get_text() for text in axes.get_legend().get_texts()]

    axes = many.plot(column="mse_window")
    assert axes.get_ylabel() == "mean squared error, last 7 rounds"
    assert axes.get_title() == "friedman, 3 nodes, 60 rounds, 2 trials"
    looks = {line.get_label(): (line.get_color(), line.get_linestyle()) for line in axes.get_lines()}
    named = [label for label in legend(axes) if not label.endswith("others")]
    assert 6 <= len(named) <= 7
    assert len({looks[label] for label in named}) == len(named)
    # Of the lines of single kernels only the best; the lowest line is last in the legend.
    ends = {line.get_label(): line.get_ydata()[-1] for line in axes.get_lines()}
    kernels = {label.strip("_"): end for label, end in ends.items() if label.strip("_").startswith("sk:")}
    assert [label for label in named if label.startswith("sk:")] == [min(kernels, key=lambda at: kernels[at])]
    assert named == sorted(named, key=lambda label: -ends[label])
    # The other ten kernels, and the method with the largest error. Hindsight has no windowed error.
    assert sum(color == "0.75" for color, _ in looks.values()) == 11
    # The legend is beside the curves, in the figure.
    axes.figure.draw_without_rendering()
    box, beside = axes.get_window_extent(), axes.get_legend().get_window_extent()
    assert box.x1 < beside.x0 < beside.x1 <= axes.figure.bbox.x1
    assert legend(many.plot(methods="mk")) == ["mk"]
    assert len(legend(many.plot(methods=["gr", "sk"]))) == 12
    with pytest.raises(ValueError, match=r"methods must be of tr, gr, mk, sk, sk:1, .* but one is 'km'"):
        many.plot(methods=["gr", "km"])
    assert [many.plot(log=log).get_yscale() for log in (True, False)] == ["log", "linear"]
    for factor, scale in ((5.0, "linear"), (50.0, "log")):
        many.curves["mse"] = np.linspace(1.0, factor, len(many.curves["mse"]))
        assert many.plot().get_yscale() == scale


def test_the_course_of_a_federation_ends_at_its_error() -> None:
    run, simulated = results()
    assert run.curves["mse"][-1] == pytest.approx(run.mse["tr"])
    assert run.curves["round"].tolist() == list(range(1, 31))
    with pytest.raises(ValueError, match="simulate"):
        run.report()
    again = pickle.loads(pickle.dumps(simulated))
    assert (again.mse, again.report()) == (simulated.mse, simulated.report())


def test_names_can_not_break_the_page() -> None:
    result = results()[0]
    result.summary["methods"][0]["name"] = "<script>"
    assert "<script>" not in result._repr_html_()
