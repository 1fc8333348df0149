"""What is wrong with messages, answers and options is refused and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from hedgerow import Engine, Plan
from hedgerow.flower import HedgerowStrategy, client_app
from hedgerow.flower.records import Answer

from .grid import NODES, ROWS, Meadow, hear, meadow, samples, sent


@pytest.mark.parametrize(
    ("several", "outputs"), [({"target": "a,b"}, 2), ({"classes": ["low", "middle", "high"]}, 3)]
)
def test_several_targets_and_many_classes_have_no_strategy(several: dict[str, Any], outputs: int) -> None:
    words = rf"Flower carry messages of one output .* but the plan has {outputs}: use Federation .* Node"
    with pytest.raises(ValueError, match=words):
        HedgerowStrategy(Plan(inputs=2, **several))
    HedgerowStrategy(Plan(inputs=2, classes=["low", "high"]))


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
    engine.learn(1e6 * np.ones((50, 2)), 10.0 * np.ones(50))
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
