"""Numbers against numbers: means over seeds, paired differences with an interval, and a printed cell's verdict.

No verdict is typed anywhere: each is computed here from what was measured and what was printed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .records import Score

__all__ = ["Cell", "Effect", "Printed", "Summary", "cell", "effect", "judge", "paired", "signed", "summarise"]

CONFIDENCE = 0.95
DIGITS = 4
"""Digits that the paper prints; a mean is rounded to them before it is judged, so that what is shown is judged."""


@dataclass(frozen=True)
class Summary:
    """Mean and sample standard deviation over seeds.

    Attributes
    ----------
    n : int
    mean : float
    sd : float
        NaN for a single value.
    """

    n: int
    mean: float
    sd: float

    def __str__(self) -> str:
        return f"{self.mean:.4f}" + ("" if math.isnan(self.sd) else f" ± {self.sd:.4f}")


def summarise(values: Iterable[float | None]) -> Summary | None:
    """Mean and standard deviation of what is there; None of nothing.

    Parameters
    ----------
    values : iterable of float or None

    Returns
    -------
    Summary or None

    Examples
    --------
    >>> print(summarise([0.7, None, 0.8]))
    0.7500 ± 0.0707
    """
    found = [v for v in values if v is not None]
    if not found:
        return None
    mean = math.fsum(found) / len(found)
    if len(found) == 1:
        return Summary(1, mean, math.nan)
    return Summary(len(found), mean, math.sqrt(math.fsum((v - mean) ** 2 for v in found) / (len(found) - 1)))


@dataclass(frozen=True)
class Effect:
    """A mean of paired differences with its 95 % confidence interval (Student's t, n - 1 degrees of freedom).

    Attributes
    ----------
    n : int
        Pairs.
    mean, low, high : float
        NaN bounds for fewer than two pairs.
    """

    n: int
    mean: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """In words: "higher", "lower", "no effect seen" (the interval covers 0), or that there are too few pairs."""
        if self.n < 2:
            return "one pair, no interval" if self.n else "no pairs"
        if self.low > 0:
            return "higher"
        return "lower" if self.high < 0 else "no effect seen"

    def __str__(self) -> str:
        if not self.n:
            return "–"
        interval = f" [{signed(self.low)}, {signed(self.high)}]" if self.n > 1 else ""
        return f"{signed(self.mean)}{interval}"


def signed(value: float, digits: int = DIGITS) -> str:
    """A number with its sign, and a plain zero where it rounds to zero.

    Parameters
    ----------
    value : float
    digits : int

    Returns
    -------
    str

    Examples
    --------
    >>> signed(0.5), signed(-0.5), signed(-0.00001)
    ('+0.5000', '−0.5000', '0.0000')
    """
    text = f"{abs(value):.{digits}f}"
    return text if float(text) == 0 else ("+" if value > 0 else "−") + text


def effect(differences: Sequence[float], of: int = 1) -> Effect:
    """The t interval of a mean.

    Parameters
    ----------
    differences : sequence of float
    of : int
        How many intervals are to hold together with the stated confidence (Bonferroni).

    Returns
    -------
    Effect

    Examples
    --------
    >>> found = effect([0.01, 0.02, 0.03])
    >>> f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}] {found.verdict}"
    '0.020 [-0.005, 0.045] no effect seen'
    """
    from scipy.special import stdtrit

    found = summarise(differences)
    if found is None:
        return Effect(0, math.nan, math.nan, math.nan)
    if found.n == 1:
        return Effect(1, found.mean, math.nan, math.nan)
    half = float(stdtrit(found.n - 1, 1 - (1 - CONFIDENCE) / (2 * of))) * found.sd / math.sqrt(found.n)
    return Effect(found.n, found.mean, found.mean - half, found.mean + half)


def paired(
    ours: Iterable[Score], reference: Iterable[Score], value: Callable[[Score], float | None], of: int = 1
) -> Effect:
    """Differences between runs of the same length, seed and split.

    Parameters
    ----------
    ours, reference : iterable of Score
    value : callable
        What is compared; runs without it are left out.
    of : int
        As in :func:`effect`.

    Returns
    -------
    Effect
        Of ours minus reference.
    """
    others = {(s.bits, s.seed, s.split_hash): value(s) for s in reference}
    differences = []
    for score in ours:
        mine, other = value(score), others.get((score.bits, score.seed, score.split_hash))
        if mine is not None and other is not None:
            differences.append(mine - other)
    return effect(differences, of)


@dataclass(frozen=True)
class Printed:
    """One number that a paper prints.

    Attributes
    ----------
    dataset, method, table, metric, rule, direction : str
    bits : int
    value : float
    tolerance : float
        How far a mean may be from it.
    judged : {"at least", "within"}
    """

    dataset: str
    method: str
    table: str
    metric: str
    rule: str
    direction: str
    bits: int
    value: float
    tolerance: float = 0.0
    judged: str = "within"


@dataclass(frozen=True)
class Cell:
    """One cell of a table: what was measured, what is printed, and the verdict.

    Attributes
    ----------
    method, rule, direction : str
        The method's name, or the label of a further setting.
    bits : int
    ours : Summary or None
    printed : Printed or None
    verdict : str
        "above" (at or above, where that is asked for), "within" (the tolerance), "below", "higher" (beyond the
        tolerance, where a number is to be met and not exceeded), or "" where one of the numbers is missing.
    """

    method: str
    rule: str
    direction: str
    bits: int
    ours: Summary | None
    printed: Printed | None
    verdict: str

    @property
    def difference(self) -> float | None:
        """Ours, rounded as printed, minus the printed number."""
        if self.ours is None or self.printed is None:
            return None
        return round(round(self.ours.mean, DIGITS) - self.printed.value, DIGITS + 2)

    @property
    def holds(self) -> bool:
        """Whether the verdict is in favour of the printed number."""
        return self.verdict in ("above", "within")


def judge(ours: Summary | None, printed: Printed | None) -> str:
    """Compare a mean with a printed number, the way its paper file asks for.

    Parameters
    ----------
    ours : Summary or None
    printed : Printed or None

    Returns
    -------
    str
        As :attr:`Cell.verdict`.

    Examples
    --------
    >>> number = Printed("d", "DMH", "Table", "MAP", "learned", "image>text", 16, 0.70, 0.01, "at least")
    >>> judge(summarise([0.71]), number), judge(summarise([0.695]), number)
    ('above', 'within')
    """
    if ours is None or printed is None:
        return ""
    difference = round(round(ours.mean, DIGITS) - printed.value, DIGITS + 2)
    if printed.judged == "at least" and difference >= 0:
        return "above"
    if abs(difference) <= printed.tolerance + 1e-12:
        return "within"
    return "higher" if difference > 0 else "below"


def cell(runs: Iterable[Score], printed: Printed | None, *, rule: str, direction: str, metric: str = "MAP") -> Cell:
    """The cell of some runs of one method and length.

    Parameters
    ----------
    runs : iterable of Score
    printed : Printed or None
    rule, direction, metric : str

    Returns
    -------
    Cell
    """
    found = list(runs)
    ours = summarise(s.value(rule, direction, metric) for s in found)
    method, bits = (found[0].method, found[0].bits) if found else (printed.method, printed.bits) if printed else ("", 0)
    return Cell(method, rule, direction, bits, ours, printed, judge(ours, printed))
