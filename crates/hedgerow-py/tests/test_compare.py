"""Comparisons, predictions, and the way from a file to an answer."""

from __future__ import annotations

import csv
import json
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hedgerow
import numpy as np
import pytest
from hedgerow import Comparison, Frame, compare, simulate

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")

FLAGS = "--data drift --method gr,mk,linear --nodes 4 --rounds 40 --trials 3 --seed 3"
SMALL: dict[str, Any] = {"method": "gr,mk,linear", "nodes": 4, "rounds": 40, "trials": 3, "seed": 3}


def readings(rows: int = 240, seed: int = 1) -> Any:
    """Readings of three devices: a time, a text, a gap now and then, and a label with gaps."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(rows, 2)).astype(np.float32)
    y = (np.sin(3 * x[:, 0]) + x[:, 1]).astype(np.float32)
    y[7] = np.nan
    x[5, 1] = np.nan
    return pandas.DataFrame(
        {
            "when": pandas.date_range("2026-01-01", periods=rows, freq="h"),
            "device": [f"meter-{row % 3}" for row in range(rows)],
            "kind": [["old", "new"][row % 2] for row in range(rows)],
            "a": x[:, 0],
            "b": x[:, 1],
            "load": y,
        }
    )


def polars_of(frame: Any) -> Any:
    columns = {name: frame[name].tolist() for name in frame.columns if name != "when"}
    times = {"when": frame["when"].dt.to_pydatetime().tolist()} if "when" in frame.columns else {}
    return polars.DataFrame(times | columns, nan_to_null=True)


def test_a_comparison_is_that_of_the_command_line(program: Path, tmp_path: Path) -> None:
    subprocess.run([program, "compare", "--quiet", "--out", "cli", *FLAGS.split()], cwd=tmp_path, check=True)
    comparison = compare("drift", **SMALL)
    written = {Path(file).name: Path(file) for file in comparison.write(tmp_path / "python")}
    assert set(written) >= {"compare.csv", "compare.json", "compare.md", "compare.html", "compare.svg"}
    for name in ("compare.csv", "compare.json", "compare.md"):
        assert written[name].read_text() == (tmp_path / "cli" / name).read_text(), name
    assert comparison.summary == json.loads(written["compare.json"].read_text())
    assert comparison.report() == written["compare.html"].read_text()


def test_what_a_comparison_says() -> None:
    comparison = compare("friedman", method="tr,tr+alone,mk,mean", nodes=4, rounds=80, trials=3)
    ranking = comparison.ranking
    assert isinstance(ranking, Frame)
    assert comparison.best == "tr"
    assert comparison.recommendation.startswith(("Choose tr", "There is no single best method: tr"))
    assert comparison.worth is not None
    assert comparison.worth.startswith("Federating (tr) lowers the error by")
    assert comparison.recommendation in str(comparison)
    assert comparison.recommendation in repr(comparison)
    assert "Federating" in comparison._repr_html_()
    ranks = dict(zip(ranking["method"], ranking["rank"], strict=True))
    assert ranks["tr"] == 1
    assert np.isnan(ranks["mean"])
    assert np.all(np.diff(ranking["error"]) >= 0)
    assert ranking["trials"].dtype == np.int64
    tests = comparison.tests
    second = tests["method"].tolist().index("mk")
    assert tests["ratio_low"][second] > 1
    assert 0 < tests["p"][second] <= tests["p_holm"][second] < 0.05
    assert set(comparison.figures) == {"compare", "bytes"}
    assert all(svg.startswith("<svg") for svg in comparison.figures.values())
    assert comparison.to_pandas().shape == comparison.to_polars().shape == (4, len(ranking))
    again = pickle.loads(pickle.dumps(comparison))
    assert isinstance(again, Comparison)
    assert again.summary == comparison.summary


def test_a_grid_has_every_combination(tmp_path: Path) -> None:
    grid: dict[str, Any] = {"partition": ["round-robin", "sorted-label"], "against": "linear", **SMALL}
    comparison = compare(["friedman", "drift"], folder=tmp_path, **grid)
    assert len(comparison.summary["runs"]) == 4
    assert (comparison.best, comparison.worth) == (None, None)
    cells = zip(comparison.ranking["data"], comparison.ranking["partition"], strict=True)
    assert len(set(cells)) == 4
    assert comparison.recommendation.startswith("Over 4 runs")
    stored = list((tmp_path / "runs").iterdir())
    assert len(stored) == 4
    # What is stored isn't run again.
    for file in stored:
        changed = file.read_text().replace('"seed":3', '"seed":4')
        file.write_text(changed)
    again = compare(["friedman", "drift"], folder=tmp_path, **grid)
    assert set(again.ranking["seed"]) == {4}


def test_budgets_show_error_against_bytes() -> None:
    asked: dict[str, Any] = {"method": "mk", "nodes": 4, "rounds": 40, "trials": 2}
    comparison = compare("friedman", budget=[50, 100], **asked)
    assert comparison.ranking["budget"].tolist() == [50, 100]
    assert comparison.ranking["bytes_up"][0] < comparison.ranking["bytes_up"][1]
    assert compare("friedman", budget=50, **asked).ranking["budget"].tolist() == [50]
    with pytest.raises(ValueError, match="budget"):
        compare("friedman", budget=[], **asked)


def test_arrays_frames_and_files_are_compared_alike(tmp_path: Path) -> None:
    frame = readings().drop(columns=["when", "kind"])
    file = tmp_path / "readings.csv"
    frame.to_csv(file, index=False)
    asked: dict[str, Any] = {"method": "gr,mk", "trials": 2, "scaling": "online"}
    read = compare(file, target="load", node="device", **asked)
    x, y = frame[["a", "b"]].to_numpy(), frame["load"].to_numpy()
    for same in (
        compare(x, y, node=frame["device"], **asked),
        compare(frame, "load", node="device", **asked),
        compare(polars_of(frame), target="load", node="device", **asked),
        compare(zip(x, y, frame["device"], strict=True), **asked),
    ):
        assert same.ranking["error"].tolist() == read.ranking["error"].tolist()
        assert same.summary["runs"][0]["nodes"] == 3
    # Other samples are another run, also in a folder that has runs.
    stored = compare(x, y, folder=tmp_path / "stored", **asked)
    other = compare(x, y + 1, folder=tmp_path / "stored", **asked)
    assert len(list((tmp_path / "stored/runs").iterdir())) == 2
    assert stored.ranking["error"].tolist() != other.ranking["error"].tolist()


def test_options_of_files_apply_to_frames(tmp_path: Path) -> None:
    frame = readings()
    file = tmp_path / "readings.csv"
    frame.to_csv(file, index=False)
    asked: dict[str, Any] = {"time": "when", "node": "device", "categories": "one-hot", "method": "gr"}
    asked |= {"trials": 1, "target": "load"}
    assert simulate(file, **asked, calendar="none").summary["data"]["features"] == 4
    read = simulate(file, **asked, calendar="hour")
    assert read.summary["data"]["features"] == 6
    asked["calendar"] = "hour"
    indexed = frame.set_index("when")
    for same in (frame, indexed, polars_of(frame)):
        assert simulate(same, **asked).mse == read.mse
    backwards = frame.iloc[::-1]
    with pytest.raises(ValueError, match="time goes back"):
        simulate(backwards, **asked)
    ordered = simulate(backwards, **asked, settings={"data.disorder": "sort"})
    assert ordered.summary["data"]["samples"] == 239
    assert simulate(frame, "load", **asked | {"target": None}).mse == read.mse
    dropped = simulate(frame, drop=["when", "kind"], node="device", method="gr", trials=1)
    assert dropped.summary["data"]["features"] == 2


def test_predictions_are_those_of_the_command_line(program: Path, tmp_path: Path) -> None:
    frame = readings()
    frame.to_csv(tmp_path / "readings.csv", index=False)
    flags = "--target load --node device --time when --drop kind --method gr,mk --trials 2"
    command = [program, "simulate", "--quiet", "--data", "readings.csv", *flags.split()]
    subprocess.run([*command, "--predictions", "cli.csv"], cwd=tmp_path, check=True)
    asked: dict[str, Any] = {"target": "load", "node": "device", "time": "when", "drop": "kind"}
    asked |= {"method": "gr,mk", "trials": 2, "predictions": True}
    written = {"run.predictions": str(tmp_path / "python.csv")}
    result = simulate(tmp_path / "readings.csv", **asked, settings=written)
    expected = (tmp_path / "cli.csv").read_text()
    assert (tmp_path / "python.csv").read_text() == expected
    predictions = result.predictions
    assert isinstance(predictions, Frame)
    heads, *rows = csv.reader(expected.splitlines())
    assert list(predictions) == heads
    count = 239 * len(set(predictions["method"]))
    assert len(rows) == len(predictions["row"]) == count
    for at, (row, time, node, method, *numbers) in enumerate(rows):
        assert (str(predictions["row"][at]), predictions["node"][at]) == (row, node)
        assert predictions["method"][at] == method
        assert predictions["time"][at] == np.datetime64(time.rstrip("Z"))
        for name, number in zip(heads[4:], numbers, strict=True):
            value = predictions[name][at]
            assert value == np.float32(number) if number else np.isnan(value)
    assert predictions.to_pandas().shape == predictions.to_polars().shape == (count, 8)
    again = pickle.loads(pickle.dumps(result))
    assert np.array_equal(again.predictions["prediction"], predictions["prediction"])
    assert again.worth == result.worth
    squares = (predictions["truth"] - predictions["prediction"]) ** 2
    mse = squares[predictions["method"] == "mk"].mean()
    trials = next(one["mse_trials"] for one in result.summary["methods"] if one["name"] == "mk")
    assert mse == pytest.approx(trials[0], rel=1e-4)


def test_predictions_are_only_kept_if_they_are_asked_for() -> None:
    asked: dict[str, Any] = {"method": "mk", "nodes": 2, "rounds": 20, "trials": 1}
    assert simulate("friedman", **asked).predictions is None
    kept = simulate("friedman", predictions=True, **asked)
    assert isinstance(kept.predictions, Frame)
    assert list(kept.predictions)[:3] == ["row", "node", "method"]
    # What doesn't fit into memory is refused before the run.
    little = {"run.memory_limit": 0.05}
    many: dict[str, Any] = {
        "method": "linear",
        "nodes": 2,
        "rounds": 300_000,
        "trials": 1,
        "settings": little,
    }
    with pytest.raises(ValueError, match="of memory"):
        simulate("friedman", predictions=True, **many)


def test_whether_federating_pays() -> None:
    said = simulate("friedman", nodes=4, rounds=60, trials=2).worth
    assert said is not None
    assert said.startswith("Federating (tr)")
    assert simulate("friedman", method="mk", nodes=4, rounds=20, trials=1).worth is None


@pytest.mark.parametrize(
    ("arguments", "named", "error", "part"),
    [
        (("no-such-file.csv",), {}, FileNotFoundError, "no-such-file.csv"),
        (("friedman",), {"method": "km"}, ValueError, "km"),
        (("friedman",), {"against": "gr", "method": "mk"}, ValueError, r"against .*mk.*\"gr\""),
        (("friedman",), {"partition": "block"}, ValueError, "federation.partition.*blocks"),
        (("friedman",), {"partition": []}, ValueError, "at least 1 partition"),
        ((["friedman", "friedmann"],), {}, ValueError, "friedmann"),
        (("friedman", [1.0]), {}, TypeError, "target"),
        ((np.zeros((3, 2)),), {}, TypeError, "y is missing"),
        ((np.zeros((3, 2)), [1.0, 2.0, 3.0]), {"time": "when"}, TypeError, "time is about columns"),
        ((np.zeros((3, 2)), [1.0, 2.0, 3.0]), {"target": "y"}, TypeError, "columns"),
        ((np.ones((3, 2)), [1.0, 2.0, 3.0]), {"settings": {"data.rows": 2}}, ValueError, "data.rows says"),
        ((readings(), [1.0]), {"time": "when"}, TypeError, "y must be the name .* time is given"),
        ((readings(), "load"), {"time": "when", "target": "load"}, TypeError, "named once"),
        ((readings(),), {"time": "then", "target": "load", "drop": "kind"}, ValueError, "then"),
    ],
)
def test_comparisons_that_make_no_sense(
    arguments: Any, named: dict[str, Any], error: type[Exception], part: str
) -> None:
    with pytest.raises(error, match=part):
        compare(*arguments, **named)


def test_an_interruption_ends_a_comparison(interrupt: Callable[[float], None]) -> None:
    interrupt(0.5)
    with pytest.raises(KeyboardInterrupt):
        compare("friedman", method="naive,mk", rounds=100_000, nodes=50, trials=4)


def test_from_a_file_to_an_answer_in_three_calls(tmp_path: Path) -> None:
    """A Python user with a table of readings that nobody has edited: gaps, texts and times."""
    file = tmp_path / "readings.csv"
    readings(rows=600).to_csv(file, index=False)
    columns: dict[str, Any] = {"target": "load", "node": "device", "time": "when", "categories": "one-hot"}
    # 1. Is federating worth it, and how good are the predictions?
    kept = tmp_path / "model.safetensors"
    result = simulate(file, **columns, trials=2, predictions=True, save_model=kept)
    assert result.worth is not None
    assert "compared with each device alone" in result.worth
    assert result.predictions is not None
    # 2. Which method?
    comparison = compare(file, **columns, trials=2, method="tr,gr,mk,linear,tr+alone,last,mean")
    assert comparison.best in ("tr", "gr")
    assert comparison.best in comparison.recommendation
    assert (tmp_path / "answer/compare.html").as_posix() in comparison.write(tmp_path / "answer")
    # 3. What was learned, for the next readings of each device.
    model = hedgerow.load(kept)
    frame = readings(rows=600)
    assert model.nodes == sorted(set(frame["device"]))
    assert np.nanmean((model.predict(frame) - frame["load"]) ** 2) < 0.2 * np.nanvar(frame["load"])
    errors = result.mse
    assert errors["tr"] < 0.2 * errors["last"]
    assert hedgerow.__version__ in json.dumps(comparison.summary)
