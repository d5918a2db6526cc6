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
import time
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._popcount import _compiled, _popcount
from .parallel import in_parallel, spans
from .scan import grown, pack_key, sort_hits, unpack_keys

__all__ = ["ChunkTables", "best_plan", "chunk_radii", "flips"]

_PROBE, _CANDIDATE, _SCANNED = 30.0, 1.5, 0.3
"""Nanoseconds, by measurement: one bucket met, one code in it measured, one word scanned."""
_QUERIES, _HEAD = 4096, 256
"""Most queries per task of a thread; how many are answered before threads are thought of."""
_WORTH_A_THREAD = 5e-4
"""Seconds of work."""
_PROBES_AHEAD = 1024
_MAX_CHUNKS = 12
_MAX_PROBES = 1 << 16
_MAX_SLOT_BITS = 26
_FILTER_BITS = 3
"""A Bloom filter of 2**3 bits per slot tells most absent keys before a bucket is touched; it stays in the cache."""
_MIX = np.uint64(0x9E3779B97F4A7C15)
"""The golden ratio in 64 bits: multiplying by it and keeping the top bits spreads keys (Fibonacci hashing)."""


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


@_compiled
def _key(codes: Any, i: int, lo: int, width: int) -> Any:
    # Bits lo..lo + width of code i, of 64-bit words. (Handing over a row instead would count references: slower.)
    w, shift = lo >> 6, np.uint64(lo & 63)
    key = codes[i, w] >> shift
    if (lo & 63) + width > 64:
        key |= codes[i, w + 1] << (np.uint64(64) - shift)
    if width < 64:
        key &= (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    return key


@_compiled
def _slot(key: Any, width: int, slot_bits: int) -> Any:
    return key if width <= slot_bits else (key * _MIX) >> np.uint64(64 - slot_bits)


@_compiled
def _marks(key: Any, width: int, filter_bits: int) -> Any:
    # Where the filter remembers a key: a word, and one bit in it for a key that fits, else three from its hash.
    six = np.uint64(63)
    if width <= filter_bits:
        return key >> np.uint64(6), np.uint64(1) << (key & six)
    mixed, shift = key * _MIX, np.uint64(70 - filter_bits)
    bits = np.uint64(1) << ((mixed >> (shift - np.uint64(6))) & six)
    bits |= np.uint64(1) << ((mixed >> (shift - np.uint64(12))) & six)
    bits |= np.uint64(1) << ((mixed >> (shift - np.uint64(18))) & six)
    return mixed >> shift, bits


@_compiled
def _fill(codes: Any, lo: int, width: int, slot_bits: int, starts: Any, bucket: Any, owner: Any, seen: Any) -> None:
    # Counting sort of the codes by slot: bucket[starts[s]:starts[s + 1]] are the codes of slot s, owner their numbers.
    n = codes.shape[0]
    slots = np.empty(n, np.uint32)
    for i in range(n):
        key = _key(codes, i, lo, width)
        slots[i] = _slot(key, width, slot_bits)
        word, bits = _marks(key, width, slot_bits + _FILTER_BITS)
        seen[word] |= bits
        starts[slots[i] + 1] += 1
    for s in range(1, starts.shape[0]):
        starts[s] += starts[s - 1]
    place = starts[:-1].copy()
    for i in range(n):
        at = place[slots[i]]
        place[slots[i]] += 1
        owner[at] = i
        for w in range(codes.shape[1]):
            bucket[at, w] = codes[i, w]


@_compiled
def _probe(
    queries: Any,
    first: int,
    edges: Any,
    slot_bits: int,
    starts: Any,
    seen: Any,
    masks: Any,
    cuts: Any,
    out: Any,
    n: Any,
) -> None:
    # The buckets to look into for the queries from the first: out[i, :n[i]] are rows (chunk, mask, begin, end).
    block = min(n.shape[0], queries.shape[0] - first)
    n[:] = 0
    for c in range(edges.shape[0]):
        lo, width, begin, end = edges[c, 0], edges[c, 1], cuts[c], cuts[c + 1]
        for i in range(block):
            own = _key(queries, first + i, lo, width)
            for f in range(begin, end):
                word, bits = _marks(own ^ masks[f], width, slot_bits + _FILTER_BITS)
                if seen[c, word] & bits == bits:
                    slot, at = _slot(own ^ masks[f], width, slot_bits), n[i]
                    out[i, at, 0], out[i, at, 1] = c, f
                    out[i, at, 2], out[i, at, 3] = starts[c, slot], starts[c, slot + 1]
                    n[i] = at + 1


@_compiled
def _first_time(queries: Any, q: int, codes: Any, x: int, c: int, mask: Any, edges: Any, reach: Any) -> bool:
    # Code x, met in a bucket of chunk c, counts there if its key is the one looked for, and if no earlier chunk is
    # close enough for it to have been met before.
    if _key(codes, x, edges[c, 0], edges[c, 1]) ^ _key(queries, q, edges[c, 0], edges[c, 1]) != mask:
        return False
    for e in range(c):
        other = _key(codes, x, edges[e, 0], edges[e, 1]) ^ _key(queries, q, edges[e, 0], edges[e, 1])
        if np.int64(_popcount(other)) <= reach[e]:
            return False
    return True


@_compiled
def _gather(
    queries: Any,
    radius: int,
    edges: Any,
    slot_bits: int,
    starts: Any,
    buckets: Any,
    owners: Any,
    seen: Any,
    masks: Any,
    cuts: Any,
    reach: Any,
    groups: Any,
    rows: Any,
    row_bits: int,
    distance_bits: int,
    counts: Any,
) -> Any:
    # Keys of all rows within the radius, sorted, query after query; counts[i] of them are query i's.
    keys, total, n_words = np.empty(1024, np.int64), 0, queries.shape[1]
    spare, digits = np.empty(1024, np.int64), np.empty(256, np.int64)
    # Buckets are found for many queries before the first is opened: the waits for memory overlap.
    ahead = max(1, min(queries.shape[0], _PROBES_AHEAD // masks.shape[0]))
    probes, n_probes = np.empty((ahead, masks.shape[0], 4), np.uint32), np.empty(ahead, np.int64)
    for first in range(0, queries.shape[0], ahead):
        _probe(queries, first, edges, slot_bits, starts, seen, masks, cuts, probes, n_probes)
        for q in range(first, min(first + ahead, queries.shape[0])):
            begin = total
            for p in range(n_probes[q - first]):
                c, f = probes[q - first, p, 0], probes[q - first, p, 1]
                for x in range(probes[q - first, p, 2], probes[q - first, p, 3]):
                    d = np.int64(_popcount(buckets[c, x, 0] ^ queries[q, 0]))
                    for w in range(1, n_words):
                        d += np.int64(_popcount(buckets[c, x, w] ^ queries[q, w]))
                    if d <= radius and _first_time(queries, q, buckets[c], x, c, masks[f], edges, reach):
                        g = owners[c, x]
                        keys = grown(keys, total + groups[g + 1] - groups[g])
                        for y in range(groups[g], groups[g + 1]):
                            keys[total] = pack_key(d, rows[y])
                            total += 1
            if total > begin + 1:
                spare = sort_hits(keys[begin:total], spare, digits, row_bits, distance_bits)
            counts[q] = total - begin
    return keys[:total]


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

    @property
    def nbytes(self) -> int:
        """Bytes that the tables built so far take."""
        arrays = [
            *(self._distinct or ()),
            *(a for t in self._cuts.values() for a in (t.starts, t.buckets, t.owners, t.seen)),
        ]
        return sum(a.nbytes for a in arrays)

    def ready(self, n_chunks: int) -> bool:
        """Whether the tables for `n_chunks` are there; builds them unless another thread is building just now."""
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
        seen = np.zeros((n_chunks, -(-(1 << (slot_bits + _FILTER_BITS)) // 64)), np.uint64)
        for c in range(n_chunks):
            _fill(codes, edges[c, 0], edges[c, 1], slot_bits, starts[c], buckets[c], owners[c], seen[c])
        return _Tables(edges, slot_bits, starts, buckets, owners, seen)

    def within(
        self, queries: NDArray[Any], radius: int, n_chunks: int, threads: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
        """All rows within `radius` of each query; call :meth:`ready` first.

        Parameters
        ----------
        queries : ndarray of uint32 or uint64, shape (n_queries, n_words)
        radius, n_chunks, threads : int

        Returns
        -------
        tuple of ndarray
            Rows (int64) and distances (int32), flat, by query, distance and row; counts per query (int64).
        """
        if self._distinct is None:  # ready() has built them; this is for the type checker and for misuse
            raise RuntimeError("the tables are not built; call ready() first")
        tables, (_, groups, rows) = self._cuts[n_chunks], self._distinct
        reach = np.array(chunk_radii(radius, n_chunks), dtype=np.int64)
        masks = [flips(int(w), int(r)) for w, r in zip(tables.edges[:, 1], reach, strict=True)]
        cuts = np.concatenate([[0], np.cumsum([len(m) for m in masks])]).astype(np.int64)
        flat = np.concatenate(masks)
        m = queries.shape[0]
        counts = np.zeros(m, np.int64)
        queries = np.ascontiguousarray(queries, dtype=np.uint64)

        def task(start: int, stop: int) -> NDArray[np.int64]:
            keys: NDArray[np.int64] = _gather(
                queries[start:stop],
                radius,
                tables.edges,
                tables.slot_bits,
                tables.starts,
                tables.buckets,
                tables.owners,
                tables.seen,
                flat,
                cuts,
                reach,
                groups,
                rows,
                self.n.bit_length(),
                radius.bit_length(),
                counts[start:stop],
            )
            return keys

        # How long a query takes depends on what it finds. The first few tell whether threads are worth waking.
        head, started = min(m, _HEAD), time.perf_counter()
        keys = [task(0, head)]
        expected = (time.perf_counter() - started) * (m - head) / max(1, head)
        threads = threads if expected > _WORTH_A_THREAD else 1
        size = max(1, min(_QUERIES, -(-(m - head) // threads)))
        keys += in_parallel(task, [(head + a, head + b) for a, b in spans(m - head, size)], threads)
        return *unpack_keys(keys), counts
