"""Hedgerow's messages as records of Flower.

A message of the server has the plan, the user's own ``config``, an :class:`Opening` and the numbers
of the model. A node's reply has an :class:`Answer`, its numbers and its errors. Everything from the
other side is checked here or by the native code that accepts it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from io import BytesIO
from typing import Any, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from hedgerow._hedgerow import Broadcast, Plan, Speech, Upload

# Names of the records in a message, and of their fields.
PLAN = "plan"
CONFIG = "config"
OPENING = "opening"
ANSWER = "answer"
ARRAYS = "arrays"
METRICS = "metrics"
SERVER_ROUND = "server-round"
MODEL = "model"
REPORT = "report"
EXAMPLES = "num-examples"

Numbers = NDArray[np.float32]
_T = TypeVar("_T")


class BadMessage(ValueError):
    """An invalid message."""


@dataclass(frozen=True)
class Opening:
    """What opens a round for a node."""

    #: Flower's round: counts the requests to all nodes.
    server_round: int
    #: The node's number, unless it has a partition id.
    node: int
    #: Flower's round of this node's latest accepted answer; 0 if none.
    heard: int
    #: The latest round in which an upload of this node was accepted.
    taken: int
    broadcast: Broadcast
    scale: tuple[int, bytes] | None

    def to_records(self, plan: Plan, config: ConfigRecord) -> RecordDict:
        """Converts to records."""
        opening = ConfigRecord(
            {
                "node": self.node,
                "heard": self.heard,
                "taken": self.taken,
                "round": self.broadcast.round,
            }
        )
        if self.broadcast.kernels is not None:
            opening["kernels"] = list(self.broadcast.kernels)
        if self.scale is not None:
            opening["scale-version"], opening["scale"] = self.scale
        config = ConfigRecord({**config, SERVER_ROUND: self.server_round})
        return RecordDict(
            {
                PLAN: ConfigRecord({PLAN: plan.to_json()}),
                CONFIG: config,
                OPENING: opening,
                ARRAYS: arrays(model=self.broadcast.numbers),
            }
        )

    @classmethod
    def from_records(cls, content: RecordDict) -> tuple[Plan, Opening]:
        """Reads from records."""
        plan = Plan.from_json(_field(_record(content, PLAN, ConfigRecord), PLAN, str))
        opening = _record(content, OPENING, ConfigRecord)
        kernels: tuple[int, int] | None = None
        if "kernels" in opening:
            given = _field(opening, "kernels", list)
            if len(given) != 2 or not all(type(kernel) is int and 0 <= kernel < 2**32 for kernel in given):
                raise BadMessage(f"kernels must be two whole numbers from 0, but are {given!r:.50}")
            kernels = (int(given[0]), int(given[1]))
        scale: tuple[int, bytes] | None = None
        if "scale" in opening:
            scale = _field(opening, "scale-version", int), _field(opening, "scale", bytes)
        model = _numbers(_record(content, ARRAYS, ArrayRecord), MODEL)
        if model is None:
            raise BadMessage(f"the message has no array {MODEL!r}")
        return plan, cls(
            server_round=_field(_record(content, CONFIG, ConfigRecord), SERVER_ROUND, int),
            node=_field(opening, "node", int),
            heard=_field(opening, "heard", int),
            taken=_field(opening, "taken", int),
            broadcast=Broadcast(_field(opening, "round", int), kernels, model),
            scale=scale,
        )


@dataclass(frozen=True)
class Answer:
    """A node's answer."""

    #: The node's number.
    node: int
    #: Samples learned for this answer.
    examples: int
    report: Numbers | None
    upload: Upload | None

    @classmethod
    def of(cls, node: int, examples: int, speech: Speech) -> Answer:
        """From the output of an engine."""
        return cls(node, examples, speech.report, speech.upload)

    def to_records(self) -> RecordDict:
        """Converts to records."""
        answer = ConfigRecord({"node": self.node})
        metrics = MetricRecord({EXAMPLES: self.examples})
        content = RecordDict({ANSWER: answer, METRICS: metrics})
        numbers: dict[str, Numbers] = {}
        if self.report is not None:
            numbers[REPORT] = self.report
        if self.upload is not None:
            answer["round"] = self.upload.round
            if self.upload.vote is not None:
                answer["vote"] = self.upload.vote
            metrics["samples"], metrics["squared-error"] = self.upload.samples, self.upload.squared_error
            numbers[MODEL] = self.upload.numbers
        if numbers:
            content[ARRAYS] = arrays(**numbers)
        return content

    @classmethod
    def from_records(cls, content: RecordDict) -> Answer:
        """Reads from records."""
        answer, metrics = _record(content, ANSWER, ConfigRecord), _record(content, METRICS, MetricRecord)
        node, examples = _field(answer, "node", int), _field(metrics, EXAMPLES, int)
        if examples < 0:
            raise BadMessage(f"{EXAMPLES!r} must be at least 0, but is {examples}")
        if ARRAYS not in content:
            return cls(node, examples, None, None)
        numbers = _record(content, ARRAYS, ArrayRecord)
        model, upload = _numbers(numbers, MODEL), None
        if model is not None:
            upload = Upload(
                _field(answer, "round", int),
                _field(answer, "vote", int) if "vote" in answer else None,
                model,
                _field(metrics, "samples", int),
                _field(metrics, "squared-error", float),
            )
        return cls(node, examples, _numbers(numbers, REPORT), upload)


@dataclass(frozen=True)
class Evaluation:
    """The error of a node on samples that it doesn't learn."""

    examples: int
    squared_error: float

    def to_records(self) -> RecordDict:
        """Converts to records."""
        metrics = MetricRecord({EXAMPLES: self.examples, "squared-error": self.squared_error})
        return RecordDict({METRICS: metrics})

    @classmethod
    def from_records(cls, content: RecordDict) -> Evaluation:
        """Reads from records."""
        metrics = _record(content, METRICS, MetricRecord)
        examples, squared_error = _field(metrics, EXAMPLES, int), _field(metrics, "squared-error", float)
        if examples < 0 or not 0.0 <= squared_error < math.inf:
            raise BadMessage(f"{examples} samples with a squared error of {squared_error} can't be")
        return cls(examples, squared_error)


def arrays(**numbers: Numbers) -> ArrayRecord:
    """Vectors by name."""
    return ArrayRecord({name: Array(vector) for name, vector in numbers.items()})


def _record(content: RecordDict, name: str, kind: type[_T]) -> _T:
    record = content.get(name)
    if not isinstance(record, kind):
        raise BadMessage(f"the message has no {kind.__name__} {name!r}")
    return record


def _field(record: Any, name: str, kind: type[_T]) -> _T:
    value = record.get(name)
    # isinstance() would accept a bool as an int.
    if type(value) is not kind:
        raise BadMessage(f"{name!r} must be of type {kind.__name__}, but is {value!r:.50}")
    return value


def _numbers(record: ArrayRecord, name: str) -> Numbers | None:
    """A vector of an array record.

    The header is compared with the size of the data before anything is allocated. ``Array.numpy``
    doesn't do that.
    """
    array = record.get(name)
    if array is None:
        return None
    file = BytesIO(array.data)
    try:
        if np.lib.format.read_magic(file) != (1, 0):
            raise BadMessage(f"array {name!r} must be of numpy's format 1.0")
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    except BadMessage:
        raise
    except Exception as error:
        raise BadMessage(f"array {name!r} can't be read: {error}") from None
    body = array.data[file.tell() :]
    if dtype != np.dtype("<f4") or len(shape) != 1 or len(body) != 4 * shape[0]:
        raise BadMessage(
            f"array {name!r} must be a vector of float32, but is {dtype}, shape {shape}, {len(body)} bytes"
        )
    return np.frombuffer(body, dtype="<f4")
