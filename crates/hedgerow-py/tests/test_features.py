"""Random features."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hedgerow import FeatureMap


@pytest.mark.parametrize("draw", ["independent", "shared", "orthogonal", "structured"])
def test_products_estimate_the_kernels(draw: str) -> None:
    features = FeatureMap([0.5, ("matern32", 2.0)], inputs=4, frequencies=4000, draw=draw)
    x = np.random.default_rng(3).normal(size=(6, 4)) * 0.5
    z = features.transform(x)
    assert (z.shape, z.dtype, features.width) == ((6, 16000), np.float32, 16000)
    squares = ((x[:, None] - x) ** 2).sum(axis=2)
    gaussian, matern = z[:, :8000], z[:, 8000:]
    np.testing.assert_allclose(gaussian @ gaussian.T, np.exp(-squares / 2 / 0.5), atol=0.06)
    scaled = np.sqrt(3 * squares / 2.0)
    np.testing.assert_allclose(matern @ matern.T, (1 + scaled) * np.exp(-scaled), atol=0.06)


def test_layouts_and_widths_of_numbers_give_the_same_bits() -> None:
    features = FeatureMap(inputs=3, frequencies=7)
    x = np.random.default_rng(1).normal(size=(50, 6)).astype(np.float32)
    expected = features.transform(np.ascontiguousarray(x[::2, ::2]))
    locked = np.ascontiguousarray(x[::2, ::2])
    locked.flags.writeable = False
    for same in (x[::2, ::2], np.asfortranarray(x[::2, ::2]), x[::2, ::2].astype(np.float64), locked):
        assert np.array_equal(features.transform(same), expected)
    assert np.array_equal(features.transform(x[::2, ::2].tolist()), expected)
    swapped = x[::2, ::2].astype(">f4")
    assert np.array_equal(features.transform(swapped), expected)
    ones = [
        np.array([features.transform_one(row) for row in rows])
        for rows in (x[::2, ::2], x[::2, ::2].tolist())
    ]
    assert all(np.array_equal(one, expected) for one in ones)
    assert np.array_equal(features.transform(np.eye(3, dtype=np.int8)), features.transform(np.eye(3)))
    assert features.transform(np.zeros((0, 3))).shape == (0, features.width)


def test_a_seed_is_a_map_and_maps_survive_pickles() -> None:
    first = FeatureMap([1.0], inputs=2, frequencies=5, draw="shared", seed=4)
    x = [[0.1, -0.7]]
    for same in (pickle.loads(pickle.dumps(first)), copy.deepcopy(first), copy.copy(first)):
        assert np.array_equal(same.transform(x), first.transform(x))
        assert (same.seed, same.draw, same.kernels) == (4, "shared", [("gaussian", 1.0)])
    other = FeatureMap([1.0], inputs=2, frequencies=5, draw="shared", seed=5)
    assert not np.array_equal(other.transform(x), first.transform(x))
    assert len(FeatureMap(inputs=2).kernels) == 11


@pytest.mark.parametrize(
    ("arguments", "error", "part"),
    [
        ({"inputs": 0}, ValueError, "inputs must be at least 1, but is 0"),
        ({"inputs": 2, "frequencies": -1}, ValueError, "frequencies must be at least 1, but is -1"),
        ({"inputs": 2, "frequencies": 10**9}, ValueError, "at most"),
        ({"inputs": 2, "seed": -1}, ValueError, "seed"),
        ({"inputs": 2, "draw": "some"}, ValueError, "independent, shared, orthogonal, structured"),
        ({"inputs": 2, "kernels": [("laplacian", 1.0)], "draw": "orthogonal"}, ValueError, "every direction"),
        ({"inputs": 2.5}, TypeError, "inputs"),
        ({}, TypeError, "inputs"),
    ],
)
def test_maps_that_make_no_sense(arguments: dict[str, Any], error: type[Exception], part: str) -> None:
    with pytest.raises(error, match=part):
        FeatureMap(**arguments)


@pytest.mark.parametrize(
    ("x", "error", "part"),
    [
        (np.zeros((3, 4)), ValueError, r"\(n, 2\), but has \(3, 4\)"),
        (np.zeros(2), ValueError, "_one"),
        (np.zeros((1, 1, 2)), ValueError, "shape"),
        (3.0, ValueError, "shape"),
        ([[1.0, np.nan]], ValueError, "row 0, column 1 is NaN"),
        ([[1.0, 2.0], [np.inf, 1.0]], ValueError, "row 1, column 0 is inf"),
        ([["a", "b"]], TypeError, "dtype"),
        (np.zeros((1, 2), dtype=complex), TypeError, "complex"),
        (np.zeros((1, 2), dtype="datetime64[s]"), TypeError, "datetime"),
        ([[None, 1.0]], ValueError, "row 0, column 0 is NaN"),
        ([[1.0, {}]], TypeError, "an input must be a number, but is {}"),
        ([[1.0], [1.0, 2.0]], ValueError, "inhomogeneous"),
        (None, TypeError, "object"),
        ("text", TypeError, "dtype"),
    ],
)
def test_samples_that_are_none(x: Any, error: type[Exception], part: str) -> None:
    with pytest.raises(error, match=part):
        FeatureMap(inputs=2).transform(x)
