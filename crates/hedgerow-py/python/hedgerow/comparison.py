"""Methods ranked on the same samples, as ``hedgerow compare`` ranks them."""

from __future__ import annotations

import csv
import html
import json
from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from hedgerow import _hedgerow
from hedgerow._requests import Options, names, request, with_options
from hedgerow.frames import Frame

# Columns of the ranking that are names.
_NAMES = {"data", "partition", "variant", "measure", "method", "role"}

# Columns of the ranking that say whether a difference may be chance.
_TESTS = ("data", "partition", "variant", "method", "ratio_to_best", "ratio_low", "ratio_high", "p", "p_holm")


class Comparison:
    """Methods ranked by their error: the result of :func:`compare`.

    ``ranking`` has a row per run and method, the least error first: error with its 95% interval
    over trials, rank among the methods that one could choose (NaN for the others), ratio to the
    first in rank trial by trial, p values, numbers and bytes per node and round. ``summary`` is the
    content of ``compare.json``.

    >>> from hedgerow import compare
    >>> comparison = compare("friedman", method="mk,linear", nodes=4, rounds=50, trials=3)
    >>> comparison.best
    'linear'
    >>> comparison.ranking["method"].tolist()
    ['linear', 'mk']
    """

    def __init__(self, text: str, files: Sequence[tuple[str, str]]) -> None:
        self._text = text
        self._files = dict(files)
        self.summary: dict[str, Any] = json.loads(self._files["compare.json"])
        self.ranking = _frame(self._files["compare.csv"])

    @property
    def recommendation(self) -> str:
        """What to choose, in a few sentences."""
        return str(self.summary["advice"])

    @property
    def best(self) -> str | None:
        """The method with the least error that one could choose. None if there are several runs."""
        return self._only("best")

    @property
    def worth(self) -> str | None:
        """Whether federating pays, in a sentence. None if the runs don't say.

        ``summary["runs"]`` has the sentence of each run.
        """
        said = self.summary["worth"]
        return None if said is None else str(said)

    @property
    def tests(self) -> Frame:
        """Each method against the first in rank, trial by trial.

        The ratio of errors with its 95% interval, and p before and after Holm's correction.
        """
        return Frame({name: self.ranking[name] for name in _TESTS})

    @property
    def figures(self) -> dict[str, str]:
        """The figures as SVG documents, by name: ``compare``, ``bytes`` and others."""
        return {name[:-4]: text for name, text in self._files.items() if name.endswith(".svg")}

    def to_pandas(self) -> Any:
        """The ranking as a frame of pandas."""
        return self.ranking.to_pandas()

    def to_polars(self) -> Any:
        """The ranking as a frame of polars."""
        return self.ranking.to_polars()

    def report(self) -> str:
        """The self-contained page that ``hedgerow compare`` writes."""
        return self._files["compare.html"]

    def write(self, folder: str | PathLike[str]) -> list[str]:
        """Writes tables, figures and page to a folder. Returns the paths of the files."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in self._files.items():
            (folder / name).write_text(text, encoding="utf-8")
        return [str(folder / name) for name in self._files]

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Comparison({self.recommendation!r})"

    def _repr_html_(self) -> str:
        said = "".join(f"<p>{html.escape(one)}</p>" for one in (self.worth, self.recommendation) if one)
        return f"{said}<pre>{html.escape(self._text)}</pre>"

    def _only(self, key: str) -> str | None:
        runs = self.summary["runs"]
        return runs[0].get(key) if len(runs) == 1 else None


@with_options
def compare(
    data: Any = "friedman",
    y: Any = None,
    *,
    budget: int | Sequence[int] | None = None,
    partition: str | Sequence[str] | None = None,
    against: str | None = None,
    folder: str | PathLike[str] | None = None,
    **options: Unpack[Options],
) -> Comparison:
    """Ranks methods on the same samples, and says which one to choose.

    The arguments are those of :func:`simulate`. ``method`` is all methods by default, references
    included. ``data`` may be a list of names and files, ``partition`` a list of ways to deal
    samples, and ``budget`` a list of message sizes, which shows error against bytes: then every
    combination is run, and errors are compared with those of ``against``. Finished runs are stored
    in ``folder``, if it is given: the same call then continues after an interruption.
    """
    several = isinstance(data, (list, tuple)) and all(isinstance(one, (str, PathLike)) for one in data)
    sets = [fspath(one) for one in data] if several else None
    partitions = None if partition is None else names(partition, "partition")
    budgets = None if budget is None or isinstance(budget, int) else list(budget)
    asked_for = {**options, "budget": None if budgets is not None else budget}
    # Settings of all runs are checked with the first data set.
    first = sets[0] if sets else data
    with TemporaryDirectory(prefix="hedgerow-") as other, request(first, y, asked_for, folder) as asked:
        asked.changes["run.out"] = other if folder is None else fspath(folder)
        if sets:
            del asked.changes["data.name"]
        text, files = _hedgerow.compare(
            asked, data=sets, partitions=partitions, budgets=budgets, against=against
        )
    if asked.file and asked.name:
        # The file is gone.
        text = text.replace(asked.file, asked.name)
        files = [(name, content.replace(asked.file, asked.name)) for name, content in files]
    return Comparison(text, files)


def _frame(table: str) -> Frame:
    heads, *rows = csv.reader(table.splitlines())
    columns = zip(*rows, strict=True) if rows else ([] for _ in heads)
    return Frame((head, _column(head, column)) for head, column in zip(heads, columns, strict=True))


def _column(head: str, cells: Sequence[str]) -> NDArray[Any]:
    if head in _NAMES:
        return np.array(cells, dtype=object)
    if all(cell.isdecimal() for cell in cells):
        return np.array(cells, dtype=np.int64)
    return np.array([float(cell or "nan") for cell in cells])
