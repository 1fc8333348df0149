"""The snippets of docs/python.md run and print what their comments say. The notebook runs."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/python.md"
NOTEBOOK = ROOT / "examples/notebook/stream.ipynb"

# A line before a block can say why it isn't run.
BLOCK = re.compile(r"(?P<reason><!-- not run: .*? -->\n)?```python\n(?P<code>.*?)```", re.DOTALL)
NUMBER = re.compile(r"\d+\.\d+")
SAID = re.compile(r"^print\(.*\)\s+# (?P<said>.+)$", re.MULTILINE)


def blocks() -> list[Any]:
    text = PAGE.read_text()
    found = [match for match in BLOCK.finditer(text) if match["reason"] is None]
    lines = [text.count("\n", 0, match.start()) + 1 for match in found]
    return [pytest.param(match["code"], id=f"line-{line}") for match, line in zip(found, lines, strict=True)]


def test_there_are_snippets() -> None:
    assert len(blocks()) >= 8


def test_a_scaler_before_ours_hurts_as_the_page_says() -> None:
    from hedgerow.river import HedgerowRegressor
    from river import datasets, evaluate, metrics, preprocessing

    said = re.search(
        r"`StandardScaler\(\) \| HedgerowRegressor\(\)` the error is (\d\.\d+)", PAGE.read_text()
    )
    assert said is not None
    model = preprocessing.StandardScaler() | HedgerowRegressor()
    error = evaluate.progressive_val_score(datasets.TrumpApproval(), model, metrics.MAE())
    assert error.get() == pytest.approx(float(said[1]), rel=0.02)


@pytest.mark.parametrize("code", blocks())
def test_a_snippet(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code, str(PAGE), "exec"), {"__name__": "snippet"})
    printed = capsys.readouterr().out.splitlines()
    said = [match["said"] for match in SAID.finditer(code)]
    assert len(printed) >= len(said)
    for line, expected in zip(printed, said, strict=False):
        if expected.endswith(" ..."):
            line, expected = line[: len(expected) - 4], expected[:-4]
        assert NUMBER.sub("", line) == NUMBER.sub("", expected)
        values = [[float(number) for number in NUMBER.findall(text)] for text in (line, expected)]
        assert values[0] == pytest.approx(values[1], rel=0.05, abs=0.005)


def test_the_benchmark_runs() -> None:
    program = Path(__file__).parents[1] / "benches/estimators.py"
    command = [sys.executable, str(program), "--samples", "8", "--trials", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # One line per entry, and the header. Vowpal Wabbit is optional.
    assert done.stdout.count("\n| ") == (14 if importlib.util.find_spec("vowpalwabbit") else 11)


def test_the_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("MPLBACKEND", "agg")
    assert NOTEBOOK.stat().st_size < 210_000
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    kinds = {output["output_type"] for cell in cells for output in cell["outputs"]}
    # It was executed without warnings.
    assert kinds == {"execute_result", "display_data"}
    exec("\n".join("".join(cell["source"]) for cell in cells), {"__name__": "notebook"})
