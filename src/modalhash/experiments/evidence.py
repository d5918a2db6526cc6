"""What was measured on one data set and what is printed about it, with the questions that tables and claims ask."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from .published import Paper
from .records import DIRECTIONS, Score, select
from .settings import has_none, is_unregularised, method_of, parameter_value
from .verdicts import Cell, Printed, Summary, cell, summarise

__all__ = ["METHODS", "Evidence"]

METHODS = ("CMSSH", "CVH", "SCM", "SePH", "MDBE", "DMH")
"""In the order of the paper's tables."""


class Evidence:
    """The scores of one data set beside the published numbers.

    Parameters
    ----------
    dataset : str
    scores : iterable of Score
        Those of other data sets are left aside.
    papers : dict of str to Paper
        By method.
    """

    def __init__(self, dataset: str, scores: Iterable[Score], papers: Mapping[str, Paper]) -> None:
        self.dataset = dataset
        self.scores = select(scores, dataset=dataset)
        self.papers = papers

    @property
    def title(self) -> str:
        """The data set's name as people write it."""
        return {"mirflickr": "MIRFlickr", "nuswide": "NUS-WIDE"}.get(self.dataset, self.dataset)

    # --- the main table -----------------------------------------------------------------------------------------------

    @cached_property
    def table(self) -> list[Score]:
        """The runs of the MAP table."""
        return select(self.scores, study="table-map")

    @cached_property
    def is_printed(self) -> bool:
        """Whether the paper has MAP on this data set."""
        return any(paper.find(self.dataset, "MAP") for paper in self.papers.values())

    @cached_property
    def methods(self) -> list[str]:
        """The methods to show, in the paper's order, others after them; a method's name labels its main setting."""
        measured = dict.fromkeys(s.method for s in self.table or select(self.scores, study="fig-f1"))
        printed = [m for m, paper in self.papers.items() if paper.find(self.dataset, "MAP")]
        known = [m for m in METHODS if m in measured or m in printed]
        return known + [m for m in measured if m not in METHODS]

    def labels(self, study: str) -> list[str]:
        """The rows of a study: every method, followed by its further settings.

        Parameters
        ----------
        study : str

        Returns
        -------
        list of str
        """
        runs = select(self.scores, study=study)
        rows = []
        for method in self.methods:
            rows += [method, *dict.fromkeys(s.label for s in select(runs, method=method) if s.label != method)]
        return rows

    @cached_property
    def bits(self) -> list[int]:
        """The lengths to show: measured, and printed."""
        printed = {b for m in self.papers.values() if (t := m.find(self.dataset, "MAP")) for b in t.bits}
        return sorted({s.bits for s in self.table or select(self.scores, study="fig-f1")} | printed)

    def printed(self, label: str, direction: str, bits: int) -> Printed | None:
        """The paper's MAP for a cell, or None.

        Parameters
        ----------
        label, direction : str
        bits : int

        Returns
        -------
        Printed or None
        """
        method = method_of(label)
        paper = self.papers.get(method)
        table = paper.find(self.dataset, "MAP") if paper else None
        if paper is None or table is None or bits not in table.bits:
            return None
        value = table.values[direction][table.bits.index(bits)]
        return Printed(
            self.dataset, method, table.table, "MAP", table.rule, direction, bits, value, paper.tolerance, paper.verdict
        )

    def rules(self, label: str) -> list[str]:
        """The database rules under which a method was scored, the paper's own first.

        Parameters
        ----------
        label : str

        Returns
        -------
        list of str
        """
        own = select(self.scores, method=method_of(label))
        found = dict.fromkeys(rule for s in own for rule, x in s.scores.items() if x)
        first = self.rule(label)
        return sorted(found, key=lambda rule: (rule != first, rule == "encoded", rule))

    def rule(self, label: str) -> str:
        """The rule behind the paper's row of a method; where nothing is printed, the one that uses most.

        Parameters
        ----------
        label : str

        Returns
        -------
        str
        """
        method = method_of(label)
        paper = self.papers.get(method)
        printed = {t.rule for t in paper.tables if t.metric == "MAP"} if paper else set[str]()
        found = {rule for s in self.scores if s.method == method for rule, x in s.scores.items() if x}
        for rule in (*printed, "learned"):
            if rule in found or not found:
                return rule
        return "encoded" if "encoded" in found else min(found)

    def cell(
        self, label: str, direction: str, bits: int, *, rule: str = "", metric: str = "MAP", study: str = "table-map"
    ) -> Cell:
        """A cell of the main table; compared with the paper under the paper's rule only.

        Parameters
        ----------
        label, direction : str
        bits : int
        rule : str
            The paper's, unless named.
        metric, study : str

        Returns
        -------
        Cell
        """
        own = self.rule(label)
        printed = self.printed(label, direction, bits) if metric == "MAP" else None
        if printed and printed.rule != (rule or own):
            printed = None
        runs = select(self.scores, study=study, label=label, bits=bits)
        found = cell(runs, printed, rule=rule or own, direction=direction, metric=metric)
        return Cell(label, rule or own, direction, bits, found.ours, printed, found.verdict)

    def mean(
        self, label: str, direction: str, bits: int, *, metric: str = "MAP", rule: str = "", study: str = "table-map"
    ) -> float | None:
        """A mean over seeds, or None.

        Parameters
        ----------
        label, direction : str
        bits : int
        metric, rule, study : str

        Returns
        -------
        float or None
        """
        runs = select(self.scores, study=study, label=label, bits=bits)
        found = summarise(s.value(rule or self.rule(label), direction, metric) for s in runs)
        return found.mean if found else None

    def best_other(
        self, direction: str, bits: int, *, metric: str = "MAP", rule: str = "", study: str = "table-map"
    ) -> tuple[str, float] | None:
        """The best of the methods that DMH is compared with, and its mean.

        Parameters
        ----------
        direction : str
        bits : int
        metric, rule, study : str

        Returns
        -------
        (str, float) or None
        """
        found = [
            (mean, method)
            for method in self.methods
            if method != "DMH"
            and (mean := self.mean(method, direction, bits, metric=metric, rule=rule, study=study)) is not None
        ]
        return (max(found)[1], max(found)[0]) if found else None

    def cells(self, label: str) -> list[Cell]:
        """All cells of a setting under the paper's rule that can be judged.

        Parameters
        ----------
        label : str

        Returns
        -------
        list of Cell
        """
        cells = [self.cell(label, d, b) for d in DIRECTIONS for b in self.bits]
        return [c for c in cells if c.verdict]

    @cached_property
    def unmeasured(self) -> int:
        """How many of DMH's printed cells have no number of ours yet."""
        cells = [self.cell("DMH", d, b) for d in DIRECTIONS for b in self.bits]
        return sum(c.printed is not None and c.ours is None for c in cells)

    # --- the other studies --------------------------------------------------------------------------------------------

    def curve(
        self, names: tuple[str, ...], rule: str, direction: str, metric: str, bits: int
    ) -> list[tuple[float, Summary]]:
        """A metric of DMH as one parameter varies and the others keep their values.

        Parameters
        ----------
        names : tuple of str
            What the parameter is called among the varied ones.
        rule, direction, metric : str
        bits : int

        Returns
        -------
        list of (float, Summary)
            By the parameter's value; the setting that varies nothing is among them.
        """
        by_value: dict[float, list[float | None]] = {}
        for score in select(self.scores, study="fig-parameters", method="DMH", bits=bits):
            x = parameter_value(score, names)
            if x is not None:
                by_value.setdefault(x, []).append(score.value(rule, direction, metric))
        return [(x, found) for x in sorted(by_value) if (found := summarise(by_value[x]))]

    @cached_property
    def parameter_bits(self) -> list[int]:
        """The lengths at which parameters were varied."""
        return sorted({s.bits for s in select(self.scores, study="fig-parameters") if s.varied})

    @cached_property
    def rungs(self) -> list[str]:
        """The labels of the ladder: DMH without a regulariser first, then DMH, then the others."""
        labels = {s.label: s for s in select(self.scores, study="ladder")}
        order = {label: (not is_unregularised(s), bool(s.varied) or s.method != "DMH") for label, s in labels.items()}
        return sorted(labels, key=lambda label: (order[label], labels[label].method == "DMH", label))

    def rung(self, label: str, bits: int | None = None) -> list[Score]:
        """The runs of a rung.

        Parameters
        ----------
        label : str
        bits : int, optional

        Returns
        -------
        list of Score
        """
        return select(self.scores, study="ladder", label=label, bits=bits)

    @cached_property
    def unregularised(self) -> str | None:
        """The label of DMH without a regulariser and otherwise as it is, or None."""
        return next((s.label for s in select(self.scores, study="ladder") if is_unregularised(s)), None)

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """Labels of DMH with the paper's regulariser, each with that of the same setting without it."""
        labels = {s.label: s for s in select(self.scores, study="ladder", method="DMH")}
        return [
            (label, without)
            for label, s in labels.items()
            if not {"decorrelation", "decorrelation_kind"} & set(s.varied) and (without := self.reference(label))
        ]

    def reference(self, label: str) -> str | None:
        """What a rung of the ladder is compared with: its own setting without a regulariser, or else DMH without it.

        Parameters
        ----------
        label : str

        Returns
        -------
        str or None
            None for a rung that has no regulariser itself.
        """
        runs = select(self.scores, study="ladder")
        own = next((s for s in runs if s.label == label), None)
        if own is None or has_none(own):
            return None
        rest = {k: v for k, v in own.varied.items() if k not in ("decorrelation", "decorrelation_kind")}
        wanted = {**rest, "decorrelation_kind": None}
        if own.method == "DMH":
            for s in runs:
                if s.method == "DMH" and s.varied == wanted:
                    return s.label
        return self.unregularised
