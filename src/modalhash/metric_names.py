"""The names of metrics: a name carries every parameter that can change the number.

``MAP[ties=id]@100[denominator=retrieved]`` and ``MAP[ties=expected]`` are different metrics, so they have different
names; a table cannot mix them up, and a printed name can be handed back to :func:`modalhash.evaluate`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .exceptions import InputError

__all__ = ["CURVES", "DENOMINATORS", "GAINS", "TIES", "Metric", "expand_metrics", "parse_metric"]

TIES = {
    "expected": "the mean over all orders of tied items (closed form)",
    "id": "tied items in the database's own order",
    "best": "relevant items first among tied ones: an upper bound",
    "worst": "relevant items last among tied ones: a lower bound",
}
"""What to do with items at the same distance."""
DENOMINATORS = {
    "min(k, relevant)": "divided by the hits that k places can hold: 1 is reachable, and more hits never lower it",
    "retrieved": "divided by the hits among the first k: one early hit gives 1 however many are missed",
    "relevant": "divided by all relevant items (trec_eval): at most k / relevant",
}
"""The three readings of MAP@k."""
GAINS = {"exponential": "2^grade - 1", "linear": "the grade itself"}
"""What an item with so many shared labels is worth in NDCG."""
CURVES = ("PR11", "PR")
"""Families whose value is a curve."""

_RANKED = ("MAP", "P", "R", "NDCG", "PR11")
_NAME = re.compile(
    r"^(?P<family>map|ndcg|f1|pr11|pr|p|r)(?:\[ties=(?P<ties>[a-z]+)\])?"
    r"(?:@(?P<ball>r(?P<radius>\d+)?)|@k(?P<any_k>)|@(?P<k>\d+))?"
    r"(?:\[(?:denominator=(?P<denominator>[^\]]+)|gain=(?P<gain>[a-z]+))\])?$"
)


@dataclass(frozen=True)
class Metric:
    """One metric with all of its parameters; those that do not apply are None.

    Attributes
    ----------
    family : str
        "MAP", "P" (precision), "R" (recall), "NDCG", "F1", "PR11" (11-point curve) or "PR" (curve over radii).
    ties : str or None
        One of :data:`TIES`.
    k : int or None
        Only the first k of the ranking; None for all of it.
    radius : int or None
        Items within this Hamming distance, in place of a ranking.
    denominator : str or None
        For MAP@k, one of :data:`DENOMINATORS`.
    gain : str or None
        For NDCG, one of :data:`GAINS`.

    Examples
    --------
    >>> Metric("MAP", ties="id", k=100, denominator="retrieved").name
    'MAP[ties=id]@100[denominator=retrieved]'
    >>> Metric("F1", radius=2).name
    'F1@r2'
    """

    family: str
    ties: str | None = None
    k: int | None = None
    radius: int | None = None
    denominator: str | None = None
    gain: str | None = None

    @property
    def name(self) -> str:
        """The name that tells this metric from every other."""
        if self.family == "PR":
            return "PR@r"
        ties = f"[ties={self.ties}]" if self.ties else ""
        place = f"@r{self.radius}" if self.radius is not None else f"@{self.k}" if self.k is not None else ""
        denominator = f"[denominator={self.denominator}]" if self.denominator else ""
        gain = f"[gain={self.gain}]" if self.gain else ""
        return f"{self.family}{ties}{place}{denominator}{gain}"

    def __str__(self) -> str:
        return self.name

    @property
    def is_curve(self) -> bool:
        """Whether the value is a curve, not a number."""
        return self.family in CURVES


def _bad(text: Any) -> InputError:
    return InputError(
        f"metric {text!r} is not known. Use MAP, MAP@k, P@k, R@k, NDCG@k, P@r, R@r, F1@r, PR11, PR@r, or a full name "
        "such as 'MAP[ties=id]@100[denominator=retrieved]'."
    )


def parse_metric(text: str) -> tuple[Metric, bool]:
    """Read a metric's name, whole or with parts left open.

    Parameters
    ----------
    text : str
        Such as "MAP", "MAP@k", "P@100", "F1@r", "F1@r2" or any :attr:`Metric.name`; capitals do not matter.

    Returns
    -------
    tuple of Metric and bool
        The parts that the name states, and whether it leaves the cut-off (``@k`` or ``@r``) open.

    Examples
    --------
    >>> parse_metric("P[ties=id]@10")
    (Metric(family='P', ties='id', k=10, radius=None, denominator=None, gain=None), False)
    >>> parse_metric("F1@r")[1]
    True
    """
    match = _NAME.match(text.strip().lower()) if isinstance(text, str) else None
    if match is None:
        raise _bad(text)
    part = match.groupdict()
    family, ball = part["family"].upper(), part["ball"] is not None
    ranked = part["k"] is not None or part["any_k"] is not None
    # A ball has no order, hence no ties; P and R need a cut-off of one kind; only MAP@k has a denominator.
    wrong = (
        (ball and (family not in ("P", "R", "F1", "PR") or part["ties"]))
        or (family in ("P", "R") and not (ball or ranked))
        or (family in ("F1", "PR") and not ball)
        or (family in ("PR11", "F1", "PR") and ranked)
        or (family == "PR" and part["radius"])
        or (part["denominator"] and not (family == "MAP" and ranked))
        or (part["gain"] and family != "NDCG")
        or (part["k"] is not None and int(part["k"]) < 1)
    )
    for key, known in (("ties", TIES), ("denominator", DENOMINATORS), ("gain", GAINS)):
        wrong = wrong or (part[key] is not None and part[key] not in known)
    if wrong:
        raise _bad(text)
    metric = Metric(
        family,
        ties=part["ties"],
        k=int(part["k"]) if part["k"] is not None else None,
        radius=int(part["radius"]) if part["radius"] is not None else None,
        denominator=part["denominator"],
        gain=part["gain"],
    )
    open_cut = part["any_k"] is not None or (ball and part["radius"] is None and family != "PR")
    return metric, open_cut


def _several(value: Any) -> list[Any]:
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]


def _choices(value: Any, known: dict[str, str], name: str) -> list[str]:
    values = _several(value)
    if not values or any(not isinstance(v, str) or v not in known for v in values):
        raise InputError(f"{name} must be one or several of {', '.join(map(repr, known))}; got {value!r}.")
    return values


def _whole(value: Any, name: str, least: int) -> list[int]:
    values = _several(value)
    bad = [v for v in values if isinstance(v, bool) or not isinstance(v, (int, np.integer)) or v < least]
    if bad or not values:
        raise InputError(f"{name} must be one or several whole numbers of at least {least}; got {value!r}.")
    return [int(v) for v in values]


def expand_metrics(
    metrics: str | Sequence[str],
    *,
    k: int | Sequence[int],
    radius: int | Sequence[int],
    ties: str | Sequence[str],
    denominator: str | Sequence[str],
    gain: str | Sequence[str],
) -> list[Metric]:
    """Fill the open parts of metric names: one metric for each combination, in order, without repeats.

    Parameters
    ----------
    metrics : str or sequence of str
        See :func:`parse_metric`.
    k, radius : int or sequence of int
        For names that end in ``@k`` and ``@r``.
    ties, denominator, gain : str or sequence of str
        For names that do not state theirs.

    Returns
    -------
    list of Metric

    Examples
    --------
    >>> options = dict(k=10, radius=2, ties=("expected", "id"), denominator="retrieved", gain="linear")
    >>> [metric.name for metric in expand_metrics(["MAP", "P[ties=id]@k", "F1@r"], **options)]
    ['MAP[ties=expected]', 'MAP[ties=id]', 'P[ties=id]@10', 'F1@r2']
    """
    cuts, radii = _whole(k, "k", 1), _whole(radius, "radius", 0)
    policies, gains = _choices(ties, TIES, "ties"), _choices(gain, GAINS, "gain")
    denominators = _choices(denominator, DENOMINATORS, "denominator")
    names = _several(metrics)
    if not names:
        raise InputError("metrics is empty; name at least one, such as 'MAP'.")
    out: dict[Metric, None] = {}
    for text in names:
        stated, open_cut = parse_metric(text)
        ball = "@r" in text.lower()
        filled = [stated]
        if open_cut:
            filled = [replace(stated, radius=r) for r in radii] if ball else [replace(stated, k=c) for c in cuts]
        if stated.family in _RANKED and not ball and stated.ties is None:
            filled = [replace(metric, ties=policy) for metric in filled for policy in policies]
        if stated.family == "MAP" and stated.denominator is None:
            filled = [
                replace(metric, denominator=d)
                for metric in filled
                for d in (denominators if metric.k is not None else [None])
            ]
        if stated.family == "NDCG" and stated.gain is None:
            filled = [replace(metric, gain=g) for metric in filled for g in gains]
        out.update(dict.fromkeys(filled))
    return list(out)
