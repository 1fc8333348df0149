"""Seconds a round, bytes a node and round: Flower's engines beside our own server, for the same model.

    python crates/hedgerow-py/benches/flower.py --hedgerow target/release/hedgerow

needs hedgerow[flower] installed and the command line built. Everything is on loopback and without TLS. Bytes
are what TCP carries between a node and the server, both ways, counted by a proxy: what a run of many rounds
has more than one of few, so that joining doesn't count, but asking for news while a round waits does. Two
nodes are processes of their own; twenty are simulated.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[3] / "examples/flower")]

from hedgerow import Federation
from meadow.task import COLUMNS, batch, make_plan

from tests.conftest import free_port, wait_for
from tests.fleet import Fleet
from tests.proxy import Proxy

# Nodes that are processes, and nodes that are simulated.
DEPLOYED, SIMULATED = 2, 20

# Mini-batches whose errors are compared: after as many rounds, and after as many samples.
BATCHES, ROUNDS, SAMPLES = (1, 8, 32, 128), 100, 2048


def main() -> None:
    """Measures everything and prints a table."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root = Path(__file__).parents[3]
    options.add_argument("--hedgerow", type=Path, default=root / "target/release/hedgerow")
    options.add_argument("--method", default="mk")
    options.add_argument("--batch", type=int, default=32, help="samples of a node and round on Flower")
    options.add_argument("--rounds", type=int, default=10, help="rounds on Flower, beyond the first three")
    chosen = options.parse_args()
    plan = make_plan({"method": chosen.method, "nodes": DEPLOYED, "seed": 1})
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        deployed = flower_deployment(at / "deployment", chosen.method, chosen.batch, chosen.rounds)
        simulated = flower_simulation(at / "simulation", chosen.method, chosen.batch, chosen.rounds)
        served = own_server(at / "serve", chosen.hedgerow.resolve(), chosen.method)
    seconds = in_process(chosen.method, chosen.batch)
    print(f"{plan!r}: {plan.numbers} numbers in an upload, {4 * plan.numbers} bytes; medians [least, most]\n")
    print("| | nodes | samples a node and round | seconds a round | bytes a node and round, up | down |")
    print("|---|--:|--:|--:|--:|--:|")
    row("Flower, SuperLink and SuperNodes", DEPLOYED, chosen.batch, *deployed)
    row("`hedgerow serve` and `hedgerow join`", DEPLOYED, 1, *served)
    row("Flower, simulation", SIMULATED, chosen.batch, simulated)
    row("`hedgerow.Federation`", SIMULATED, chosen.batch, seconds)
    print(f"\nError on samples that are never learned, {SIMULATED} nodes, by samples of a node and round:\n")
    print("| | rounds |", " | ".join(map(str, BATCHES)), "|")
    print("|---|--:|" + "--:|" * len(BATCHES))
    for method in ("gr", "mk", "fedpoe"):
        after_rounds = [error(method, samples, ROUNDS) for samples in BATCHES]
        after_samples = [error(method, samples, SAMPLES // samples) for samples in BATCHES]
        for when, errors in ((f"{ROUNDS}", after_rounds), (f"until {SAMPLES} samples", after_samples)):
            print(f"| {method} | {when} |", " | ".join(f"{one:.2f}" for one in errors), "|")


def row(
    name: str, nodes: int, samples: int, seconds: list[float], bytes_: tuple[float, float] | None = None
) -> None:
    """A line of the table."""
    middle, least, most = statistics.median(seconds), min(seconds), max(seconds)
    up, down = ("-", "-") if bytes_ is None else (f"{count:,.0f}" for count in bytes_)
    print(f"| {name} | {nodes} | {samples} | {middle:.3g} [{least:.3g}, {most:.3g}] | {up} | {down} |")


def flower_deployment(
    folder: Path, method: str, samples: int, rounds: int
) -> tuple[list[float], tuple[float, float]]:
    """Two SuperNodes: a run of three rounds, and one of more."""
    fleet = Fleet(folder / "home", DEPLOYED, superlink=free_port())
    counts = []
    seconds: list[float] = []
    with Proxy(fleet.superlink, fleet.port) as proxy, fleet:
        for count in (3, 3 + rounds):
            before = proxy.counts()
            settings = f'method="{method}" nodes={DEPLOYED} batch-size={samples} num-server-rounds={count}'
            fleet.run(settings, f'save-to="{folder / str(count)}"', seconds=60 + 60 * count)
            after = proxy.counts()
            counts.append([now - then for now, then in zip(after, before, strict=True)])
            seconds = seconds_of(folder / str(count))
    up, down = ((many - few) / rounds / DEPLOYED for few, many in zip(*counts, strict=True))
    return seconds, (up, down)


def flower_simulation(folder: Path, method: str, samples: int, rounds: int) -> list[float]:
    """Twenty nodes that Ray plays."""
    with Fleet(folder / "home") as fleet:
        settings = f'method="{method}" nodes={SIMULATED} batch-size={samples} num-server-rounds={3 + rounds}'
        fleet.run(settings, f'save-to="{folder}"', nodes=SIMULATED, seconds=600)
    return seconds_of(folder)


def seconds_of(folder: Path) -> list[float]:
    """How long rounds were open, without the first three: processes start, and nodes agree on a scale."""
    trained = json.loads((folder / "metrics.json").read_text())["train"]
    return [record["seconds"] for at, record in trained.items() if int(at) > 3] or [float("nan")]


def own_server(folder: Path, program: Path, method: str) -> tuple[list[float], tuple[float, float]]:
    """Our own server with two nodes, a sample a round."""
    folder.mkdir()
    few, many = 500, 5500
    seconds = [play(folder / f"trial-{trial}", program, method, many, None)[0] for trial in range(3)]
    rounds, counts = [], []
    for samples in (few, many):
        server = free_port()
        with Proxy(free_port(), server) as proxy:
            _, closed = play(folder / f"bytes-{samples}", program, method, samples, (proxy.port, server))
            rounds.append(closed)
            counts.append(proxy.counts())
    more = rounds[1] - rounds[0]
    up, down = ((after - before) / more / DEPLOYED for before, after in zip(*counts, strict=True))
    return seconds, (up, down)


def play(
    folder: Path, program: Path, method: str, samples: int, ports: tuple[int, int] | None
) -> tuple[float, int]:
    """A run of so many samples a node, one a round: seconds between rounds that closed, and how many did."""
    folder.mkdir()
    port = free_port() if ports is None else ports[1]
    settings = [
        f"listen.address=127.0.0.1:{port}",
        "listen.dashboard=never",
        "listen.tls=false",
        "store.path=run.db",
        f"learning.method={method}",
        f"learning.columns={json.dumps(COLUMNS)}",
        "learning.target=dew",
        f"learning.nodes={DEPLOYED}",
        f"rounds.least={DEPLOYED}",
    ]
    command = [str(program), "serve", "--quiet", *(part for one in settings for part in ("--set", one))]
    files = []
    for node in range(DEPLOYED):
        x, y = batch(node, 0, samples, 1)
        path = folder / f"{node}.csv"
        head = ",".join([*COLUMNS, "dew"])
        np.savetxt(path, np.column_stack([x, y]), delimiter=",", header=head, comments="")
        files.append(path)
    with (folder / "serve.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    nodes: list[subprocess.Popen[bytes]] = []
    try:
        wait_for(f"127.0.0.1:{port}")
        for node, path in enumerate(files):
            address = f"127.0.0.1:{port if ports is None else ports[0]}"
            join = [str(program), "join", "--server", address, "--plain-text", "--name", f"node-{node}"]
            join += ["--pace", "round", "--quiet", "--state", f"{node}.state", "--log", "error"]
            with path.open("rb") as file:
                nodes.append(subprocess.Popen(join, cwd=folder, stdin=file))
        for process in nodes:
            if process.wait(timeout=600) != 0:
                raise RuntimeError(f"a node failed; see {folder}")
    finally:
        for process in [*nodes, server]:
            process.kill()
            process.wait()
    with contextlib.closing(sqlite3.connect(folder / "run.db")) as store:
        closed = [at for (at,) in store.execute("SELECT closed_at_ms FROM history ORDER BY round")]
    # Neither the first rounds, when nodes come, nor the last ones, when they leave.
    tenth = len(closed) // 10
    steady = closed[tenth:-tenth]
    return (steady[-1] - steady[0]) / 1000 / (len(steady) - 1), len(closed)


def in_process(method: str, samples: int) -> list[float]:
    """Our own twenty nodes in one process."""
    federation = Federation(make_plan({"method": method, "nodes": SIMULATED, "seed": 1}))
    owner = np.repeat(np.arange(SIMULATED), samples)
    seconds = []
    for number in range(103):
        parts = [batch(node, number, samples, 1) for node in range(SIMULATED)]
        x, y = np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])
        begun = time.monotonic()
        federation.round(x, y, owner)
        seconds.append(time.monotonic() - begun)
    return seconds[3:]


def error(method: str, samples: int, rounds: int) -> float:
    """What so many rounds of mini-batches come to."""
    federation = Federation(make_plan({"method": method, "nodes": SIMULATED, "seed": 1}))
    owner = np.repeat(np.arange(SIMULATED), samples)
    for number in range(rounds):
        parts = [batch(node, number, samples, 1) for node in range(SIMULATED)]
        federation.round(np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts]), owner)
    held_out = [batch(node, 0, 500, 1_000_001) for node in range(SIMULATED)]
    errors = [np.mean((federation.predict(x, node=node) - y) ** 2) for node, (x, y) in enumerate(held_out)]
    return float(np.mean(errors))


if __name__ == "__main__":
    main()
