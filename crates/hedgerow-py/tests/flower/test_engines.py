"""Flower's own engines: a simulation, and a deployment on loopback."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hedgerow import Federation, Server

from ..fleet import EXAMPLE, Fleet
from .grid import by_hand


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The data of the example."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    from meadow import task  # type: ignore[import-not-found]

    yield task
    for name in [name for name in sys.modules if name.split(".")[0] == "meadow"]:
        del sys.modules[name]


def check(example: Any, folder: Path, output: str, *, nodes: int, rounds: int, method: str) -> None:
    """The result equals that of Hedgerow's own server and engines on the same samples."""
    assert (folder / "server.bin").exists(), output
    plan = example.make_plan({"method": method, "nodes": nodes, "seed": 1})
    expected, _ = by_hand(plan, rounds, lambda node, number: example.batch(node, number, 16, 1))
    restored = Server.restore(plan, (folder / "server.bin").read_bytes())
    assert restored.round == expected.round
    np.testing.assert_allclose(restored.broadcast.numbers, expected.broadcast.numbers, rtol=1e-6, atol=1e-7)
    assert restored.save() == expected.save(), "and to the last bit"
    metrics = json.loads((folder / "metrics.json").read_text())
    trained = metrics["train"][str(rounds)]
    assert (trained["uploads"], trained["failures"]) == (nodes, 0)


def check_errors(example: Any, folder: Path, *, nodes: int, rounds: int, method: str) -> None:
    """Predictions of held-out samples equal those of Hedgerow's own federation."""
    federation = Federation(example.make_plan({"method": method, "nodes": nodes, "seed": 1}))
    for number in range(rounds):
        parts = [example.batch(node, number, 16, 1) for node in range(nodes)]
        owner = np.repeat(np.arange(nodes), 16)
        federation.round(np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts]), owner)
    error = 0.0
    for node in range(nodes):
        x, y = example.batch(node, 0, 200, 1_000_001)
        error += float(np.sum((federation.predict(x, node=node) - y) ** 2))
    evaluated = json.loads((folder / "metrics.json").read_text())["evaluate"][str(rounds)]
    assert evaluated["mse"] == pytest.approx(error / (200 * nodes), rel=1e-6)


def test_simulation(tmp_path: Path, example: Any) -> None:
    fleet = Fleet(tmp_path / "home")
    with fleet:
        folder = tmp_path / "out"
        settings = 'method="gr" nodes=20 batch-size=16 num-server-rounds=3 fraction-evaluate=1.0'
        output = fleet.run(settings, f'save-to="{folder}"', nodes=20)
        check(example, folder, output, nodes=20, rounds=3, method="gr")
        check_errors(example, folder, nodes=20, rounds=3, method="gr")
    assert fleet.left_over() == []


def test_deployment(tmp_path: Path, example: Any) -> None:
    fleet = Fleet(tmp_path / "home", nodes=2)
    with fleet:
        folder = tmp_path / "out"
        # Flower starts a process for every message: two rounds, and what is evaluated is seen
        # above.
        settings = 'method="mk" nodes=2 batch-size=16 num-server-rounds=2 fraction-evaluate=0.0'
        output = fleet.run(settings, f'save-to="{folder}"')
        check(example, folder, output, nodes=2, rounds=2, method="mk")
    assert fleet.left_over() == []
