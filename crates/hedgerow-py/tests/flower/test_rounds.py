"""Rounds on a grid in one process equal those of our own server and engines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from hedgerow import Engine, Federation, Plan, Server
from hedgerow.flower import HedgerowStrategy, batches_learned, client_app, engine_of

from ..conftest import METHODS
from .grid import NODES, ROWS, Meadow, batch, by_hand, meadow, samples, step


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scaling", ["online", "none"])
def test_it_is_our_own_federation_to_the_last_bit(method: str, scaling: str) -> None:
    plan = Plan(method=method, inputs=2, nodes=NODES, scaling=scaling, personal=scaling == "online")
    strategy = HedgerowStrategy(plan, fraction_evaluate=1.0)
    result = strategy.start(meadow(), num_rounds=12)
    server, nodes = by_hand(plan, 12)
    assert strategy.server.save() == server.save()
    assert strategy.server.round >= 11
    assert np.array_equal(result.arrays["model"].numpy(), server.broadcast.numbers)
    federation = Federation(plan)
    for number in range(12):
        parts = [batch(node, number) for node in range(NODES)]
        owner = np.repeat(np.arange(NODES), ROWS)
        federation.round(np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts]), owner)
    assert federation.rounds == strategy.server.round
    error = 0.0
    for node in range(NODES):
        x, y = batch(node, 10**6, 50)
        assert np.array_equal(federation.predict(x, node=node), nodes[node].predict(x))
        error += float(np.sum((federation.predict(x, node=node) - y) ** 2))
    evaluated = result.evaluate_metrics_clientapp[12]
    assert evaluated["num-examples"] == 50 * NODES
    assert evaluated["mse"] == pytest.approx(error / (50 * NODES), rel=1e-12)
    trained = result.train_metrics_clientapp[12]
    assert (trained["uploads"], trained["failures"], trained["num-examples"]) == (NODES, 0, NODES * ROWS)


def test_what_a_node_remembers_is_in_the_context() -> None:
    grid, plan = meadow(), Plan(inputs=2, nodes=NODES)
    context = grid.contexts[2**64 - 1]
    assert (engine_of(context), batches_learned(context)) == (None, 0)
    HedgerowStrategy(plan).start(grid, num_rounds=5)
    engine = engine_of(context)
    assert engine is not None
    assert (engine.number, engine.tally["samples"], batches_learned(context)) == (0, 5 * ROWS, 5)
    assert list(context.state) == ["hedgerow"]
    _, nodes = by_hand(plan, 4)
    nodes[0].learn(*batch(0, 4))
    nodes[0].speak()
    assert engine.save() == nodes[0].save()


def test_nothing_is_said_twice() -> None:
    """While no answer is lost, a node continues the same conversation."""
    plan, grid = Plan(inputs=2, nodes=NODES), meadow()
    replies: list[Message] = []
    grid.change = replies.append
    HedgerowStrategy(plan).start(grid, num_rounds=20)
    reports = [reply for reply in replies if "report" in dict(reply.content.get("arrays", {}))]
    server, nodes = Server(plan), [Engine(plan, "7", number) for number in range(NODES)]
    said = sum(step(server, nodes, number) for number in range(20))
    assert 0 < len(reports) == said < 20 * NODES


def test_what_travels() -> None:
    grid = meadow()
    plan = Plan(method="mk", inputs=2, nodes=NODES)
    HedgerowStrategy(plan).start(grid, num_rounds=4, train_config=ConfigRecord({"mine": 3}))
    content: Any = grid.asked[-1].content
    assert content["config"] == {"mine": 3, "server-round": 4}
    assert Plan.from_json(content["plan"]["plan"]) == plan
    opening = content["opening"]
    assert set(opening) == {"node", "heard", "taken", "round", "kernels", "scale-version", "scale"}
    assert (opening["heard"], opening["taken"], opening["round"]) == (
        3,
        opening["round"] - 1,
        opening["round"],
    )
    assert content["arrays"]["model"].numpy().dtype == np.float32
    reply: Any = grid.app(grid.asked[-1], Meadow.context(1)).content
    assert set(reply["answer"]) == {"node", "round", "vote"}
    assert set(reply["metrics"]) == {"num-examples", "samples", "squared-error"}
    assert len(reply["arrays"]["model"].numpy()) == plan.numbers - 1


@pytest.mark.parametrize("method", METHODS)
def test_lost_answers_are_said_again(method: str) -> None:
    plan = Plan(method=method, inputs=2, nodes=NODES)
    grid, strategy = meadow(), HedgerowStrategy(plan)
    # All answers of three rounds are lost, with the first reports and uploads.
    rounds = iter(range(10**6))
    lost = {0, 1, 2, 12, 13, 14, 15, 16, 17}
    grid.lose = lambda reply: next(rounds) in lost
    result = strategy.start(grid, num_rounds=10)
    metrics: Any = result.train_metrics_clientapp
    assert [metrics[at]["uploads"] for at in (5, 6)] == [0, 0]
    assert [metrics[at]["uploads"] for at in (7, 8, 9, 10)] == [NODES] * 4
    assert metrics[7]["round"] == metrics[5]["round"]
    # No sample is lost: the next answer contains them.
    told = sum(int(at["samples"]) for at in metrics.values())
    engines = [engine_of(context) for context in grid.contexts.values()]
    known = [engine.tally for engine in engines if engine is not None]
    assert sum(tally["samples"] for tally in known) == 10 * NODES * ROWS
    assert told == strategy.server.samples
    assert told >= 7 * NODES * ROWS


def test_a_round_goes_on_without_those_who_fail(caplog: pytest.LogCaptureFixture) -> None:
    def failing(context: Context) -> Iterator[tuple[Any, Any]]:
        if context.node_config["partition-id"] == 1 and batches_learned(context) == 2:
            raise OSError("the sensor is broken")
        return samples(context)

    grid = Meadow(client_app(failing), {10 + node: node for node in range(NODES)})
    result = HedgerowStrategy(Plan(inputs=2, nodes=NODES)).start(grid, num_rounds=6)
    metrics = result.train_metrics_clientapp
    assert [metrics[at]["failures"] for at in range(1, 7)] == [0, 0, 1, 1, 1, 1]
    assert metrics[6]["uploads"] == NODES - 1
    assert "node 11 failed: the sensor is broken" in caplog.text
    assert batches_learned(grid.contexts[11]) == 2


def test_streams_that_end_and_streams_that_go_on_by_themselves() -> None:
    def short(context: Context) -> Iterator[tuple[Any, Any]]:
        yield from [batch(0, 0), batch(0, 1), (np.empty((0, 2)), [])]

    plan = Plan(inputs=2, nodes=1, scaling="none")
    grid = Meadow(client_app(short), {1: 0})
    result = HedgerowStrategy(plan).start(grid, num_rounds=5)
    uploads = [result.train_metrics_clientapp[at]["uploads"] for at in range(1, 6)]
    assert uploads == [1, 1, 0, 0, 0]
    assert batches_learned(grid.contexts[1]) == 3

    def onwards(context: Context) -> Iterator[tuple[Any, Any]]:
        yield batch(0, batches_learned(context))

    grid = Meadow(client_app(onwards, from_start=False), {1: 0})
    strategy = HedgerowStrategy(plan)
    strategy.start(grid, num_rounds=5)
    assert strategy.server.save() == by_hand(plan, 5)[0].save()


def test_numbers_in_the_order_of_ids_where_there_are_no_partitions() -> None:
    def mine(context: Context) -> Iterator[tuple[Any, Any]]:
        engine = engine_of(context)
        yield batch(0 if engine is None else engine.number, batches_learned(context))

    grid = Meadow(client_app(mine, from_start=False), dict.fromkeys([30, 10, 20]))
    strategy = HedgerowStrategy(Plan(inputs=2, nodes=3))
    strategy.start(grid, num_rounds=3)
    engines = {node_id: engine_of(context) for node_id, context in grid.contexts.items()}
    assert {node_id: engine.number for node_id, engine in engines.items() if engine} == {10: 0, 20: 1, 30: 2}
    # A later node gets the next number for any id.
    grid.contexts[5] = Meadow.context(None)
    result = strategy.start(grid, num_rounds=2)
    newcomer = engine_of(grid.contexts[5])
    assert newcomer is not None
    assert newcomer.number == 3
    assert result.train_metrics_clientapp[2]["uploads"] == 4


def test_a_node_that_comes_back_as_another_keeps_its_partition(
    caplog: pytest.LogCaptureFixture,
) -> None:
    grid, strategy = meadow(), HedgerowStrategy(Plan(inputs=2, nodes=NODES))
    strategy.start(grid, num_rounds=3)
    del grid.contexts[2**64 - 1]
    grid.contexts[5] = Meadow.context(0)
    result = strategy.start(grid, num_rounds=2)
    assert result.train_metrics_clientapp[2]["uploads"] == NODES
    assert result.train_metrics_clientapp[2]["failures"] == 0
    # A second node with the same partition is refused while the first is connected.
    grid.contexts[6] = Meadow.context(0)
    result = strategy.start(grid, num_rounds=2)
    assert result.train_metrics_clientapp[2]["uploads"] == NODES
    assert result.train_metrics_clientapp[2]["failures"] == 1
    assert "node 5 has its number" in caplog.text


def test_a_part_of_the_nodes_in_each_round() -> None:
    grid = meadow(6)
    strategy = HedgerowStrategy(Plan(inputs=2, nodes=6, scaling="none"), fraction_train=0.5)
    result = strategy.start(grid, num_rounds=8)
    assert [record["uploads"] for record in result.train_metrics_clientapp.values()] == [3] * 8
    asked = [message.metadata.dst_node_id for message in grid.asked]
    assert len(asked) == 24
    assert len(set(asked)) > 3, "not always the same"
    assert sum(batches_learned(context) for context in grid.contexts.values()) == 24


def test_going_on_from_a_saved_server() -> None:
    plan = Plan(inputs=2, nodes=NODES)
    first = HedgerowStrategy(plan)
    first.start(meadow(), num_rounds=5)
    later = HedgerowStrategy(plan, server=Server.restore(plan, first.server.save()))
    result = later.start(meadow(), num_rounds=3)
    assert later.server.round == first.server.round + 3
    assert result.train_metrics_clientapp[3]["uploads"] == NODES
    with pytest.raises(ValueError, match="another plan"):
        HedgerowStrategy(Plan(inputs=3, nodes=NODES), server=first.server)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fraction_train": 1.5}, "fraction_train must be from 0 to 1, but is 1.5"),
        ({"fraction_evaluate": float("nan")}, "fraction_evaluate must be from 0 to 1"),
        ({"min_available_nodes": 0}, "min_available_nodes must be at least 1, but is 0"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HedgerowStrategy(Plan(inputs=2), **options)
    with pytest.raises(ValueError, match="compression"):
        HedgerowStrategy(Plan(inputs=2, compression="q8"))


def test_arguments_of_another_kind() -> None:
    with pytest.raises(TypeError, match=r"plan must be a hedgerow.Plan, but is 'gr'"):
        HedgerowStrategy("gr")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"server must be a hedgerow.Server, but is 3"):
        HedgerowStrategy(Plan(inputs=2), server=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"samples must be a function .* but is \[1\]"):
        client_app([1])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"samples must be a function .* but is None"):
        client_app(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"evaluation must be a function .* but is \[1\]"):
        client_app(samples, evaluation=[1])  # type: ignore[arg-type]


def test_initial_arrays_are_not_ignored() -> None:
    with pytest.raises(ValueError, match="initial_arrays must be left out"):
        HedgerowStrategy(Plan(inputs=2)).start(meadow(1), ArrayRecord())
