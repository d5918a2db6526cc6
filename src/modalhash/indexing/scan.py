"""Exact search by looking at every code.

The database is held one word per row, shape (words, capacity), so that a loop over items reads consecutive memory and
the compiler turns it into vector popcounts. Queries meet it in blocks that stay in the cache. For each group of items
one vector comparison tells whether any of them can enter the result; nearly always none can, and the group is left
without a branch per item. What enters is kept in order of arrival, which is the order of ids, so that a counting sort
by distance at the end gives distance first and ascending id within it. Threads split the queries, or the database
where there are few queries; the kernels release the interpreter's lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._popcount import compiled, popcount
from .parallel import in_parallel, spans

__all__ = ["grown", "joined", "nearest", "pack_key", "sort_hits", "unpack_hits", "within"]

Hits = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]

_BLOCK = 4096
"""Items per block: 32 kB of one word, which stays in the cache while the queries of a task pass over it."""
_GROUP = 256
"""Items per comparison with the threshold."""
_QUERIES = 64
"""Most queries per task of a thread."""
_SMALL = 1 << 21
"""Word comparisons below which starting a thread costs more than it saves."""
_KEPT = 1 << 22
"""Most candidates that a task holds at a time."""

_ROW_BITS = 40
"""A hit is one integer that sorts by distance, then row: the row in the low 40 bits, the distance above them."""
_INSERTION, _DIGIT = 24, 8


@compiled
def _measure(words: Any, query: Any, begin: int, end: int, limit: int, distance: Any) -> Any:
    # distance[:end - begin] = Hamming distances of the items begin..end to the query; whether any is below the limit.
    cast, m = distance.dtype.type, end - begin
    row, word = words[0][begin:end], query[0]
    for j in range(m):
        distance[j] = cast(popcount(row[j] ^ word))
    for w in range(1, words.shape[0]):
        row, word = words[w][begin:end], query[w]
        for j in range(m):
            distance[j] += cast(popcount(row[j] ^ word))
    bound, signs = cast(limit), cast(0)
    for j in range(m):
        signs |= cast(distance[j] - bound)
    return signs < 0


@compiled
def _nearest(
    words: Any, begin: int, end: int, queries: Any, k: int, n_bits: int, distance: Any, out_row: Any, out_distance: Any
) -> None:
    # The k nearest of the items begin..end, k <= end - begin, ordered by distance, then row.
    m = queries.shape[0]
    capacity = min(2 * k + _GROUP, end - begin)
    kept_row, kept_distance = np.empty((m, capacity), np.int64), np.empty((m, capacity), np.int16)
    kept = np.zeros(m, np.int64)
    # An item enters only if nearer than limit: k items at most as far have come before it.
    limits, nearer = np.full(m, n_bits + 1, np.int64), np.zeros(m, np.int64)
    seen = np.zeros((m, n_bits + 1), np.int64)
    for block in range(begin, end, _BLOCK):
        for i in range(m):
            limit, count, below = limits[i], kept[i], nearer[i]
            row, dist, hist = kept_row[i], kept_distance[i], seen[i]
            stop = min(end, block + _BLOCK)
            for group in range(block, stop, _GROUP):
                size = min(_GROUP, stop - group)
                if not _measure(words, queries[i], group, group + size, limit, distance):
                    continue
                for j in range(size):
                    d = distance[j]
                    if d >= limit:
                        continue
                    if count == capacity:  # drop what the limit has ruled out since it came
                        count, room = 0, k - below
                        for x in range(capacity):
                            if dist[x] < limit or (dist[x] == limit and room > 0):
                                if dist[x] == limit:
                                    room -= 1
                                row[count], dist[count] = row[x], dist[x]
                                count += 1
                    row[count], dist[count] = group + j, d
                    count += 1
                    hist[d] += 1
                    below += 1
                    while below >= k:
                        limit -= 1
                        below -= hist[limit]
            limits[i], kept[i], nearer[i] = limit, count, below
    place = np.empty(n_bits + 2, np.int64)
    for i in range(m):
        place[0] = 0
        for d in range(n_bits + 1):
            place[d + 1] = place[d] + seen[i, d]
        for x in range(kept[i]):
            d = kept_distance[i, x]
            if d <= limits[i] and place[d] < k:
                out_row[i, place[d]], out_distance[i, place[d]] = kept_row[i, x], d
                place[d] += 1


@compiled
def pack_key(distance: int, row: int) -> int:
    """One integer that sorts by distance, then row."""
    return (distance << _ROW_BITS) | row


@compiled
def _sort_by_digits(keys: Any, spare: Any, counts: Any, low: int, high: int) -> None:
    # Stable sort by the bits low..high, a digit at a time from the lowest (LSD radix sort).
    n = keys.shape[0]
    for shift in range(low, high, _DIGIT):
        counts[:] = 0
        for x in range(n):
            counts[(keys[x] >> shift) & 255] += 1
        place = 0
        for digit in range(256):
            place, counts[digit] = place + counts[digit], place
        for x in range(n):
            digit = (keys[x] >> shift) & 255
            spare[counts[digit]] = keys[x]
            counts[digit] += 1
        keys[:] = spare[:n]


@compiled
def sort_hits(keys: Any, spare: Any, row_bits: int, distance_bits: int) -> Any:
    """Sort keys whose rows and distances have so many bits; `spare` is scratch.

    Returns
    -------
    ndarray of int64
        The scratch, longer if it had to be.
    """
    n = keys.shape[0]
    if n <= _INSERTION:
        for x in range(1, n):
            key, y = keys[x], x
            while y > 0 and keys[y - 1] > key:
                keys[y] = keys[y - 1]
                y -= 1
            keys[y] = key
        return spare
    if spare.shape[0] < n:
        spare = np.empty(2 * n, np.int64)
    counts = np.empty(256, np.int64)
    _sort_by_digits(keys, spare, counts, 0, row_bits)
    _sort_by_digits(keys, spare, counts, _ROW_BITS, _ROW_BITS + distance_bits)
    return spare


@compiled
def grown(keys: Any, needed: int) -> Any:
    """`keys`, or a larger copy that holds `needed` entries."""
    if needed <= keys.shape[0]:
        return keys
    larger = np.empty(max(needed, 2 * keys.shape[0]), np.int64)
    larger[: keys.shape[0]] = keys
    return larger


@compiled
def _within(words: Any, n: int, queries: Any, radius: int, distance_bits: int, distance: Any, ends: Any) -> Any:
    # Rows and distances of the items within the radius, sorted, query after query; query i's end at ends[i].
    keys, total = np.empty(1024, np.int64), 0
    spare = keys[:0]
    for i in range(queries.shape[0]):
        start = total
        for group in range(0, n, _GROUP):
            size = min(_GROUP, n - group)
            if not _measure(words, queries[i], group, group + size, radius + 1, distance):
                continue
            keys = grown(keys, total + size)
            for j in range(size):
                if distance[j] <= radius:
                    keys[total] = pack_key(np.int64(distance[j]), group + j)
                    total += 1
        spare = sort_hits(keys[start:total], spare, 0, distance_bits)  # rows ascend already
        ends[i] = total
    return unpack_hits(keys, total)


@compiled
def unpack_hits(keys: Any, n: int) -> Any:
    """Rows (int64) and distances (int32) of the first `n` keys made by :func:`pack_key`."""
    rows, distances = np.empty(n, np.int64), np.empty(n, np.int32)
    for x in range(n):
        rows[x], distances[x] = keys[x] & ((1 << _ROW_BITS) - 1), keys[x] >> _ROW_BITS
    return rows, distances


def joined(parts: Sequence[tuple[Any, ...]], offsets: NDArray[np.int64], begins: Sequence[int]) -> Hits:
    """The hits of tasks as those of one.

    Parameters
    ----------
    parts : sequence of tuple
        Rows and distances, task after task; what more a tuple holds is passed over.
    offsets : ndarray of int64, shape (n_queries + 1,)
        Where each query's hits end in its task's, and 0 first; changed to where they end in all.
    begins : sequence of int
        First query of each task.

    Returns
    -------
    tuple of ndarray
        Rows, distances, offsets.

    Examples
    --------
    >>> a, b = (np.array([7, 8]), np.array([0, 2])), (np.array([7]), np.array([1]))
    >>> joined([a, b], np.array([0, 2, 1, 1]), [0, 1])
    (array([7, 8, 7]), array([0, 2, 1]), array([0, 2, 3, 3]))
    """
    if len(parts) == 1:
        return parts[0][0], parts[0][1], offsets
    if not parts:
        return np.empty(0, np.int64), np.empty(0, np.int32), offsets
    before = 0
    for (rows, *_), begin, end in zip(parts, begins, [*begins[1:], len(offsets) - 1], strict=True):
        offsets[begin + 1 : end + 1] += before
        before += len(rows)
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]), offsets


def nearest(
    words: NDArray[Any], n: int, queries: NDArray[Any], k: int, n_bits: int, threads: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The `k` nearest rows of each query, exactly.

    Parameters
    ----------
    words : ndarray of uint32 or uint64, shape (n_words, capacity), C-contiguous
    n : int
        How many columns of `words` are items; at least 1.
    queries : ndarray of the same type, shape (n_queries, n_words)
    k : int
        From 1 to n.
    n_bits, threads : int

    Returns
    -------
    tuple of ndarray, shape (n_queries, k)
        Rows (int64) and distances (int32), by distance, ties by ascending row.

    Examples
    --------
    >>> nearest(np.array([[7, 0, 1]], dtype=np.uint64), 3, np.array([[3]], dtype=np.uint64), 2, 3, 1)
    (array([[0, 2]]), array([[1, 1]], dtype=int32))
    """
    m = queries.shape[0]
    rows, distances = np.empty((m, k), np.int64), np.empty((m, k), np.int32)
    threads = 1 if m * n * words.shape[0] < _SMALL else threads
    tile = max(1, min(_QUERIES, -(-m // threads), _KEPT // k))
    width = np.int32 if words.dtype == np.uint32 else np.int64
    # Few queries: each thread takes a part of the database instead, and the parts are merged.
    pieces = threads // m if m and n // threads > 4 * k else 1
    parts = spans(n, -(-n // max(1, pieces)))

    def task(start: int, stop: int, begin: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        if len(parts) == 1:
            out = rows[start:stop], distances[start:stop]
        else:
            out = np.empty((stop - start, k), np.int64), np.empty((stop - start, k), np.int32)
        _nearest(words, begin, end, queries[start:stop], k, n_bits, np.empty(_GROUP, width), *out)
        return out

    jobs = [(*tile_span, *part) for tile_span in spans(m, tile) for part in parts]
    found = in_parallel(task, jobs, threads)
    if len(parts) > 1:
        for i, (start, stop) in enumerate(spans(m, tile)):
            each = found[i * len(parts) : (i + 1) * len(parts)]
            row, distance = (np.concatenate([one[x] for one in each], axis=1) for x in (0, 1))
            order = np.argsort(distance, axis=1, kind="stable")[:, :k]
            rows[start:stop] = np.take_along_axis(row, order, 1)
            distances[start:stop] = np.take_along_axis(distance, order, 1)
    return rows, distances


def within(words: NDArray[Any], n: int, queries: NDArray[Any], radius: int, threads: int) -> Hits:
    """All rows within `radius` of each query.

    Parameters
    ----------
    words, n, queries, threads
        As in :func:`nearest`; n may be 0.
    radius : int

    Returns
    -------
    tuple of ndarray
        Rows (int64) and distances (int32), flat, by query, distance and row; where each query's
        begin and end (int64, n_queries + 1).

    Examples
    --------
    >>> within(np.array([[7, 0, 1]], dtype=np.uint64), 3, np.array([[3], [9]], dtype=np.uint64), 1, 1)
    (array([0, 2, 2]), array([1, 1, 1], dtype=int32), array([0, 2, 3]))
    """
    m = queries.shape[0]
    threads = 1 if m * n * words.shape[0] < _SMALL else threads
    offsets = np.zeros(m + 1, np.int64)
    width = np.int32 if words.dtype == np.uint32 else np.int64

    def task(start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        some, ends = queries[start:stop], offsets[start + 1 : stop + 1]
        found: tuple[NDArray[np.int64], NDArray[np.int32]] = _within(
            words, n, some, radius, radius.bit_length(), np.empty(_GROUP, width), ends
        )
        return found

    jobs = spans(m, max(1, min(_QUERIES, -(-m // threads))))
    return joined(in_parallel(task, jobs, threads), offsets, [start for start, _ in jobs])
