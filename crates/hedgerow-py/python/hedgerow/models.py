"""Models that were saved by ``hedgerow simulate --save-model`` or ``hedgerow export``."""

from __future__ import annotations

import json
from collections.abc import Callable
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hedgerow import _hedgerow
from hedgerow._requests import written_frame
from hedgerow._samples import is_frame, is_sparse

_Apply = Callable[[Any, str | None], NDArray[Any]]


def _placed(parts: list[tuple[NDArray[np.int64], NDArray[Any]]], rows: int) -> NDArray[Any]:
    """Parts with their rows as one array; other rows are NaN, or None for texts."""
    known = parts[0][1] if parts else np.empty(0, dtype=np.float32)
    is_number = known.dtype.kind == "f"
    shape = (rows, *known.shape[1:])
    made = np.full(shape, np.nan if is_number else None, dtype=known.dtype if is_number else object)
    for at, part in parts:
        made[at] = part
    return made


def load(path: str | PathLike[str]) -> Model:
    """Reads a model from a file."""
    return Model(_hedgerow._Model.read(path))


class Model:
    """What a federation has learned. :func:`load` reads one.

    A node of a model predicts what the live node would have said, to the bit. The shared model
    predicts like a node that has just joined. ``X`` is a frame of pandas or polars with the columns
    of the run, in any order, or an array with the inputs of each row.

    If a column of the frame names the node of each row, each row is predicted by its own, unless
    ``node`` names one: then rows of others are NaN. So are rows that only give the past for lags.
    Where a class is predicted, these are ``None``. Several targets have a column each.
    """

    def __init__(self, native: _hedgerow._Model) -> None:
        self._native = native
        self._described = json.loads(native.describe_json())

    @property
    def nodes(self) -> list[str]:
        """Names of its nodes."""
        return self._native.nodes

    @property
    def card(self) -> dict[str, Any]:
        """The model card: data, errors, settings, date."""
        return dict(self._described["card"])

    @property
    def info(self) -> dict[str, Any]:
        """All that ``hedgerow model --json`` shows: method, round, columns and the card."""
        return dict(self._described)

    @property
    def classes(self) -> list[str]:
        """Names of the classes, in the order of probabilities; empty if labels are numbers."""
        return self._native.classes

    @property
    def targets(self) -> list[str]:
        """Names of the targets, in the order of columns, if there are several."""
        return self._native.targets

    def predict(self, X: Any, node: str | None = None) -> NDArray[Any]:
        """Predicts the label of each row, or its class, as a node or with the shared model."""
        return self._each(X, node, self._native.predict)

    def predict_proba(self, X: Any, node: str | None = None) -> NDArray[np.float32]:
        """The probability of each class, one column for each of :attr:`classes`."""
        if not self.classes:
            raise ValueError("the model predicts numbers, which have no probabilities: use predict")
        return self._each(X, node, self._native.predict_proba)

    def predict_interval(
        self, X: Any, node: str | None = None, level: float | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Lower and upper ends of the interval around each prediction.

        ``level`` is the share of labels within, from 0.5 to 0.99; by default that of the run. Ends
        are NaN with the shared model, which knows no errors, and for classes.
        """
        ends = self._each(X, node, lambda x, name: self._native.predict_interval(x, name, level))
        return ends[..., 0], ends[..., 1]

    def _each(self, X: Any, node: str | None, apply: _Apply) -> NDArray[Any]:
        only = self.nodes[0] if node is None and not self._native.is_shared and len(self.nodes) == 1 else node
        if not is_frame(X) or self._described["schema"] is None:
            return apply(X.toarray() if is_sparse(X) else X, only)
        with written_frame(X) as file:
            x, lines, owners = self._native.encode(file)
            # A header, then a line for each row.
            if file.read_bytes().count(b"\n") != len(X) + 1:
                raise ValueError("texts of the frame have line breaks, which can't be read")
        at = lines.astype(np.int64) - 2
        names = np.array(owners if owners is not None else [only] * len(at), dtype=object)
        is_by_owner = owners is not None and only is None and bool(self.nodes)
        parts = []
        for name in dict.fromkeys(names) if is_by_owner else [only]:
            kept = names == name if owners is not None and name is not None else np.full(len(at), True)
            parts.append((at[kept], apply(x[kept], name)))
        return _placed(parts, len(X))

    def __repr__(self) -> str:
        method, round_ = self._described["method"], self._described["round"]
        return f"Model(method={method!r}, round={round_}, nodes={len(self.nodes)})"
