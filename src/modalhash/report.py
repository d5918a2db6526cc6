"""Measure a fitted hasher in every direction and under every database rule, and never show one without its name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .diagnostics import BitDiagnostics, bit_diagnostics
from .evaluation import evaluate
from .exceptions import InputError, LabelsRequiredError, MissingExtraError, UnknownViewError
from .results import Report, html_table, load_pandas, text_table

__all__ = ["CROSS_MODAL_METRICS", "RULES", "CrossModalReport", "cross_modal_report"]

RULES = {
    "encoded": "each database item by its view's own hash function: all that new, unlabelled data can have",
    "learned": "joint codes of a database item's views and labels: labels of the database are used",
    "label": "codes made from the database items' labels alone",
    "fused": "all views of a database item together, without labels",
    "unified": "the method's joint codes of all views, learned without labels",
}
"""How a database can get its codes."""

CROSS_MODAL_METRICS = ("MAP", "P@k", "F1@r", "PR11[ties=expected]", "PR@r")
"""What :func:`cross_modal_report` measures unless told otherwise."""

_WIDTH = 118

Run = tuple[str, str, str]


@dataclass(frozen=True, eq=False, repr=False)
class CrossModalReport:
    """Reports for every pair of query view and database, each under a named database rule.

    Attributes
    ----------
    reports : dict of (query view, database view, rule) to Report
        The database view is "all" under a rule that joins views.
    bits : dict of (database view, rule) to BitDiagnostics
        For the database's codes, unless switched off.
    name : str
        What was measured, such as ``DMH``.
    """

    reports: dict[Run, Report]
    bits: dict[tuple[str, str], BitDiagnostics] = field(default_factory=dict)
    name: str = ""

    def __getitem__(self, run: Run) -> Report:
        """Return the report of (query view, database view, rule)."""
        if run not in self.reports:
            raise InputError(f"{run!r} was not measured; there are {', '.join(map(repr, self.reports))}.")
        return self.reports[run]

    @property
    def rules(self) -> tuple[str, ...]:
        """The database rules that occur."""
        return tuple(dict.fromkeys(rule for _, _, rule in self.reports))

    def _caption(self) -> str:
        first = next(iter(self.reports.values()))
        return (
            f"{self.name + ': ' if self.name else ''}{first.n_queries} queries against {first.n_database} items, "
            f"{first.n_bits} bits; {first.n_without_relevant} queries left out (nothing relevant)"
        )

    def _rows(self, names: Sequence[str]) -> list[list[str]]:
        return [
            [f"{query} -> {database}", rule, *(f"{report.values[name]:.4f}" for name in names)]
            for (query, database, rule), report in self.reports.items()
        ]

    def __str__(self) -> str:
        names = list(next(iter(self.reports.values())).values)
        left = max(len(f"{query} -> {database}{rule}") for query, database, rule in self.reports) + 8
        # Metric names are long: as many columns side by side as fit, then a further table.
        tables, columns, width = [], list[str](), left
        for name in [*names, ""]:
            if columns and (not name or width + len(name) + 2 > _WIDTH):
                tables.append(text_table(["query -> database", "rule", *columns], self._rows(columns)))
                columns, width = [], left
            columns.append(name)
            width += len(name) + 2
        legend = [f"  {rule}: {RULES.get(rule, 'as the method defines it')}" for rule in self.rules]
        bits = [f"  {view} [{rule}]: {found}" for (view, rule), found in self.bits.items()]
        parts = [self._caption(), *tables, "\n".join(["database rules:", *legend])]
        return "\n\n".join(parts + (["\n".join(["database bits:", *bits])] if bits else []))

    def __repr__(self) -> str:
        return f"<CrossModalReport {self.name} {len(self.reports)} runs; rules: {', '.join(self.rules)}>"

    def _repr_html_(self) -> str:
        names = list(next(iter(self.reports.values())).values)
        return html_table(["query -> database", "rule", *names], self._rows(names), self._caption())

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values.

        Returns
        -------
        dict
        """
        return {
            "name": self.name,
            "rules": {rule: RULES.get(rule, "as the method defines it") for rule in self.rules},
            "runs": [
                {"query_view": query, "database_view": database, **report.to_dict()}
                for (query, database, _), report in self.reports.items()
            ],
            "bits": [
                {"database_view": view, "database_rule": rule, **found.to_dict()}
                for (view, rule), found in self.bits.items()
            ],
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

    def to_frame(self) -> Any:
        """Return one row per run and metric, as a pandas frame; the rule is a column.

        Returns
        -------
        pandas.DataFrame
        """
        frames = []
        for (query, database, _), report in self.reports.items():
            frame = report.to_frame()
            frame.insert(0, "query_view", query)
            frame.insert(1, "database_view", database)
            frame.insert(2, "database_rule", frame.pop("database_rule"))
            frames.append(frame)
        return load_pandas().concat(frames, ignore_index=True)

    def plot_pr_curves(self, ax: Any = None, *, curve: str = "PR11[ties=expected]") -> Any:
        """Draw one precision-recall curve per run, each labelled with its rule.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure without it.
        curve : str
            Which of the reports' curves.

        Returns
        -------
        matplotlib Axes
        """
        missing = [run for run, report in self.reports.items() if curve not in report.curves]
        if missing:
            raise InputError(f"curve {curve!r} was not measured; name it among the metrics.")
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise MissingExtraError("matplotlib", "plot") from error
        if ax is None:
            ax = Figure(figsize=(5.6, 4.2), layout="constrained").add_subplot()
        for (query, database, rule), report in self.reports.items():
            drawn = report.curves[curve]
            style = "-" if rule == "encoded" else "--"
            label = f"{query} -> {database} [{rule}]"
            ax.plot(drawn["recall"], drawn["precision"], style, marker="o", markersize=3, label=label)
        ax.set(xlabel="recall", ylabel="precision", xlim=(0, 1.02), ylim=(0, 1.02), title=curve)
        ax.legend(fontsize="small")
        return ax


def _take(X: Any, rows: Any) -> Any:
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def _from_dataset(dataset: Any, view_names: Sequence[str]) -> tuple[dict[str, Any], Any, dict[str, Any], Any]:
    splits = getattr(dataset, "splits", None) or {}
    stored = "database" if "database" in splits else "train"
    if "query" not in splits or stored not in splits:
        raise InputError(
            f"the data set needs splits 'query' and 'database' (or 'train'); it has {', '.join(splits) or 'none'}. "
            "Split it first."
        )
    if dataset.labels is None:
        raise LabelsRequiredError("the data set has no labels, and relevance is sharing one. Give it labels.")
    query, database = np.asarray(splits["query"]), np.asarray(splits[stored])
    both = np.intersect1d(query, database).size
    if both:
        raise InputError(f"{both} rows are both query and {stored}; a query must not find itself. Split again.")
    views = {name: X for name, X in dataset.views.items() if name in view_names}
    return (
        {name: _take(X, query) for name, X in views.items()},
        _take(dataset.labels, query),
        {name: _take(X, database) for name, X in views.items()},
        _take(dataset.labels, database),
    )


def _check_rules(rules: str | Sequence[str] | None, hasher: Any) -> list[str]:
    known = list(hasher.database_rules)
    asked = known if rules is None else [rules] if isinstance(rules, str) else list(rules)
    wrong = [rule for rule in asked if rule not in known or not rule or rule == "unnamed"]
    if wrong or not asked:
        raise InputError(
            f"rules must be among those of {type(hasher).__name__}, which has {', '.join(known)}; got {rules!r}."
        )
    return asked


def cross_modal_report(
    hasher: Any,
    dataset: Any = None,
    *,
    query_views: Mapping[str, Any] | None = None,
    query_labels: Any = None,
    database_views: Mapping[str, Any] | None = None,
    database_labels: Any = None,
    rules: str | Sequence[str] | None = None,
    metrics: str | Sequence[str] = CROSS_MODAL_METRICS,
    k: int | Sequence[int] | None = None,
    radius: int | Sequence[int] = 2,
    ties: str | Sequence[str] = ("expected", "id"),
    denominator: str | Sequence[str] = "min(k, relevant)",
    gain: str | Sequence[str] = "exponential",
    within: bool = True,
    per_query: bool = False,
    diagnostics: bool = True,
    link: str = "sigmoid",
    threads: int | None = None,
) -> CrossModalReport:
    """Evaluate a fitted hasher: each view against each other, under each of its database rules.

    Under "encoded" every query view meets every database view (also its own, with `within`). Under a rule that joins
    views ("learned", "fused", ...) every query view meets one database, called "all".

    Parameters
    ----------
    hasher : CrossModalHasher
        Fitted.
    dataset : Dataset, optional
        With labels and splits "query" and "database" (or "train"); views that the hasher does not know are left
        aside. In its place the four arguments below.
    query_views, database_views : dict of str to matrix (n, d), optional
    query_labels, database_labels : optional
        As in :func:`modalhash.evaluate`.
    rules : str or sequence of str, optional
        Which of the hasher's ``database_rules``; all of them by default.
    metrics, k, radius, ties, denominator, gain, per_query, threads
        As in :func:`modalhash.evaluate`.
    within : bool
        Whether to measure retrieval within each view too, under "encoded".
    diagnostics : bool
        Whether to look at the bits of the database's codes.
    link : {"sigmoid", "linear"}
        How scores are compared with bits; see :func:`modalhash.diagnostics.quantisation_error`.

    Returns
    -------
    CrossModalReport

    Examples
    --------
    >>> import modalhash as mh
    >>> data = mh.datasets.make_synthetic(n=400, random_state=0).split("mirflickr", seed=0)
    >>> train = data.rows("train")
    >>> hasher = mh.DMH(n_bits=8, random_state=0).fit(train.views, labels=train.labels)
    >>> report = mh.cross_modal_report(hasher, data, rules=["encoded", "learned"], metrics="MAP[ties=id]")
    >>> [" ".join(run) for run in report.reports]
    ['image text encoded', 'text image encoded', 'image image encoded', 'text text encoded',
     'image all learned', 'text all learned']
    >>> 0 < report["image", "text", "encoded"]["MAP"] <= 1
    True
    """
    explicit = (query_views, query_labels, database_views, database_labels)
    if (dataset is None) == all(x is None for x in explicit) or (dataset is None and any(x is None for x in explicit)):
        raise InputError(
            "pass either a data set, or all of query_views, query_labels, database_views and database_labels."
        )
    names = list(hasher.view_names_)
    if dataset is not None:
        query_views, query_labels, database_views, database_labels = _from_dataset(dataset, names)
    queries, stored = dict(query_views or {}), dict(database_views or {})
    for given, side in ((queries, "query_views"), (stored, "database_views")):
        unknown = [name for name in given if name not in names]
        if unknown or not given:
            raise UnknownViewError(
                f"{side} must hold views that the hasher was fitted with ({', '.join(names)}); "
                f"got {', '.join(map(repr, unknown or given)) or 'none'}."
            )
    codes: dict[tuple[str, str], Any] = {}
    bits: dict[tuple[str, str], BitDiagnostics] = {}
    for rule in _check_rules(rules, hasher):
        for view in stored if rule == "encoded" else ["all"]:
            own = {"view": view} if rule == "encoded" else {}
            codes[view, rule] = hasher.database_codes(stored, database_labels, rule=rule, **own)
            if diagnostics:
                scores = hasher.project(view, stored[view]) if rule == "encoded" else None
                bits[view, rule] = bit_diagnostics(codes[view, rule], hasher.n_bits, scores=scores, link=link)
    encoded = {view: hasher.encode(view, X) for view, X in queries.items()}
    pairs = [(query, view, rule) for view, rule in codes for query in encoded if within or query != view]
    # Rule by rule, across views first, then within them.
    order = {name: i for i, name in enumerate([*encoded, *stored, "all"])}
    rank = {rule: i for i, rule in enumerate(dict.fromkeys(rule for _, rule in codes))}
    pairs.sort(key=lambda run: (rank[run[2]], run[0] == run[1], order[run[0]], order[run[1]]))
    reports = {
        (query, view, rule): evaluate(
            encoded[query],
            codes[view, rule],
            query_labels=query_labels,
            database_labels=database_labels,
            n_bits=hasher.n_bits,
            metrics=metrics,
            k=k,
            radius=radius,
            ties=ties,
            denominator=denominator,
            gain=gain,
            database_rule=rule,
            per_query=per_query,
            diagnostics=False,
            threads=threads,
        )
        for query, view, rule in pairs
    }
    if not reports:
        raise InputError("one view alone has no other to retrieve; pass within=True or more views.")
    return CrossModalReport(reports, bits, type(hasher).__name__)
