"""The report's figures: what is drawn, from which scores. How it looks is decided in :mod:`.plots`."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from functools import partial

from .evidence import Evidence
from .page import Figure, Panel
from .plots import Series, draw_heat_map, draw_lines, style_of
from .records import DIRECTIONS, Score, select
from .settings import PARAMETERS, method_of, spell, varied_of
from .verdicts import Summary, summarise

__all__ = [
    "convergence_figure",
    "heat_map_figure",
    "lengths_figure",
    "parameter_figures",
    "pr_bits",
    "pr_figure",
]

PRINTED = {"alpha": 10.0, "beta": 255.0, "gamma": 0.001}
"""The paper's choice of a parameter."""


def _name(*parts: str) -> str:
    return "-".join(parts).replace(">", "-").replace("@", "-").lower()


def _series(label: str, points: Sequence[tuple[float, Summary]], color: str, marker: str) -> Series:
    return Series(label, [x for x, _ in points], [y.mean for _, y in points], [y.sd for _, y in points], color, marker)


def _legend(label: str, rule: str) -> str:
    """A setting in a few words: a method by its name, a further setting by what it varies."""
    shown = varied_of(label).replace("step_start=", "step ").replace(", step_end=", "–")
    return f"{method_of(label)}, {shown}" if shown else f"{label} ({rule})"


def lengths_figure(evidence: Evidence, metric: str, *, study: str, printed: bool = False) -> Figure | None:
    """A metric of every method by length, one panel per direction.

    Parameters
    ----------
    evidence : Evidence
    metric, study : str
    printed : bool
        Whether to draw the paper's numbers too, dashed.

    Returns
    -------
    Figure or None
        None when there is nothing to draw.
    """
    panels = []
    runs = select(evidence.scores, study=study)
    for direction in DIRECTIONS:
        series, shown = [], False
        for order, label in enumerate(
            sorted(evidence.labels(study), key=lambda x: -evidence.methods.index(method_of(x)))
        ):
            method, rule = method_of(label), evidence.rule(label)
            color, marker = style_of(label, order)
            points = [
                (float(bits), found)
                for bits in sorted({s.bits for s in runs})
                if (found := summarise(s.value(rule, direction, metric) for s in select(runs, label=label, bits=bits)))
            ]
            if points:
                series.append(_series(_legend(label, rule), points, color, marker))
            numbers = [(b, p.value) for b in evidence.bits if (p := evidence.printed(label, direction, b))]
            if points and printed and numbers and label == method:
                name = "" if shown else "printed: dashed"
                shown = True
                series.append(Series(name, [b for b, _ in numbers], [y for _, y in numbers], (), color, marker, True))
        if series:
            ticks = sorted({x for s in series for x in s.x})
            draw = partial(
                draw_lines,
                series,
                title=f"{evidence.title}, {direction}",
                x_label="code length, bits",
                y_label={"F1@r2": "F1 within Hamming radius 2"}.get(metric, metric),
                ticks=ticks,
            )
            alt = f"{metric} by code length on {evidence.title}, {direction}"
            panels.append(Panel(_name(evidence.dataset, metric, direction), draw, alt))
    if not panels:
        return None
    beside = " Dashed with open markers: the printed numbers." if printed and evidence.is_printed else ""
    return Figure(
        f"{metric} by code length on {evidence.title}; mean over seeds, bars: one standard deviation. "
        f"In brackets: the database rule.{beside}",
        panels,
    )


def parameter_figures(evidence: Evidence) -> list[Figure]:
    """MAP and F1 of DMH as alpha, beta and gamma vary: a figure for each, with a panel for each metric.

    Parameters
    ----------
    evidence : Evidence

    Returns
    -------
    list of Figure
    """
    figures = []
    rule = evidence.rule("DMH")
    for letter, names, words in PARAMETERS:
        panels = []
        for metric in ("MAP", "F1@r2"):
            series, order = list[Series](), 0
            for bits in evidence.parameter_bits:
                for direction in DIRECTIONS:
                    points = evidence.curve(names, rule, direction, metric, bits)
                    if len(points) > 1:
                        series.append(_series(f"{direction}, {bits} bits", points, *style_of("", order)))
                    order += 1
            if series:
                values = sorted({x for s in series for x in s.x})
                draw = partial(
                    draw_lines,
                    series,
                    title=f"DMH on {evidence.title}, rule {rule}",
                    x_label=f"{words} (logarithmic)" if letter != "alpha" else words,
                    y_label="F1 within Hamming radius 2" if metric == "F1@r2" else metric,
                    log_x=letter != "alpha",
                    ticks=values,
                    mark=PRINTED.get(letter),
                )
                alt = f"{metric} of DMH by {words} on {evidence.title}"
                panels.append(Panel(_name(evidence.dataset, letter, metric), draw, alt))
        if panels:
            dotted = "Dotted: the paper's choice." if letter in PRINTED else "The paper does not give one."
            figures.append(Figure(f"{words}: MAP and F1 of DMH. {dotted}", panels))
    return figures


def convergence_figure(evidence: Evidence) -> Figure | None:
    """The objective of DMH by iteration, as a share of its first value, for every length.

    Parameters
    ----------
    evidence : Evidence

    Returns
    -------
    Figure or None
    """
    runs = select(evidence.scores, study="fig-convergence", method="DMH", where=lambda s: len(s.objective) > 1)
    panels = []
    for label in dict.fromkeys(s.label for s in runs):
        series = []
        for order, bits in enumerate(sorted({s.bits for s in select(runs, label=label)})):
            first = min(select(runs, label=label, bits=bits), key=lambda s: s.seed)
            start = first.objective[0][1] or 1.0
            x, y = zip(*first.objective, strict=True)
            series.append(Series(f"{bits} bits", x, [value / start for value in y], (), *style_of("", order)))
        seed = min(s.seed for s in select(runs, label=label))
        draw = partial(
            draw_lines,
            series,
            title=f"{spell(label)}\n{evidence.title}, seed {seed}",
            x_label="iteration",
            y_label="objective / objective at the start",
            mark=100,
        )
        name = _name(evidence.dataset, "convergence", *([_slug(label)] if label != "DMH" else []))
        panels.append(Panel(name, draw, f"Objective of {label} by iteration on {evidence.title}"))
    if not panels:
        return None
    return Figure("The objective by iteration, as a share of its first value. Dotted: iteration 100.", panels)


def _slug(label: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in label)


def pr_bits(scores: Sequence[Score]) -> int | None:
    """The length whose precision-recall curves are drawn: 64 bits, or the nearest to it.

    Parameters
    ----------
    scores : sequence of Score

    Returns
    -------
    int or None
    """
    lengths = {s.bits for s in select(scores, study="table-map")}
    return min(lengths, key=lambda b: (abs(b - 64), b)) if lengths else None


def pr_figure(evidence: Evidence) -> Figure | None:
    """Precision by recall of every method at one length, one panel per direction.

    Parameters
    ----------
    evidence : Evidence

    Returns
    -------
    Figure or None
    """
    bits, panels = pr_bits(evidence.scores), []
    for direction in DIRECTIONS:
        series = []
        for order, method in enumerate(reversed(evidence.methods)):
            rule = evidence.rule(method)
            curves = [
                curve
                for s in select(evidence.table, label=method, bits=bits)
                if (curve := ((s.scores.get(rule) or {}).get(direction) or {}).get("pr"))
            ]
            curves = [curve for curve in curves if len(curve) == len(curves[0])]
            points = [_mean_point([curve[i] for curve in curves]) for i in range(len(curves[0]))] if curves else []
            drawn = [p for p in points if p is not None]
            if drawn:
                x, y = zip(*drawn, strict=True)
                series.append(Series(f"{method} ({rule})", x, y, (), *style_of(method, order)))
        if series:
            draw = partial(
                draw_lines,
                series,
                title=f"{evidence.title}, {direction}, {bits} bits",
                x_label="recall",
                y_label="precision",
            )
            alt = f"Precision by recall on {evidence.title}, {direction}, {bits} bits"
            panels.append(Panel(_name(evidence.dataset, "pr", direction), draw, alt))
    if not panels:
        return None
    return Figure(
        f"Precision by recall at {bits} bits, one point per Hamming radius, means over queries and seeds; a query that "
        "finds nothing within a radius counts as precision 0. In brackets: the database rule.",
        panels,
    )


def _mean_point(points: Sequence[Sequence[float | None]]) -> tuple[float, float] | None:
    whole = [(p[0], p[1]) for p in points if p[0] is not None and p[1] is not None]
    whole = [(x, y) for x, y in whole if math.isfinite(x) and math.isfinite(y)]
    if not whole:
        return None
    return sum(x for x, _ in whole) / len(whole), sum(y for _, y in whole) / len(whole)


def heat_map_figure(evidence: Evidence) -> Figure | None:
    """Correlations between learned bits without and with the regulariser, at one length and seed.

    Parameters
    ----------
    evidence : Evidence

    Returns
    -------
    Figure or None
    """
    rule = evidence.rule("DMH")

    def matrix(score: Score) -> list[list[float | None]] | None:
        return (score.bit_correlation.get(rule) or {}).get("matrix")

    runs = select(evidence.scores, study="ladder", method="DMH", where=lambda s: bool(matrix(s)))
    if not runs:
        return None
    bits = max(s.bits for s in runs)
    seed = min(s.seed for s in select(runs, bits=bits))
    chosen = {s.label: s for s in select(runs, bits=bits, where=lambda s: s.seed == seed)}
    limit = max(
        (
            abs(v)
            for s in chosen.values()
            for i, row in enumerate(matrix(s) or ())
            for j, v in enumerate(row)
            if v and i != j
        ),
        default=1.0,
    )
    panels = []
    for label in (label for label in evidence.rungs if label in chosen):
        title = {evidence.unregularised: "DMH, no regulariser", "DMH": "DMH, MCR as in the paper"}.get(
            label, spell(label)
        )
        mean = (chosen[label].bit_correlation.get(rule) or {}).get("mean_abs")
        title = textwrap.fill(title, 34) + ("" if mean is None else f"\nmean |r| {mean:.3f}")
        draw = partial(draw_heat_map, matrix(chosen[label]) or [], title=title, limit=limit)
        name = _name(evidence.dataset, "bits", _slug(label))
        panels.append(Panel(name, draw, f"Correlations between bits, {label}, {bits} bits, seed {seed}"))
    return Figure(
        f"Correlations between the bits of the database's codes (rule {rule}) at {bits} bits, seed {seed}. "
        "The diagonal is left out; empty: a bit that is constant.",
        panels,
    )
