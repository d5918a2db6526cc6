"""Popcount kernels for evaluation: histograms over Hamming distance and grade, and the walk in database order.

Each query meets the database in blocks that stay in the cache. For a block, distances and grades (labels shared,
at most `cap`) are computed for all of its items at once, in loops that the compiler turns into vector
instructions; then they are counted. Threads split the queries; the kernels hold no Python object and release the
interpreter's lock. Nothing of the size queries x database is ever held.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np
from numba.extending import intrinsic
from numpy.typing import NDArray

__all__ = ["PopcountBackend", "compiled", "popcount"]

logger = logging.getLogger(__name__)

_BLOCK = 4096
"""Database items per block: 64 kB of one-word codes and labels, which fits in any second-level cache."""
_QUERIES = 64
"""Queries per task of a thread: each task streams the database once."""


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a kernel with numba, without the interpreter's lock, and keep it on disk where that can be done."""
    try:
        return numba.njit(function, nogil=True, cache=True)
    except RuntimeError:  # numba finds no folder it may write to: compile in every process instead
        logger.info("numba cannot cache %s; it is compiled anew in each process", function.__name__)
        return numba.njit(function, nogil=True)


@intrinsic  # type: ignore[untyped-decorator]
def popcount(typing_context: Any, word: Any) -> Any:
    """Ones in a word, inside kernels: one instruction, which vectorises."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return word(word), generate


def _compare_block(
    codes: Any, code: Any, labels: Any, label: Any, begin: int, stop: int, cap: Any, distance: Any, grade: Any
) -> None:
    # Items begin..stop of codes (words, n) against code (words,): distance[:m], grade[:m]. Vectorised loops over rows.
    row, word, m = codes[0][begin:stop], code[0], stop - begin
    for j in range(m):
        distance[j] = popcount(row[j] ^ word)
    for w in range(1, codes.shape[0]):
        row, word = codes[w][begin:stop], code[w]
        for j in range(m):
            distance[j] += popcount(row[j] ^ word)
    row, word = labels[0][begin:stop], label[0]
    for j in range(m):
        grade[j] = popcount(row[j] & word)
    for w in range(1, labels.shape[0]):
        row, word = labels[w][begin:stop], label[w]
        for j in range(m):
            grade[j] += popcount(row[j] & word)
    for j in range(m):
        grade[j] = min(grade[j], cap)


_compare = compiled(_compare_block)


@compiled
def _count(
    query_codes: Any, codes: Any, query_labels: Any, labels: Any, cap: Any, start: int, stop: int, out: Any
) -> None:
    # out (queries, (n_bits + 1) * (cap + 1)) += how many items have this distance and grade, for queries start..stop.
    n, width, step = codes.shape[1], out.shape[1], np.uint32(cap + 1)
    distance, grade = np.empty(_BLOCK, np.uint32), np.empty(_BLOCK, np.uint32)
    # Four histograms in turn: an increment need not wait for the one before it when both hit the same bin.
    h0, h1 = np.zeros(width, np.uint32), np.zeros(width, np.uint32)
    h2, h3 = np.zeros(width, np.uint32), np.zeros(width, np.uint32)
    for begin in range(0, n, _BLOCK):
        end = min(n, begin + _BLOCK)
        m = end - begin
        for i in range(start, stop):
            _compare(codes, query_codes[i], labels, query_labels[i], begin, end, cap, distance, grade)
            for j in range(m):
                distance[j] = distance[j] * step + grade[j]
            whole = m - m % 4
            for j in range(0, whole, 4):
                h0[distance[j]] += np.uint32(1)
                h1[distance[j + 1]] += np.uint32(1)
                h2[distance[j + 2]] += np.uint32(1)
                h3[distance[j + 3]] += np.uint32(1)
            for j in range(whole, m):
                h0[distance[j]] += np.uint32(1)
            row = out[i]
            for x in range(width):
                row[x] += h0[x] + h1[x] + h2[x] + h3[x]
                h0[x] = h1[x] = h2[x] = h3[x] = np.uint32(0)


@compiled
def _walk(
    query_codes: Any,
    codes: Any,
    query_labels: Any,
    labels: Any,
    cap: Any,
    start: int,
    stop: int,
    last: Any,
    rank: Any,
    hits: Any,
    n_relevant: Any,
    precision_sum: Any,
    top: Any,
    best: Any,
) -> None:
    # Items come by ascending id. rank[i, d] and hits[i, d] hold how many items (relevant items) are placed before the
    # next item at distance d, so each item's place in the ranking is known at once: a counting sort that moves nothing.
    n, k, steps = codes.shape[1], top.shape[1], best.shape[1] - 1
    distance, grade = np.empty(_BLOCK, np.uint32), np.empty(_BLOCK, np.uint32)
    for begin in range(0, n, _BLOCK):
        end = min(n, begin + _BLOCK)
        for i in range(start, stop):
            _compare(codes, query_codes[i], labels, query_labels[i], begin, end, cap, distance, grade)
            place, hit, furthest, total = rank[i], hits[i], last[i], 0.0
            for j in range(end - begin):
                d = distance[j]
                if d > furthest:
                    continue
                place[d] += 1
                p = place[d]
                if p <= k:
                    top[i, p - 1] = grade[j]
                relevant = np.int64(grade[j] > 0)
                hit[d] += relevant
                total += (hit[d] * relevant) / p
                if steps > 0 and relevant:
                    level = steps * hit[d] // n_relevant[i]
                    best[i, level] = max(best[i, level], hit[d] / p)
            precision_sum[i] += total


class PopcountBackend:
    """Counts for blocks of queries, on the CPU.

    Parameters
    ----------
    query_codes, database_codes : ndarray of uint64, shape (n_queries, words), (n, words)
    query_labels, database_labels : ndarray of uint64, shape (n_queries, label words), (n, label words)
        Bit-packed.
    n_bits : int
    cap : int
        Grades above it count as `cap`.
    threads : int
    """

    def __init__(
        self,
        query_codes: NDArray[np.uint64],
        database_codes: NDArray[np.uint64],
        query_labels: NDArray[np.uint64],
        database_labels: NDArray[np.uint64],
        *,
        n_bits: int,
        cap: int,
        threads: int,
    ) -> None:
        self.n_bits, self.cap, self.threads = n_bits, cap, threads
        self._queries = np.ascontiguousarray(query_codes), np.ascontiguousarray(query_labels)
        # One row per word, so that a loop over items reads consecutive memory. A view where there is one word.
        self._database = np.ascontiguousarray(database_codes.T), np.ascontiguousarray(database_labels.T)

    def _each(self, n: int, task: Callable[[int, int], None]) -> None:
        size = max(1, min(_QUERIES, -(-n // self.threads)))
        spans = [(start, min(n, start + size)) for start in range(0, n, size)]
        if self.threads == 1 or len(spans) == 1:
            for start, stop in spans:
                task(start, stop)
            return
        with ThreadPoolExecutor(self.threads) as pool:
            for done in [pool.submit(task, start, stop) for start, stop in spans]:
                done.result()

    def count(self, rows: slice) -> NDArray[np.int64]:
        """Histogram of distance and grade for the queries `rows`, shape (rows, n_bits + 1, cap + 1)."""
        codes, labels = (x[rows] for x in self._queries)
        out = np.zeros((codes.shape[0], (self.n_bits + 1) * (self.cap + 1)), dtype=np.int64)
        cap = np.uint32(self.cap)

        def task(start: int, stop: int) -> None:
            _count(codes, self._database[0], labels, self._database[1], cap, start, stop, out)

        self._each(codes.shape[0], task)
        return out.reshape(codes.shape[0], self.n_bits + 1, self.cap + 1)

    def walk(
        self, rows: slice, counts: NDArray[np.int64], *, k: int, whole: bool, steps: int
    ) -> tuple[NDArray[np.float64], NDArray[np.uint16], NDArray[np.float64]]:
        """Follow the ranking by distance, ties by ascending id, for the queries `rows`.

        Parameters
        ----------
        rows : slice
        counts : ndarray of int64, shape (rows, n_bits + 1, cap + 1)
            From :meth:`count`.
        k : int
            How many grades of the ranking's head to write down.
        whole : bool
            Whether the sums are needed to the end of the ranking; without it only the head is exact.
        steps : int
            The best precision is kept per recall of 0, 1 / steps, ..., 1; zero for none.

        Returns
        -------
        tuple of ndarray
            The sum over relevant items of the precision at their rank (rows,); the grades of the first k (rows, k);
            the best precision of items whose recall lies in each step (rows, steps + 1).
        """
        codes, labels = (x[rows] for x in self._queries)
        m = codes.shape[0]
        total, relevant = counts.sum(axis=2), counts[:, :, 1:].sum(axis=2)
        rank, hits = np.cumsum(total, axis=1) - total, np.cumsum(relevant, axis=1) - relevant
        last = np.full(m, self.n_bits, dtype=np.uint32)
        if not whole:
            last[:] = np.argmax(rank + total >= k, axis=1)
        precision_sum, best = np.zeros(m), np.zeros((m, steps + 1))
        top = np.zeros((m, k), dtype=np.uint16)
        n_relevant, cap = np.maximum(relevant.sum(axis=1), 1), np.uint32(self.cap)

        def task(start: int, stop: int) -> None:
            database_codes, database_labels = self._database
            _walk(
                codes,
                database_codes,
                labels,
                database_labels,
                cap,
                start,
                stop,
                last,
                rank,
                hits,
                n_relevant,
                precision_sum,
                top,
                best,
            )

        self._each(m, task)
        return precision_sum, top, best
