"""What an evaluation found, with everything that makes its numbers comparable: a :class:`Report`."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .diagnostics import BitDiagnostics
from .exceptions import InputError, MissingExtraError
from .metric_names import TIES, Metric, parse_metric

__all__ = ["Report", "html_table", "text_table"]


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out a table in plain text: first column to the left, the others to the right.

    Parameters
    ----------
    header : sequence of str
    rows : sequence of sequences of str

    Returns
    -------
    str

    Examples
    --------
    >>> print(text_table(["metric", "value"], [["MAP[ties=id]", "0.5000"]]))
    metric         value
    ------------  ------
    MAP[ties=id]  0.5000
    """
    cells = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[j]) for row in cells) for j in range(len(header))]
    cells.insert(1, ["-" * width for width in widths])
    lines = (
        "  ".join(
            cell.ljust(width) if j == 0 else cell.rjust(width)
            for j, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """Lay out a table in HTML; every text is escaped.

    Parameters
    ----------
    header : sequence of str
    rows : sequence of sequences of str
    caption : str

    Returns
    -------
    str

    Examples
    --------
    >>> html_table(["a"], [["<b>"]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """

    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    top = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    body = "".join(row(cells, "td") for cells in rows)
    return f"<table>{top}<thead>{row(header, 'th')}</thead><tbody>{body}</tbody></table>"


def load_pandas() -> Any:
    """Import pandas, or say how to get it."""
    try:
        import pandas
    except ImportError as error:
        raise MissingExtraError("pandas", "features") from error
    return pandas


def _plain(values: Any) -> list[float | None]:
    return [None if math.isnan(v) else v for v in np.asarray(values, dtype=np.float64).tolist()]


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """The numbers of one evaluation, and what they are the numbers of.

    Attributes
    ----------
    values : dict of str to float
        Metric name -> mean over the queries that have a relevant item. A name carries all of its parameters.
    metrics : tuple of Metric
        The same metrics, and the curves', taken apart.
    ties : tuple of str
        The tie policies that the metrics use.
    n_queries, n_evaluated, n_without_relevant : int
        Queries given; queries in the means; queries left out, since no database item is relevant to them.
    n_database, n_bits : int
    database_rule : str
        How the database got its codes: "encoded", "learned", ...; "unnamed" when the caller did not say.
    curves : dict of str to dict of str to ndarray
        "PR@r" holds precision, recall and f1 for each radius; "PR11[ties=...]" precision at 11 recalls.
    per_query : dict of str to ndarray of shape (n_queries,), or None
        Each query's values, NaN where it was left out; on request.
    bits : dict of str to BitDiagnostics
        For "database" and "query" codes, unless switched off.

    Examples
    --------
    >>> import modalhash as mh
    >>> codes = mh.codes.pack([[0, 0, 0], [0, 0, 1], [1, 1, 1]])
    >>> report = mh.evaluate(codes[:1], codes[1:], query_labels=["a"], database_labels=["b", "a"], n_bits=3,
    ...                      metrics=["MAP", "F1@r"], ties="id", database_rule="encoded", diagnostics=False)
    >>> report["MAP[ties=id]"], report["F1@r2"]
    (0.5, 0.0)
    >>> print(report)
    1 query against 2 codes of 3 bits; 0 queries left out (nothing relevant)
    database rule: encoded; ties: id
    metric         value
    ------------  ------
    MAP[ties=id]  0.5000
    F1@r2         0.0000
    """

    values: dict[str, float]
    metrics: tuple[Metric, ...]
    ties: tuple[str, ...]
    n_queries: int
    n_evaluated: int
    n_without_relevant: int
    n_database: int
    n_bits: int
    database_rule: str = "unnamed"
    curves: dict[str, dict[str, NDArray[np.float64]]] = field(default_factory=dict)
    per_query: dict[str, NDArray[np.float64]] | None = None
    bits: dict[str, BitDiagnostics] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float:
        """Return a value by its full name, or by a shorter one that fits exactly one metric."""
        if name in self.values:
            return self.values[name]
        asked, open_cut = parse_metric(name)
        fits = [m.name for m in self.metrics if not m.is_curve and _fits(m, asked, open_cut, "@r" in name.lower())]
        if len(fits) == 1:
            return self.values[fits[0]]
        if fits:
            raise InputError(f"{name!r} could be {', '.join(fits)}; give the whole name.")
        raise InputError(f"{name!r} was not measured; this report has {', '.join(self.values) or 'curves only'}.")

    def _caption(self) -> str:
        plural = "query" if self.n_queries == 1 else "queries"
        left = "query" if self.n_without_relevant == 1 else "queries"
        return (
            f"{self.n_queries} {plural} against {self.n_database} codes of {self.n_bits} bits; "
            f"{self.n_without_relevant} {left} left out (nothing relevant)\n"
            f"database rule: {self.database_rule}; ties: {', '.join(self.ties) or 'none in these metrics'}"
        )

    def __str__(self) -> str:
        table = text_table(["metric", "value"], [[name, f"{value:.4f}"] for name, value in self.values.items()])
        notes = [f"{name} codes: {bits}" for name, bits in self.bits.items()]
        return "\n".join([self._caption(), *([table] if self.values else []), *notes])

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value:.4f}" for name, value in list(self.values.items())[:3])
        more = ", ..." if len(self.values) > 3 else ""
        return f"<Report [{self.database_rule}] {self.n_evaluated} queries: {shown}{more}>"

    def _repr_html_(self) -> str:
        rows = [[name, f"{value:.4f}"] for name, value in self.values.items()]
        return html_table(["metric", "value"], rows, self._caption().replace("\n", "; "))

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values (the matrix of bit correlations stays out; see `bits`).

        Returns
        -------
        dict
        """
        parts = ("family", "ties", "k", "radius", "denominator", "gain")
        return {
            "database_rule": self.database_rule,
            "ties": {policy: TIES[policy] for policy in self.ties},
            "n_queries": self.n_queries,
            "n_evaluated": self.n_evaluated,
            "n_without_relevant": self.n_without_relevant,
            "n_database": self.n_database,
            "n_bits": self.n_bits,
            "values": dict(self.values),
            "metrics": {
                m.name: {part: getattr(m, part) for part in parts if getattr(m, part) is not None} for m in self.metrics
            },
            "curves": {
                name: {axis: _plain(values) for axis, values in curve.items()} for name, curve in self.curves.items()
            },
            "per_query": None if self.per_query is None else {n: _plain(v) for n, v in self.per_query.items()},
            "bits": {name: bits.to_dict() for name, bits in self.bits.items()},
        }

    def to_json(self, *, indent: int | None = 2) -> str:
        """Return the report as JSON text.

        Parameters
        ----------
        indent : int or None

        Returns
        -------
        str
        """
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def to_frame(self, *, per_query: bool = False) -> Any:
        """Return the report as a pandas frame.

        Parameters
        ----------
        per_query : bool
            One row per query and one column per metric, in place of one row per metric.

        Returns
        -------
        pandas.DataFrame
        """
        pandas = load_pandas()
        if per_query:
            if self.per_query is None:
                raise InputError("this report keeps no value per query; evaluate with per_query=True.")
            return pandas.DataFrame(self.per_query).rename_axis("query")
        rows = [
            {"metric": m.name, "value": self.values[m.name], "ties": m.ties, "k": m.k, "radius": m.radius}
            for m in self.metrics
            if not m.is_curve
        ]
        frame = pandas.DataFrame(rows, columns=["metric", "value", "ties", "k", "radius"])
        return frame.astype({"k": "Int64", "radius": "Int64"}).assign(
            database_rule=self.database_rule,
            n_evaluated=self.n_evaluated,
            n_without_relevant=self.n_without_relevant,
            n_database=self.n_database,
            n_bits=self.n_bits,
        )

    def plot_pr_curve(self, ax: Any = None, *, label: str | None = None) -> Any:
        """Draw precision against recall: the 11-point curves, and the curve over Hamming radii.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure without it.
        label : str, optional
            Put before each curve's name; the database rule without it.

        Returns
        -------
        matplotlib Axes
            ``ax.figure.savefig("pr.svg")`` writes it.
        """
        if not self.curves:
            raise InputError("this report holds no curve; evaluate with 'PR11' or 'PR@r' among the metrics.")
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise MissingExtraError("matplotlib", "plot") from error
        if ax is None:
            ax = Figure(figsize=(5.2, 4.0), layout="constrained").add_subplot()
        for name, curve in self.curves.items():
            style = "o-" if name.startswith("PR11") else ".--"
            text = f"{self.database_rule if label is None else label}: {name}"
            ax.plot(curve["recall"], curve["precision"], style, markersize=4, label=text)
        ax.set(xlabel="recall", ylabel="precision", xlim=(0, 1.02), ylim=(0, 1.02))
        ax.legend(fontsize="small")
        return ax


def _fits(metric: Metric, asked: Metric, open_cut: bool, ball: bool) -> bool:
    if metric.family != asked.family or (metric.radius is not None) != ball:
        return False
    cut = open_cut and (ball or metric.k is not None)
    if not cut and (metric.k, metric.radius) != (asked.k, asked.radius):
        return False
    pairs: Mapping[str, str | None] = {"ties": asked.ties, "denominator": asked.denominator, "gain": asked.gain}
    return all(value is None or getattr(metric, part) == value for part, value in pairs.items())
