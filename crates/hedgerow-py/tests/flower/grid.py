"""A grid of Flower in one process, and the same rounds without Flower."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from flwr.app import Context, Error, Message, RecordDict, UserConfig
from flwr.clientapp import ClientApp
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.serverapp import Grid
from hedgerow import Engine, Plan, Server
from hedgerow.flower import client_app

ROWS = 8
NODES = 3

Take = Callable[[int, int], tuple[Any, Any]]


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
