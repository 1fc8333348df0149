"""Frames of pandas and polars as a user has them: indices, truth values, missing ones, names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hedgerow import Federation, Learner, Plan, compare, load, simulate

pytest.importorskip("river")

from hedgerow.river import FourierFeatures, HedgerowRegressor

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")


def indoors(rows: int = 300) -> Any:
    rng = np.random.default_rng(4)
    frame = pandas.DataFrame({"room": [f"r{row % 3}" for row in range(rows)]})
    frame["when"] = pandas.date_range("2026-01-01", periods=rows // 3, freq="h").repeat(3)
    frame["heat"], frame["open"] = rng.normal(size=rows), rng.uniform(size=rows) > 0.5
    frame["load"] = frame["heat"] ** 2 + frame["open"]
    return frame


COLUMNS: dict[str, Any] = {"target": "load", "node": "room", "time": "when", "calendar": "none"}


def test_truth_values_of_frames_are_0_and_1() -> None:
    frame = indoors()
    numbers = simulate(frame.astype({"open": int}), **COLUMNS, trials=1)
    unknown = frame["open"].astype(object).where(frame.index != 150, None)
    of_polars = polars.DataFrame({name: frame[name].tolist() for name in frame.columns})
    for same in (frame, frame.astype({"open": "boolean"}), frame.astype({"open": object}), of_polars):
        assert simulate(same, **COLUMNS, trials=1).mse == numbers.mse
    for gap in (frame.assign(open=unknown), frame.assign(open=unknown.astype("boolean"))):
        assert simulate(gap, **COLUMNS, trials=1).summary["data"]["missing_inputs"] == 1
    # As a target too, however the frame is read.
    for columns in ({}, {"node": "room", "time": "when"}):
        kept = frame[["when", "room", "heat", "open"]] if columns else frame[["heat", "open"]]
        told = simulate(kept, target="open", **columns, method="mk", trials=1).summary
        assert "classes" not in told
        told = simulate(kept, target="open", task="classes", **columns, method="mk", trials=1).summary
        assert told["classes"] == ["0", "1"]
    texts = np.where(frame["load"] > 1, "much", "little")
    assert simulate(frame[["open"]].to_numpy(), texts, method="mk", trials=1).summary["classes"]


def test_levels_of_an_index_are_columns_if_they_are_named() -> None:
    frame = indoors()
    plain = simulate(frame, **COLUMNS, trials=1).mse
    for levels in ("when", ["room", "when"], ["room"]):
        assert simulate(frame.set_index(levels), **COLUMNS, trials=1).mse == plain
    settings = {"data.time": "when", "data.node": "room", "data.calendar": "none"}
    both = frame.set_index(["room", "when"])
    assert simulate(both, target="load", settings=settings, trials=1).mse == plain
    # Without a file.
    owned = frame[["room", "heat", "open", "load"]]
    by_room = simulate(owned, target="load", node="room", trials=1).mse
    assert simulate(owned.set_index("room"), target="load", node="room", trials=1).mse == by_room
    rooms, indexed = (Federation(Plan(columns=["heat", "open"], target="load", nodes=3)) for _ in range(2))
    assert rooms.run(owned, node="room").mse == indexed.run(owned.set_index("room"), node="room").mse
    # One that isn't named is no input.
    by_number = frame.rename_axis("number")
    assert simulate(by_number, **COLUMNS, trials=1).summary["data"]["features"] == 2


def test_names_of_columns_may_be_numbers() -> None:
    frame = indoors().rename(columns={"heat": 1, "open": 2})
    assert simulate(frame, **COLUMNS, trials=1).mse == simulate(indoors(), **COLUMNS, trials=1).mse


def test_a_frame_of_a_run_has_a_name_and_no_file(tmp_path: Path) -> None:
    result = simulate(indoors(), **COLUMNS, method="gr", trials=1, save_model=tmp_path / "m.safetensors")
    assert result.summary["settings"]["data"]["name"] == "frame"
    assert "hedgerow-" not in result.report()
    assert load(tmp_path / "m.safetensors").card["settings"]["data"]["name"] == "frame"
    arrays = simulate(np.ones((40, 1)), np.arange(40.0), method="gr", trials=1)
    assert arrays.summary["settings"]["data"]["name"] == "arrays"


@pytest.mark.parametrize(
    ("changed", "columns", "parts"),
    [
        ({"open": "x"}, {}, ['column "open"', "with drop=", "with missing=", "with categories=)"]),
        ({"on": np.datetime64("2026-01-01")}, {}, ["the time with time=)"]),
        (
            {"when": "2026-01-01"},
            {"node": None, "drop": "room"},
            ["node=COLUMN if", '"data.duplicates": "first"'],
        ),
    ],
)
def test_errors_name_arguments(changed: Any, columns: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(ValueError, match="the frame, row") as caught:
        simulate(indoors().assign(**changed), **(COLUMNS | columns))
    assert all(part in str(caught.value) for part in parts), caught.value
    assert "--" not in str(caught.value)


def test_names_must_be_texts() -> None:
    frame = indoors()
    for argument in ("target", "drop", "features"):
        with pytest.raises(TypeError, match=f"{argument} must be a name or a list of names, but has"):
            simulate(frame, **(COLUMNS | {argument: frame["load"]}))


def test_results_of_classes_say_so() -> None:
    frame = indoors().assign(load=lambda one: np.where(one["load"] > 1, "much", "little"))
    result = simulate(frame, **COLUMNS, method="gr", trials=2)
    assert "; share wrong: gr 0." in repr(result)
    assert "<th>share of wrong classes</th>" in result._repr_html_()
    (classes,) = (method["classes"] for method in result.summary["methods"] if method["name"] == "gr")
    right, wrong = sum(classes["confusion"][at][at] for at in (0, 1)), result.mse["gr"]
    assert right / np.sum(classes["confusion"]) == pytest.approx(1 - wrong)


def test_a_comparison_of_a_frame_continues(tmp_path: Path) -> None:
    asked = COLUMNS | {"method": "gr,last", "trials": 1, "folder": tmp_path / "runs"}
    first = compare(indoors(), **asked)
    again = compare(indoors(), **asked)
    assert len(list((tmp_path / "runs/runs").iterdir())) == 1
    assert first.ranking["error"].tolist() == again.ranking["error"].tolist()
    assert not (tmp_path / "runs/.samples").exists()


@pytest.mark.parametrize("missing", [None, float("nan"), pandas.NA, pandas.NaT])
def test_every_mark_of_a_missing_value_is_one(missing: Any) -> None:
    learner = Learner(Plan(columns=["a", "b"], categories={"b": ["x"]}, scaling="none"))
    assert learner.predict_one({"a": missing, "b": missing}) == learner.predict_one({"a": None, "b": None})
    learner.learn_one({"a": 1.0, "b": "x"}, missing)
    kinds = Learner(Plan(inputs=1, classes=["x", "y"]))
    kinds.learn_one([1.0], missing)
    kinds.learn([[1.0], [2.0]], np.array(["x", missing], dtype=object))
    assert (learner.missing_labels, kinds.missing_labels) == (1, 2)
    model = HedgerowRegressor()
    model.learn_one({"a": missing, "b": 1.0}, 1.0)
    model.learn_one({"a": missing, "b": 1.0}, missing)
    assert model.missing_labels == 1
    pair = Learner(Plan(inputs=2, scaling="none"))
    table = np.array([[1, missing], [2.0, 3]], dtype=object)
    assert pair.predict(table).tolist() == pair.predict([[1.0, np.nan], [2.0, 3.0]]).tolist()
    pair.learn(table, np.array([1, missing], dtype=object))
    assert (pair.samples, pair.missing_labels) == (1, 1)


def test_what_is_no_number_is_named() -> None:
    learner = Learner(Plan(columns=["a"]))
    with pytest.raises(TypeError, match="column \"a\": an input must be a number, but is 'x'"):
        learner.predict_one({"a": "x"})
    with pytest.raises(TypeError, match="a label must be a number, but is 'x'"):
        learner.learn_one([1.0], "x")
    with pytest.raises(TypeError, match="an input must be a number, but is 'x'"):
        learner.predict(np.array([["x"]], dtype=object))
    with pytest.raises(TypeError, match="seed must be a whole number or None, but is 'x'"):
        HedgerowRegressor(seed="x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="kernels must be a list of kernels, but is 3"):
        FourierFeatures(kernels=3)  # type: ignore[arg-type]


def test_one_sample_has_the_interval_of_its_row() -> None:
    rng = np.random.default_rng(5)
    X = rng.uniform(size=(300, 2))
    for target, y in (("y", X[:, 0]), ("a,b", X * 2)):
        learner = Learner(Plan(inputs=2, target=target))
        learner.learn(X, y)
        ends = np.asarray(learner.predict_interval_one(X[0], 0.8))
        assert ends.tolist() == learner.predict_interval(X[:1], 0.8)[0].astype(float).tolist()
        federation = Federation(Plan(inputs=2, target=target, nodes=2))
        federation.run(X, y, node=["a", "b"] * 150)
        at_b = np.asarray(federation.predict_interval_one(X[0], node="b"))
        assert at_b.tolist() == federation.predict_interval(X[:1], "b")[0].astype(float).tolist()
    classes = Learner(Plan(inputs=2, classes=["x", "y"]))
    assert np.isnan(classes.predict_interval_one([1.0, 2.0])).all()
