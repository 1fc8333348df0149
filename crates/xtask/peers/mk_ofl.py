"""MK-OFL of twenty nodes, as plain numpy and as `hedgerow simulate`, in turns: node steps a second, errors.

    python crates/xtask/peers/mk_ofl.py --hedgerow target/release/hedgerow [--turns 7]

numpy's nodes are handled one by one, as each would be on a device of its own, or all nodes of a round by one
call per operation; both are vectorised over kernels and features, and both have a server. The stream is the
same: Twitter (77 numbers a sample) where it is found, else made up; P = 11, D = 49. Random frequencies are
drawn by each for itself, in the same way. One core each, and time is that of the processor, so that the rest
of a shared machine doesn't count; then all cores, by the clock on the wall: trials divided among ours, one
numpy for each core. Ours is what a run of many trials takes more than one of few, so that reading the file
and writing the report don't count; nor do numpy's reading and its draws.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "crates/xtask/bench"), str(ROOT / "crates/hedgerow-py/benches")]

# It also keeps numpy's libraries from starting threads.
import estimators
import numpy as np
from node_step import D, K, Node, Nodes, P, d

# Trials of a short run and of a long one.
FEW, MANY = 2, 202

# Times numpy's node steps that are wanted.
WANTED = 100

DRAWS = ("shared", "independent")
PRECISIONS = {"double": np.float64, "single": np.float32}


class Way(NamedTuple):
    """How numpy does it."""

    nodes_a_call: int
    draw: str
    precision: str

    def name(self) -> str:
        nodes = "a node a call" if self.nodes_a_call == 1 else f"{self.nodes_a_call} nodes a call"
        return f"{nodes}, {self.draw}, {self.precision}"


WAYS = [Way(nodes, draw, precision) for nodes in (1, K) for draw in DRAWS for precision in PRECISIONS]


class OneByOne:
    """Nodes as devices would be: each sees a sample, and its own models alone."""

    def __init__(self, draw: str, rng: np.random.Generator, dtype: Any) -> None:
        self.nodes = [Node(draw, rng, dtype) for _ in range(K)]
        for node in self.nodes:
            node.v = self.nodes[0].v

    def step(self, x: Any, y: Any, t: int) -> tuple[Any, Any, Any]:
        """All nodes, one after the other."""
        done = [node.step(x[at], y[at], t) for at, node in enumerate(self.nodes)]
        predictions, votes, uploads = zip(*done, strict=True)
        return np.array(predictions), np.array(votes), np.array(uploads)

    def adopt(self, model: Any, drawn: int) -> None:
        """Everybody hears the broadcast."""
        for node in self.nodes:
            node.model, node.kernel, node.next_kernel = model, node.next_kernel, drawn


class Together(Nodes):
    """All nodes of a round by one call."""

    def adopt(self, model: Any, drawn: int) -> None:
        """Everybody hears the broadcast."""
        self.model, self.kernel, self.next_kernel = model, self.next_kernel, drawn


class Numpy:
    """A federation in numpy: the nodes of the other benchmark, and a server."""

    def __init__(self, way: Way, seed: int) -> None:
        self.dtype = PRECISIONS[way.precision]
        self.rng = np.random.default_rng(seed)
        self.nodes: Any
        if way.nodes_a_call == 1:
            self.nodes = OneByOne(way.draw, self.rng, self.dtype)
        else:
            self.nodes = Together(way.draw, self.rng, self.dtype)

    def run(self, x: Any, y: Any) -> float:
        """Plays all rounds; the mean squared error of predictions made before their labels were known."""
        squared = 0.0
        for t in range(len(x)):
            prediction, votes, uploads = self.nodes.step(x[t], y[t], t + 1)
            squared += float(np.sum((prediction - y[t]) ** 2))
            with np.errstate(divide="ignore"):
                log = K * np.log(np.bincount(votes, minlength=P))
            chances = np.exp(log - log.max())
            drawn = int(self.rng.choice(P, p=chances / chances.sum()))
            self.nodes.adopt(uploads.mean(axis=0), drawn)
        return squared / int(y.size)


class Turns(NamedTuple):
    """Nanoseconds of a node step in each turn, on one core and on all, and errors."""

    one: list[float]
    all: list[float]
    errors: list[float]


class Simulate:
    """`hedgerow simulate`."""

    def __init__(self, program: Path, folder: Path, csv: Path, steps: int) -> None:
        self.program, self.out, self.csv, self.steps = program, folder / "out", csv, steps

    def measure(self, draw: str, threads: int, seed: int) -> tuple[float, float, list[float]]:
        """Nanoseconds of a node step, of the processor and on the wall, and the errors of the trials."""
        few, many = (self._run(draw, threads, seed, trials) for trials in (FEW, MANY))
        processor, wall = (1e9 * (many[at] - few[at]) / (MANY - FEW) / self.steps for at in (0, 1))
        summary = json.loads((self.out / "summary.json").read_text())
        return processor, wall, summary["methods"][0]["mse_trials"]

    def _run(self, draw: str, threads: int, seed: int, trials: int) -> tuple[float, float]:
        command = [str(self.program), "simulate", "--data", str(self.csv), "--scaling", "none"]
        command += ["--method", "mk", "--nodes", str(K), "--partition", "round-robin"]
        command += [
            "--trials",
            str(trials),
            "--threads",
            str(threads),
            "--seed",
            str(seed),
            "--set",
            f"kernels.draw={draw}",
        ]
        command += ["--out", str(self.out), "--quiet"]
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run(command, check=True)
        after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - begun
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def worker() -> None:
    """A numpy on a core of its own: says when it is ready, waits for the word, and says how long it took."""
    request = json.loads(sys.stdin.readline())
    os.sched_setaffinity(0, {request["core"]})
    table, way = np.load(request["table"]), Way(*request["way"])
    federation = Numpy(way, request["seed"])
    x, y = (table[name].astype(federation.dtype) for name in ("x", "y"))
    print(flush=True)
    sys.stdin.readline()
    begun = time.monotonic()
    federation.run(x, y)
    print(json.dumps(time.monotonic() - begun))


def on_all(cores: Iterable[int], table: Path, way: Way, seed: int) -> list[float]:
    """Seconds of as many numpys as there are cores, at the same time."""
    workers = []
    for core in cores:
        command = [sys.executable, __file__, "--worker"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        request = {"core": core, "table": str(table), "way": way, "seed": seed + core}
        workers.append(process)
        tell(process, json.dumps(request))
    try:
        # Each waits for the others.
        for process in workers:
            hear(process)
        for process in workers:
            tell(process, "")
        return [float(hear(process)) for process in workers]
    finally:
        for process in workers:
            process.kill()
            process.communicate()


def tell(process: subprocess.Popen[str], line: str) -> None:
    """Says a line to a worker."""
    assert process.stdin
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> str:
    """A worker's next line."""
    assert process.stdout
    if not (line := process.stdout.readline()):
        raise RuntimeError("numpy's process has failed")
    return line


def spread(values: Iterable[float]) -> str:
    """Median, least and most."""
    values = list(values)
    return f"{statistics.median(values):.1f} [{min(values):.1f}, {max(values):.1f}]"


def ratios(ours: list[float], theirs: list[float]) -> list[float]:
    """How many times faster ours is, turn by turn."""
    return [b / a for a, b in zip(ours, theirs, strict=True)]


def rate(nanoseconds: list[float]) -> str:
    """Steps per second."""
    return f"{1e9 / statistics.median(nanoseconds):,.0f}"


def errors(values: list[float]) -> str:
    """Mean and spread, in thousandths."""
    return f"{1e3 * np.mean(values):.2f} ± {1e3 * np.std(values):.2f}"


def main() -> None:
    """Measures everything and prints a section of Markdown."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hedgerow", type=Path, default=ROOT / "target/release/hedgerow")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker()
        return
    cores = os.sched_getaffinity(0)
    name, samples = estimators.stream(13_800)
    rounds = len(samples) // K
    steps = rounds * K
    x = np.array([sample.row[0] for sample in samples[:steps]])
    y = np.array([sample.y for sample in samples[:steps]])
    ours = {draw: Turns([], [], []) for draw in DRAWS}
    theirs = {way: Turns([], [], []) for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        csv, table = Path(folder) / "stream.csv", Path(folder) / "stream.npz"
        head = ",".join([*(f"x{number}" for number in range(d)), "y"])
        # All digits, so that both learn the same numbers.
        np.savetxt(csv, np.column_stack([x, y]), fmt="%.17g", delimiter=",", header=head, comments="")
        x, y = x.reshape(rounds, K, d), y.reshape(rounds, K)
        np.savez(table, x=x, y=y)
        simulate = Simulate(options.hedgerow.resolve(), Path(folder), csv, steps)
        for seed in range(1, options.turns + 1):
            os.sched_setaffinity(0, {min(cores)})
            for draw, turns in ours.items():
                processor, _, found = simulate.measure(draw, 1, seed)
                turns.one.append(processor)
                turns.errors.extend(found)
            for way, turns in theirs.items():
                federation = Numpy(way, seed)
                data = x.astype(federation.dtype), y.astype(federation.dtype)
                begun = time.thread_time()
                turns.errors.append(federation.run(*data))
                turns.one.append(1e9 * (time.thread_time() - begun) / steps)
            os.sched_setaffinity(0, cores)
            for draw, turns in ours.items():
                turns.all.append(simulate.measure(draw, len(cores), seed)[1])
            for way, turns in theirs.items():
                seconds = on_all(sorted(cores), table, way, seed)
                turns.all.append(1e9 / sum(steps / each for each in seconds))
    print(
        f"`hedgerow simulate` beside numpy {np.__version__}, {name}, {rounds} rounds of K = {K} nodes,",
        end=" ",
    )
    print(
        f"P = {P}, D = {D}, d = {d}; {options.turns} turns. Ratios are median [least, most] over the", end=" "
    )
    print("turns; errors are mean and standard deviation over the draws of random features,", end=" ")
    print(f"{MANY * options.turns} of ours and {options.turns} of numpy's.\n")
    print("| our draw | numpy | node steps/s, ours | numpy | times numpy |", end=" ")
    print(f"on {len(cores)} cores, ours | numpy |", end="")
    print(" times numpy | MSE, 1e-3, ours | numpy |")
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    reached, missed = [], []
    for draw, mine in ours.items():
        for way, other in theirs.items():
            # Who draws as the paper does compares with the same; who shares, with either, but that
            # is another amount of work.
            if draw == "shared" or way.draw == draw:
                one, both = ratios(mine.one, other.one), ratios(mine.all, other.all)
                print(
                    f"| {draw} | {way.name()} | {rate(mine.one)} | {rate(other.one)} | {spread(one)} |",
                    f"{rate(mine.all)} | {rate(other.all)} | {spread(both)} |",
                    f"{errors(mine.errors)} | {errors(other.errors)} |",
                )
                if way.draw != draw:
                    continue
                if (times := statistics.median(one)) >= WANTED:
                    reached.append(f"{draw} beside {way.name()}")
                else:
                    missed.append(WANTED / times)
    print(f"\n{WANTED} times numpy's node steps on one core, with the same draw: reached by", end=" ")
    print("; ".join(reached) or "none of these", end="")
    print(f"; the others miss it by a factor of {min(missed):.1f} to {max(missed):.1f}." if missed else ".")


if __name__ == "__main__":
    main()
