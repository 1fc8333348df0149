"""Callbacks on simulate and Federation, with the packages that they are for."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hedgerow import Federation, Plan, Result, callbacks, simulate


class Recorder:
    """Remembers what it hears."""

    def __init__(self) -> None:
        self.rounds: list[tuple[int, Mapping[str, float]]] = []
        self.ends: list[tuple[Mapping[str, float], Mapping[str, Any]]] = []

    def on_round(self, round: int, metrics: Mapping[str, float]) -> None:
        self.rounds.append((round, metrics))

    def on_end(self, metrics: Mapping[str, float], settings: Mapping[str, Any]) -> None:
        self.ends.append((metrics, settings))


def run(*heard: callbacks.Callback) -> Result:
    return simulate("friedman", method="mk,tr+alone,sk", nodes=3, rounds=30, trials=2, callbacks=heard)


def test_a_simulation_is_heard_round_by_round() -> None:
    one, other = Recorder(), Recorder()
    result = run(one, other)
    assert [at for at, _ in one.rounds] == sorted(set(result.curves["round"].tolist()))
    assert one.rounds == other.rounds
    at, metrics = one.rounds[-1]
    assert at == 30
    assert {"mk/mse", "mk/mse_window", "tr+alone/mse", "sk:1/mse", "sk:11/mse"} <= set(metrics)
    ((final, settings),) = one.ends
    assert final["mk/mse"] == result.mse["mk"]
    assert metrics["mk/mse"] == pytest.approx(final["mk/mse"])
    assert (settings["data"], settings["nodes"], settings["rounds"], settings["trials"]) == (
        "friedman",
        3,
        30,
        2,
    )
    assert all(np.isfinite(value) for _, metrics in one.rounds for value in metrics.values())


def test_a_federation_is_heard() -> None:
    x = np.random.default_rng(1).uniform(size=(90, 2))
    heard = Recorder()
    federation = Federation(Plan(inputs=2, nodes=3))
    result = federation.run(x, x.sum(axis=1), callbacks=[heard])
    assert [at for at, _ in heard.rounds] == list(range(1, 31))
    # Before there is a model there is no error.
    assert heard.rounds[0][1] == {}
    ((final, settings),) = heard.ends
    assert final["tr/mse"] == result.mse["tr"]
    assert settings["nodes"] == 3


def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (tmp_path / "runs").as_uri()
    result = run(callbacks.MLflow(experiment="meters", run_name="first", tracking_uri=uri))
    client = mlflow.MlflowClient(uri)
    experiment = client.get_experiment_by_name("meters")
    (logged,) = client.search_runs([experiment.experiment_id])
    assert (logged.info.run_name, logged.info.status) == ("first", "FINISHED")
    assert logged.data.params["nodes"] == "3"
    assert logged.data.metrics["mk/mse_final"] == pytest.approx(result.mse["mk"])
    assert "tr-alone/mse" in logged.data.metrics
    history = client.get_metric_history(logged.info.run_id, "mk/mse")
    assert [metric.step for metric in history][-1] == 30
    # An active run is used and left open.
    mlflow.set_tracking_uri(uri)
    with mlflow.start_run() as active:
        run(callbacks.MLflow(tracking_uri=uri))
        assert mlflow.active_run() is not None
    assert "mk/mse" in client.get_run(active.info.run_id).data.metrics


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event

    result = run(callbacks.TensorBoard(tmp_path))
    (file,) = tmp_path.iterdir()
    events, rest = [], file.read_bytes()
    while rest:
        # A record has its length, a checksum, the event and another checksum.
        length = int.from_bytes(rest[:8], "little")
        events.append(Event.FromString(rest[12 : 12 + length]))
        rest = rest[16 + length :]
    scalars = {
        (value.tag, event.step): value.simple_value
        for event in events
        for value in event.summary.value
        if value.HasField("simple_value")
    }
    assert scalars["mk/mse", 30] == pytest.approx(result.mse["mk"], rel=1e-5)
    assert {tag for tag, _ in scalars} >= {"tr_alone/mse", "sk_11/mse_window"}


@pytest.mark.parametrize(
    ("module", "name", "arguments"), [("mlflow", "MLflow", ()), ("tensorboardX", "TensorBoard", ("logs",))]
)
def test_what_is_not_installed_is_named(
    module: str, name: str, arguments: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"{module} is needed for this: pip install 'hedgerow\["):
        getattr(callbacks, name)(*arguments)
