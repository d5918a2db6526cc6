"""The paper's claims in words, each asked of what was measured: held, held in part, not held, not tested.

The texts stand in ``papers/dmh.yaml``, and below for those that the paper makes beside its experiments. A verdict, and
the sentence with its numbers, is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .evidence import Evidence
from .records import DIRECTIONS, Score, select
from .settings import PARAMETERS, spell, varied_of
from .verdicts import paired, signed, summarise

__all__ = ["Claim", "ask_claims"]

HELD, PART, NOT, UNTESTED = "held", "held in part", "not held", "not tested"

FURTHER = (
    ("printed", "The printed MAP of DMH is reached.", 'Table "MAP results"'),
    ("others", "The printed MAP of the compared methods is met.", 'Table "MAP results"'),
    ("mdbe", "MDBE is the best of the compared methods.", 'section "Results"'),
    ("mcr-map", "The regulariser (MCR) raises MAP, above all that of long codes.", "abstract; introduction"),
    ("mcr-bits", "The regulariser decorrelates the bits.", 'section "Minimum Correlation Regularization"'),
    ("start", "Random initialisation is enough; no scale is given for it.", 'section "Implementation details"'),
)
"""Claims that are not among the published ones' file: id, text, where."""

_LITTLE = 0.05
_FAST = 0.5
_NEAR = 1.5


@dataclass(frozen=True)
class Claim:
    """A claim and what came of it.

    Attributes
    ----------
    id, text, where : str
        The claim in a sentence, and its place in the paper.
    verdict : {"held", "held in part", "not held", "not tested"}
    numbers : str
        The numbers behind the verdict.
    """

    id: str
    text: str
    where: str
    verdict: str
    numbers: str


Answer = tuple[str, str]


def _graded(good: int, of: int) -> str:
    return UNTESTED if not of else HELD if good == of else PART if good else NOT


def _parts(outcomes: Iterable[tuple[bool, str]]) -> Answer:
    found = list(outcomes)
    return _graded(sum(ok for ok, _ in found), len(found)), "; ".join(text for _, text in found) + "."


def _nothing(what: str) -> Answer:
    return UNTESTED, f"No scores of {what}."


def _printed(evidence: Evidence) -> Answer:
    cells = evidence.cells("DMH")
    if not cells:
        return _nothing("DMH beside printed numbers")
    good = [c for c in cells if (c.difference or 0) >= 0]
    worst = min(cells, key=lambda c: c.difference or 0)
    text = f"{len(good)} of {len(cells)} cells are at or above the paper (rule: {cells[0].rule})"
    if len(good) < len(cells):
        text += f"; the furthest below is {worst.direction} at {worst.bits} bits, {signed(worst.difference or 0)}"
    text += f"; {evidence.unmeasured} printed cells are not measured" if evidence.unmeasured else ""
    return _graded(len(good), len(cells)), text + "."


def _others(evidence: Evidence) -> Answer:
    outcomes = []
    for method in evidence.methods:
        cells = evidence.cells(method) if method != "DMH" else []
        if cells:
            near = sum(c.holds for c in cells)
            differences = [c.difference or 0.0 for c in cells]
            text = (
                f"{method} {near} of {len(cells)} within {cells[0].printed.tolerance:g}" if cells[0].printed else method
            )
            outcomes.append((near == len(cells), f"{text} ({signed(min(differences))} to {signed(max(differences))})"))
    return _parts(outcomes) if outcomes else _nothing("compared methods beside printed numbers")


def _best(evidence: Evidence, metric: str, study: str, rule: str = "") -> list[tuple[str, int, float, str, float]]:
    """For each cell: direction, bits, DMH, the best other and its value."""
    rows = []
    for direction in DIRECTIONS:
        for bits in sorted({s.bits for s in select(evidence.scores, study=study)}):
            mine = evidence.mean("DMH", direction, bits, metric=metric, rule=rule, study=study)
            other = evidence.best_other(direction, bits, metric=metric, rule=rule, study=study)
            if mine is not None and other is not None:
                rows.append((direction, bits, mine, *other))
    return rows


def _map_best(evidence: Evidence) -> Answer:
    rows = _best(evidence, "MAP", "table-map")
    if not rows:
        return _nothing("DMH and another method")
    ahead = [row for row in rows if row[2] > row[4]]
    text = f"DMH is ahead in {len(ahead)} of {len(rows)} cells, each method under its row's rule"
    behind = [
        f"{d} at {b} bits ({method} {signed(value - mine)})" for d, b, mine, method, value in rows if mine <= value
    ]
    text += f"; not in {', '.join(behind)}" if behind else ""
    strict = _best(evidence, "MAP", "table-map", "encoded")
    if strict:
        count = sum(row[2] > row[4] for row in strict)
        text += f". Under the encoded rule, without labels of the database, it is ahead in {count} of {len(strict)}"
    return _graded(len(ahead), len(rows)), text + "."


def _map_gain(evidence: Evidence) -> Answer:
    if evidence.dataset != "mirflickr":
        return UNTESTED, "The claim is about MIRFlickr."
    gains = []
    for bits in evidence.bits:
        mine, other = (evidence.mean(m, "image>text", bits) for m in ("DMH", "MDBE"))
        if mine is not None and other:
            gains.append((bits, 100 * (mine / other - 1)))
    if not gains:
        return _nothing("DMH and MDBE")
    text = "image>text: " + ", ".join(f"{signed(gain, 1)} % at {bits} bits" for bits, gain in gains)
    both = [evidence.printed(m, "image>text", b) for b, _ in gains for m in ("DMH", "MDBE")]
    printed = [100 * (a.value / b.value - 1) for a, b in zip(both[::2], both[1::2], strict=True) if a and b]
    if printed:
        text += f"; the paper's own table has {', '.join(signed(x, 1) + ' %' for x in printed)}"
    return _graded(sum(gain >= 3 for _, gain in gains), len(gains)), text + "."


def _map_grows(evidence: Evidence) -> Answer:
    rows, outcomes = _best(evidence, "MAP", "table-map"), []
    for direction in DIRECTIONS:
        gaps = [(bits, mine - value) for d, bits, mine, _, value in rows if d == direction]
        if len(gaps) > 1:
            (short, first), (long, last) = gaps[0], gaps[-1]
            text = f"{direction}: lead {signed(first)} at {short} bits, {signed(last)} at {long}"
            outcomes.append((last > first, text))
    return _parts(outcomes) if outcomes else _nothing("two lengths of DMH and another method")


def _f1_best(evidence: Evidence) -> Answer:
    rows = _best(evidence, "F1@r2", "fig-f1")
    if not rows:
        return _nothing("lookup by DMH and another method")
    least = 1.05 if evidence.dataset == "nuswide" else 1.30
    ahead = [row for row in rows if row[2] > row[4]]
    far = [row for row in rows if row[2] >= least * row[4]]
    ratios = [mine / value for _, _, mine, _, value in rows if value > 0]
    text = f"DMH is ahead in {len(ahead)} of {len(rows)} cells, by {100 * (least - 1):.0f} % or more in {len(far)}"
    if ratios:
        text += f"; its F1 is {min(ratios):.2f} to {max(ratios):.2f} times the best other's"
    return HELD if len(far) == len(rows) else PART if ahead else NOT, text + "."


def _mdbe(evidence: Evidence) -> Answer:
    rows = _best(evidence, "MAP", "table-map")
    others = [m for m in evidence.methods if m not in ("DMH", "MDBE") and select(evidence.table, label=m)]
    if not rows or not others or not select(evidence.table, label="MDBE"):
        return _nothing("MDBE and another compared method")
    good = sum(method == "MDBE" for *_, method, _ in rows)
    names = sorted({method for *_, method, _ in rows} - {"MDBE"})
    beyond = f"; {', '.join(names)} in the others" if names else ""
    return _graded(good, len(rows)), f"MDBE has the best MAP of the others in {good} of {len(rows)} cells{beyond}."


def _curves(evidence: Evidence, letter: str, metric: str) -> list[tuple[str, dict[float, float]]]:
    names = next(names for key, names, _ in PARAMETERS if key == letter)
    found = []
    for bits in evidence.parameter_bits:
        for direction in DIRECTIONS:
            curve = evidence.curve(names, evidence.rule("DMH"), direction, metric, bits)
            if len(curve) > 1:
                found.append((f"{direction} at {bits} bits", {x: y.mean for x, y in curve}))
    return found


def _top(curve: dict[float, float]) -> float:
    return max(curve, key=lambda x: curve[x])


def _alpha(evidence: Evidence) -> Answer:
    outcomes = []
    for name, curve in _curves(evidence, "alpha", "MAP"):
        outcomes.append(
            (_top(curve) in (5, 10), f"{name}: MAP is highest ({max(curve.values()):.4f}) at α = {_top(curve):g}")
        )
        if 1 in curve:
            lowest = curve[1] == min(curve.values())
            outcomes.append((lowest, f"at α = 1 it is {curve[1]:.4f}"))
    for name, curve in _curves(evidence, "alpha", "F1@r2"):
        outcomes.append((_top(curve) == 1, f"{name}: F1 is highest at α = {_top(curve):g}"))
    return _parts(outcomes) if outcomes else _nothing("several values of α")


def _beta(evidence: Evidence) -> Answer:
    outcomes = []
    for name, curve in _curves(evidence, "beta", "MAP"):
        low, high = min(curve.values()), max(curve.values())
        text = f"{name}: MAP {low:.4f} to {high:.4f} over β of {min(curve):g} to {max(curve):g}"
        outcomes.append((high - low <= _LITTLE, text))
    for name, curve in _curves(evidence, "beta", "F1@r2"):
        outcomes.append((_top(curve) == 255, f"{name}: F1 is highest at β = {_top(curve):g}"))
    verdict, text = _parts(outcomes) if outcomes else _nothing("several values of β")
    return verdict, text + (f' ("Little" is read as a range of {_LITTLE} at most.)' if outcomes else "")


def _gamma(evidence: Evidence) -> Answer:
    outcomes = []
    f1 = dict(_curves(evidence, "gamma", "F1@r2"))
    for name, curve in _curves(evidence, "gamma", "MAP"):
        text = f"{name}: MAP is highest ({max(curve.values()):.4f}) at γ = {_top(curve):g}"
        text += f", and {curve[0.001]:.4f} at 0.001" if 0.001 in curve and _top(curve) != 0.001 else ""
        outcomes.append((_top(curve) == 0.001, text))
        large = [x for x in curve if x > 0.1]
        if large and 0.001 in curve and name in f1:
            falls = all(curve[x] < curve[0.001] - _LITTLE for x in large)
            rises = all(f1[name].get(x, 0) > f1[name].get(0.001, 0) for x in large)
            text = f"above 0.1 MAP is {min(curve[x] for x in large):.4f} at the least and F1 "
            text += f"{max(f1[name].get(x, 0) for x in large):.4f} at the most ({f1[name].get(0.001, 0):.4f} at 0.001)"
            outcomes.append((falls and rises, text))
    return _parts(outcomes) if outcomes else _nothing("several values of γ")


def _convergence(evidence: Evidence) -> Answer:
    outcomes = []
    runs = select(evidence.scores, study="fig-convergence", method="DMH")
    for label in dict.fromkeys(s.label for s in runs):
        shares, rises = [], 0
        for score in select(runs, label=label):
            early = [value for k, value in score.objective if k <= 100]
            if len(score.objective) > 1 and score.objective[-1][0] > 100 and early:
                first, last = score.objective[0][1], score.objective[-1][1]
                shares.append((first - early[-1]) / (first - last) if first != last else 0.0)
                rises += score.rises
        if found := summarise(shares):
            text = f"{spell(label)}: {100 * found.mean:.0f} % of the fall is made in the first 100 iterations"
            outcomes.append((found.mean >= _FAST, f"{text} (mean of {found.n} runs)"))
            outcomes.append((rises == 0, f"the objective rises in {rises} steps of these runs"))
    return _parts(outcomes) if outcomes else _nothing("objectives over more than 100 iterations")


def _time(evidence: Evidence) -> Answer:
    runs = select(evidence.scores, study="table-time")
    fit = {m: x.mean for m in evidence.methods if (x := summarise(s.seconds.get("fit") for s in select(runs, label=m)))}
    if "DMH" not in fit or len(fit) < 2:
        return _nothing("training time of DMH and another method")
    outcomes = []
    for method, slower in (("CVH", True), ("SCM", True), ("MDBE", True), ("CMSSH", False), ("SePH", False)):
        if method in fit:
            right = (fit["DMH"] > fit[method]) == slower
            outcomes.append((right, f"{method} {fit[method]:.3g} s"))
    encode = {m: encode_seconds(select(runs, label=m)) for m in ("DMH", "MDBE")}
    if encode["DMH"] and encode["MDBE"]:
        ratio = encode["DMH"] / encode["MDBE"]
        text = f"encoding takes {ratio:.2f} times as long as MDBE's (alike is read as at most {_NEAR} times)"
        outcomes.append((1 / _NEAR <= ratio <= _NEAR, text))
    verdict, text = _parts(outcomes)
    return verdict, f"Training: DMH {fit['DMH']:.3g} s, {text}"


def encode_seconds(runs: Iterable[Score]) -> float | None:
    """Mean time to encode one query over runs and views.

    Parameters
    ----------
    runs : iterable of Score

    Returns
    -------
    float or None
    """
    times = [t for s in runs for t in (s.seconds.get("encode_per_query") or {}).values()]
    found = summarise(times)
    return found.mean if found else None


def _mcr(evidence: Evidence, values: dict[str, Callable[[Score], float | None]], wanted: str) -> list[tuple[bool, str]]:
    """With minus without the regulariser, for each setting that was run both ways, at each length.

    The intervals hold together: one of many at 95 % each would leave out 0 by chance.
    """
    cells = [
        (what, value, with_, without, bits)
        for what, value in values.items()
        for with_, without in evidence.pairs
        for bits in sorted({s.bits for s in evidence.rung(with_)})
    ]
    outcomes = []
    for what, value, with_, without, bits in cells:
        found = paired(evidence.rung(with_, bits), evidence.rung(without, bits), value, of=len(cells))
        if found.n > 1:
            varied = f" ({varied_of(with_)})" if varied_of(with_) else ""
            text = f"{what}{bits} bits{varied} {found}, n = {found.n}: {found.verdict}"
            outcomes.append((found.verdict == wanted, text))
    return outcomes


def _mcr_map(evidence: Evidence) -> Answer:
    rule = evidence.rule("DMH")
    values = {f"{d} at ": lambda s, d=d: s.value(rule, d, "MAP") for d in DIRECTIONS}
    outcomes = _mcr(evidence, values, "higher")  # type: ignore[arg-type]
    if not outcomes:
        return _nothing("two pairs of runs with and without the regulariser")
    verdict, text = _parts(outcomes)
    return verdict, f"MAP with minus without, intervals of 95 % for all together (rule: {rule}): {text}"


def _mcr_bits(evidence: Evidence) -> Answer:
    outcomes = _mcr(evidence, {"": lambda s: (s.bit_correlation.get("learned") or {}).get("mean_abs")}, "lower")
    if not outcomes:
        return _nothing("two pairs of bit correlations with and without the regulariser")
    verdict, text = _parts(outcomes)
    what = "Mean absolute correlation between learned bits, with minus without, intervals of 95 % for all together"
    return verdict, f"{what}: {text}"


def _start(evidence: Evidence) -> Answer:
    rule, outcomes = evidence.rule("DMH"), []
    runs = select(evidence.scores, method="DMH", where=lambda s: list(s.varied) in ([], ["init_scale"]))
    lengths = {s.bits for s in runs if s.varied}
    for bits in sorted(lengths):
        for direction in DIRECTIONS:
            by_scale: dict[float, list[float | None]] = {}
            for s in select(runs, bits=bits):
                scale = s.varied.get("init_scale", s.parameters.get("init_scale"))
                if isinstance(scale, (int, float)):
                    by_scale.setdefault(float(scale), []).append(s.value(rule, direction, "MAP"))
            means = {x: found.mean for x in sorted(by_scale) if (found := summarise(by_scale[x]))}
            if len(means) > 1:
                listed = ", ".join(f"{mean:.4f} at {x:g}" for x, mean in means.items())
                little = max(means.values()) - min(means.values()) <= _LITTLE
                outcomes.append(
                    (little, f"{direction} at {bits} bits, MAP by the start's standard deviation: {listed}")
                )
    return _parts(outcomes) if outcomes else _nothing("several scales of the start")


_ASKED: dict[str, Callable[[Evidence], Answer]] = {
    "printed": _printed,
    "others": _others,
    "map-best": _map_best,
    "map-gain": _map_gain,
    "map-grows": _map_grows,
    "mdbe": _mdbe,
    "f1-best": _f1_best,
    "mcr-map": _mcr_map,
    "mcr-bits": _mcr_bits,
    "alpha": _alpha,
    "beta": _beta,
    "gamma": _gamma,
    "convergence": _convergence,
    "time": _time,
    "start": _start,
}


def ask_claims(evidence: Evidence) -> list[Claim]:
    """Ask every claim of the paper of one data set's scores.

    Parameters
    ----------
    evidence : Evidence

    Returns
    -------
    list of Claim
        A published claim for which there is no question here is "not tested".
    """
    paper = evidence.papers.get("DMH")
    claims = [(c["id"], c["text"], c["where"]) for c in (paper.claims if paper else [])]
    known = {key: (key, text, where) for key, text, where in (*FURTHER, *claims)}
    ordered = [known[key] for key in _ASKED if key in known] + [c for c in known.values() if c[0] not in _ASKED]
    found = []
    for key, text, where in ordered:
        verdict, numbers = _ASKED[key](evidence) if key in _ASKED else (UNTESTED, "No question is set for it.")
        found.append(Claim(key, text, where, verdict, numbers))
    return found
