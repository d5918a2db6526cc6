"""Measure retrieval by Hamming distance: from packed codes and labels to a :class:`~modalhash.results.Report`.

All metrics come from two passes over the pairs of query and database item, neither of which sorts: a histogram over
distance and number of shared labels per query, and, where ties are to be taken in the database's order, a walk that
knows each item's rank from that histogram. See ``docs/protocol.md`` for what each metric means.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .codes import Codes, as_words, check_codes
from .diagnostics import bit_diagnostics
from .exceptions import InputError
from .labels import check_label_pair
from .linalg import is_torch, to_device, to_numpy, torch_device
from .metric_names import TIES, Metric, expand_metrics
from .metrics import (
    average_precision,
    discounted_gain,
    grade_gains,
    interpolated_precision,
    precision_at,
    recall_at,
    split_ties,
    within_radius,
)
from .results import Report
from .similarity import label_words

__all__ = ["DEFAULT_METRICS", "distance_counts", "evaluate"]

DEFAULT_METRICS = ("MAP", "MAP@k", "P@k", "R@k", "NDCG@k", "P@r", "R@r", "F1@r", "PR11", "PR@r")
"""What :func:`evaluate` measures unless told otherwise."""

_RECALL_STEPS = 10

Floats = NDArray[np.float64]


class _Backend(Protocol):
    n_bits: int
    cap: int

    def count(self, rows: slice) -> NDArray[np.int64]: ...

    def walk(
        self, rows: slice, counts: NDArray[np.int64], *, k: int, whole: bool, steps: int
    ) -> tuple[Floats, NDArray[np.uint16], Floats]: ...


@dataclass(frozen=True)
class _Inputs:
    """Checked codes (host copies) and bit-packed labels of queries and database."""

    query: Codes
    database: Codes
    query_labels: NDArray[np.uint64]
    database_labels: NDArray[np.uint64]
    device: Any
    tensors: tuple[Any, Any]

    @property
    def most_shared(self) -> int:
        """Bound on how many labels a query and an item can share; at least 1."""
        most = [int(np.bitwise_count(x).sum(axis=1).max()) for x in (self.query_labels, self.database_labels)]
        return max(1, min(most))


def _check_inputs(
    query_codes: Any, database_codes: Any, query_labels: Any, database_labels: Any, n_bits: int, device: Any
) -> _Inputs:
    query = check_codes(to_numpy(query_codes), n_bits, "query_codes")
    database = check_codes(to_numpy(database_codes), n_bits, "database_codes")
    for name, codes in (("query_codes", query), ("database_codes", database)):
        if codes.shape[0] == 0:
            raise InputError(f"{name} are empty; pass at least one code.")
    q, d = check_label_pair(query_labels, database_labels)
    for name, matrix, codes in (("query", q.matrix, query), ("database", d.matrix, database)):
        if matrix.shape[0] != codes.shape[0]:
            raise InputError(
                f"{name}_labels have {matrix.shape[0]} rows and {name}_codes {codes.shape[0]}; "
                "pass one row of labels per code."
            )
    if device is not None:
        device = torch_device(device)
    else:
        places = {x.device for x in (query_codes, database_codes) if is_torch(x)}
        if len(places) > 1:
            raise InputError(
                f"query and database codes are on different devices ({', '.join(sorted(map(str, places)))}); "
                "put both on one, or say which with device=."
            )
        device = next(iter(places), None)
    tensors = (query_codes, database_codes)
    return _Inputs(query, database, label_words(q.matrix), label_words(d.matrix), device, tensors)


def _threads(threads: int | None) -> int:
    if threads is None:
        affinity = getattr(os, "sched_getaffinity", None)
        return len(affinity(0)) if affinity else os.cpu_count() or 1
    if isinstance(threads, bool) or not isinstance(threads, (int, np.integer)) or threads < 1:
        raise InputError(f"threads must be a whole number of at least 1; got {threads!r}.")
    return int(threads)


def _backend(inputs: _Inputs, n_bits: int, cap: int, threads: int | None, block_bytes: int) -> _Backend:
    if inputs.device is None:
        from ._popcount import PopcountBackend

        return PopcountBackend(
            as_words(inputs.query),
            as_words(inputs.database),
            inputs.query_labels,
            inputs.database_labels,
            n_bits=n_bits,
            cap=cap,
            threads=_threads(threads),
        )
    from ._popcount_torch import TorchBackend

    codes = [
        to_device(tensor if is_torch(tensor) else host, inputs.device)
        for tensor, host in zip(inputs.tensors, (inputs.query, inputs.database), strict=True)
    ]
    labels = [
        to_device(words.astype("<u8").view(np.uint8), inputs.device)
        for words in (inputs.query_labels, inputs.database_labels)
    ]
    return TorchBackend(*codes, *labels, n_bits=n_bits, cap=cap, block_bytes=block_bytes)


def distance_counts(
    query_codes: Any,
    database_codes: Any,
    *,
    query_labels: Any,
    database_labels: Any,
    n_bits: int,
    graded: bool = False,
    threads: int | None = None,
    device: Any = None,
) -> NDArray[np.int64]:
    """Count the database items at each Hamming distance from each query, by relevance.

    Every metric of :mod:`modalhash.metrics` is a function of these counts.

    Parameters
    ----------
    query_codes, database_codes, query_labels, database_labels, n_bits, threads, device
        As in :func:`evaluate`.
    graded : bool
        Count by the number of shared labels, in place of relevant or not.

    Returns
    -------
    ndarray of int64, shape (n_queries, n_bits + 1, n_grades)
        ``[i, d, g]``: items at distance d from query i with grade g; two grades (0 not relevant, 1 relevant) unless
        `graded`.

    Examples
    --------
    >>> from modalhash.codes import pack
    >>> codes = pack([[0, 0], [0, 1], [1, 1], [1, 1]])
    >>> counts = distance_counts(codes[:1], codes[1:], query_labels=[1], database_labels=[1, 0, 1], n_bits=2)
    >>> counts.tolist()
    [[[0, 0], [0, 1], [1, 1]]]
    """
    inputs = _check_inputs(query_codes, database_codes, query_labels, database_labels, n_bits, device)
    cap = inputs.most_shared if graded else 1
    backend = _backend(inputs, n_bits, cap, threads, 1 << 28)
    return backend.count(slice(0, inputs.query.shape[0]))


@dataclass
class _Block:
    """A block of queries: counts, and what metrics share."""

    backend: _Backend
    rows: slice
    counts: NDArray[np.int64]
    head: int
    whole: bool
    steps: int

    @cached_property
    def n_relevant(self) -> NDArray[np.int64]:
        out: NDArray[np.int64] = self.counts[:, :, 1:].sum(axis=(1, 2))
        return out

    @cached_property
    def walked(self) -> tuple[Floats, NDArray[np.uint16], Floats]:
        return self.backend.walk(self.rows, self.counts, k=self.head, whole=self.whole, steps=self.steps)

    @cached_property
    def balls(self) -> tuple[Floats, Floats, Floats]:
        return within_radius(self.counts.sum(axis=2), self.counts[:, :, 1:].sum(axis=2))

    @cached_property
    def _groups(self) -> dict[str, NDArray[np.int64]]:
        return {"expected": self.counts}

    def groups(self, ties: str) -> NDArray[np.int64]:
        if ties not in self._groups:
            self._groups[ties] = split_ties(self.counts, ties)
        return self._groups[ties]

    def measure(self, metric: Metric) -> Floats:
        """Values of one metric for the block's queries: (queries,), or (queries, 11) for PR11."""
        if metric.radius is not None:
            ball = self.balls[("P", "R", "F1").index(metric.family)]
            out: Floats = ball[:, min(metric.radius, self.backend.n_bits)]
            return out
        known, k = self.n_relevant, metric.k
        if metric.ties == "id":
            if metric.family == "MAP" and k is None:
                return np.where(known > 0, self.walked[0] / np.maximum(known, 1), np.nan)
            if metric.family == "PR11":
                best = np.maximum.accumulate(self.walked[2][:, ::-1], axis=1)[:, ::-1]
                return np.where(known[:, None] > 0, best, np.nan)
            head = self.walked[1][:, :k]
            total, relevant = np.ones(head.shape, dtype=np.int64), head > 0
        else:
            groups = self.groups(str(metric.ties))
            total, relevant = groups.sum(axis=2), groups[:, :, 1:].sum(axis=2)
        if metric.family == "MAP":
            return average_precision(
                total, relevant, n_relevant=known, k=k, denominator=metric.denominator or "relevant"
            )
        if metric.family == "PR11":
            return interpolated_precision(total, relevant, points=_RECALL_STEPS + 1)
        if metric.family == "NDCG":
            gains = grade_gains(self.counts.shape[2], str(metric.gain))
            gained = discounted_gain(total, gains[head] if metric.ties == "id" else groups @ gains, k=k)
            grades = self.counts.sum(axis=1)[:, ::-1]
            ideal = discounted_gain(grades, grades * gains[::-1], k=k)
            return np.divide(gained, ideal, out=np.full_like(ideal, np.nan), where=ideal > 0)
        at = precision_at if metric.family == "P" else recall_at
        return at(total, relevant, k=int(k or 0), n_relevant=known)


def _blocks(backend: _Backend, wanted: Sequence[Metric], n_queries: int, n: int, block_bytes: int) -> Iterator[_Block]:
    by_id = [metric for metric in wanted if metric.ties == "id"]
    steps = _RECALL_STEPS if any(metric.family == "PR11" for metric in by_id) else 0
    whole = bool(steps) or any(metric.family == "MAP" and metric.k is None for metric in by_id)
    listed = [
        metric for metric in by_id if metric.family != "PR11" and not (metric.family == "MAP" and metric.k is None)
    ]
    head = max((n if metric.k is None else metric.k for metric in listed), default=0)
    # Eight or so float64 arrays of a query's groups (split by grade where bounds are asked for) and of its head.
    grades = backend.cap + 1
    groups = (backend.n_bits + 1) * grades * (grades if any(m.ties in ("best", "worst") for m in wanted) else 1)
    size = max(1, block_bytes // (64 * (groups + head)))
    for start in range(0, n_queries, size):
        rows = slice(start, min(n_queries, start + size))
        yield _Block(backend, rows, backend.count(rows), head, whole, steps)


def evaluate(
    query_codes: Any,
    database_codes: Any,
    *,
    query_labels: Any,
    database_labels: Any,
    n_bits: int,
    metrics: str | Sequence[str] = DEFAULT_METRICS,
    k: int | Sequence[int] | None = None,
    radius: int | Sequence[int] = 2,
    ties: str | Sequence[str] = ("expected", "id"),
    denominator: str | Sequence[str] = "min(k, relevant)",
    gain: str | Sequence[str] = "exponential",
    database_rule: str = "unnamed",
    per_query: bool = False,
    diagnostics: bool = True,
    threads: int | None = None,
    device: Any = None,
    block_bytes: int = 1 << 28,
) -> Report:
    """Measure how well codes retrieve items that share a label with the query.

    Each metric is computed per query and averaged over the queries that have at least one relevant item in the
    database; the others are counted and left out. Nothing is sorted and nothing of the size queries x database is
    held: working memory stays within about `block_bytes` (plus one copy of codes and packed labels) for any database.

    Parameters
    ----------
    query_codes, database_codes : array or tensor of uint8, shape (n_queries, ceil(n_bits / 8)), (n, ceil(n_bits / 8))
        Packed codes. Torch tensors are evaluated on their own device, arrays by popcount on the CPU.
    query_labels, database_labels
        Labels of each side, in any form of :func:`modalhash.labels.check_labels`. An item is relevant to a query when
        they share at least one label; its grade is the number of labels they share.
    n_bits : int
    metrics : str or sequence of str
        ``MAP`` (whole ranking), ``MAP@k``, ``P@k``, ``R@k``, ``NDCG@k``; ``P@r``, ``R@r``, ``F1@r`` within a Hamming
        radius; the curves ``PR11`` (11 recalls) and ``PR@r`` (every radius). Parts of a name may be filled in, up to
        the full name that a report prints, such as ``MAP[ties=id]@100[denominator=retrieved]``.
    k : int or sequence of int, optional
        For ``@k``. Without it 100, or the size of a smaller database. More than the database holds is an error.
    radius : int or sequence of int
        For ``@r``.
    ties : {"expected", "id", "best", "worst"} or sequence of them
        Order of items at the same distance: mean over all orders; the database's own order (what a stable sort does,
        and published numbers mostly are); the bounds. Both of the first two by default.
    denominator : {"min(k, relevant)", "retrieved", "relevant"} or sequence of them
        The reading of MAP@k; see :func:`modalhash.metrics.average_precision`.
    gain : {"exponential", "linear"} or sequence of them
        NDCG's gain of an item with g shared labels: 2^g - 1, or g.
    database_rule : str
        How the database got its codes ("encoded", "learned", ...): printed with the numbers.
    per_query : bool
        Keep each query's values too.
    diagnostics : bool
        Whether to look at the bits of both sides (see :func:`modalhash.bit_diagnostics`).
    threads : int, optional
        Threads on the CPU; as many as there are cores by default.
    device : str or torch device, optional
        Move the codes there and evaluate with torch.
    block_bytes : int
        Bound on working memory.

    Returns
    -------
    Report

    Examples
    --------
    >>> import modalhash as mh
    >>> codes = mh.codes.pack([[0, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0], [1, 1, 1, 1]])
    >>> report = mh.evaluate(codes[:1], codes[1:], query_labels=[7], database_labels=[3, 7, 7], n_bits=4,
    ...                      metrics="MAP", database_rule="encoded")
    >>> {name: round(value, 4) for name, value in report.values.items()}
    {'MAP[ties=expected]': 0.7083, 'MAP[ties=id]': 0.5833}
    """
    inputs = _check_inputs(query_codes, database_codes, query_labels, database_labels, n_bits, device)
    n_queries, n = inputs.query.shape[0], inputs.database.shape[0]
    if not isinstance(database_rule, str) or not database_rule:
        raise InputError(f"database_rule must be a word such as 'encoded'; got {database_rule!r}.")
    if isinstance(block_bytes, bool) or not isinstance(block_bytes, (int, np.integer)) or block_bytes < 1:
        raise InputError(f"block_bytes must be a positive whole number; got {block_bytes!r}.")
    wanted = expand_metrics(
        metrics, k=min(100, n) if k is None else k, radius=radius, ties=ties, denominator=denominator, gain=gain
    )
    too_deep = [metric.name for metric in wanted if metric.k is not None and metric.k > n]
    if too_deep:
        raise InputError(f"{too_deep[0]} needs at least k database items; there are {n}. Use k of at most {n}.")
    cap = inputs.most_shared if any(metric.family == "NDCG" for metric in wanted) else 1
    backend = _backend(inputs, n_bits, cap, threads, int(block_bytes))

    ranked = [metric for metric in wanted if metric.family != "PR"]
    table = {m: np.full((n_queries, _RECALL_STEPS + 1) if m.is_curve else n_queries, np.nan) for m in ranked}
    by_radius, known = np.zeros((3, n_bits + 1)), np.zeros(n_queries, dtype=np.bool_)
    for block in _blocks(backend, ranked, n_queries, n, int(block_bytes)):
        known[block.rows] = block.n_relevant > 0
        for metric in ranked:
            table[metric][block.rows] = block.measure(metric)
        if len(ranked) < len(wanted):
            by_radius += np.stack([ball[block.n_relevant > 0].sum(axis=0) for ball in block.balls])
    n_evaluated = int(known.sum())
    if n_evaluated == 0:
        raise InputError(
            f"none of the {n_queries} queries shares a label with any database item, so nothing can be measured. "
            "Check that both sides use the same labels, in the same columns."
        )
    return Report(
        values={m.name: float(x[known].mean()) for m, x in table.items() if not m.is_curve},
        metrics=tuple(wanted),
        ties=tuple(policy for policy in TIES if any(metric.ties == policy for metric in wanted)),
        n_queries=n_queries,
        n_evaluated=n_evaluated,
        n_without_relevant=n_queries - n_evaluated,
        n_database=n,
        n_bits=n_bits,
        database_rule=database_rule,
        curves=_curves(table, known, by_radius / n_evaluated if len(ranked) < len(wanted) else None),
        per_query={m.name: x for m, x in table.items() if not m.is_curve} if per_query else None,
        bits={"database": bit_diagnostics(inputs.database, n_bits), "query": bit_diagnostics(inputs.query, n_bits)}
        if diagnostics
        else {},
    )


def _curves(
    table: dict[Metric, Floats], known: NDArray[np.bool_], by_radius: Floats | None
) -> dict[str, dict[str, Floats]]:
    recall = np.arange(_RECALL_STEPS + 1) / _RECALL_STEPS
    out = {m.name: {"recall": recall, "precision": x[known].mean(axis=0)} for m, x in table.items() if m.is_curve}
    if by_radius is not None:
        radii = np.arange(by_radius.shape[1], dtype=np.float64)
        out["PR@r"] = dict(zip(("radius", "precision", "recall", "f1"), (radii, *by_radius), strict=True))
    return out
