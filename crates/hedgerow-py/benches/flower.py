"""Rounds per second, bytes and memory per node of Flower's engines and of Hedgerow's.

    python crates/hedgerow-py/benches/flower.py --hedgerow target/release/hedgerow

This needs hedgerow[flower] and a built command line. Everything runs on loopback without TLS, with
the same model and the same samples per round. Errors are those of predictions made before their
labels were known, over the same first rounds.

Bytes are what TCP carries between a node and the server in both directions, counted by a proxy.
They are the difference between a long and a short run: joining doesn't count, but polls during a
round do. Memory is the peak of a node's processes together. All of Flower's runs go through that
proxy, whose microseconds are negligible; Hedgerow's runs are timed without it. Runs that measure
memory are not timed. Timed runs take turns. Five nodes are separate processes; twenty are
simulated.
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
import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[3] / "examples/flower")]

from hedgerow import Federation
from meadow.task import COLUMNS, batch, make_plan

from tests.conftest import free_port, wait_for
from tests.fleet import Fleet
from tests.proxy import Proxy

# Nodes that are processes, and nodes that are simulated.
DEPLOYED, SIMULATED = 5, 20

# The first rounds of a run don't count: processes start, and nodes agree on a scale.
FIRST = 3

# Trials of a short simulation of ours and of a long one.
FEW, MANY = 1, 201

# Rounds of our own server when it is timed.
LONG = 3000

# Mini-batches whose errors are compared: after as many rounds, and after as many samples.
BATCHES, ROUNDS, SAMPLES = (1, 8, 32, 128), 100, 2048


class Found(NamedTuple):
    """Measurements of an engine."""

    # Seconds per round, several measurements.
    seconds: list[float]
    # Mean squared error over the first rounds.
    error: float
    # Bytes per node and round, up and down.
    bytes_: tuple[float, float] | None = None
    # Bytes of memory of a node: resident, and its share of what processes have in common.
    memory: tuple[float, float] | None = None


def main() -> None:
    """Measures everything and prints a table."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root = Path(__file__).parents[3]
    options.add_argument("--hedgerow", type=Path, default=root / "target/release/hedgerow")
    options.add_argument("--node", type=Path, help="a hedgerow-node, whose memory is of interest too")
    options.add_argument("--method", default="mk")
    options.add_argument("--batch", type=int, default=1, help="samples of a node and round in simulations")
    options.add_argument("--rounds", type=int, default=10, help=f"rounds on Flower, beyond the first {FIRST}")
    options.add_argument("--turns", type=int, default=3, help="runs of each engine")
    options.add_argument("--errors", action="store_true", help="errors by samples of a node and round, too")
    chosen = options.parse_args()
    program, method, samples = chosen.hedgerow.resolve(), chosen.method, chosen.batch
    plan = make_plan({"method": method, "nodes": DEPLOYED, "seed": 1})
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        deployed, served = deployments(at / "deployment", program, method, chosen.rounds, chosen.turns)
        lean = chosen.node and own_memory(at / "lean", program, [str(chosen.node.resolve())], method)
        # Rounds of a simulation are shorter.
        rounds = 20 * chosen.rounds
        simulated, ours = simulations(at / "simulation", program, method, samples, rounds, chosen.turns)
    print(
        f"Flower {version('flwr')}, {method}, {plan.numbers} numbers in an upload, {4 * plan.numbers}",
        end=" ",
    )
    print(f"bytes; {chosen.turns} turns; median [least, most].\n")
    print("| | nodes | samples a node and round | rounds/s | bytes a node and round, up + down |", end=" ")
    print("memory a node, MB (shared pages in part) |", end=" ")
    print(f"MSE of the first {FIRST + chosen.rounds}, {FIRST + rounds} rounds |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    row("Flower, SuperLink and SuperNodes", DEPLOYED, 1, deployed)
    row("`hedgerow serve` and `hedgerow join`", DEPLOYED, 1, served)
    if lean:
        print(f"| the same with `hedgerow-node` | {DEPLOYED} | 1 | | | {megabytes(lean)} | |")
    row("Flower, simulation", SIMULATED, samples, simulated)
    row("`hedgerow simulate`", SIMULATED, samples, ours)
    federation = in_process(method, samples, FIRST + rounds)
    row("`hedgerow.Federation`, from Python", SIMULATED, samples, federation)
    print()
    verdict(f"rounds per second, deployment, K = {DEPLOYED}", ratio(deployed.seconds, served.seconds), 1000)
    verdict(f"rounds per second, simulation, K = {SIMULATED}", ratio(simulated.seconds, ours.seconds), 1000)
    verdict(
        "fewer bytes a node and round", ratio([sum(deployed.bytes_ or ())], [sum(served.bytes_ or ())]), 20
    )
    verdict("less memory a node", ratio([(deployed.memory or (0, 0))[0]], [(served.memory or (0, 0))[0]]))
    if chosen.errors:
        error_table()


def row(name: str, nodes: int, samples: int, found: Found) -> None:
    """A line of the table."""
    rates = sorted(1 / seconds for seconds in found.seconds)
    rate = f"{number(statistics.median(rates))} [{number(rates[0])}, {number(rates[-1])}]"
    bytes_ = "-" if found.bytes_ is None else " + ".join(f"{count:,.0f}" for count in found.bytes_)
    memory = "-" if found.memory is None else megabytes(found.memory)
    print(f"| {name} | {nodes} | {samples} | {rate} | {bytes_} | {memory} | {found.error:.2f} |")


def number(value: float) -> str:
    """Formats a number with at least three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def megabytes(memory: tuple[float, float]) -> str:
    """Resident memory, and the share of common pages."""
    return " ".join(
        form.format(count / 1e6) for form, count in zip(("{:.1f}", "({:.1f})"), memory, strict=True)
    )


def ratio(theirs: list[float], ours: list[float]) -> tuple[float, float, float]:
    """Median, and the least and the most that any two of them give."""
    middle = statistics.median(theirs) / statistics.median(ours)
    return middle, min(theirs) / max(ours), max(theirs) / min(ours)


def verdict(what: str, times: tuple[float, float, float], wanted: int = 0) -> None:
    """The factor, and whether it reaches the goal."""
    middle, least, most = map(number, times)
    said = "reached" if times[0] >= wanted else "NOT reached"
    print(f"- {what}: {middle} [{least}, {most}] times" + (f"; {wanted:,} {said}" if wanted else ""))


def deployments(folder: Path, program: Path, method: str, rounds: int, turns: int) -> tuple[Found, Found]:
    """SuperNodes with a short run and longer ones, in turns with Hedgerow's server."""
    fleet = Fleet(folder / "home", DEPLOYED, superlink=free_port())
    seconds: list[float] = []
    own: list[float] = []
    counts, errors, own_errors = [], [], []
    with Proxy(fleet.superlink, fleet.port) as proxy, fleet:
        for turn in range(1 + turns):
            count = FIRST + (rounds if turn else 0)
            before = proxy.counts()
            settings = f'method="{method}" nodes={DEPLOYED} batch-size=1 num-server-rounds={count}'
            saved = folder / str(turn)
            # The short run gives bytes and memory, the long ones give times.
            with contextlib.nullcontext([]) if turn else watched(lambda: supernodes(fleet)) as memories:
                fleet.run(settings, f'save-to="{saved}"', seconds=120 + 60 * count)
            counts.append([now - then for now, then in zip(proxy.counts(), before, strict=True)])
            if turn:
                seconds += seconds_of(saved)
                errors.append(error_of(saved))
                played = play(folder / f"own-{turn}", program, [str(program), "join"], method, LONG, None)
                own.append(played.seconds)
                own_errors.append(played.error(FIRST + rounds))
            else:
                memory = middle(memories)
    few, *many = counts
    up, down = (
        statistics.median((run[way] - few[way]) / rounds / DEPLOYED for run in many) for way in (0, 1)
    )
    theirs = Found(seconds, statistics.median(errors), (up, down), memory)
    bytes_ = own_bytes(folder / "bytes", program, method)
    join = own_memory(folder / "memory", program, [str(program), "join"], method)
    return theirs, Found(own, statistics.median(own_errors), bytes_, join)


def seconds_of(folder: Path) -> list[float]:
    """How long rounds of a run on Flower were open, without the first ones."""
    return [record["seconds"] for at, record in trained(folder).items() if int(at) > FIRST] or [float("nan")]


def error_of(folder: Path) -> float:
    """The mean squared error of a run on Flower."""
    scored = [record for record in trained(folder).values() if "mse" in record]
    return sum(each["mse"] * each["samples"] for each in scored) / sum(each["samples"] for each in scored)


def trained(folder: Path) -> dict[str, dict[str, float]]:
    """The metrics of the rounds of a run on Flower."""
    rounds: dict[str, dict[str, float]] = json.loads((folder / "metrics.json").read_text())["train"]
    return rounds


def supernodes(fleet: Fleet) -> list[list[int]]:
    """Processes of each SuperNode: itself, and what it has started."""
    parents, roots = {}, []
    for process in fleet.left_over():
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{process}/stat").read_text()
            parents[process] = int(status.rsplit(")", 1)[1].split()[1])
            if b"flower-supernode" in Path(f"/proc/{process}/cmdline").read_bytes():
                roots.append(process)
    roots = [root for root in roots if parents[root] not in roots]

    def above(process: int) -> Iterator[int]:
        while process in parents:
            yield process
            process = parents[process]

    return [[process for process in parents if root in above(process)] for root in roots]


@contextlib.contextmanager
def watched(groups: Callable[[], list[list[int]]]) -> Iterator[list[tuple[float, float]]]:
    """The peak memory of each group of processes during the block."""
    most: dict[int, tuple[float, float]] = {}
    found: list[tuple[float, float]] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.25):
            for group in groups():
                sizes = [memory_of(process) for process in group]
                now = tuple(map(sum, zip(*sizes, strict=True)))
                if now:
                    most[group[0]] = max(most.get(group[0], (0.0, 0.0)), (now[0], now[1]))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()
        found += most.values()


def memory_of(process: int) -> tuple[float, float]:
    """Bytes of a process: resident, and its share."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0, 0.0
    sizes = dict(line.split(":") for line in lines[1:])
    resident, share = (1024.0 * int(sizes[name].split()[0]) for name in ("Rss", "Pss"))
    return resident, share


def middle(memories: list[tuple[float, float]]) -> tuple[float, float]:
    """The value of the median node."""
    resident, share = (statistics.median(sizes) for sizes in zip(*memories, strict=True))
    return resident, share


class Played(NamedTuple):
    """Measurements of a run of Hedgerow's server."""

    # Between rounds that closed.
    seconds: float
    rounds: int
    # Of each round: samples that were scored, and their squared error.
    scores: list[tuple[int, float]]
    memories: list[tuple[float, float]]

    def error(self, rounds: int) -> float:
        """The mean squared error over the first rounds."""
        samples, squared = (sum(parts) for parts in zip(*self.scores[:rounds], strict=True))
        return float(squared / samples)


def own_bytes(folder: Path, program: Path, method: str) -> tuple[float, float]:
    """Bytes of the nodes of Hedgerow's server with one sample per round."""
    folder.mkdir()
    rounds, counts = [], []
    for samples in (500, LONG):
        server = free_port()
        with Proxy(free_port(), server) as proxy:
            join = [str(program), "join"]
            played = play(folder / str(samples), program, join, method, samples, (proxy.port, server))
            rounds.append(played.rounds)
            counts.append(proxy.counts())
    more = rounds[1] - rounds[0]
    up, down = ((after - before) / more / DEPLOYED for before, after in zip(*counts, strict=True))
    return up, down


def own_memory(folder: Path, program: Path, join: list[str], method: str) -> tuple[float, float]:
    """Memory of a Hedgerow node."""
    return middle(play(folder, program, join, method, LONG, None, look=True).memories)


def play(
    folder: Path,
    program: Path,
    join: list[str],
    method: str,
    samples: int,
    ports: tuple[int, int] | None,
    look: bool = False,
) -> Played:
    """A run of Hedgerow's server with one sample per node and round."""
    folder.mkdir(parents=True)
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
        path = folder / f"{node}.csv"
        write(path, [stream(node, samples, 1)])
        files.append(path)
    with (folder / "serve.log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    nodes: list[subprocess.Popen[bytes]] = []
    try:
        wait_for(f"127.0.0.1:{port}")
        for node, path in enumerate(files):
            address = f"127.0.0.1:{port if ports is None else ports[0]}"
            words = [*join, "--server", address, "--plain-text", "--name", f"node-{node}"]
            words += ["--pace", "round", "--quiet", "--state", f"{node}.state", "--log", "error"]
            with path.open("rb") as file:
                nodes.append(subprocess.Popen(words, cwd=folder, stdin=file))
        alone = [[process.pid] for process in nodes]
        with watched(lambda: alone) if look else contextlib.nullcontext([]) as memories:
            for process in nodes:
                if process.wait(timeout=600) != 0:
                    raise RuntimeError(f"a node failed; see {folder}")
    finally:
        for process in [*nodes, server]:
            process.kill()
            process.wait()
    with contextlib.closing(sqlite3.connect(folder / "run.db")) as store:
        told = list(store.execute("SELECT closed_at_ms, samples, squared_error FROM history ORDER BY round"))
    # Without the first rounds, when nodes join, and the last ones, when they leave.
    tenth = len(told) // 10
    steady = [closed for closed, _, _ in told[tenth:-tenth]]
    seconds = (steady[-1] - steady[0]) / 1000 / (len(steady) - 1)
    return Played(seconds, len(told), [(samples, squared) for _, samples, squared in told], memories)


def stream(node: int, rounds: int, samples: int) -> np.ndarray:
    """What a node learns on Flower in so many rounds: its columns, and the label."""
    parts = [np.column_stack(batch(node, number, samples, 1)) for number in range(rounds)]
    return np.concatenate(parts)


def write(path: Path, tables: list[np.ndarray], *others: str) -> None:
    """As a file, with columns of other names."""
    head = ",".join([*COLUMNS, "dew", *others])
    np.savetxt(path, np.concatenate(tables), fmt="%.17g", delimiter=",", header=head, comments="")


def simulations(
    folder: Path, program: Path, method: str, samples: int, rounds: int, turns: int
) -> tuple[Found, Found]:
    """Twenty nodes simulated by Ray, in turns with Hedgerow's simulator."""
    rounds += FIRST
    seconds: list[float] = []
    own, errors = [], []
    data = folder / "meadow.csv"
    with Fleet(folder / "home") as fleet:
        table = np.stack([stream(node, rounds, samples) for node in range(SIMULATED)])
        # Round by round: one sample of every node, then the next.
        table = table.reshape(SIMULATED, rounds, samples, -1).transpose(1, 0, 2, 3)
        named = np.broadcast_to(np.arange(SIMULATED)[None, :, None, None], (*table.shape[:3], 1))
        write(data, [np.concatenate([table, named], axis=3).reshape(-1, table.shape[3] + 1)], "node")
        for turn in range(turns):
            saved = folder / str(turn)
            settings = f'method="{method}" nodes={SIMULATED} batch-size={samples} num-server-rounds={rounds}'
            fleet.run(settings, f'save-to="{saved}"', nodes=SIMULATED, seconds=600)
            seconds += seconds_of(saved)
            errors.append(error_of(saved))
            (few, _), (many, error) = (
                simulate(folder / "out", program, data, method, samples, trials) for trials in (FEW, MANY)
            )
            own.append((many - few) / (MANY - FEW) / rounds)
    return Found(seconds, statistics.median(errors)), Found(own, error)


def simulate(
    folder: Path, program: Path, data: Path, method: str, samples: int, trials: int
) -> tuple[float, float]:
    """Seconds of Hedgerow's simulator, and its error over the trials."""
    command = [str(program), "simulate", "--data", str(data), "--target", "dew", "--node", "node"]
    command += ["--scaling", "online", "--method", method, "--trials", str(trials), "--threads", "1"]
    command += ["--set", f"participation.arrivals=fixed:{samples}", "--out", str(folder), "--quiet"]
    begun = time.monotonic()
    subprocess.run(command, check=True)
    seconds = time.monotonic() - begun
    summary = json.loads((folder / "summary.json").read_text())
    return seconds, float(summary["methods"][0]["mse"]["mean"])


def in_process(method: str, samples: int, rounds: int) -> Found:
    """Twenty Hedgerow nodes in one process, and their error in the first rounds."""
    federation = Federation(make_plan({"method": method, "nodes": SIMULATED, "seed": 1}))
    owner = np.repeat(np.arange(SIMULATED), samples)
    seconds, squared = [], []
    for number in range(1000):
        parts = [batch(node, number, samples, 1) for node in range(SIMULATED)]
        x, y = np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])
        begun = time.monotonic()
        guesses = federation.round(x, y, owner)
        seconds.append(time.monotonic() - begun)
        squared.append((guesses - y) ** 2)
    # Nothing is predicted before there is a scale.
    return Found(seconds[FIRST:], float(np.nanmean(squared[:rounds])))


def error_table() -> None:
    """Errors by samples of a node and round."""
    print(f"\nError on samples that are never learned, {SIMULATED} nodes, by samples of a node and round:\n")
    print("| | rounds |", " | ".join(map(str, BATCHES)), "|")
    print("|---|--:|" + "--:|" * len(BATCHES))
    for method in ("gr", "mk", "fedpoe"):
        after_rounds = [error(method, samples, ROUNDS) for samples in BATCHES]
        after_samples = [error(method, samples, SAMPLES // samples) for samples in BATCHES]
        for when, errors in ((f"{ROUNDS}", after_rounds), (f"until {SAMPLES} samples", after_samples)):
            print(f"| {method} | {when} |", " | ".join(f"{one:.2f}" for one in errors), "|")


def error(method: str, samples: int, rounds: int) -> float:
    """The error after some rounds of mini-batches."""
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
