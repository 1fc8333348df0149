"""Models that were saved by ``hedgerow simulate --save-model`` or ``hedgerow export``."""

from __future__ import annotations

import json
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hedgerow import _hedgerow
from hedgerow._requests import write_frame
from hedgerow._samples import is_frame, is_sparse

_Apply = Callable[[Any, str | None], NDArray[np.float32]]


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
        if self.classes:
            probabilities = self.predict_proba(X, node)
            found = np.full(len(probabilities), None, dtype=object)
            known = ~np.isnan(probabilities).any(axis=1)
            found[known] = np.array(self.classes, dtype=object)[probabilities[known].argmax(axis=1)]
            return found
        return self._squeezed(self._each(X, node, self._native.predict, self._outputs))

    def predict_proba(self, X: Any, node: str | None = None) -> NDArray[np.float32]:
        """The probability of each class, one column for each of :attr:`classes`."""
        if not self.classes:
            raise ValueError("the model predicts numbers, which have no probabilities: use predict")
        return self._each(X, node, self._native.predict_proba, len(self.classes))

    def predict_interval(
        self, X: Any, node: str | None = None, level: float | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Lower and upper ends of the interval around each prediction.

        ``level`` is the share of labels within, from 0.5 to 0.99; by default that of the run. Ends
        are NaN with the shared model, which knows no errors, and for classes.
        """
        count = self._outputs
        ends = self._each(X, node, lambda x, name: self._native.predict_interval(x, name, level), 2 * count)
        if self.classes:
            return ends[:, 0], ends[:, count]
        return self._squeezed(ends[:, :count]), self._squeezed(ends[:, count:])

    @property
    def _outputs(self) -> int:
        return int(self._described["outputs"])

    def _squeezed(self, columns: NDArray[np.float32]) -> NDArray[np.float32]:
        return columns if self.targets else columns[:, 0]

    def _each(self, X: Any, node: str | None, apply: _Apply, columns: int) -> NDArray[np.float32]:
        only = self.nodes[0] if node is None and not self._native.is_shared and len(self.nodes) == 1 else node
        if not is_frame(X) or self._described["schema"] is None:
            return apply(X.toarray() if is_sparse(X) else X, only)
        with TemporaryDirectory(prefix="hedgerow-") as folder:
            file = write_frame(X, Path(folder))
            x, lines, owners = self._native.encode(file)
            # A header, then a line for each row.
            if file.read_bytes().count(b"\n") != len(X) + 1:
                raise ValueError("texts of the frame have line breaks, which can't be read")
        made = np.full((len(X), columns), np.nan, dtype=np.float32)
        at = lines.astype(np.int64) - 2
        names = np.array(owners if owners is not None else [], dtype=object)
        if owners is None:
            made[at] = apply(x, only)
        elif only is not None or not self.nodes:
            kept = names == only if only is not None else np.full(len(at), True)
            made[at[kept]] = apply(x[kept], only)
        else:
            for name in dict.fromkeys(owners):
                made[at[names == name]] = apply(x[names == name], name)
        return made

    def __repr__(self) -> str:
        method, round_ = self._described["method"], self._described["round"]
        return f"Model(method={method!r}, round={round_}, nodes={len(self.nodes)})"
