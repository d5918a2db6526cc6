"""The report's tables: ours beside the printed numbers, the ladder, times, and where every number comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .claims import Claim, encode_seconds
from .evidence import Evidence
from .page import MISSING, Entry, Table
from .provenance import machine_name
from .records import DIRECTIONS, Score, select
from .settings import method_of, spell
from .verdicts import Cell, Effect, Summary, paired, signed, summarise

__all__ = [
    "claims_table",
    "correlation_table",
    "ladder_table",
    "map_table",
    "plain_table",
    "time_table",
]

_TONES = {"above": "up", "within": "even", "higher": "up", "below": "down"}
_WORDS = {"above": "at or above", "within": "within", "higher": "higher", "below": "below"}
_ARROWS = {"higher": "up", "lower": "down", "no effect seen": "even"}
_CLAIMS = {
    "held": ("✓", "up"),
    "held in part": ("◐", "even"),
    "not held": ("✗", "down"),
    "not tested": ("–", "missing"),
}


def _entry(cell: Cell) -> Entry:
    if cell.ours is None:
        return Entry(MISSING, f"paper {cell.printed.value:.4f}" if cell.printed else "", tone="missing")
    if cell.printed is None or cell.difference is None:
        return Entry(str(cell.ours))
    delta = f"{signed(cell.difference)} {_WORDS[cell.verdict]}"
    return Entry(str(cell.ours), f"paper {cell.printed.value:.4f}", delta, _TONES[cell.verdict])


def map_table(evidence: Evidence) -> Table:
    """MAP of every method, length and direction under its row's rule, beside the printed number.

    Parameters
    ----------
    evidence : Evidence

    Returns
    -------
    Table
    """
    rows: list[list[str | Entry]] = []
    header = [
        "dataset",
        "direction",
        "method",
        "rule",
        "bits",
        "mean",
        "sd",
        "seeds",
        "printed",
        "difference",
        "verdict",
    ]
    data: list[list[object]] = [list(header)]
    for direction in DIRECTIONS:
        for label in evidence.labels("table-map"):
            cells = [evidence.cell(label, direction, bits) for bits in evidence.bits]
            rows.append([direction, spell(label), evidence.rule(label), *(_entry(c) for c in cells)])
            data += [
                [evidence.dataset, direction, label, c.rule, c.bits, *_numbers(c)] for c in cells if c.ours or c.printed
            ]
    beside = "below it the printed number and the difference" if evidence.is_printed else "nothing is printed for it"
    return Table(
        f"{evidence.dataset}-map",
        f"MAP on {evidence.title}, items at one distance in the database's order: mean ± standard deviation over "
        f"seeds; {beside}. Rule: how the database got its codes.",
        ["direction", "method", "rule", *(f"{b} bits" for b in evidence.bits)],
        rows,
        3,
        data,
    )


def _numbers(cell: Cell) -> list[object]:
    ours = [f"{cell.ours.mean:.6f}", f"{cell.ours.sd:.6f}", cell.ours.n] if cell.ours else ["", "", 0]
    printed = f"{cell.printed.value:.4f}" if cell.printed else ""
    return [*ours, printed, "" if cell.difference is None else f"{cell.difference:.4f}", cell.verdict]


def plain_table(
    evidence: Evidence, study: str, metric: str, others: Mapping[str, str], *, name: str, caption: str
) -> Table:
    """A metric of every method under each of its rules, with further metrics in small print.

    Parameters
    ----------
    evidence : Evidence
    study, metric : str
    others : dict of str to str
        Metric -> what to call it in the cell.
    name, caption : str

    Returns
    -------
    Table
    """
    rows: list[list[str | Entry]] = []
    data: list[list[object]] = [["dataset", "direction", "method", "rule", "bits", "metric", "mean", "sd", "seeds"]]
    for direction in DIRECTIONS:
        for label in evidence.labels(study):
            for rule in evidence.rules(label) or [evidence.rule(label)]:
                row: list[str | Entry] = [direction, spell(label), rule]
                for bits in evidence.bits:
                    found = {
                        m: evidence.cell(label, direction, bits, rule=rule, metric=m, study=study).ours
                        for m in (metric, *others)
                    }
                    own = found.pop(metric)
                    small = ", ".join(f"{others[m]} {x.mean:.4f}" for m, x in found.items() if x)
                    row.append(Entry(str(own), small) if own else Entry(MISSING, tone="missing"))
                    data += [
                        [evidence.dataset, direction, label, rule, bits, m, f"{x.mean:.6f}", f"{x.sd:.6f}", x.n]
                        for m, x in {metric: own, **found}.items()
                        if x
                    ]
                rows.append(row)
    header = ["direction", "method", "rule", *(f"{b} bits" for b in evidence.bits)]
    return Table(f"{evidence.dataset}-{name}", caption, header, rows, 3, data)


def _effect_entry(found: Effect, summary: Summary | None = None) -> Entry:
    """A mean, if given, with the effect below it; or the effect alone."""
    if not found.n:
        return Entry(str(summary), "no pairs") if summary else Entry(MISSING, tone="missing")
    tone = _ARROWS.get(found.verdict, "missing")
    words = f"{found.verdict} (n = {found.n})"
    return Entry(str(summary), str(found), words, tone) if summary else Entry(str(found), "", words, tone)


def ladder_table(evidence: Evidence) -> Table:
    """Every rung of the ladder beside DMH without a regulariser: means, and paired differences with intervals.

    Parameters
    ----------
    evidence : Evidence

    Returns
    -------
    Table
    """
    runs = select(evidence.scores, study="ladder")
    rules = [rule for rule in evidence.rules("DMH") if any(s.scores.get(rule) for s in runs)]
    rows = list[list[str | Entry]]()
    data: list[list[object]] = [
        ["dataset", "bits", "setting", "rule", "direction", "mean", "sd", "seeds", "difference", "low", "high", "pairs"]
    ]
    references = {evidence.reference(label) for label in evidence.rungs}
    for bits in sorted({s.bits for s in runs}):
        for label in evidence.rungs:
            own, row, reference = evidence.rung(label, bits), list[str | Entry](), evidence.reference(label)
            for rule, direction in ((r, d) for r in rules for d in DIRECTIONS):
                found = summarise(s.value(rule, direction, "MAP") for s in own)
                if found is None:
                    row.append(Entry(MISSING, tone="missing"))
                    continue
                other = evidence.rung(reference, bits) if reference else []
                change = paired(own, other, lambda s, r=rule, d=direction: s.value(r, d, "MAP"))  # type: ignore[misc]
                row.append(Entry(str(found), "reference") if label in references else _effect_entry(change, found))
                numbers = [f"{x:.6f}" for x in (change.mean, change.low, change.high)]
                where = [evidence.dataset, bits, label, rule, direction]
                data.append([*where, f"{found.mean:.6f}", f"{found.sd:.6f}", found.n, *numbers, change.n])
            if own:
                rows.append([f"{bits} bits", spell(label), *row])
    return Table(
        f"{evidence.dataset}-ladder",
        f"The ladder on {evidence.title}: MAP (mean ± standard deviation over seeds); below it the paired difference "
        "(same seed and split; for settings of DMH the same start) to the same setting without a regulariser, for "
        "other methods to DMH without one, with its 95 % t interval and the number of pairs. One interval per "
        "comparison, not corrected for their number.",
        ["length", "setting", *(f"{rule}, {direction}" for rule in rules for direction in DIRECTIONS)],
        rows,
        2,
        data,
    )


def correlation_table(evidence: Evidence) -> Table:
    """Mean and largest absolute correlation between bits, by rung and length, with the paired difference.

    Parameters
    ----------
    evidence : Evidence

    Returns
    -------
    Table
    """

    def value(score: Score, rule: str, key: str) -> float | None:
        found = (score.bit_correlation.get(rule) or {}).get(key)
        return float(found) if isinstance(found, (int, float)) else None

    rows: list[list[str | Entry]] = []
    runs = select(evidence.scores, study="ladder")
    references = {evidence.reference(label) for label in evidence.rungs}
    rules = sorted({rule for s in runs for rule, x in s.bit_correlation.items() if x}, reverse=True)
    for bits in sorted({s.bits for s in runs}):
        for rule in rules:
            for label in evidence.rungs:
                own = evidence.rung(label, bits)
                mean, most = (summarise(value(s, rule, k) for s in own) for k in ("mean_abs", "max_abs"))
                if mean is None:
                    continue
                reference = evidence.reference(label)
                change = Entry("reference" if label in references else MISSING, tone="missing")
                if reference is not None:
                    other = evidence.rung(reference, bits)
                    change = _effect_entry(paired(own, other, lambda s, r=rule: value(s, r, "mean_abs")))  # type: ignore[misc]
                rows.append([f"{bits} bits", rule, spell(label), str(mean), str(most) if most else MISSING, change])
    return Table(
        f"{evidence.dataset}-correlation",
        f"Correlation between the bits of the database's codes on {evidence.title}: mean and largest absolute value "
        "over all pairs of bits (mean ± standard deviation over seeds), and the paired difference of the mean.",
        ["length", "rule", "setting", "mean |r|", "largest |r|", "minus no regulariser [95 %]"],
        rows,
        3,
    )


def time_table(evidence: Evidence) -> Table:
    """Training time and time to encode a query, ours beside the printed.

    Parameters
    ----------
    evidence : Evidence

    Returns
    -------
    Table
    """
    runs = select(evidence.scores, study="table-time")
    lengths = sorted({s.bits for s in runs})
    rows: list[list[str | Entry]] = []
    for label in evidence.labels("table-time"):
        paper = evidence.papers.get(method_of(label))
        table = paper.find(evidence.dataset, "seconds") if paper else None
        for bits in lengths:
            own = select(runs, label=label, bits=bits)
            where = table.bits.index(bits) if table and bits in table.bits else None
            fit, cpu = (summarise(s.seconds.get(key) for s in own) for key in ("fit", "cpu_fit"))
            encode = encode_seconds(own)
            printed = [f"{table.values[k][where]:g}" if table and where is not None else MISSING for k in ("fit",)]
            rows.append([
                spell(label),
                f"{bits}",
                f"{fit.mean:.3g}" if fit else Entry(MISSING, tone="missing"),
                f"{cpu.mean:.3g}" if cpu else Entry(MISSING, tone="missing"),
                printed[0],
                f"{encode * 1e6:.3g}" if encode else Entry(MISSING, tone="missing"),
                f"{table.values['encode_per_query'][where] * 1e6:.3g}" if table and where is not None else MISSING,
                "; ".join(sorted({machine_name(s) for s in own})) or MISSING,
            ])  # fmt: skip
    return Table(
        f"{evidence.dataset}-time",
        f"Time on {evidence.title}. Printed: MATLAB R2015b on a server with 16 cores of 2.30 GHz; ours: the machine "
        "in the last column. Encoding is the mean over the views, per query of a batch.",
        [
            "method",
            "bits",
            "training, s",
            "processor time, s",
            "printed, s",
            "encoding a query, µs",
            "printed, µs",
            "machine",
        ],
        rows,
    )


def claims_table(claims: Sequence[Claim], evidence: Evidence) -> Table:
    """Every claim with its verdict and the numbers behind it.

    Parameters
    ----------
    claims : sequence of Claim
    evidence : Evidence

    Returns
    -------
    Table
    """
    rows: list[list[str | Entry]] = [
        [c.text, Entry(f"{_CLAIMS[c.verdict][0]} {c.verdict}", tone=_CLAIMS[c.verdict][1]), c.numbers, c.where]
        for c in claims
    ]
    caption = f"The paper's claims, asked of {evidence.title}: verdicts computed from the scores."
    return Table(f"{evidence.dataset}-claims", caption, ["claim", "verdict", "numbers", "in the paper"], rows)
