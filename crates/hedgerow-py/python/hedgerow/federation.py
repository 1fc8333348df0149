"""K nodes and their server in one process."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hedgerow import _hedgerow
from hedgerow._hedgerow import Plan
from hedgerow._numbers import is_missing, label, number
from hedgerow._samples import Samples, check_owners, from_frame, is_frame, pieces
from hedgerow.callbacks import Callback, checked, tell
from hedgerow.frames import Frame
from hedgerow.results import Result

# Rounds of an iterator that are run at a time.
_ROUNDS = 64

# Rounds in the window of the windowed error.
_WINDOW = 100

# First bytes of a saved state with names of nodes. The names follow as a line of JSON.
_NAMED = b"hedgerow federation with names\n"


class Federation(_hedgerow._Federation):
    """K nodes and their server in one process, as many nodes as the plan has.

    Samples are arrays ``X`` and ``y``, a frame of pandas or polars with a column for the label, or
    an iterator over ``(x, y)`` or ``(x, y, node)``. ``node`` names the node of each sample: numbers
    from 0, or names, which are numbered in order of appearance and keep their numbers
    (:attr:`names`). Without it, samples are dealt in turn.

    A plan may have classes or several targets: see :class:`Learner` for labels and predictions.

    NaN inputs are filled in. A sample without a label (NaN) is predicted and not learned: it takes
    the turn of its node, and :attr:`missing_labels` counts it. Sparse matrices are made dense in
    parts of a few megabytes.

    >>> import numpy as np
    >>> from hedgerow import Federation, Plan
    >>> X = np.random.default_rng(1).uniform(size=(400, 2))
    >>> y = np.sin(4 * X[:, 0]) * X[:, 1]
    >>> federation = Federation(Plan(inputs=2, nodes=4, scaling="none"))
    >>> result = federation.run(X, y)
    >>> federation.rounds, federation.samples
    (101, 400)
    >>> bool(np.mean((federation.predict(X) - y) ** 2) < 0.02)
    True
    """

    _names: dict[str, int]

    def __new__(cls, plan: Plan) -> Self:
        federation = super().__new__(cls, plan)
        federation._names = {}
        return federation

    def round(self, X: Any, y: Any = None, node: Any = None) -> NDArray[Any]:
        """Runs one round with these samples. Returns the predictions made before learning.

        Each node predicts and learns its samples. Then all nodes upload and receive the new model.
        """
        predictions, _, _ = self._learn(self._samples(X, y, node), is_round=True)
        return predictions

    def run(self, X: Any, y: Any = None, node: Any = None, *, callbacks: Sequence[Callback] = ()) -> Result:
        """Runs rounds until all samples are learned, one sample per node and round.

        An iterator is read in pieces of 64 samples per node. Each piece is learned before the next
        is read, like one call with arrays per piece. If some nodes have more samples than others, a
        single call with all samples would use each node's next sample sooner.

        ``callbacks`` hear of the errors of all rounds when the run has ended: see
        :mod:`hedgerow.callbacks`.
        """
        heard = checked(callbacks)
        played: list[tuple[NDArray[Any], NDArray[np.int64], NDArray[np.float64]]] = []
        before, missing, begun = self.traffic, self.missing_labels, 0
        for samples in self._all(X, y, node):
            predictions, rounds, errors = self._learn(samples)
            played.append((predictions, rounds + begun, errors))
            begun = int(played[-1][1].max(initial=begun - 1)) + 1
        if not played:
            raise ValueError("there are no samples")
        predictions, rounds, errors = (np.concatenate(parts) for parts in zip(*played, strict=True))
        sent = tuple(after - was for after, was in zip(self.traffic, before, strict=True))
        result = self._result(predictions, rounds, errors, sent, self.missing_labels - missing)
        tell(heard, result)
        return result

    def predict(self, x: Any, node: int | str = 0) -> NDArray[Any]:
        """Predicts the labels of rows or of a frame with the model of a node.

        The node is given by number or name.

        With gr and tr, and with ``personal=True``, each node has a layer of its own over the common
        model.

        >>> from hedgerow import Federation, Plan
        >>> federation = Federation(Plan(inputs=1, nodes=2))
        >>> _ = federation.run([[0.1], [0.2]], [1.0, 2.0], ["attic", "cellar"])
        >>> federation.names
        {'attic': 0, 'cellar': 1}
        >>> federation.predict([[0.3]], node="cellar").shape
        (1,)
        """
        return super().predict(x, self._number(node))

    def predict_interval(self, x: Any, node: int | str = 0, level: float = 0.9) -> NDArray[np.float32]:
        """The intervals in which labels at a node are expected, given by number or name.

        See :meth:`Learner.predict_interval`.
        """
        return super().predict_interval(x, self._number(node), level)

    def predict_interval_one(self, x: Any, node: int | str = 0, level: float = 0.9) -> tuple[Any, ...]:
        """The interval of a sample at a node, given by number or name.

        See :meth:`Learner.predict_interval_one`.
        """
        return super().predict_interval_one(x, self._number(node), level)

    def predict_one(self, x: Any, node: int | str = 0) -> float | Any:
        """Predicts the label of a sample with the model of a node, given by number or name."""
        return super().predict_one(x, self._number(node))

    def predict_proba(self, x: Any, node: int | str = 0) -> NDArray[np.float32]:
        """The probabilities of classes at a node, given by number or name.

        See :meth:`Learner.predict_proba`.
        """
        return super().predict_proba(x, self._number(node))

    def predict_proba_one(self, x: Any, node: int | str = 0) -> dict[str, float]:
        """The probability of each class for a sample at a node, given by number or name."""
        return super().predict_proba_one(x, self._number(node))

    def shares(self, node: int | str = 0) -> list[float]:
        """The weight of each kernel in a node's predictions. The node is given by number or name.

        All weights are zero for methods without kernel weights, such as gr.
        """
        return super().shares(self._number(node))

    @property
    def names(self) -> dict[str, int]:
        """Numbers of the named nodes, by name. Methods accept either."""
        return dict(self._names)

    def save(self) -> bytes:
        """The complete state, with the plan and the names of nodes."""
        saved = super().save()
        return _NAMED + json.dumps(list(self._names)).encode() + b"\n" + saved if self._names else saved

    @classmethod
    def restore(cls, saved: bytes) -> Self:
        """Continues from a saved state."""
        federation = cls(cls._plan_of(_parted(saved)[1]))
        federation.__setstate__(saved)
        return federation

    def __getstate__(self) -> Any:
        # Attributes of subclasses, in a dictionary and in slots.
        known: Any = object.__getstate__(self)
        attributes, slots = known if isinstance(known, tuple) else (known, {})
        return self.save(), {name: value for name, value in (attributes | slots).items() if name != "_names"}

    def __setstate__(self, state: Any) -> None:
        saved, attributes = (state, {}) if isinstance(state, bytes) else state
        names, native = _parted(saved)
        if len(names) > self.plan.nodes:
            raise ValueError(f"the saved federation names {len(names)} nodes of {self.plan.nodes}")
        super().__setstate__(native)
        for name, value in attributes.items():
            setattr(self, name, value)
        self._names = {name: number for number, name in enumerate(names)}

    def __reduce__(self) -> Any:
        return _bare, (type(self), self.plan), self.__getstate__()

    def _learn(
        self, samples: Samples, *, is_round: bool = False
    ) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.float64]]:
        owners, names = self._numbers(samples.node)
        before = self.samples + self.missing_labels
        try:
            return self._play(samples.X, samples.y, owners, is_round)
        finally:
            # Refused samples add no names. After an interruption some samples may be learned.
            if self.samples + self.missing_labels > before:
                self._names = names

    def _samples(self, X: Any, y: Any, node: Any) -> Samples:
        if is_frame(X):
            plan = self.plan
            has_classes = bool(plan.classes)
            return from_frame(X, y, node, columns=plan.columns, target=plan.target, classes=has_classes)
        if y is None:
            raise TypeError("y is missing: the labels, one for each row of X")
        return Samples(X, y, check_owners(node))

    def _all(self, X: Any, y: Any, node: Any) -> Iterable[Samples]:
        if is_frame(X) or y is not None:
            return [self._samples(X, y, node)]
        if isinstance(X, (str, bytes)) or not isinstance(X, Iterable) or isinstance(X, np.ndarray):
            raise TypeError("without y, samples come from a frame or an iterator over (x, y)")
        if node is not None:
            raise TypeError("an iterator says whose its samples are itself: (x, y, node)")
        plan = self.plan
        read = _class if plan.classes else _numbers
        return pieces(X, plan.columns, _ROUNDS * plan.nodes, plan.inputs, read)

    def _number(self, node: int | str) -> int:
        if not isinstance(node, str):
            return node
        if node not in self._names:
            known = f"there are {', '.join(self._names)}" if self._names else "none has a name"
            raise ValueError(f"no node has the name {node!r}: {known}")
        return self._names[node]

    def _numbers(self, node: Any) -> tuple[NDArray[np.int64] | None, dict[str, int]]:
        """The numbers of these nodes, and all names including new ones."""
        if node is None:
            return None, self._names
        owners = np.asarray(node)
        if owners.dtype.kind in "iu":
            return owners.astype(np.int64), self._names
        given = owners.tolist()
        if owners.dtype.kind not in "OU" or not all(isinstance(name, str) for name in given):
            stranger = next((name for name in given if not isinstance(name, str)), None)
            raise TypeError(f"node must be whole numbers, or names, but one is {stranger!r:.50}")
        names = dict(self._names)
        for name in given:
            names.setdefault(name, len(names))
        if len(names) > self.plan.nodes:
            raise ValueError(f"the plan has {self.plan.nodes} nodes, but {len(names)} are named")
        return np.asarray([names[name] for name in given], dtype=np.int64), names

    def _result(
        self,
        predictions: NDArray[Any],
        rounds: NDArray[np.int64],
        errors: NDArray[np.float64],
        sent: tuple[int, ...],
        missing: int,
    ) -> Result:
        count = int(rounds.max()) + 1 if len(rounds) else 0
        known = ~np.isnan(errors)
        sums = np.cumsum(np.bincount(rounds, np.where(known, errors, 0.0), count))
        scored = np.cumsum(np.bincount(rounds, known, count))

        def mean(back: int) -> NDArray[np.float64]:
            late_sums, late_scored = sums.copy(), scored.copy()
            late_sums[back:] -= sums[:-back]
            late_scored[back:] -= scored[:-back]
            empty = np.full(count, np.nan)
            np.divide(late_sums, late_scored, out=empty, where=late_scored > 0)
            return empty

        plan = self.plan
        mse = float(sums[-1] / scored[-1]) if count and scored[-1] else float("nan")
        node_rounds = max(count * plan.nodes, 1)
        summary = {
            "data": {
                "name": "samples",
                "samples": len(rounds),
                "features": plan.inputs,
                "missing_labels": missing,
            },
            "nodes": plan.nodes,
            "rounds": count,
            "trials": 1,
            "window": _WINDOW,
            "methods": [
                {
                    "name": plan.method,
                    "mse": {"mean": mse, "sd": 0.0},
                    "numbers_up": sent[0] / node_rounds,
                    "numbers_down": sent[1] / node_rounds,
                }
            ],
        }
        if plan.classes:
            summary["classes"] = plan.classes
        curves = Frame(
            {
                "method": np.full(count, plan.method, dtype=object),
                "kernel": np.zeros(count, dtype=np.int64),
                "round": np.arange(1, count + 1),
                "mse": mean(max(count, 1)),
                "mse_window": mean(_WINDOW),
            }
        )
        return Result(summary, curves, predictions=predictions)


def _numbers(y: Any) -> Any:
    """The label of a sample, or a list of several."""
    return number(y, "a label") if isinstance(y, str) else label(y)


def _class(y: Any) -> Any:
    """The class of a sample; None if it is missing."""
    return None if is_missing(y) else y


def _bare(kind: type[Federation], plan: Plan) -> Federation:
    """A federation without state, made without the constructor of a subclass."""
    return Federation.__new__(kind, plan)


def _parted(saved: bytes) -> tuple[list[str], bytes]:
    """Splits a saved state into the names of nodes, if any, and the rest."""
    if not saved.startswith(_NAMED):
        return [], saved
    line, _, native = saved[len(_NAMED) :].partition(b"\n")
    try:
        names = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the saved federation can't be read: {error}") from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("the saved federation can't be read: names of nodes must be a list of texts")
    if len(set(names)) != len(names):
        raise ValueError("the saved federation can't be read: two nodes have the same name")
    return names, native
