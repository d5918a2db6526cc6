"""All codes within a small radius, without looking at the others: multi-index hashing.

Cut a code into m chunks. If two codes differ in at most r = m a + b bits (b < m), then in one of the first b + 1
chunks they differ in at most a bits, or in one of the others in at most a - 1: otherwise they would differ in at least
(b + 1)(a + 1) + (m - b - 1) a = r + 1 bits. So it is enough to look, chunk by chunk, at the codes whose chunk is that
close to the query's, and to measure those in full (Norouzi, Punjani and Fleet, "Fast search in Hamming space with
multi-index hashing", CVPR 2012).

Equal codes are stored once, with the list of their rows: learned codes repeat a lot. Each chunk has a table of
buckets, and each bucket holds its codes side by side, so that a probe reads consecutive memory. The number of chunks
is chosen by an estimate of the cost for the radius asked; where looking at everything is cheaper, `best_plan` says so.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .buckets import FILTER_BITS, fill, gather
from .parallel import cores, in_parallel, spans
from .scan import Hits, joined

__all__ = ["ChunkTables", "best_plan", "chunk_radii", "flips"]

_PROBE, _CANDIDATE, _SCANNED = 30.0, 1.5, 0.3
"""Nanoseconds, by measurement: one bucket met, one code in it measured, one word scanned."""
_HEAD, _TASK = 300_000, 1_000_000
"""Nanoseconds of work that are done before threads are thought of; of a thread's task at least."""
_NO_LIMIT = np.iinfo(np.int64).max
_MAX_CHUNKS = 12
_MAX_PROBES = 1 << 16
_MAX_SLOT_BITS = 26


def chunk_radii(radius: int, n_chunks: int) -> list[int]:
    """How far to look in each chunk so that nothing within `radius` is missed; -1 is not at all.

    Examples
    --------
    >>> chunk_radii(2, 3), chunk_radii(4, 3)
    ([0, 0, 0], [1, 1, 0])
    """
    a, b = divmod(radius, n_chunks)
    return [a] * (b + 1) + [a - 1] * (n_chunks - b - 1)


def _edges(n_bits: int, n_chunks: int) -> list[tuple[int, int]]:
    # First bit and width of each chunk. Of a chunk over 64 bits the first 64 are used: they differ no more than it.
    cuts = [c * n_bits // n_chunks for c in range(n_chunks + 1)]
    return [(lo, min(64, hi - lo)) for lo, hi in pairwise(cuts)]


@lru_cache(maxsize=64)
def flips(width: int, radius: int) -> NDArray[np.uint64]:
    """All words of `width` bits with at most `radius` ones, fewest first.

    Examples
    --------
    >>> flips(3, 1).tolist()
    [0, 1, 2, 4]
    """
    words = [sum(1 << bit for bit in bits) for ones in range(radius + 1) for bits in combinations(range(width), ones)]
    array = np.array(words, dtype=np.uint64)
    array.flags.writeable = False
    return array


@lru_cache(maxsize=256)
def best_plan(n: int, n_bits: int, radius: int) -> int | None:
    """Number of chunks that finds everything within `radius` soonest; None where scanning all is expected sooner.

    Parameters
    ----------
    n, n_bits, radius : int

    Examples
    --------
    >>> best_plan(1_000_000, n_bits=64, radius=2), best_plan(1_000_000, n_bits=64, radius=30)
    (3, None)
    """
    best, plan = n * -(-n_bits // 64) * _SCANNED, None
    for m in range(1, min(_MAX_CHUNKS, n_bits) + 1):
        cost, most = 0.0, 0
        for (_, width), reach in zip(_edges(n_bits, m), chunk_radii(radius, m), strict=True):
            probes = sum(math.comb(width, ones) for ones in range(min(reach, width) + 1))
            most = max(most, probes)
            cost += probes * (_PROBE + _CANDIDATE * n / 2.0**width)
        if cost < best and most <= _MAX_PROBES:
            best, plan = cost, m
    return plan


@dataclass(frozen=True)
class _Tables:
    """The buckets of one way to cut codes into chunks, chunks along the first axis."""

    edges: NDArray[np.int64]
    slot_bits: int
    starts: NDArray[np.uint32]
    buckets: NDArray[np.uint64]
    owners: NDArray[np.uint32]
    seen: NDArray[np.uint64]


class ChunkTables:
    """Buckets over a fixed set of codes, built when first needed.

    Parameters
    ----------
    words : ndarray of uint32 or uint64, shape (n_words, n)
        The codes, one word per row; fewer than 2**32.
    n_bits : int
    """

    def __init__(self, words: NDArray[Any], n_bits: int) -> None:
        self._words, self.n_bits, self.n = words, n_bits, words.shape[1]
        self._lock = threading.Lock()
        self._distinct: tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]] | None = None
        self._cuts: dict[int, _Tables] = {}
        self._plans: dict[int, tuple[Any, ...]] = {}

    @property
    def nbytes(self) -> int:
        """Bytes that the tables built so far take."""
        arrays = [
            *(self._distinct or ()),
            *(a for t in self._cuts.values() for a in (t.starts, t.buckets, t.owners, t.seen)),
        ]
        return sum(a.nbytes for a in arrays)

    def _ready(self, n_chunks: int) -> bool:
        # Whether the tables are there; builds them unless another thread is building just now.
        if n_chunks in self._cuts:
            return True
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if n_chunks not in self._cuts:
                self._cuts[n_chunks] = self._build(n_chunks)
        finally:
            self._lock.release()
        return True

    def _group(self) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
        # Distinct codes (u, words), where the rows of each begin (u + 1), and the rows in ascending order within each.
        words = self._words.astype(np.uint64, copy=False)
        rows = np.argsort(words[0], kind="stable") if len(words) == 1 else np.lexsort(words[::-1])
        codes = np.ascontiguousarray(words[:, rows].T)
        new = np.ones(self.n, dtype=bool)
        new[1:] = (codes[1:] != codes[:-1]).any(axis=1)
        first = np.flatnonzero(new)
        return codes[first], np.append(first, self.n), rows

    def _build(self, n_chunks: int) -> _Tables:
        if self._distinct is None:
            self._distinct = self._group()
        codes = self._distinct[0]
        edges = np.array(_edges(self.n_bits, n_chunks), dtype=np.int64)
        slot_bits = max(4, min(_MAX_SLOT_BITS, (len(codes) - 1).bit_length(), int(edges[:, 1].max())))
        starts = np.zeros((n_chunks, (1 << slot_bits) + 1), np.uint32)
        buckets, owners = np.empty((n_chunks, *codes.shape), np.uint64), np.empty((n_chunks, len(codes)), np.uint32)
        seen = np.zeros((n_chunks, -(-(1 << (slot_bits + FILTER_BITS)) // 64)), np.uint64)
        for c in range(n_chunks):
            fill(codes, edges[c, 0], edges[c, 1], slot_bits, starts[c], buckets[c], owners[c], seen[c])
        return _Tables(edges, slot_bits, starts, buckets, owners, seen)

    def _plan(self, radius: int) -> tuple[Any, ...] | None:
        # What gather takes besides the queries, the same for every call with this radius; None where a scan is better.
        n_chunks = best_plan(self.n, self.n_bits, radius)
        if n_chunks is None or not self._ready(n_chunks):
            return None
        t, (_, groups, rows) = self._cuts[n_chunks], self._distinct or self._group()
        reach = np.array(chunk_radii(radius, n_chunks), dtype=np.int64)
        masks = [flips(int(w), int(r)) for w, r in zip(t.edges[:, 1], reach, strict=True)]
        cuts = np.concatenate([[0], np.cumsum([len(m) for m in masks])]).astype(np.int64)
        chunks = np.repeat(np.arange(n_chunks), np.diff(cuts))
        tables = t.edges, t.slot_bits, t.starts, t.buckets, t.owners, t.seen
        sizes = self.n.bit_length(), radius.bit_length()
        plan = radius, *tables, np.concatenate(masks), cuts, chunks, reach, groups, rows, *sizes
        self._plans[radius] = plan
        return plan

    def within(self, queries: NDArray[Any], radius: int, threads: int | None = None) -> Hits | None:
        """All rows within `radius` of each query; None where a scan is expected to tell them sooner.

        None also while another thread builds the tables that the radius needs.

        Parameters
        ----------
        queries : ndarray of uint32 or uint64, shape (n_queries, n_words)
        radius : int
        threads : int, optional
            One per core by default.

        Returns
        -------
        tuple of ndarray, or None
            Rows (int64) and distances (int32), flat, by query, distance and row; where each query's begin and end
            (int64, n_queries + 1).

        Examples
        --------
        >>> words = np.arange(1000, dtype=np.uint64)[None]
        >>> ChunkTables(words, n_bits=64).within(np.array([[5], [1 << 20]], dtype=np.uint64), radius=0)
        (array([5]), array([0], dtype=int32), array([0, 1, 1]))
        """
        plan = self._plans.get(radius) or self._plan(radius)
        if plan is None:
            return None
        if queries.itemsize != 8:
            queries = queries.astype(np.uint64)
        m = len(queries)
        offsets = np.empty(m + 1, np.int64)
        # How long a query takes depends on what it finds. The first ones tell whether threads are worth waking.
        head = gather(queries, 0, m, _HEAD, *plan, offsets)
        done, spent = head[2], head[3]
        if done == m:
            return head[0], head[1], offsets

        def task(start: int, stop: int) -> tuple[Any, ...]:
            found: tuple[Any, ...] = gather(queries, start, stop, _NO_LIMIT, *plan, offsets)
            return found

        threads, rest = threads or cores(), m - done
        size = max(1, _TASK * done // spent, -(-rest // (4 * threads)))
        jobs = [(done + a, done + b) for a, b in spans(rest, size)]
        return joined([head, *in_parallel(task, jobs, threads)], offsets, [0, *(start for start, _ in jobs)])
