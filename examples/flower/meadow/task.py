"""The plan and the samples."""

from collections.abc import Iterator
from itertools import count

import numpy as np
from flwr.app import Context, UserConfig
from hedgerow import Plan
from hedgerow.flower import batches_learned
from numpy.typing import NDArray

COLUMNS = ["temperature", "humidity", "wind"]

Batch = tuple[NDArray[np.float64], NDArray[np.float64]]


def make_plan(config: UserConfig) -> Plan:
    """The plan of the federation. Nodes receive it with every message."""
    return Plan(
        method=str(config["method"]),
        columns=COLUMNS,
        target="dew",
        nodes=int(config["nodes"]),
        seed=int(config["seed"]),
    )


def batch(sensor: int, number: int, rows: int, seed: int) -> Batch:
    """Samples of one sensor. Each sensor has its own distribution of temperatures."""
    rng = np.random.default_rng([seed, sensor, number])
    temperature = rng.normal(8.0 + 0.3 * (sensor % 7), 4.0, rows)
    humidity = rng.uniform(30.0, 100.0, rows)
    wind = rng.exponential(2.0, rows)
    dew = np.exp(-(((temperature - 6.0) / 5.0) ** 2)) * (humidity / 100.0) ** 3 / (1.0 + wind)
    return np.column_stack([temperature, humidity, wind]), 40.0 * dew + rng.normal(0.0, 0.3, rows)


def samples(context: Context) -> Iterator[Batch]:
    """The stream of a node, from the position where it stopped."""
    config, sensor = context.run_config, int(context.node_config["partition-id"])
    for number in count(batches_learned(context)):
        yield batch(sensor, number, int(config["batch-size"]), int(config["seed"]))


def evaluation(context: Context) -> Iterator[Batch]:
    """Samples that are never learned."""
    sensor = int(context.node_config["partition-id"])
    yield batch(sensor, 0, 200, int(context.run_config["seed"]) + 1_000_000)
