"""The package as a whole: types, names, and what is documented."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import hedgerow
import pytest

SOURCES = Path(__file__).parents[1] / "python"


def run(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        env=os.environ | {"MYPYPATH": str(SOURCES)},
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_stubs_are_those_of_the_compiled_module() -> None:
    pytest.importorskip("mypy")
    run("mypy.stubtest", "hedgerow._hedgerow", "--ignore-disjoint-bases")


def test_types_are_sound() -> None:
    pytest.importorskip("mypy")
    run("mypy", str(SOURCES / "hedgerow"))


def test_style() -> None:
    pytest.importorskip("ruff")
    run("ruff", "check", ".")
    run("ruff", "format", "--check", ".")


def test_modules_come_when_they_are_asked_for() -> None:
    """In a separate process, without earlier imports."""
    program = """
import sys
import hedgerow
assert not any(name in sys.modules for name in ("river", "sklearn", "flwr", "hedgerow.sklearn"))
for name in ("river", "sklearn"):
    assert hasattr(getattr(hedgerow, name), "HedgerowRegressor")
assert not hasattr(hedgerow, "rivers")
sys.modules["flwr"] = None
try:
    hedgerow.flower
except ImportError as error:
    assert "pip install 'hedgerow[flower]'" in str(error), error
else:
    raise AssertionError
"""
    pytest.importorskip("river")
    pytest.importorskip("sklearn")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_only_public_names_are_listed() -> None:
    names = dir(hedgerow)
    assert set(names) == {*hedgerow.__all__, "flower", "river", "sklearn"}
    assert [name for name in names if name.startswith("_")] == ["__version__"]
    assert all(hasattr(hedgerow, name) for name in hedgerow.__all__)


def test_everything_is_documented() -> None:
    for name in hedgerow.__all__:
        if name == "__version__":
            continue
        thing = getattr(hedgerow, name)
        assert thing.__doc__, name
        for member, value in vars(thing).items() if inspect.isclass(thing) else ():
            assert member.startswith("_") or value.__doc__, f"{name}.{member}"
