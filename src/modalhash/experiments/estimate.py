"""How long runs take: a table of costs, corrected by what has been measured."""

from __future__ import annotations

from collections import defaultdict

from .plan import Run

__all__ = ["Estimate", "cost"]

_ROWS = 19_014  # MIRFlickr's training rows, on which the table was measured


def cost(run: Run, n_rows: int) -> float:
    """Roughly the seconds of a fit on two cores; only the ratios matter once something was measured.

    Parameters
    ----------
    run : Run
    n_rows : int
        Training rows.

    Returns
    -------
    float

    Examples
    --------
    >>> from modalhash.experiments import make_plan
    >>> by_method = {run.method: run for run in make_plan("mirflickr", studies=["table-time"], seeds=1)}
    >>> cost(by_method["SePH"], 19_014) > 3 * cost(by_method["DMH"], 19_014)
    True
    """
    given, share = run.parameters, n_rows / _ROWS
    if run.method == "DMH":
        return 0.1 + share * float(given["n_iter"] or 400) / 400 * (8 + 0.2 * run.bits)
    if run.method == "CMSSH":
        return 0.8 * run.bits * float(given["n_pairs"]) / 100_000
    if run.method == "SePH":
        rows = min(n_rows, given["train_size"] or n_rows)
        return 0.5 + (70 + 0.5 * run.bits) * (rows / 10_000) ** 2
    if run.method in ("MultiViewLinear", "MultiViewITQ"):
        return 0.1 + share * (2 + 0.1 * run.bits)
    return 0.2 + share * (1 + 0.02 * run.bits)


class Estimate:
    """The time that is left.

    Parameters
    ----------
    costs : dict of int to tuple of (str, float)
        Of every run that is open: its method, and its cost in seconds of the whole machine.

    Examples
    --------
    >>> left = Estimate({0: ("DMH", 10.0), 1: ("DMH", 10.0), 2: ("CVH", 5.0)})
    >>> left.finish(0, 20.0)
    >>> left.seconds()
    30.0
    """

    def __init__(self, costs: dict[int, tuple[str, float]]) -> None:
        self._open = dict(costs)
        self._spent: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])

    def finish(self, place: int, seconds: float) -> None:
        """Take note that a run took so many seconds of the whole machine."""
        method, expected = self._open.pop(place)
        for name in (method, ""):
            self._spent[name][0] += seconds
            self._spent[name][1] += expected

    def drop(self, place: int) -> None:
        """Leave a run out that could not be made."""
        self._open.pop(place)

    def _ratio(self, method: str) -> float:
        seconds, expected = self._spent.get(method) or self._spent.get("") or (1.0, 1.0)
        return seconds / expected if expected else 1.0

    def seconds(self) -> float:
        """Seconds left, by the costs of what is open and the ratio measured so far for each method."""
        return sum(expected * self._ratio(method) for method, expected in self._open.values())
