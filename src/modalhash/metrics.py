"""Retrieval metrics as pure functions of counts, ties done right.

A Hamming ranking is a list of groups: all items at distance 0, then all at distance 1, and so on. Within a group the
codes give no order. Every function here takes, for each query (row) and group (column, best first), how many items
the group holds (`total`) and how many of them are relevant (`relevant`), and returns the expected value over all
orders of tied items in closed form. A ranking without ties is the special case of groups of one item, for which the
values are the textbook ones.

For a group of m items, r of them relevant, with N items and R relevant ones before it, place i of the group holds a
relevant item with probability r / m, and then (r - 1)(i - 1) / (m - 1) relevant ones of the group are expected before
it. Summing the precision over places gives (McSherry & Najork, "Computing information retrieval performance measures
efficiently in the presence of tied scores", ECIR 2008, state the same for average precision and NDCG)::

    r/m * [ (R + 1) A + (r - 1)/(m - 1) * (t - (N + 1) A) ],    A = 1/(N+1) + ... + 1/(N+t)

for the first t places. A query without any relevant item has no average precision: its value is NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .exceptions import InputError
from .metric_names import DENOMINATORS, GAINS

__all__ = [
    "average_precision",
    "discounted_gain",
    "grade_gains",
    "interpolated_precision",
    "precision_at",
    "recall_at",
    "split_ties",
    "within_radius",
]

Floats = NDArray[np.float64]

_HEAD = 32
_HARMONIC = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, _HEAD + 1))])


def _harmonic_tail(x: Floats) -> Floats:
    # H(n) - log(n + 1/2) - Euler's constant, x = n + 1/2 >= 32.5: below 1e-16 after four terms.
    y = 1.0 / (x * x)
    return y * (1 / 24 - y * (7 / 960 - y * (31 / 8064 - y * (127 / 30720))))


def _reciprocal_sum(start: Floats, count: Floats) -> Floats:
    # 1/(start+1) + ... + 1/(start+count), to full relative precision for any size.
    stop = start + count
    low, high = np.minimum(start, _HEAD).astype(np.intp), np.minimum(stop, _HEAD).astype(np.intp)
    a, b = np.maximum(start, _HEAD) + 0.5, np.maximum(stop, _HEAD) + 0.5
    out: Floats = _HARMONIC[high] - _HARMONIC[low] + np.log1p((b - a) / a) + _harmonic_tail(b) - _harmonic_tail(a)
    return out


def _counts(total: Any, relevant: Any, n_relevant: Any) -> tuple[Floats, Floats, Floats]:
    m, r = np.asarray(total, dtype=np.float64), np.asarray(relevant, dtype=np.float64)
    if m.ndim != 2 or m.shape != r.shape:
        raise InputError(
            f"total and relevant must be matrices (queries, groups) of one shape; got {m.shape} and {r.shape}."
        )
    if (r < 0).any() or (r > m).any():
        raise InputError("each group needs 0 <= relevant <= total.")
    known = r.sum(axis=1) if n_relevant is None else np.asarray(n_relevant, dtype=np.float64)
    if known.shape != m.shape[:1] or (known < r.sum(axis=1)).any():
        raise InputError("n_relevant must hold one number per query, at least the relevant items in its groups.")
    return m, r, known


def _before(x: Floats) -> Floats:
    return np.cumsum(x, axis=1) - x


def _cut(k: int | None, m: Floats, before: Floats) -> Floats:
    # How many places of each group lie within the first k.
    if k is None:
        return m
    if k < 1:
        raise InputError(f"k must be at least 1; got {k!r}.")
    return np.clip(k - before, 0, m)


def _precision_sums(t: Floats, m: Floats, r: Floats, N: Floats, R: Floats) -> Floats:
    # The formula of the module's docstring; r relevant among m places, of which the first t count.
    A = _reciprocal_sum(N, t)
    chance = np.divide(r, m, out=np.zeros_like(m), where=m > 0)
    slope = np.divide(r - 1, m - 1, out=np.zeros_like(m), where=m > 1)
    return chance * ((R + 1) * A + slope * (t - (N + 1) * A))


def average_precision(
    total: Any,
    relevant: Any,
    *,
    n_relevant: Any = None,
    k: int | None = None,
    denominator: str = "min(k, relevant)",
) -> Floats:
    """Average precision of each query, expected over the orders of tied items.

    Parameters
    ----------
    total : array of shape (n_queries, n_groups)
        Items per group, best group first.
    relevant : array of shape (n_queries, n_groups)
        How many of them are relevant.
    n_relevant : array of shape (n_queries,), optional
        Relevant items in the whole database, where the groups do not reach its end.
    k : int, optional
        Only the first k places count (AP@k); all of them without it.
    denominator : {"min(k, relevant)", "retrieved", "relevant"}
        What the sum of precisions is divided by when `k` is given. The default can reach 1 and never falls when a
        further relevant item is found. "retrieved" with no hit among the first k gives 0.

    Returns
    -------
    ndarray of float64, shape (n_queries,)
        NaN for a query without any relevant item.

    Examples
    --------
    Hits at ranks 1 and 3, no ties: (1/1 + 2/3) / 2.

    >>> average_precision([[1, 1, 1]], [[1, 0, 1]]).round(4).tolist()
    [0.8333]

    Two items tied in front, one of them relevant: it is first or second with equal chance, (1/1 + 1/2) / 2.

    >>> average_precision([[2]], [[1]]).tolist()
    [0.75]
    """
    if denominator not in DENOMINATORS:
        raise InputError(f"denominator must be one of {', '.join(map(repr, DENOMINATORS))}; got {denominator!r}.")
    m, r, known = _counts(total, relevant, n_relevant)
    N, R = _before(m), _before(r)
    t = _cut(k, m, N)
    sums = _precision_sums(t, m, r, N, R)
    if k is not None and denominator == "retrieved":
        found = _over_retrieved(sums, t, m, r, N, R)
    else:
        limit = known if k is None or denominator == "relevant" else np.minimum(known, k)
        found = sums.sum(axis=1) / np.maximum(limit, 1)
    return np.where(known > 0, found, np.nan)


def _over_retrieved(sums: Floats, t: Floats, m: Floats, r: Floats, N: Floats, R: Floats) -> Floats:
    # Only the group cut by k makes the number of hits a random one: hypergeometric, h of its t places.
    split = (t > 0) & (t < m) & (r > 0)
    whole, hits = np.where(split, 0, sums).sum(axis=1), np.where(t < m, 0, r).sum(axis=1)
    out: Floats = np.divide(whole, hits, out=np.zeros_like(whole), where=hits > 0)
    for i, g in np.argwhere(split):
        places, size, good = t[i, g], m[i, g], r[i, g]
        h = np.arange(max(0.0, places - (size - good)), min(places, good) + 1)
        # log of P(h + 1) / P(h), summed up: no factorial is formed.
        ratio = (good - h[:-1]) * (places - h[:-1]) / (h[1:] * (size - good - places + h[1:]))
        log_chance = np.concatenate([[0.0], np.cumsum(np.log(ratio))])
        chance = np.exp(log_chance - log_chance.max())
        inside = _precision_sums(places + 0 * h, places + 0 * h, h, N[i, g] + 0 * h, R[i, g] + 0 * h)
        value = np.divide(whole[i] + inside, hits[i] + h, out=np.zeros_like(h), where=hits[i] + h > 0)
        out[i] = chance @ value / chance.sum()
    return out


def _hits(total: Any, relevant: Any, n_relevant: Any, k: int) -> tuple[Floats, Floats]:
    m, r, known = _counts(total, relevant, n_relevant)
    t = _cut(k, m, _before(m))
    return np.divide(t * r, m, out=np.zeros_like(m), where=m > 0).sum(axis=1), known


def precision_at(total: Any, relevant: Any, *, k: int, n_relevant: Any = None) -> Floats:
    """Share of relevant items among the first k, expected over the orders of tied items.

    Parameters
    ----------
    total, relevant : array of shape (n_queries, n_groups)
        As in :func:`average_precision`.
    k : int
        Also the divisor.
    n_relevant : array of shape (n_queries,), optional
        As in :func:`average_precision`.

    Returns
    -------
    ndarray of float64, shape (n_queries,)
        NaN for a query without any relevant item.

    Examples
    --------
    Three tied items, one relevant: two places hold 2/3 of a hit.

    >>> precision_at([[3]], [[1]], k=2).round(4).tolist()
    [0.3333]
    """
    hits, known = _hits(total, relevant, n_relevant, k)
    return np.where(known > 0, hits / k, np.nan)


def recall_at(total: Any, relevant: Any, *, k: int, n_relevant: Any = None) -> Floats:
    """Share of the relevant items that lie among the first k, expected over the orders of tied items.

    Parameters
    ----------
    total, relevant : array of shape (n_queries, n_groups)
        As in :func:`average_precision`.
    k : int
    n_relevant : array of shape (n_queries,), optional
        As in :func:`average_precision`.

    Returns
    -------
    ndarray of float64, shape (n_queries,)
        NaN for a query without any relevant item.

    Examples
    --------
    >>> recall_at([[1, 1, 1]], [[1, 0, 1]], k=2).tolist()
    [0.5]
    """
    hits, known = _hits(total, relevant, n_relevant, k)
    return np.where(known > 0, hits / np.maximum(known, 1), np.nan)


def within_radius(total: Any, relevant: Any, *, n_relevant: Any = None) -> tuple[Floats, Floats, Floats]:
    """Precision, recall and F1 of the ball of every radius at once.

    Parameters
    ----------
    total, relevant : array of shape (n_queries, n_bits + 1)
        Items (relevant items) at distance 0, 1, ..., n_bits.
    n_relevant : array of shape (n_queries,), optional
        As in :func:`average_precision`.

    Returns
    -------
    tuple of three ndarray of float64, shape (n_queries, n_bits + 1)
        Precision, recall and F1 within radius 0, 1, ... An empty ball has precision 0 and F1 0. NaN for a query
        without any relevant item.

    Examples
    --------
    An empty ball of radius 0, then 1 of 2 found with 2 items returned.

    >>> precision, recall, f1 = within_radius([[0, 2, 2]], [[0, 1, 1]])
    >>> precision.tolist(), recall.tolist(), f1.tolist()
    ([[0.0, 0.5, 0.5]], [[0.0, 0.5, 1.0]], [[0.0, 0.5, 0.6666666666666666]])
    """
    m, r, known = _counts(total, relevant, n_relevant)
    returned, hits, known = np.cumsum(m, axis=1), np.cumsum(r, axis=1), known[:, None]
    precision = np.divide(hits, returned, out=np.zeros_like(hits), where=returned > 0)
    recall = hits / np.maximum(known, 1)
    f1 = 2 * hits / np.maximum(returned + known, 1)  # = 2 P R / (P + R), and 0 without a hit
    return tuple(np.where(known > 0, x, np.nan) for x in (precision, recall, f1))  # type: ignore[return-value]


def interpolated_precision(total: Any, relevant: Any, *, n_relevant: Any = None, points: int = 11) -> Floats:
    """Interpolated precision: the best precision at any rank that reaches a recall.

    Precision and recall along the ranking are those of the expected number of hits at each rank.

    Parameters
    ----------
    total, relevant : array of shape (n_queries, n_groups)
        As in :func:`average_precision`.
    n_relevant : array of shape (n_queries,), optional
        As in :func:`average_precision`.
    points : int
        Recalls 0, 1 / (points - 1), ..., 1.

    Returns
    -------
    ndarray of float64, shape (n_queries, points)
        NaN for a query without any relevant item; 0 at a recall that the groups do not reach.

    Examples
    --------
    Hits at ranks 1 and 3: up to recall 0.5 precision 1, beyond it 2/3.

    >>> interpolated_precision([[1, 1, 1]], [[1, 0, 1]], points=3).round(4).tolist()
    [[1.0, 1.0, 0.6667]]
    """
    if points < 2:
        raise InputError(f"points must be at least 2; got {points!r}.")
    m, r, known = _counts(total, relevant, n_relevant)
    N, R, steps = _before(m), _before(r), points - 1
    at_end = np.divide(R + r, N + m, out=np.zeros_like(m), where=N + m > 0)
    # Within a group precision rises or falls throughout, so its best lies where the recall is reached, or at an end.
    later = np.maximum.accumulate(at_end[:, ::-1], axis=1)[:, ::-1]
    out = np.empty((m.shape[0], points))
    out[:, 0] = later[:, 0] if m.shape[1] else 0
    for level in range(1, points):
        need = level * known[:, None]
        reached = steps * (R + r) >= need
        g = np.argmax(reached, axis=1)[:, None]
        size, good, gap = (np.take_along_axis(x, g, axis=1) for x in (m, r, need - steps * R))
        place = np.ceil(gap * size / np.maximum(steps * good, 1))
        hits = np.take_along_axis(R, g, axis=1) + place * good / np.maximum(size, 1)
        here = hits / np.maximum(np.take_along_axis(N, g, axis=1) + place, 1)
        best = np.maximum(here, np.take_along_axis(later, g, axis=1))[:, 0]
        out[:, level] = np.where(reached.any(axis=1), best, 0)
    return np.where(known[:, None] > 0, out, np.nan)


def grade_gains(n_grades: int, gain: str = "exponential") -> Floats:
    """Return what an item of grade 0, 1, ... is worth in NDCG.

    Parameters
    ----------
    n_grades : int
    gain : {"exponential", "linear"}
        ``2^grade - 1``, or the grade (the number of shared labels) itself.

    Returns
    -------
    ndarray of float64, shape (n_grades,)

    Examples
    --------
    >>> grade_gains(4).tolist()
    [0.0, 1.0, 3.0, 7.0]
    """
    if gain not in GAINS:
        raise InputError(f"gain must be one of {', '.join(map(repr, GAINS))}; got {gain!r}.")
    grades = np.arange(n_grades, dtype=np.float64)
    return np.exp2(grades) - 1 if gain == "exponential" else grades


def discounted_gain(total: Any, gain: Any, *, k: int | None = None) -> Floats:
    """Discounted cumulative gain (place p counts 1 / log2(p + 1)), expected over the orders of tied items.

    NDCG is this divided by the same for the ideal ranking, whose groups are the grades, highest first.

    Parameters
    ----------
    total : array of shape (n_queries, n_groups)
        Items per group, best group first.
    gain : array of shape (n_queries, n_groups)
        Sum of the gains of a group's items.
    k : int, optional
        Only the first k places count.

    Returns
    -------
    ndarray of float64, shape (n_queries,)

    Examples
    --------
    Gains 3, then 1: 3 / log2(2) + 1 / log2(3).

    >>> discounted_gain([[1, 1]], [[3, 1]]).round(4).tolist()
    [3.6309]
    """
    m, gains = np.asarray(total, dtype=np.int64), np.asarray(gain, dtype=np.float64)
    if m.ndim != 2 or m.shape != gains.shape:
        raise InputError(f"total and gain must be matrices of one shape; got {m.shape} and {gains.shape}.")
    if k is not None and k < 1:
        raise InputError(f"k must be at least 1; got {k!r}.")
    stop = np.cumsum(m, axis=1)
    depth = int(stop.max(initial=0)) if k is None else min(k, int(stop.max(initial=0)))
    discount = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(2, depth + 2)))])
    share = discount[np.minimum(stop, depth)] - discount[np.minimum(stop - m, depth)]
    out: Floats = (np.divide(gains, m, out=np.zeros_like(gains), where=m > 0) * share).sum(axis=1)
    return out


def split_ties(counts: Any, order: str) -> NDArray[np.int64]:
    """Split groups of tied items by grade, for the best or the worst order that ties allow.

    Parameters
    ----------
    counts : array of shape (n_queries, n_groups, n_grades)
        Items per group and grade.
    order : {"best", "worst"}
        Highest or lowest grade first within each group.

    Returns
    -------
    ndarray of int64, shape (n_queries, n_groups * n_grades, n_grades)
        Groups that hold one grade each.

    Examples
    --------
    >>> split_ties([[[2, 1]]], "best").tolist()
    [[[0, 1], [2, 0]]]
    """
    if order not in ("best", "worst"):
        raise InputError(f"order must be 'best' or 'worst'; got {order!r}.")
    cube = np.asarray(counts, dtype=np.int64)
    if cube.ndim != 3:
        raise InputError(f"counts must have the shape (queries, groups, grades); got {cube.shape}.")
    each = cube[:, :, :, None] * np.eye(cube.shape[2], dtype=np.int64)
    if order == "best":
        each = each[:, :, ::-1]
    return each.reshape(cube.shape[0], -1, cube.shape[2])
