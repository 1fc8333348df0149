"""The node side: a ``ClientApp`` whose engine is kept in Flower's context between rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod

from hedgerow._hedgerow import Engine, Plan
from hedgerow.flower.records import Answer, BadMessage, Evaluation, Opening

# The name of our record in the context's state.
STATE = "hedgerow"

Batches = Callable[[Context], Iterable[tuple[Any, Any]]]


def client_app(
    samples: Batches,
    *,
    evaluation: Batches | None = None,
    from_start: bool = True,
    mods: list[Mod] | None = None,
) -> ClientApp:
    """A ``ClientApp`` that learns one mini-batch per round.

    ``samples(context)`` returns an iterator over batches ``(X, y)`` with one row of ``X`` per
    label. It is called in every round, because Flower may start a process for each. If it starts at
    the same place every time, batches that were already learned are skipped. If it continues by
    itself, like a sensor's queue or a function that calls :func:`batches_learned`, use
    ``from_start=False``. A node without further batches sends an empty answer.

    ``evaluation(context)`` returns the batches that are predicted but not learned when the strategy
    asks for an evaluation.
    """
    for name, given in (("samples", samples), ("evaluation", evaluation)):
        if not callable(given) and (name == "samples" or given is not None):
            raise TypeError(
                f"{name} must be a function that takes Flower's context and gives batches (X, y), "
                f"but is {given!r:.50}"
            )
    app = ClientApp(mods=mods)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        plan, opening = Opening.from_records(message.content)
        node = _Remembered.of(context, plan, opening)
        node.hear(opening)
        examples = 0
        batches = iter(samples(context))
        if from_start:
            batches = islice(batches, node.batches, None)
        for X, y in islice(batches, 1):
            examples = len(np.asarray(y))
            node.engine.learn(X, y)
            node.batches += 1
        answer = Answer.of(node.engine.number, examples, node.engine.speak())
        node.keep(context, opening.server_round)
        return Message(answer.to_records(), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        if evaluation is None:
            raise ValueError("there are no samples to evaluate on: client_app(samples, evaluation=...)")
        plan, opening = Opening.from_records(message.content)
        node = _Remembered.of(context, plan, opening)
        node.hear(opening)
        examples, squared_error = 0, 0.0
        for X, y in evaluation(context):
            labels = np.asarray(y, dtype=np.float64)
            if labels.size:
                examples += labels.size
                squared_error += float(np.sum((node.engine.predict(X) - labels) ** 2))
        # The context stays unchanged: the same opening comes again for training.
        return Message(Evaluation(examples, squared_error).to_records(), reply_to=message)

    return app


def engine_of(context: Context) -> Engine | None:
    """The node's engine after its latest answer, for your own predictions.

    None before the first answer. Changes to it are not kept.
    """
    node = _Remembered.from_context(context)
    return None if node is None else node.engine


def batches_learned(context: Context) -> int:
    """Number of batches that this node has learned in this run, without the current one."""
    node = _state(context)
    return 0 if node is None else int(node["batches"])  # type: ignore[arg-type]


@dataclass
class _Remembered:
    """The state of a node between rounds."""

    engine: Engine
    #: Flower's round of its latest answer; 0 if it never answered.
    answered: int = 0
    batches: int = 0

    @classmethod
    def of(cls, context: Context, plan: Plan, opening: Opening) -> _Remembered:
        """Restores the node, or makes a new one."""
        node = cls.from_context(context)
        if node is None:
            return cls(Engine(plan, str(context.run_id), _number(context, opening)))
        if node.engine.plan != plan:
            raise BadMessage("the server has another plan than before")
        return node

    @classmethod
    def from_context(cls, context: Context) -> _Remembered | None:
        state = _state(context)
        if state is None:
            return None
        plan, saved, standing = state["plan"], state["engine"], state["standing"]
        engine = Engine._resume(Plan.from_json(plan), saved, standing)  # type: ignore[arg-type]
        return cls(engine, int(state["answered"]), int(state["batches"]))  # type: ignore[arg-type]

    def hear(self, opening: Opening) -> None:
        """Applies the opening of a round."""
        if self.answered == 0 or self.answered != opening.heard:
            # An answer was lost or refused. As after a broken connection, the engine repeats what
            # the server has not confirmed.
            self.engine.connected()
        if opening.scale is not None:
            self.engine.hear_scale(*opening.scale)
        told = opening.broadcast
        self.engine.hear_broadcast(told.round, told.kernels, told.numbers, taken=opening.taken)

    def keep(self, context: Context, server_round: int) -> None:
        """Saves the state in the context."""
        # Store the parts of the pickle as plain bytes, because unpickling is unsafe.
        reduced: Any = self.engine.__reduce__()
        plan, saved, standing = reduced[1]
        context.state[STATE] = ConfigRecord(
            {
                "plan": plan.to_json(),
                "engine": saved,
                "standing": standing,
                "answered": server_round,
                "batches": self.batches,
            }
        )


def _state(context: Context) -> ConfigRecord | None:
    state = context.state.get(STATE)
    return state if isinstance(state, ConfigRecord) else None


def _number(context: Context, opening: Opening) -> int:
    """A node's number: the partition id, if any, because Flower's node ids may change."""
    partition = context.node_config.get("partition-id")
    if partition is None:
        return opening.node
    if type(partition) is not int or not 0 <= partition < 2**32:
        raise ValueError(f"partition-id must be a whole number from 0, but is {partition!r}")
    return partition
