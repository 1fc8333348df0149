"""Hedgerow on Flower: the two sides by hand, a simulation, and a deployment on loopback."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
    UserConfig,
)
from flwr.clientapp import ClientApp
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity
from hedgerow import Engine, Federation, Plan, Server
from hedgerow.flower import HedgerowStrategy, batches_learned, client_app, engine_of
from hedgerow.flower.records import Answer

from .conftest import METHODS
from .fleet import EXAMPLE, Fleet

ROWS = 8
NODES = 3

Take = Callable[[int, int], tuple[Any, Any]]


@pytest.fixture(autouse=True)
def task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages need the identity of a task."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)


def batch(node: int, number: int, rows: int = ROWS) -> tuple[Any, Any]:
    rng = np.random.default_rng([5, node, number])
    x = rng.normal(size=(rows, 2)) * [1.0, 30.0] + [node, 500.0]
    return x, 10.0 * np.sin(x[:, 0]) + 0.1 * x[:, 1]


def samples(context: Context) -> Iterator[tuple[Any, Any]]:
    number = 0
    while True:
        yield batch(int(context.node_config["partition-id"]), number)
        number += 1


def evaluation(context: Context) -> Iterator[tuple[Any, Any]]:
    yield batch(int(context.node_config["partition-id"]), 10**6, 50)


def sent(content: RecordDict) -> RecordDict:
    """A message after serialisation."""
    return recorddict_from_proto(recorddict_to_proto(content))


class Meadow(Grid):
    """A grid in one process. Nodes can be absent; replies can be lost or changed."""

    def __init__(self, app: ClientApp, partitions: Mapping[int, int | None]) -> None:
        self.app = app
        self.contexts = {node_id: self.context(partition) for node_id, partition in partitions.items()}
        self.lose: Callable[[Message], bool] = lambda reply: False
        self.change: Callable[[Message], None] = lambda reply: None
        self.asked: list[Message] = []
        # The order of replies is random.
        self.step = -1

    @staticmethod
    def context(partition: int | None) -> Context:
        config: UserConfig = {} if partition is None else {"partition-id": partition}
        return Context(7, 1, config, RecordDict(), {})

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        replies = []
        for message in messages:
            self.asked.append(message)
            message.content = sent(message.content)
            context = self.contexts[message.metadata.dst_node_id]
            before = dict(context.state)
            try:
                reply = self.app(message, context)
                reply.content = sent(reply.content)
                self.change(reply)
            except Exception as error:
                reply = Message(Error(code=2, reason=str(error)), reply_to=message)
                context.state = RecordDict(before)
            context.state = sent(context.state)
            if not self.lose(reply):
                replies.append(reply)
        return replies[:: self.step]

    def get_node_ids(self) -> list[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        raise NotImplementedError

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError


def meadow(nodes: int = NODES, **options: Any) -> Meadow:
    # Ids as large as Flower's, in another order than the partitions.
    ids = {2**64 - 1 - node: node for node in range(nodes)}
    return Meadow(client_app(samples, evaluation=evaluation, **options), ids)


def by_hand(plan: Plan, rounds: int, take: Take = batch) -> tuple[Server, list[Engine]]:
    """The same with Hedgerow's own server and engines."""
    server, nodes = Server(plan), [Engine(plan, "7", number) for number in range(plan.nodes)]
    for number in range(rounds):
        step(server, nodes, number, take)
    for node in nodes:
        hear(server, node)
    return server, nodes


def step(server: Server, nodes: list[Engine], number: int, take: Take = batch) -> int:
    """Runs a round. Returns the number of reports."""
    reports = 0
    for node in nodes:
        if number == 0:
            node.connected()
        hear(server, node)
        node.learn(*take(node.number, number))
        said = node.speak()
        if said.report is not None:
            reports += 1
            server.accept_report(node.number, said.report)
        if said.upload is not None:
            server.accept_upload(node.number, said.upload)
    server.close_round()
    return reports


def hear(server: Server, node: Engine) -> None:
    if server.scale is not None:
        node.hear_scale(*server.scale)
    told = server.broadcast
    node.hear_broadcast(told.round, told.kernels, told.numbers, taken=server.taken(node.number))


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


@pytest.mark.parametrize("partition", [-1, 2**32, "3", True, 0.5])
def test_partitions_are_whole_numbers(partition: Any, caplog: pytest.LogCaptureFixture) -> None:
    grid = meadow(1)
    grid.contexts[2**64 - 1].node_config["partition-id"] = partition
    result = HedgerowStrategy(Plan(inputs=2)).start(grid, num_rounds=1)
    assert result.train_metrics_clientapp[1]["failures"] == 1
    assert "partition-id must be a whole number from 0" in caplog.text


def head(shape: str, descr: str = "<f4", version: bytes = b"\x01\x00") -> bytes:
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}}}".encode()
    text += b" " * (117 - len(text)) + b"\n"
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text


# Damaged forms of a valid vector.
BAD_ARRAYS: dict[str, Callable[[int, bytes], bytes]] = {
    "empty": lambda count, body: b"",
    "no numpy": lambda count, body: b"x" * 128 + body,
    "a claim of a terabyte": lambda count, body: head("(250000000000,)") + body,
    "a negative shape": lambda count, body: head("(-1,)") + body,
    "a matrix": lambda count, body: head(f"({count}, 1)") + body,
    "a scalar": lambda count, body: head("()") + body,
    "doubles": lambda count, body: head(f"({count // 2},)", "<f8") + body,
    "integers": lambda count, body: head(f"({count},)", "<i4") + body,
    "the other end first": lambda count, body: head(f"({count},)", ">f4") + body,
    "objects": lambda count, body: head(f"({count // 2},)", "|O") + body,
    "version 2": lambda count, body: head(f"({count},)", version=b"\x02\x00") + body,
    "one too few": lambda count, body: head(f"({count},)") + body[4:],
    "one too many": lambda count, body: head(f"({count - 1},)") + body,
    "code": lambda count, body: head("__import__('os').abort()") + body,
}


def bad_arrays(name: str) -> Callable[[RecordDict], None]:
    def change(content: RecordDict) -> None:
        record: Any = content["arrays"]
        good = record["model"].numpy()
        data = BAD_ARRAYS[name](len(good), good.tobytes())
        record["model"] = Array("float32", good.shape, "numpy.ndarray", data)

    return change


def test_the_head_of_good_arrays() -> None:
    """Otherwise the arrays above could be refused for another reason."""
    good = np.arange(6, dtype=np.float32)
    assert Array(good).data == head("(6,), ") + good.tobytes()


def put(record: str, key: str, value: Any) -> Callable[[RecordDict], None]:
    def change(content: RecordDict) -> None:
        content[record][key] = value

    return change


def drop(record: str, key: str | None = None) -> Callable[[RecordDict], None]:
    def change(content: RecordDict) -> None:
        if key is None:
            del content[record]
        else:
            del content[record][key]

    return change


def swap(record: str) -> Callable[[RecordDict], None]:
    def change(content: RecordDict) -> None:
        content[record] = MetricRecord({"a": 1}) if record != "metrics" else ConfigRecord({"a": 1})

    return change


BOTH = [pytest.param(bad_arrays(name), id=name) for name in BAD_ARRAYS]


@pytest.mark.parametrize(
    "change",
    [
        *BOTH,
        *(drop(record) for record in ("answer", "metrics")),
        *(swap(record) for record in ("answer", "metrics", "arrays")),
        *(drop("answer", key) for key in ("node", "round", "vote")),
        *(drop("metrics", key) for key in ("num-examples", "samples", "squared-error")),
        put("answer", "node", -1),
        put("answer", "node", 2**40),
        put("answer", "node", False),
        put("answer", "node", "1"),
        put("answer", "node", 1),
        put("answer", "round", -1),
        put("answer", "round", 10**9),
        put("answer", "vote", 10**6),
        put("answer", "vote", -1),
        put("answer", "vote", 2**40),
        put("metrics", "num-examples", -5),
        put("metrics", "samples", -1),
        put("metrics", "samples", 2**40),
        put("metrics", "squared-error", float("nan")),
        put("metrics", "squared-error", -1.0),
        put("metrics", "squared-error", [1.0]),
        lambda content: content["arrays"].update(model=Array(np.full(100, np.nan, np.float32))),
        lambda content: content["arrays"].update(report=Array(np.full(3, np.inf, np.float32))),
    ],
)
def test_bad_answers_are_refused_and_change_nothing(change: Callable[[RecordDict], None]) -> None:
    plan = Plan(method="mk", inputs=2, nodes=NODES)
    strategies = [HedgerowStrategy(plan, min_available_nodes=2), HedgerowStrategy(plan)]
    grids = [meadow(), meadow()]
    for strategy, grid in zip(strategies, grids, strict=True):
        strategy.start(grid, num_rounds=4)

    def spoil(reply: Message) -> None:
        if reply.metadata.src_node_id == 2**64 - 1:
            change(reply.content)

    grids[1].change = spoil
    result = strategies[1].start(grids[1], num_rounds=1)
    assert result.train_metrics_clientapp[1]["failures"] == 1
    assert result.train_metrics_clientapp[1]["uploads"] == NODES - 1
    del grids[0].contexts[2**64 - 1]
    strategies[0].start(grids[0], num_rounds=1)
    assert strategies[0].server.save() == strategies[1].server.save()
    # A valid answer is accepted again.
    grids[1].change = lambda reply: None
    result = strategies[1].start(grids[1], num_rounds=1)
    assert result.train_metrics_clientapp[1]["uploads"] == NODES


@pytest.mark.parametrize(
    "change",
    [
        *BOTH,
        *(drop(record) for record in ("plan", "config", "opening", "arrays")),
        *(swap(record) for record in ("plan", "config", "opening", "arrays")),
        *(drop("opening", key) for key in ("node", "heard", "taken", "round", "kernels", "scale-version")),
        put("plan", "plan", "{}"),
        put("plan", "plan", Plan(inputs=3).to_json()),
        put("config", "server-round", "1"),
        put("opening", "round", -1),
        put("opening", "taken", -1),
        put("opening", "kernels", [1]),
        put("opening", "kernels", [-1, 0]),
        put("opening", "kernels", [0, 2**40]),
        put("opening", "kernels", [1000, 1000]),
        put("opening", "kernels", [0.5, 1.5]),
        put("opening", "scale", b"\xff" * 40),
        put("opening", "scale-version", -1),
        lambda content: content["arrays"].update(model=Array(np.zeros(10**6, np.float32))),
    ],
)
def test_bad_messages_are_refused_and_change_nothing(change: Callable[[RecordDict], None]) -> None:
    grid = meadow(1)
    HedgerowStrategy(Plan(method="mk", inputs=2)).start(grid, num_rounds=4)
    context = grid.contexts[2**64 - 1]
    message = grid.asked[-1]
    message.content = sent(message.content)
    before = sent(context.state)
    change(message.content)
    with pytest.raises((ValueError, TypeError)):
        grid.app(message, context)
    assert context.state == before


def test_a_message_without_a_model() -> None:
    grid = meadow(1)
    HedgerowStrategy(Plan(inputs=2)).start(grid, num_rounds=1)
    message: Any = grid.asked[0]
    message.content["arrays"] = ArrayRecord()
    with pytest.raises(ValueError, match="no array 'model'"):
        grid.app(message, Meadow.context(0))


def test_a_refused_answer_is_said_again() -> None:
    grid = meadow(1)
    strategy = HedgerowStrategy(Plan(inputs=2))
    strategy.start(grid, num_rounds=4)
    before = strategy.server.round
    grid.change = lambda reply: put("answer", "round", 10**9)(reply.content)
    result = strategy.start(grid, num_rounds=2)
    assert result.train_metrics_clientapp[2]["failures"] == 1
    assert strategy.server.round == before
    grid.change = lambda reply: None
    result = strategy.start(grid, num_rounds=1)
    assert result.train_metrics_clientapp[1]["uploads"] == 1
    assert result.train_metrics_clientapp[1]["samples"] == 3 * ROWS


def spoil_upload(content: RecordDict) -> None:
    put("answer", "round", 10**9)(content)


def spoil_report(content: RecordDict) -> None:
    content["arrays"]["report"] = Array(np.full(3, np.inf, np.float32))


def drop_everything(content: RecordDict) -> None:
    if "arrays" in content:
        del content["arrays"]


@pytest.mark.parametrize("scaling", ["online", "none"])
@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize("spoil", [spoil_upload, spoil_report, drop_everything])
def test_a_senseless_answer_takes_no_number(
    spoil: Callable[[RecordDict], None], step: int, scaling: str
) -> None:
    grid, strategy = meadow(), HedgerowStrategy(Plan(inputs=2, nodes=NODES, scaling=scaling))
    grid.step = step

    def lie(reply: Message) -> None:
        # Before any number is confirmed, one node claims another's.
        if reply.metadata.src_node_id == 2**64 - 1:
            if "arrays" not in reply.content:
                reply.content["arrays"] = ArrayRecord()
            if "model" not in reply.content["arrays"] and spoil is spoil_upload:
                reply.content["arrays"]["model"] = Array(np.zeros(3, np.float32))
                reply.content["metrics"].update({"samples": 1, "squared-error": 0.0})
            put("answer", "node", 1)(reply.content)
            spoil(reply.content)

    grid.change = lie
    result = strategy.start(grid, num_rounds=1)
    # A node with an empty answer that first claims a number has no effect.
    is_harmless = spoil is drop_everything and step == -1
    assert result.train_metrics_clientapp[1]["failures"] == (0 if is_harmless else 1)
    grid.change = lambda reply: None
    result = strategy.start(grid, num_rounds=4)
    assert [record["failures"] for record in result.train_metrics_clientapp.values()] == [0] * 4
    assert result.train_metrics_clientapp[4]["uploads"] == NODES


@pytest.mark.parametrize("spoil", [spoil_upload, spoil_report])
def test_of_an_answer_all_is_taken_or_nothing(spoil: Callable[[RecordDict], None]) -> None:
    plan = Plan(inputs=2, nodes=1)
    grid, strategy = meadow(1), HedgerowStrategy(plan)
    strategy.start(grid, num_rounds=4)
    before, told = strategy.server.save(), strategy.server.scale
    message = Message(
        sent(grid.asked[-1].content), dst_node_id=2**64 - 1, message_type=grid.asked[-1].metadata.message_type
    )
    # A new node in its place with other data: its report would change the scale.
    engine = Engine(plan, "7", 0)
    engine.connected()
    hear(strategy.server, engine)
    engine.learn(1e6 * np.ones((50, 2)), 1e3 * np.ones(50))
    said = engine.speak()
    assert said.report is not None
    assert said.upload is not None
    content = Answer.of(0, 50, said).to_records()
    spoil(content)
    _, metrics = strategy.aggregate_train(5, [Message(content, reply_to=message)])
    assert metrics is not None
    assert (metrics["failures"], metrics["uploads"]) == (1, 0)
    assert (strategy.server.save(), strategy.server.scale) == (before, told)


def test_what_was_taken_is_told_to_those_whose_number_is_sure() -> None:
    plan = Plan(inputs=2, nodes=2, scaling="none")
    first = HedgerowStrategy(plan)
    first.start(meadow(2), num_rounds=3)
    # A new run: numbers are unknown until nodes confirm them.
    later, grid = HedgerowStrategy(plan, server=first.server), meadow(2)
    later.start(grid, num_rounds=2)
    taken = [message.content["opening"]["taken"] for message in grid.asked]
    assert taken == [0, 0, 4, 4]


def test_a_reply_of_somebody_whom_nobody_asked(caplog: pytest.LogCaptureFixture) -> None:
    grid, strategy = meadow(1), HedgerowStrategy(Plan(inputs=2))
    strategy.start(grid, num_rounds=1)
    message = Message(sent(grid.asked[0].content), dst_node_id=77, message_type="train")
    reply = grid.app(message, Meadow.context(3))
    _, metrics = strategy.aggregate_train(2, [reply])
    assert metrics is not None
    assert metrics["failures"] == 1


def test_without_samples_to_evaluate_on() -> None:
    grid = Meadow(client_app(samples), {1: 0})
    strategy = HedgerowStrategy(Plan(inputs=2), fraction_evaluate=1.0)
    result = strategy.start(grid, num_rounds=1)
    assert result.evaluate_metrics_clientapp == {}


@pytest.mark.parametrize(
    "change",
    [
        drop("metrics"),
        put("metrics", "num-examples", -1),
        put("metrics", "squared-error", float("inf")),
        put("metrics", "squared-error", float("nan")),
        drop("metrics", "squared-error"),
    ],
)
def test_bad_evaluations_do_not_count(change: Callable[[RecordDict], None]) -> None:
    grid = meadow()

    def spoil(reply: Message) -> None:
        if reply.metadata.message_type == "evaluate" and reply.metadata.src_node_id == 2**64 - 2:
            change(reply.content)

    grid.change = spoil
    result = HedgerowStrategy(Plan(inputs=2, nodes=NODES), fraction_evaluate=1.0).start(grid, num_rounds=2)
    assert result.evaluate_metrics_clientapp[2]["num-examples"] == 100


# Flower's own engines.


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
