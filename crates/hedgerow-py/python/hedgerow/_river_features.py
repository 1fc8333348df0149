"""Random Fourier features for River."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from river import base
from river.utils import dataframe

from hedgerow._growing import Names, first_seed, table_of
from hedgerow._hedgerow import FeatureMap
from hedgerow._numbers import number

_Sample = dict[Any, Any]
_Kernels = Sequence[float | tuple[str, float]]


class FourierFeatures(base.MiniBatchTransformer):
    """Random Fourier features: a sine and a cosine of each random projection of the whole sample.

    The product of two samples' features estimates a kernel's value, so a linear model on them is a
    kernel method. Samples should be scaled. A missing feature counts as zero. The frequencies of a
    name are drawn when it first appears, and stay. For Matérn kernels, the kernel of later names is
    multiplied with that of earlier names. For all other kernels, the result is the same as if all
    names had appeared at once.

    Parameters
    ----------
    kernels
        Squared bandwidths v of Gaussians exp(-‖x - x'‖²/2v), or pairs of a family and a squared
        bandwidth. Other libraries call 1/2v gamma.
    frequencies
        The number per kernel. Each gives a sine and a cosine.
    draw
        ``"shared"``, ``"independent"``, ``"orthogonal"`` or ``"structured"``.
    max_inputs
        Further features are left out, with a warning.
    seed
        The seed of the frequencies. None draws one.

    Examples
    --------
    >>> from hedgerow.river import FourierFeatures
    >>> features = FourierFeatures(kernels=(1.0,), frequencies=1000)
    >>> a = features.transform_one({"u": 0.0, "v": 0.5})
    >>> b = features.transform_one({"u": 0.3, "v": 0.1})
    >>> round(sum(a[i] * b[i] for i in a), 1)  # exp(-(0.3² + 0.4²)/2) = 0.88
    0.9
    """

    def __init__(
        self,
        kernels: _Kernels = (1.0,),
        frequencies: int = 50,
        draw: str = "shared",
        max_inputs: int = 1024,
        seed: int | None = 1,
    ) -> None:
        self.kernels = kernels
        self.frequencies = frequencies
        self.draw = draw
        self.max_inputs = max_inputs
        self.seed = seed
        self._names = Names(max_inputs)
        self._first_seed = first_seed(seed)
        # Frequencies of the first names, then of later names.
        self._maps: list[FeatureMap] = []
        self._room = 0
        width = self._new_map(1).width
        self._outputs = [f"fourier{at}" for at in range(width)]

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {}
        yield {"seed": None, "kernels": (0.1, ("laplacian", 1.0)), "frequencies": 7}

    def learn_one(self, x: _Sample) -> None:
        """Draws frequencies for new names."""
        row, new = self._names.meet(x, 0.0)
        if new:
            self._check(row, new)
            self._names.add(new)
        self._make_room()

    def transform_one(self, x: _Sample) -> dict[Any, Any]:
        """Features of a sample."""
        row, new = self._names.meet(x, 0.0)
        if new:
            # A refused sample adds no names.
            self._check(row, new)
            self._names.add(new)
        if len(row) != self._room or not row:
            self._make_room()
            row = [*row, *[0.0] * (self._room - len(row))]
        try:
            features = self._maps[0].transform_one(row) if len(self._maps) == 1 else self._joined(row)
        except (TypeError, ValueError, OverflowError):
            self._check(row)
            raise
        return dict(zip(self._outputs, features.tolist(), strict=True))

    def learn_many(self, X: Any) -> None:
        """Draws frequencies for new columns."""
        frame = dataframe.into_frame(X)
        new = self._names.new(frame.columns)
        table_of(self._names, frame, new)
        self._names.add(new)
        self._make_room()

    def transform_many(self, X: Any) -> Any:
        """Features of the rows of a frame."""
        frame = dataframe.into_frame(X)
        new = self._names.new(frame.columns)
        table = table_of(self._names, frame, new)
        names = self._names.order(new)
        present = set(frame.columns)
        for at, values in enumerate(table.T):
            if names[at] not in present:
                values[:] = 0.0
            elif not np.all(np.isfinite(values)):
                bad = float(values[~np.isfinite(values)][0])
                raise ValueError(f"feature {names[at]!r} must be a finite number, but is {bad}")
        self._names.add(new)
        self._make_room()
        rows = np.zeros((len(frame), self._room))
        rows[:, : len(self._names)] = table
        ends = np.cumsum([feature_map.inputs for feature_map in self._maps])[:-1]
        pieces = zip(self._maps, np.split(rows, ends, axis=1), strict=True)
        features = self._join([feature_map.transform(piece) for feature_map, piece in pieces])
        return dataframe.to_native_frame(features.astype(np.float64), like=frame, columns=self._outputs)

    @property
    def _raw_memory_usage(self) -> int:
        # Frequencies are native: four bytes per frequency and input.
        frequencies = sum(feature_map.inputs * feature_map.width // 2 for feature_map in self._maps)
        return super()._raw_memory_usage + 4 * frequencies

    def _new_map(self, inputs: int) -> FeatureMap:
        seed = (self._first_seed + (len(self._maps) << 32)) % 2**63
        return FeatureMap(
            self.kernels, inputs=inputs, frequencies=self.frequencies, draw=self.draw, seed=seed
        )

    def _make_room(self) -> None:
        missing = max(len(self._names), 1) - self._room
        if missing > 0:
            # Later maps have spare inputs, so that there are few maps.
            room = missing if not self._maps else max(missing, self._room // 2, 4)
            self._maps.append(self._new_map(room))
            self._room += room

    def _joined(self, row: Sequence[Any]) -> NDArray[np.float32]:
        """Features of a full row from all maps."""
        parts, begin = [], 0
        for feature_map in self._maps:
            parts.append(feature_map.transform_one(row[begin : begin + feature_map.inputs])[None])
            begin += feature_map.inputs
        joined: NDArray[np.float32] = self._join(parts)[0]
        return joined

    def _join(self, parts: list[NDArray[np.float32]]) -> NDArray[np.float32]:
        """Joins maps: the angle over all names is the sum of the angles over each part."""
        shaped = (part.reshape(len(part), -1, 2, self.frequencies) for part in parts)
        joined: NDArray[np.float32] = reduce(_turned, shaped).reshape(len(parts[0]), -1)
        return joined

    def _check(self, row: Sequence[Any], new: Sequence[Any] = ()) -> None:
        for name, value in zip(self._names.order(new), row, strict=False):
            if not np.isfinite(number(value, f"feature {name!r}")):
                raise ValueError(f"feature {name!r} must be a finite number, but is {value!r}")


def _turned(one: NDArray[np.float32], other: NDArray[np.float32]) -> NDArray[np.float32]:
    """Sines and cosines of sums of angles. Both arguments have the length 1/√D."""
    sines, cosines = one[:, :, 0], one[:, :, 1]
    more_sines, more_cosines = other[:, :, 0], other[:, :, 1]
    length = np.float32(np.sqrt(one.shape[-1]))
    return length * np.stack(
        [sines * more_cosines + cosines * more_sines, cosines * more_cosines - sines * more_sines], axis=2
    )
