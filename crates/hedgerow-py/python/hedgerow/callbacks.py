"""Callbacks that hear of the errors of a run, for MLflow, TensorBoard or your own tools.

A callback has two methods. ``on_round`` gets a round and its errors, ``on_end`` the errors of the
whole run and what was run:

>>> from hedgerow import simulate
>>> class Printer:
...     def on_round(self, round, metrics):
...         if round % 25 == 0:
...             print(round, sorted(metrics))
...     def on_end(self, metrics, settings):
...         print(sorted(metrics), settings["nodes"])
>>> result = simulate("friedman", method="mk", nodes=4, rounds=50, trials=1, callbacks=[Printer()])
25 ['mk/mse', 'mk/mse_window']
50 ['mk/mse', 'mk/mse_window']
['mk/mse', 'mk/numbers_down', 'mk/numbers_up'] 4
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike, fspath
from typing import Any, Protocol

import numpy as np

from hedgerow._extras import need
from hedgerow.results import Result, label

__all__ = ["Callback", "MLflow", "TensorBoard"]

# Metrics that MLflow accepts in one call.
_BATCH = 1000

# Columns of the curves that are told, round by round.
_TOLD = ("mse", "mse_window")


class Callback(Protocol):
    """Hears of the errors of a run. Metrics have names such as ``"tr/mse"``, and finite values."""

    def on_round(self, round: int, metrics: Mapping[str, float]) -> None:
        """The errors up to a round, and over the latest rounds."""

    def on_end(self, metrics: Mapping[str, float], settings: Mapping[str, Any]) -> None:
        """The errors of the whole run, and its settings: data, nodes, rounds, trials and others."""


class MLflow:
    """Logs a run to MLflow: ``pip install 'hedgerow[mlflow]'``.

    It logs to the active run of MLflow if there is one. Otherwise it makes one, in ``experiment``
    and with the name ``run_name``, and ends it. ``tracking_uri`` says where; the default is that of
    MLflow. Metrics are those of the callback, parameters the settings of the run.
    """

    def __init__(
        self, *, experiment: str | None = None, run_name: str | None = None, tracking_uri: str | None = None
    ) -> None:
        mlflow = need("mlflow", "mlflow")
        self._entities = need("mlflow.entities", "mlflow")
        self._client = mlflow.MlflowClient(tracking_uri)
        self._experiment, self._name = experiment, run_name
        self._active = mlflow.active_run
        self._waiting: list[Any] = []
        self._run: str | None = None
        self._is_ours = False

    def on_round(self, round: int, metrics: Mapping[str, float]) -> None:
        """Logs the metrics of a round."""
        now = time.time_ns() // 1_000_000
        metric = self._entities.Metric
        self._waiting += [metric(_key(name), value, now, round) for name, value in metrics.items()]
        while len(self._waiting) >= _BATCH:
            self._send()

    def on_end(self, metrics: Mapping[str, float], settings: Mapping[str, Any]) -> None:
        """Logs the metrics and the settings of the whole run, and ends it if it was made here."""
        self.on_round(int(settings["rounds"]), {f"{name}_final": value for name, value in metrics.items()})
        while self._waiting:
            self._send()
        params = [self._entities.Param(key, str(value)) for key, value in settings.items()]
        run = self._started()
        self._client.log_batch(run, params=params)
        if self._is_ours:
            self._client.set_terminated(run)
        self._run = None

    def _send(self) -> None:
        batch, self._waiting = self._waiting[:_BATCH], self._waiting[_BATCH:]
        self._client.log_batch(self._started(), metrics=batch)

    def _started(self) -> str:
        if self._run is None:
            active = self._active()
            self._is_ours = active is None
            self._run = self._new() if active is None else str(active.info.run_id)
        return self._run

    def _new(self) -> str:
        experiment = "0"
        if self._experiment is not None:
            known = self._client.get_experiment_by_name(self._experiment)
            experiment = known.experiment_id if known else self._client.create_experiment(self._experiment)
        return str(self._client.create_run(experiment, run_name=self._name).info.run_id)


class TensorBoard:
    """Writes a run for TensorBoard to a folder: ``pip install 'hedgerow[tensorboard]'``.

    >>> from hedgerow.callbacks import TensorBoard
    >>> TensorBoard("logs")  # doctest: +SKIP
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self._writer = need("tensorboardX", "tensorboard").SummaryWriter(fspath(folder))

    def on_round(self, round: int, metrics: Mapping[str, float]) -> None:
        """Writes the metrics of a round."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, round)

    def on_end(self, metrics: Mapping[str, float], settings: Mapping[str, Any]) -> None:
        """Writes the metrics and the settings of the whole run."""
        rows = "".join(f"| {key} | {value} |\n" for key, value in (settings | metrics).items())  # type: ignore[operator]
        self._writer.add_text("run", f"| | |\n|---|---|\n{rows}", int(settings["rounds"]))
        self._writer.flush()


def checked(callbacks: Iterable[Callback]) -> list[Callback]:
    """The callbacks, before a run that they are told of."""
    if not isinstance(callbacks, Iterable):
        raise TypeError(f"callbacks must be a list of callbacks, but is {callbacks!r:.50}")
    callbacks = list(callbacks)
    for callback in callbacks:
        for name in ("on_round", "on_end"):
            if not callable(getattr(callback, name, None)):
                raise TypeError(f"a callback must have the method {name}, but {callback!r:.50} has none")
    return callbacks


def tell(callbacks: Iterable[Callback], result: Result) -> None:
    """Tells callbacks of a finished run."""
    for callback in callbacks:
        for at, metrics in _rounds(result):
            callback.on_round(at, metrics)
        callback.on_end(_final(result), _settings(result))


def _rounds(result: Result) -> Iterator[tuple[int, dict[str, float]]]:
    """Every recorded round with the errors of all methods."""
    rounds = np.asarray(result.curves["round"])
    labels = [
        f"{name}:{kernel}" if kernel else name
        for name, kernel in zip(result.curves["method"], result.curves["kernel"], strict=True)
    ]
    for at in np.unique(rounds).tolist():
        rows = np.flatnonzero(rounds == at).tolist()
        found = {f"{labels[row]}/{name}": float(result.curves[name][row]) for row in rows for name in _TOLD}
        yield at, _finite(found)


def _final(result: Result) -> dict[str, float]:
    found: dict[str, float] = {}
    for method in result.summary["methods"]:
        found[f"{label(method)}/mse"] = method["mse"]["mean"]
        for name in ("numbers_up", "numbers_down"):
            found[f"{label(method)}/{name}"] = method[name]
    return _finite(found)


def _settings(result: Result) -> dict[str, Any]:
    summary = result.summary
    names = ("nodes", "rounds", "trials", "budget", "seed", "partition", "version")
    return {"data": summary["data"]["name"]} | {name: summary[name] for name in names if name in summary}


def _finite(metrics: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if value is not None and np.isfinite(value)}


def _key(name: str) -> str:
    """A name that MLflow accepts."""
    return re.sub(r"[^\w\-. /]", "-", name)
