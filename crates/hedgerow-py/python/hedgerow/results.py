"""The results of a run, as a table, a frame, a page or a figure."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hedgerow._extras import need
from hedgerow.frames import Frame

if TYPE_CHECKING:
    from hedgerow._hedgerow import Run


# Columns that identify a row of the curves.
_KEYS = ("method", "kernel", "round")

# Number of lines in colour by default: more are hard to distinguish.
_FEW = 6

# Colours that colour-blind readers can distinguish. Dashes differ where colours repeat.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
_DASHES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (8, 3)), (0, (3, 1)), (0, (1, 1)))

# Errors that differ by more than this factor get a logarithmic axis.
_WIDE = 10.0


class _Line(NamedTuple):
    """A method's curve."""

    at: int
    method: str
    label: str
    rounds: NDArray[np.int64]
    values: NDArray[np.float64]
    spread: NDArray[np.float64] | None


class Result:
    """The results of a run.

    ``summary`` is the content of ``summary.json``: everything but the curves. ``curves`` has a row
    per method and recorded round. ``predictions`` are, for ``simulate(..., predictions=True)``, a
    table of all predictions of the first trial: row of the data (from 1), time if the data has one,
    node, method, target if there are several, truth, prediction, and the ends of its interval or
    the probability of each class. For a run of a :class:`Federation` they are an array with a
    prediction per sample.

    >>> from hedgerow import simulate
    >>> result = simulate("friedman", method=["gr", "mk"], nodes=4, rounds=50, trials=2)
    >>> sorted(result.mse)
    ['gr', 'mk']
    >>> sorted(result.curves)[:4]
    ['kernel', 'loss', 'loss_sd', 'method']
    """

    def __init__(
        self,
        summary: dict[str, Any],
        curves: Frame,
        *,
        predictions: Frame | NDArray[Any] | None = None,
        run: Run | None = None,
    ) -> None:
        self.summary = summary
        self.curves = curves
        self.predictions = predictions
        self._run = run

    @property
    def mse(self) -> dict[str, float]:
        """Mean squared error of each method, over all predictions and trials.

        If labels are classes, it is the share of wrong ones.
        """
        return {label(method): method["mse"]["mean"] for method in self.summary["methods"]}

    @property
    def worth(self) -> str | None:
        """Whether federating pays, in a sentence. None if the run doesn't say.

        It needs a method and the same method alone at each node, such as ``method="tr,tr+alone"``.
        The default methods have both.
        """
        return None if self._run is None else self._run.worth()

    def to_pandas(self) -> Any:
        """The curves as a frame of pandas."""
        return self.curves.to_pandas()

    def to_polars(self) -> Any:
        """The curves as a frame of polars."""
        return self.curves.to_polars()

    def plot(
        self,
        ax: Any = None,
        *,
        column: str = "mse",
        methods: str | Sequence[str] | None = None,
        log: bool | None = None,
    ) -> Any:
        """Draws a column of the curves over the rounds, one line per method.

        ``column`` is ``"mse"`` (the error so far), ``"mse_window"`` (the error of the latest
        rounds), or another column of :attr:`curves`. Without ``methods``, the best few methods are
        in colour, and all others are thin and grey. Of a method with a line per kernel, the best
        line counts. With ``methods``, only those are drawn: ``"sk:6"`` is one line, ``"sk"`` all
        lines of sk. ``log`` chooses a logarithmic axis; None decides by the range. Bands are one
        standard deviation over trials.

        Without ``ax`` it makes a figure with the legend beside it. On your own axes the legend is
        inside.
        """
        if column not in self.curves or column in _KEYS:
            known = [name for name in self.curves if name not in _KEYS]
            raise ValueError(f"column must be one of {', '.join(known)}, but is {column!r}")
        lines = self._lines(column)
        if methods is None:
            marked = {method["name"] for method in self.summary["methods"] if method.get("best")}
            coloured, grey = _best(lines, marked)
        else:
            coloured, grey = _chosen(lines, [methods] if isinstance(methods, str) else list(methods)), []
        is_ours = ax is None
        if is_ours:
            _, ax = need("matplotlib.pyplot", "matplotlib").subplots(layout="constrained")
        drawn = [line.values for line in (*coloured, *grey)]
        if log if log is not None else _is_wide(drawn):
            ax.set_yscale("log")
        for at, line in enumerate(grey):
            label = f"{len(grey)} others" if len(grey) > 1 else line.label
            label = label if at == 0 else "_" + line.label
            ax.plot(line.rounds, line.values, color="0.75", lw=0.7, zorder=1, label=label)
        # From the top of the figure downwards, like the legend.
        for line in reversed(coloured):
            # The same methods get the same colours for every column.
            which = sum(other.at < line.at for other in coloured)
            colour, dashes = _COLOURS[which % len(_COLOURS)], _DASHES[which % len(_DASHES)]
            ax.plot(line.rounds, line.values, color=colour, ls=dashes, lw=1.8, label=line.label)
            if line.spread is not None:
                low, high = line.values - line.spread, line.values + line.spread
                # A logarithmic axis has no values below zero.
                low = np.where(low > 0, low, line.values) if ax.get_yscale() == "log" else low
                ax.fill_between(line.rounds, low, high, color=colour, alpha=0.15, lw=0)
        ax.set_xlabel("rounds")
        ax.set_ylabel(self._axis(column))
        ax.set_title(self._circumstances())
        if is_ours:
            ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, frameon=False)
        else:
            ax.legend()
        return ax

    def report(self) -> str:
        """The self-contained page that ``hedgerow simulate`` writes.

        Raises ValueError for a run of a :class:`Federation`, which has no trials.
        """
        return self._simulated().report()

    def write(self, folder: str | PathLike[str]) -> list[str]:
        """Writes summary, curves, figures and report to a folder. Returns the paths of the files.

        Creates the folder if necessary. Raises OSError if the folder can't be written, and
        ValueError for a run of a :class:`Federation`: use :meth:`to_pandas` or :meth:`to_polars`
        for its curves.
        """
        return [str(path) for path in self._simulated().write(folder)]

    def _simulated(self) -> Run:
        if self._run is None:
            raise ValueError("only what simulate() found can be written: a federation has no trials")
        return self._run

    def __repr__(self) -> str:
        errors = ", ".join(f"{name} {mse:.4g}" for name, mse in self.mse.items())
        measure = "share wrong" if self.summary.get("classes") else "mse"
        return f"Result({self._circumstances()}; {measure}: {errors})"

    def _circumstances(self) -> str:
        summary = self.summary
        counted = [(summary[name], name) for name in ("nodes", "rounds", "trials")]
        if summary["trials"] == 1:
            counted.pop()
        counts = (f"{count} {name if count != 1 else name[:-1]}" for count, name in counted)
        return ", ".join((summary["data"]["name"], *counts))

    def _axis(self, column: str) -> str:
        """The label of the axis for a column."""
        error = "share of wrong classes" if self.summary.get("classes") else "mean squared error"
        words = {
            "mse": f"{error} so far",
            "mse_window": f"{error}, last {self.summary['window']} rounds",
            "loss": "mean loss so far",
        }
        kind = column.removesuffix("_sd")
        of = "standard deviation of " if kind != column else ""
        return of + words.get(kind, column.replace("_", " "))

    def _lines(self, column: str) -> list[_Line]:
        """One line per method and kernel with finite values."""
        names, kernels = np.asarray(self.curves["method"]), np.asarray(self.curves["kernel"])
        rounds, values = np.asarray(self.curves["round"]), np.asarray(self.curves[column])
        spread = self.curves.get(f"{column}_sd") if self.summary["trials"] > 1 else None
        lines: list[_Line] = []
        for name, kernel in dict.fromkeys(zip(names.tolist(), kernels.tolist(), strict=True)):
            rows = (names == name) & (kernels == kernel) & np.isfinite(values)
            if rows.any():
                sd = None if spread is None else np.asarray(spread)[rows]
                label = f"{name}:{kernel}" if kernel else name
                lines.append(_Line(len(lines), name, label, rounds[rows], values[rows], sd))
        return lines

    def _repr_html_(self) -> str:
        has_trials = self.summary["trials"] > 1
        measure = "share of wrong classes" if self.summary.get("classes") else "MSE"
        heads = ["method", measure, *(["± sd"] if has_trials else [])]
        heads += [f"numbers {way} per node and round" for way in ("up", "down")]
        head = "".join(f"<th>{name}</th>" for name in heads)
        rows = []
        for method in self.summary["methods"]:
            error = method["mse"]
            cells = [f"{error['mean']:.4g}", *([f"{error['sd']:.2g}"] if has_trials else [])]
            cells += [f"{method[f'numbers_{way}']:.4g}" for way in ("up", "down")]
            name = html.escape(label(method))
            rows.append(f"<tr><th>{name}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
        caption = html.escape(self._circumstances())
        return (
            f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead>"
            f"<tbody>{''.join(rows)}</tbody></table>"
        )


def label(method: Mapping[str, Any]) -> str:
    """The name of a method of a summary, with its kernel if it has one."""
    kernel = method.get("kernel")
    return str(method["name"]) if kernel is None else f"{method['name']}:{kernel}"


def _best(lines: Sequence[_Line], marked: set[str]) -> tuple[list[_Line], list[_Line]]:
    """The lowest final line of each method, lowest first, and all other lines.

    A method with a best kernel is always among the first: ``marked`` has its name.
    """
    ordered = sorted(lines, key=lambda line: float(line.values[-1]))
    methods: dict[str, _Line] = {}
    for line in ordered:
        methods.setdefault(line.method, line)
    best = list(methods.values())
    coloured = best[:_FEW] + [line for line in best[_FEW:] if line.method in marked]
    labels = {line.label for line in coloured}
    return coloured, [line for line in ordered if line.label not in labels]


def _chosen(lines: Sequence[_Line], names: Sequence[str]) -> list[_Line]:
    """The lines of these names, the lowest first."""
    for name in names:
        if not any(name in (line.method, line.label) for line in lines):
            known = ", ".join(dict.fromkeys(label for line in lines for label in (line.method, line.label)))
            raise ValueError(f"methods must be of {known}, but one is {name!r}")
    wanted = [line for line in lines if line.method in names or line.label in names]
    return sorted(wanted, key=lambda line: float(line.values[-1]))


def _is_wide(values: Sequence[NDArray[np.float64]]) -> bool:
    """Whether all values are positive and spread over a wide range."""
    every = np.concatenate([np.empty(0), *values])
    return bool(every.size and every.min() > 0 and every.max() > _WIDE * every.min())
