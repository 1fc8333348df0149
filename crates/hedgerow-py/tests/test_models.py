"""Saved models: predictions are those of the program and of live nodes, to the bit."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import Any

import hedgerow
import numpy as np
import pytest

NODES = 3
ROUNDS = 60


def table(rounds: int) -> dict[str, list[Any]]:
    """Rows of sensors in turn: a time, a name, an input with gaps, a text and a label."""
    rows: dict[str, list[Any]] = {name: [] for name in ("when", "sensor", "temp", "sky", "load")}
    for t in range(rounds):
        for node in range(NODES):
            temp = 10 + (t * 37 + node * 11) % 101 / 7
            rows["when"].append(3600 * t)
            rows["sensor"].append(f"sensor-{node}")
            rows["temp"].append(None if (t + node) % 13 == 0 else temp)
            rows["sky"].append(("clear", "rain", "fog")[(t + 2 * node) % 3])
            rows["load"].append(50 + 5 * node + math.sin(temp / 3) * 9 + t % 3)
    return rows


def frame(rounds: int) -> Any:
    return pytest.importorskip("pandas").DataFrame(table(rounds))


def simulate(rounds: int, method: str, path: Path | None = None, **more: Any) -> hedgerow.Result:
    return hedgerow.simulate(
        frame(rounds),
        target="load",
        node="sensor",
        time="when",
        categories="one-hot",
        method=method,
        trials=1,
        save_model=path,
        **more,
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "m.safetensors"
    simulate(ROUNDS, "mean,tr,tr+alone", path)
    return path


@pytest.mark.parametrize("method", ["tr", "gr", "mk+personal", "pof", "fedpoe", "local"])
def test_a_stored_node_says_what_a_longer_run_says(method: str, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    simulate(ROUNDS, method, path)
    model = hedgerow.load(path)
    assert model.nodes == [f"sensor-{node}" for node in range(NODES)]
    longer = simulate(ROUNDS + 1, method, predictions=True).predictions
    assert longer is not None
    expected = np.asarray(longer["prediction"])[longer["method"] == method][-NODES:]
    rows = frame(ROUNDS + 1)
    together = model.predict(rows)
    assert together.dtype == np.float32
    assert together[-NODES:].tolist() == expected.tolist()
    lower, upper = model.predict_interval(rows)
    ends = np.asarray([longer[end] for end in ("lower", "upper")])[:, longer["method"] == method]
    assert np.array_equal([lower[-NODES:], upper[-NODES:]], ends[:, -NODES:])
    one = model.predict(rows[["sky", "temp"]], node="sensor-1")
    is_own = (rows["sensor"] == "sensor-1").to_numpy()
    assert np.array_equal(one[is_own], together[is_own])
    only = model.predict(rows, node="sensor-1")
    assert np.array_equal(only[is_own], together[is_own])
    assert np.isnan(only[~is_own]).all()


def labelled(rounds: int) -> Any:
    """Rows with a second number and with classes."""
    rows = frame(rounds)
    rows["wind"] = rows["load"] * 2 + np.arange(len(rows)) % 4
    kinds = rows["load"].to_numpy().astype(int) % 5
    rows["two"] = [("no", "yes")[kind % 2] for kind in kinds]
    rows["five"] = [f"k{kind}" for kind in kinds]
    return rows


@pytest.mark.parametrize("method", ["tr", "tr+shared", "gr", "gr+shared", "mk", "mk+personal"])
@pytest.mark.parametrize("target", ["two", "five", "load,wind"])
def test_classes_and_several_targets_are_loaded(method: str, target: str, tmp_path: Path) -> None:
    drop = sorted({"load", "wind", "two", "five"} - set(target.split(",")))
    path, file = tmp_path / "m.safetensors", tmp_path / "p.jsonl"
    common: dict[str, Any] = dict(
        target=target, node="sensor", time="when", drop=drop, categories="one-hot", method=method, trials=1
    )
    hedgerow.simulate(labelled(ROUNDS), save_model=path, **common)
    rows = labelled(ROUNDS + 1)
    hedgerow.simulate(rows, settings={"run.predictions": str(file)}, **common)
    model = hedgerow.load(path)
    several = ["load", "wind"] if target == "load,wind" else []
    assert model.targets == several
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines = [line for line in lines if line["method"] == model.card["method"]]
    lines = lines[-NODES * max(1, len(several)) :]
    found = model.predict(rows)[-NODES:]
    if several:
        assert found.ravel().tolist() == np.float32([line["prediction"] for line in lines]).tolist()
        ends = np.stack([end[-NODES:].ravel() for end in model.predict_interval(rows)])
        wanted = np.float32([[line[end] for line in lines] for end in ("lower", "upper")])
        assert np.array_equal(ends, wanted)
        with pytest.raises(ValueError, match="numbers"):
            model.predict_proba(rows)
        return
    assert model.classes == sorted(set(rows[target]))
    assert found.tolist() == [line["prediction"] for line in lines]
    wanted = np.float32([[line["probabilities"][name] for name in model.classes] for line in lines])
    assert np.array_equal(model.predict_proba(rows)[-NODES:], wanted)
    assert np.isnan(model.predict_interval(rows)).all()
    only = model.predict(rows, node="sensor-1")
    assert all(
        (name is None) == (owner != "sensor-1") for name, owner in zip(only, rows["sensor"], strict=True)
    )


def test_frames_and_arrays_are_taken(saved: Path) -> None:
    model = hedgerow.load(saved)
    rows = frame(5).drop(columns="sensor")
    expected = model.predict(rows, node="sensor-2")
    texts = [[float(sky == text) for text in ("clear", "fog", "rain")] for sky in rows["sky"]]
    array = np.column_stack([rows["temp"].to_numpy(dtype=float), texts])
    assert np.array_equal(model.predict(array, node="sensor-2"), expected)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(rows, node="sensor-2"), expected)
    indexed = rows.set_index(rows.columns[:2].tolist())
    assert np.array_equal(model.predict(indexed, node="sensor-2"), expected)
    assert np.array_equal(model.predict(array.tolist(), "sensor-2"), expected)
    sparse = pytest.importorskip("scipy.sparse")
    dense = np.nan_to_num(array)
    assert np.array_equal(model.predict(sparse.csr_array(dense)), model.predict(dense))
    polars = pytest.importorskip("polars")
    columns = {name: values for name, values in table(5).items() if name != "sensor"}
    assert np.array_equal(model.predict(polars.DataFrame(columns), node="sensor-2"), expected)
    lower, upper = model.predict_interval(rows, node="sensor-2")
    assert (lower < expected).all()
    assert (expected < upper).all()
    narrow = model.predict_interval(rows, node="sensor-2", level=0.5)
    assert (narrow[1] - narrow[0] < upper - lower).all()
    assert np.isnan(model.predict_interval(rows)).all()


def test_a_model_has_a_card(saved: Path) -> None:
    model = hedgerow.load(str(saved))
    assert repr(model) == f"Model(method='tr', round={model.info['round']}, nodes=3)"
    assert [error["method"] for error in model.card["errors"]] == ["mean", "tr", "tr+alone", "last"]
    assert model.card["data"]["samples"] == NODES * ROUNDS
    assert model.info["own_layers"] is True


def test_what_cannot_be_predicted_is_an_error_in_words(saved: Path, tmp_path: Path) -> None:
    model = hedgerow.load(saved)
    rows = frame(5)
    with pytest.raises(KeyError, match=r"did you mean .*sensor-1"):
        model.predict(rows, node="sensor1")
    with pytest.raises(ValueError, match=r"^the frame: no column .*temp"):
        model.predict(rows.drop(columns="temp"))
    with pytest.raises(ValueError, match=r"^the frame, row 2, column .*temp"):
        model.predict(rows.assign(temp=[1.0, 2.0, "warm", 3.0, 4.0, *[5.0] * (len(rows) - 5)]))
    with pytest.raises(ValueError, match="shape"):
        model.predict([[1.0, 2.0]])
    with pytest.raises(ValueError, match=r"between 0\.5 and 0\.99"):
        model.predict_interval(rows, node="sensor-1", level=2.0)
    with pytest.raises(FileNotFoundError):
        hedgerow.load(tmp_path / "nowhere")
    damaged = bytearray(saved.read_bytes())
    damaged[-1] ^= 1
    (tmp_path / "m").write_bytes(damaged)
    with pytest.raises(ValueError, match="damaged"):
        hedgerow.load(tmp_path / "m")
