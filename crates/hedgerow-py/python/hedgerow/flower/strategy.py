"""The server side: a strategy for a ``ServerApp``."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable
from types import NoneType
from typing import TypeVar

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from hedgerow._hedgerow import Plan, Server
from hedgerow.flower.members import Members
from hedgerow.flower.records import EXAMPLES, Answer, Evaluation, Opening, arrays

# Flower's own log.
_LOG = logging.getLogger("flwr")

# Seconds between two checks for enough nodes.
_PATIENCE = 1.0

_T = TypeVar("_T")


class HedgerowStrategy(Strategy):
    """Runs a plan on the nodes of a grid: ``HedgerowStrategy(plan).start(grid, num_rounds=100)``.

    Rounds start when ``min_available_nodes`` are connected, by default as many as the plan has. A
    round asks ``fraction_train`` of the connected nodes and closes with those that answer within
    the ``timeout`` of :meth:`start`. ``fraction_evaluate`` of the nodes predict samples that they
    don't learn; the default is none, because every round has the error of predictions that were
    made before their labels were learned.

    ``server`` continues from a server of the same plan, such as ``Server.restore(plan, saved)``
    with the ``strategy.server.save()`` of an earlier run.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        server: Server | None = None,
        fraction_train: float = 1.0,
        fraction_evaluate: float = 0.0,
        min_available_nodes: int | None = None,
    ) -> None:
        if not isinstance(plan, Plan):
            raise TypeError(f"plan must be a hedgerow.Plan, but is {plan!r:.50}")
        if not isinstance(server, (Server, NoneType)):
            raise TypeError(f"server must be a hedgerow.Server, but is {server!r:.50}")
        for name, fraction in (("fraction_train", fraction_train), ("fraction_evaluate", fraction_evaluate)):
            if not 0.0 <= fraction <= 1.0:
                raise ValueError(f"{name} must be from 0 to 1, but is {fraction}")
        if min_available_nodes is None:
            min_available_nodes = plan.nodes
        if min_available_nodes < 1:
            raise ValueError(f"min_available_nodes must be at least 1, but is {min_available_nodes}")
        if server is not None and server.plan != plan:
            raise ValueError("the server has another plan")
        self.plan = plan
        self.server = Server(plan) if server is None else server
        self.fraction_train = fraction_train
        self.fraction_evaluate = fraction_evaluate
        self.min_available_nodes = min_available_nodes
        # Checks reports first, so that a report with a refused upload has no effect.
        self._trial = Server(plan)
        self._members = Members()
        self._opened_at = time.monotonic()

    @property
    def arrays(self) -> ArrayRecord:
        """The numbers of the current broadcast."""
        return arrays(model=self.server.broadcast.numbers)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Runs ``num_rounds`` rounds.

        The model comes from the plan or the saved server, so there are no initial arrays.
        """
        if initial_arrays is not None:
            raise ValueError(
                "initial_arrays must be left out: a saved model comes as server=Server.restore(plan, saved)"
            )
        return super().start(
            grid, self.arrays, num_rounds, timeout, train_config, evaluate_config, evaluate_fn
        )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Opens a round for the nodes that take part in it."""
        messages = self._ask(server_round, config, grid, self.fraction_train, MessageType.TRAIN)
        self._opened_at = time.monotonic()
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Accepts the answers and closes the round.

        Invalid answers are refused and change nothing.
        """
        answers, failures = _read(replies, Answer.from_records)
        before = self.server.round
        examples, samples, squared_error = 0, 0, 0.0
        # Their order doesn't matter: the server's sums are exact.
        for node_id, answer in answers:
            try:
                self._take(node_id, answer)
            except (ValueError, TypeError) as error:
                failures += 1
                _LOG.warning("node %d (number %d) was refused: %s", node_id, answer.node, error)
                continue
            self._members.heard[node_id] = server_round
            examples += answer.examples
            if answer.upload is not None:
                samples += answer.upload.samples
                squared_error += answer.upload.squared_error
        metrics = MetricRecord(
            {
                "round": before,
                "uploads": self.server.uploads,
                "failures": failures,
                EXAMPLES: examples,
                "samples": samples,
                "seconds": time.monotonic() - self._opened_at,
            }
        )
        if samples:
            metrics["mse"] = squared_error / samples
        self.server.close_round()
        return self.arrays, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Asks for predictions of the model after the round."""
        return self._ask(server_round, config, grid, self.fraction_evaluate, MessageType.EVALUATE)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The mean squared error over all samples."""
        evaluations, _ = _read(replies, Evaluation.from_records)
        examples = sum(evaluation.examples for _, evaluation in evaluations)
        if not examples:
            return None
        squared_error = sum(evaluation.squared_error for _, evaluation in evaluations)
        return MetricRecord({EXAMPLES: examples, "mse": squared_error / examples})

    def summary(self) -> None:
        """Logs the configuration."""
        _LOG.info("\t├── %r", self.plan)
        _LOG.info("\t├── Round of the model: %d", self.server.round)
        _LOG.info(
            "\t├── Fraction: train (%.2f) | evaluate (%.2f)", self.fraction_train, self.fraction_evaluate
        )
        _LOG.info("\t└── Minimum available nodes: %d", self.min_available_nodes)

    def _take(self, node_id: int, answer: Answer) -> None:
        """Accepts all of an answer or, if something is wrong, nothing."""
        self._members.check(node_id, answer.node)
        if answer.upload is not None:
            if answer.report is not None:
                # Whether a report is valid doesn't depend on the server's state.
                self._trial.accept_report(0, answer.report)
            self.server.accept_upload(answer.node, answer.upload)
        if answer.report is not None:
            self.server.accept_report(answer.node, answer.report)
        # An empty answer does not confirm a number.
        if answer.upload is not None or answer.report is not None:
            self._members.bind(node_id, answer.node)

    def _ask(
        self, server_round: int, config: ConfigRecord, grid: Grid, fraction: float, kind: str
    ) -> list[Message]:
        if fraction == 0.0:
            return []
        there = self._wait(grid)
        self._members.see(there)
        chosen = there
        if fraction < 1.0:
            count = max(round(fraction * len(there)), 1)
            chosen = sorted(random.Random(f"{kind} {server_round}").sample(there, count))
        told, scale = self.server.broadcast, self.server.scale
        messages = []
        for node_id in chosen:
            number = self._members.number(node_id)
            opening = Opening(
                server_round=server_round,
                node=number,
                heard=self._members.heard.get(node_id, 0),
                # An unconfirmed number may belong to another node.
                taken=self.server.taken(number) if self._members.is_bound(node_id) else 0,
                broadcast=told,
                scale=scale,
            )
            content = opening.to_records(self.plan, config)
            messages.append(Message(content, dst_node_id=node_id, message_type=kind))
        return messages

    def _wait(self, grid: Grid) -> list[int]:
        """Waits until enough nodes are connected, and returns them."""
        while True:
            there = sorted(grid.get_node_ids())
            if len(there) >= self.min_available_nodes:
                return there
            _LOG.info("Waiting for nodes: %d of %d are there", len(there), self.min_available_nodes)
            time.sleep(_PATIENCE)


def _read(replies: Iterable[Message], read: Callable[[RecordDict], _T]) -> tuple[list[tuple[int, _T]], int]:
    """The valid replies with their nodes, and the number of failed ones."""
    sound: list[tuple[int, _T]] = []
    failures = 0
    for reply in replies:
        node_id = reply.metadata.src_node_id
        if reply.has_error():
            _LOG.warning("node %d failed: %s", node_id, reply.error.reason)
            failures += 1
            continue
        try:
            sound.append((node_id, read(reply.content)))
        except (ValueError, TypeError) as error:
            _LOG.warning("node %d sent a reply that makes no sense: %s", node_id, error)
            failures += 1
    return sound, failures
