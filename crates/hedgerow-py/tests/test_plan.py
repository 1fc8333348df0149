"""Plans: the names, defaults and errors of ``hedgerow serve``."""

from __future__ import annotations

import copy
import inspect
import itertools
import json
import pickle
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hedgerow import Plan

from .conftest import METHODS


def test_defaults_are_those_of_the_server_but_for_the_nodes(program: Path) -> None:
    printed = subprocess.run([program, "config", "serve"], capture_output=True, text=True, check=True).stdout
    defaults = tomllib.loads(printed)["learning"] | {"inputs": 3, "nodes": 1}
    del defaults["ranges"]
    assert Plan(inputs=3) == Plan(**defaults)


def test_own_layers_follow_the_method_unless_something_is_said() -> None:
    for method, prefers in (("gr", True), ("tr", True), ("mk", False)):
        plan = Plan(method=method, inputs=3)
        assert plan == Plan(method=method, inputs=3, personal=None)
        assert plan == Plan(method=method, inputs=3, personal=prefers)
        assert plan != Plan(method=method, inputs=3, personal=not prefers)
    with pytest.raises(ValueError, match="logistic"):
        Plan(method="mk", inputs=3, loss="logistic", personal=True)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_survives_json_pickle_and_copies(method: str) -> None:
    plan = Plan(
        method=method, columns=["a", "b"], nodes=7, budget=40, kernels=[0.5, ("cauchy", 2)] * 3, seed=9
    )
    for other in (Plan.from_json(plan.to_json()), pickle.loads(pickle.dumps(plan)), copy.deepcopy(plan)):
        assert other == plan
    assert (plan.method, plan.inputs, plan.columns, plan.nodes, plan.budget) == (method, 2, ["a", "b"], 7, 40)
    assert plan.kernels[:2] == [("gaussian", 0.5), ("cauchy", 2.0)]
    assert plan != Plan(method=method, columns=["a", "b"], nodes=7, budget=40, kernels=plan.kernels, seed=8)
    assert repr(plan) == f"Plan(method='{method}', inputs=2, nodes=7, budget=40)"


def test_numbers_fit_the_budget_where_a_method_has_one() -> None:
    for method in ("gr", "mk", "sk:1", "pof"):
        assert 0 < Plan(method=method, inputs=5, budget=60).numbers <= 60
    assert Plan(method="linear", inputs=5).numbers == 6


def test_numbers_of_numpy_are_numbers() -> None:
    plan = Plan(inputs=np.int64(3), budget=np.int32(50), ridge=np.float32(0.5), kernels=np.array([1.0, 2.0]))
    assert plan == Plan(inputs=3, budget=50, ridge=0.5, kernels=[1.0, 2.0])
    assert Plan(inputs=3, columns=np.array(["a", "b", "c"])).columns == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("settings", "error", "parts"),
    [
        ({}, ValueError, ["columns", "inputs"]),
        ({"inputs": 3, "budget": 3}, ValueError, ["learning.budget", "at least 16", "3"]),
        ({"inputs": -1}, ValueError, ["learning.inputs", "-1"]),
        ({"inputs": 10**6}, ValueError, ["inputs", "10000", "1000000"]),
        ({"inputs": 3, "seed": 2**80}, ValueError, ["seed", "2^63"]),
        ({"inputs": 3, "method": "local"}, ValueError, ["learning.method", "gr, tr, mk", "local"]),
        ({"inputs": 3, "method": 5}, TypeError, ["learning.method", "string"]),
        ({"inputs": 3, "ridge": float("nan")}, ValueError, ["ridge", "NaN"]),
        ({"inputs": 3, "kernels": []}, ValueError, ["kernels", "0"]),
        ({"inputs": 3, "kernels": [-1.0]}, ValueError, ["kernel 1", "-1"]),
        ({"inputs": 3, "kernels": [("gauss", 1.0)]}, ValueError, ["gaussian", "gauss"]),
        ({"inputs": 3, "kernels": [("gaussian",)]}, TypeError, ["pair"]),
        ({"inputs": 3, "kernels": 1.0}, TypeError, ["kernels must be a list", "1.0"]),
        ({"columns": "a,b"}, TypeError, ["columns must be a list of names", "a,b"]),
        ({"inputs": 3, "classes": "ab"}, TypeError, ["classes must be a list of names", "ab"]),
        ({"inputs": 3, "draw": "some"}, ValueError, ["draw", "shared", "some"]),
        ({"inputs": 3, "budgte": 3}, TypeError, ["budgte", "budget"]),
        ({"inputs": "3"}, TypeError, ["learning.inputs"]),
        ({"inputs": 3, "columns": b"abc"}, TypeError, ["columns"]),
        ({"inputs": 3, "columns": object()}, TypeError, ["columns"]),
        ({"inputs": 3, "aggregation": "median"}, ValueError, ["aggregation", "mean", "median"]),
        ({"columns": ["a"], "scaling": "ranges", "ranges": {"a": (0, 1)}}, ValueError, ["learning.ranges"]),
        ({"columns": ["a=b"]}, ValueError, ["learning.columns", "without =", "a=b"]),
        ({"columns": ["a"], "categories": {"b": ["c"]}}, ValueError, ["learning.categories", "(a)", "b"]),
        ({"columns": ["a"], "lags": 2}, ValueError, ["earlier rows", "learning.lags", "hedgerow join"]),
        (
            {"columns": ["a"], "scaling": "ranges", "ranges": {"a": (1, 0), "y": (0, 1)}},
            ValueError,
            ["ranges"],
        ),
    ],
)
def test_what_makes_no_sense_is_named(
    settings: dict[str, Any], error: type[Exception], parts: list[str]
) -> None:
    with pytest.raises(error) as caught:
        Plan(**settings)
    assert all(part in str(caught.value) for part in parts), caught.value


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"method": "gr-ofl"}'])
def test_other_texts_are_no_plans(text: str) -> None:
    with pytest.raises(ValueError, match="learning configuration"):
        Plan.from_json(text)
    spoilt = json.loads(Plan(inputs=3).to_json())
    spoilt["setup"]["frequencies"] = 10**12
    with pytest.raises(ValueError, match="frequencies"):
        Plan.from_json(json.dumps(spoilt))


def test_plans_compare_with_plans_only() -> None:
    assert Plan(inputs=3) != 3
    with pytest.raises(TypeError):
        _ = Plan(inputs=3) < Plan(inputs=4)  # type: ignore[operator]


def test_what_never_ends_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    for bad in (endless, deep, {"a": endless}):
        with pytest.raises(ValueError, match="deep"):
            Plan(inputs=1, columns=bad)
    with pytest.raises(ValueError, match="100000"):
        Plan(inputs=1, kernels=itertools.repeat(1.0))
    with pytest.raises(ValueError, match="100000"):
        Plan(columns=itertools.repeat("a"))


def test_the_signature_has_the_defaults_of_the_settings() -> None:
    defaults = {name: found.default for name, found in inspect.signature(Plan).parameters.items()}
    given = {name: value for name, value in defaults.items() if value not in (None, (), 0)}
    assert len(given) > 15
    assert Plan(inputs=1, **given) == Plan(inputs=1)
