"""The node's side: a ``ClientApp`` whose engine is kept in Flower's context between rounds."""

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

# The record of the context's state that is ours.
STATE = "hedgerow"

Batches = Callable[[Context], Iterable[tuple[Any, Any]]]


def client_app(
    samples: Batches,
    *,
    evaluation: Batches | None = None,
    from_start: bool = True,
    mods: list[Mod] | None = None,
) -> ClientApp:
    """A ``ClientApp`` that learns a mini-batch a round.

    ``samples(context)`` gives an iterator over batches ``(X, y)``, a row of ``X`` for each label. It is
    called anew in every round, since Flower may start a process for each. If it begins at the same place
    every time, batches that were learned before are passed over; if it goes on by itself, as a sensor's queue
    does or one that asks :func:`batches_learned`, say ``from_start=False``. A node whose batches have come to
    an end answers that it has nothing to say.

    ``evaluation(context)`` gives the batches that are predicted, and not learned, when the strategy asks for
    an evaluation.
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
        # What was heard here will be heard again: the context stays as it was.
        return Message(Evaluation(examples, squared_error).to_records(), reply_to=message)

    return app


def engine_of(context: Context) -> Engine | None:
    """The node's engine as it was after its latest answer, for predictions of your own; None before the first
    one. What is done with it isn't kept.
    """
    node = _Remembered.from_context(context)
    return None if node is None else node.engine


def batches_learned(context: Context) -> int:
    """Batches that this node has learned in this run, the one at hand not included."""
    node = _state(context)
    return 0 if node is None else int(node["batches"])  # type: ignore[arg-type]


@dataclass
class _Remembered:
    """What a node remembers from one round to the next."""

    engine: Engine
    #: Flower's round of its latest answer; 0 if it never answered.
    answered: int = 0
    batches: int = 0

    @classmethod
    def of(cls, context: Context, plan: Plan, opening: Opening) -> _Remembered:
        """The node as it was, or a new one."""
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
        """Hears what opens the round."""
        if self.answered == 0 or self.answered != opening.heard:
            # An answer was lost on its way or refused: as if a connection had broken, everything
            # that is owed is said again.
            self.engine.connected()
        if opening.scale is not None:
            self.engine.hear_scale(*opening.scale)
        told = opening.broadcast
        self.engine.hear_broadcast(told.round, told.kernels, told.numbers, taken=opening.taken)

    def keep(self, context: Context, server_round: int) -> None:
        """Puts it away until the next round."""
        # A pickle's parts are plain bytes; a pickle itself has no business in a state.
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
    """A node's number: its partition's if it has one, so that it keeps it when it comes back as another node
    of Flower.
    """
    partition = context.node_config.get("partition-id")
    if partition is None:
        return opening.node
    if type(partition) is not int or not 0 <= partition < 2**32:
        raise ValueError(f"partition-id must be a whole number from 0, but is {partition!r}")
    return partition
