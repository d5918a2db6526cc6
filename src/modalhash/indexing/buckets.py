"""Kernels of multi-index hashing: filling the buckets of a chunk, and gathering what queries find in them.

A query's key is first sought in a Bloom filter, which stays in the cache: most keys of most queries are not there. That
is done for many queries at a time, in loops without branches. Buckets of the keys that pass are then looked into, and
only where one of their codes is within the radius are hits written down.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._popcount import compiled, popcount
from .scan import grown, pack_key, sort_hits, unpack_hits

__all__ = ["FILTER_BITS", "fill", "gather"]

_SIFTED, _OPENED, _HIT = 2, 15, 20
"""Nanoseconds, roughly: a key sought in the filter, a bucket opened (one more per code in it), a row found."""
_PROBES_AHEAD = 1024
"""Keys sought before the first bucket is looked into."""
FILTER_BITS = 3
"""A Bloom filter of 2**3 bits per slot tells most absent keys before a bucket is touched; it stays in the cache."""
_MIX = np.uint64(0x9E3779B97F4A7C15)
"""The golden ratio in 64 bits: multiplying by it and keeping the top bits spreads keys (Fibonacci hashing)."""


@compiled
def _key(codes: Any, i: int, lo: int, width: int) -> Any:
    # Bits lo..lo + width of code i, of 64-bit words. (Handing over a row instead would count references: slower.)
    w, shift = lo >> 6, np.uint64(lo & 63)
    key = codes[i, w] >> shift
    if (lo & 63) + width > 64:
        key |= codes[i, w + 1] << (np.uint64(64) - shift)
    if width < 64:
        key &= (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    return key


@compiled
def _keys(codes: Any, lo: int, width: int, out: Any) -> None:
    # _key of each code, in loops of vector instructions.
    w, shift, ones = lo >> 6, np.uint64(lo & 63), np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - width)
    if (lo & 63) + width > 64:  # begins in one word and ends in the next
        back = np.uint64(64) - shift
        for i in range(codes.shape[0]):
            out[i] = ((codes[i, w] >> shift) | (codes[i, w + 1] << back)) & ones
    else:
        for i in range(codes.shape[0]):
            out[i] = (codes[i, w] >> shift) & ones


@compiled
def _spread(width: int, slot_bits: int) -> Any:
    # A key times this has its slot in the top bits. Keys that all fit are moved there as they are, others are hashed.
    return np.uint64(1) << np.uint64(64 - width) if width <= slot_bits else _MIX


@compiled
def fill(codes: Any, lo: int, width: int, slot_bits: int, starts: Any, bucket: Any, owner: Any, seen: Any) -> None:
    """Counting sort of codes by the slot of their key.

    Parameters
    ----------
    codes : ndarray of uint64, shape (n, n_words)
    lo, width : int
        First bit and width of the key, at most 64.
    slot_bits : int
        There are ``2**slot_bits`` slots.
    starts : ndarray of uint32, shape (2**slot_bits + 1,)
        Zeros; becomes where each slot's codes begin and end.
    bucket : ndarray of uint64, shape (n, n_words)
        Becomes the codes, slot after slot.
    owner : ndarray of uint32, shape (n,)
        Becomes their numbers in `codes`.
    seen : ndarray of uint64, shape (2**(slot_bits + FILTER_BITS) / 64,)
        Zeros; becomes the filter.
    """
    n, spread, to_slot = codes.shape[0], _spread(width, slot_bits), np.uint64(64 - slot_bits)
    slots = np.empty(n, np.uint32)
    first, second, third = _filter_shifts(width, slot_bits)
    for i in range(n):
        mixed = _key(codes, i, lo, width) * spread
        slots[i] = mixed >> to_slot
        seen[mixed >> (first + np.uint64(6))] |= _marks(mixed, first, second, third)
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


@compiled
def _filter_shifts(width: int, slot_bits: int) -> Any:
    # Where a spread key has the number of each of its bits in a word of the filter; the word's number is above the
    # first. Keys that all fit have one bit each, of their own.
    first = 64 - slot_bits - FILTER_BITS
    if width <= slot_bits:
        return np.uint64(first), np.uint64(first), np.uint64(first)
    return np.uint64(first), np.uint64(first - 6), np.uint64(first - 12)


@compiled
def _marks(mixed: Any, first: Any, second: Any, third: Any) -> Any:
    # The bits of a spread key in its word of the filter.
    one, low = np.uint64(1), np.uint64(63)
    bits = one << ((mixed >> first) & low)
    bits |= one << ((mixed >> second) & low)
    return bits | (one << ((mixed >> third) & low))


@compiled
def _sift(
    queries: Any,
    edges: Any,
    slot_bits: int,
    seen: Any,
    masks: Any,
    cuts: Any,
    own: Any,
    words: Any,
    mixed: Any,
    hits: Any,
) -> None:
    # mixed[f, i]: key f of query i, spread. Bit f of hits[:, i]: whether the filter may have seen that key.
    # Loops without a branch: vector instructions, or waits for memory that overlap.
    n, one, low = queries.shape[0], np.uint64(1), np.uint64(63)
    hits[:] = np.uint64(0)
    for c in range(edges.shape[0]):
        lo, width = edges[c, 0], edges[c, 1]
        spread = _spread(width, slot_bits)
        b0, b1, b2 = _filter_shifts(width, slot_bits)
        above = b0 + np.uint64(6)
        _keys(queries, lo, width, own)
        for f in range(cuts[c], cuts[c + 1]):
            flip, group, bit = masks[f], f >> 6, np.uint64(f & 63)
            for i in range(n):
                mixed[f, i] = (own[i] ^ flip) * spread
            for i in range(n):
                words[i] = seen[c, mixed[f, i] >> above]
            for i in range(n):
                word, key = words[i], mixed[f, i]
                both = (word >> ((key >> b0) & low)) & (word >> ((key >> b1) & low))
                hits[group, i] |= (both & (word >> ((key >> b2) & low)) & one) << bit


@compiled
def _probe(n: int, slot_bits: int, starts: Any, chunks: Any, mixed: Any, hits: Any, out: Any) -> Any:
    # The buckets to look into for what _sift let through of n queries: rows (query, mask, begin, end, -), by query.
    # Returns how many they are, and how many codes are in them.
    one, to_slot = np.uint64(1), np.uint64(64 - slot_bits)
    n_some, found, n_codes = 0, 0, 0
    for i in range(n):  # most queries have none
        union = hits[0, i]
        for group in range(1, hits.shape[0]):
            union |= hits[group, i]
        out[n_some, 4] = i
        n_some += union != 0
    for j in range(n_some):
        i = out[j, 4]
        for group in range(hits.shape[0]):
            left = hits[group, i]
            while left:
                f = 64 * group + np.int64(popcount((left & (~left + one)) - one))  # the lowest bit that is set
                left &= left - one
                slot = mixed[f, i] >> to_slot
                out[found, 0], out[found, 1] = i, f
                out[found, 2], out[found, 3] = starts[chunks[f], slot], starts[chunks[f], slot + one]
                n_codes += int(out[found, 3]) - int(out[found, 2])
                found += 1
    return found, n_codes


@compiled
def _first_time(queries: Any, q: int, buckets: Any, x: int, c: int, mask: Any, edges: Any, reach: Any) -> bool:
    # Code x, met in a bucket of chunk c, counts there if its key is the one looked for, and if no earlier chunk is
    # close enough for it to have been met before.
    codes = buckets[c]
    if _key(codes, x, edges[c, 0], edges[c, 1]) ^ _key(queries, q, edges[c, 0], edges[c, 1]) != mask:
        return False
    for e in range(c):
        other = _key(codes, x, edges[e, 0], edges[e, 1]) ^ _key(queries, q, edges[e, 0], edges[e, 1])
        if np.int64(popcount(other)) <= reach[e]:
            return False
    return True


@compiled
def _near(queries: Any, radius: int, buckets: Any, chunks: Any, probes: Any, n: int) -> int:
    # The first n probes whose bucket has a code within the radius: probes[:, 4] are their numbers. How many they are.
    n_words, found = queries.shape[1], 0
    for p in range(n):
        q, c, count = probes[p, 0], chunks[probes[p, 1]], 0
        if n_words == 1:
            word = queries[q, 0]
            for x in range(np.int64(probes[p, 2]), np.int64(probes[p, 3])):
                count += int(np.int64(popcount(buckets[c, x, 0] ^ word)) <= radius)
        else:
            for x in range(np.int64(probes[p, 2]), np.int64(probes[p, 3])):
                d = np.int64(popcount(buckets[c, x, 0] ^ queries[q, 0]))
                for w in range(1, n_words):
                    d += np.int64(popcount(buckets[c, x, w] ^ queries[q, w]))
                count += int(d <= radius)
        probes[found, 4] = p
        found += count > 0
    return found


@compiled
def _take(
    queries: Any,
    q: int,
    radius: int,
    edges: Any,
    buckets: Any,
    owners: Any,
    c: int,
    begin: int,
    end: int,
    mask: Any,
    reach: Any,
    groups: Any,
    rows: Any,
    keys: Any,
    total: int,
) -> Any:
    # Append the hits among the codes begin..end of chunk c's buckets to the keys. Stops where there is no room: returns
    # how far it came, and how many keys there are.
    for x in range(begin, end):
        d = np.int64(0)
        for w in range(queries.shape[1]):
            d += np.int64(popcount(buckets[c, x, w] ^ queries[q, w]))
        if d <= radius and _first_time(queries, q, buckets, x, c, mask, edges, reach):
            g = owners[c, x]
            if total + groups[g + 1] - groups[g] > keys.shape[0]:
                return x, total
            for y in range(groups[g], groups[g + 1]):
                keys[total] = pack_key(d, rows[y])
                total += 1
    return end, total


@compiled
def gather(
    queries: Any,
    begin: int,
    end: int,
    budget: int,
    radius: int,
    edges: Any,
    slot_bits: int,
    starts: Any,
    buckets: Any,
    owners: Any,
    seen: Any,
    masks: Any,
    cuts: Any,
    chunks: Any,
    reach: Any,
    groups: Any,
    rows: Any,
    row_bits: int,
    distance_bits: int,
    offsets: Any,
) -> Any:
    """All rows within a radius of the queries begin..end, as far as a budget goes.

    Parameters
    ----------
    queries : ndarray of uint64, shape (n_queries, n_words)
    begin, end : int
    budget : int
        Stop when about so many nanoseconds are spent; the first queries are answered in any case.
    radius : int
    edges : ndarray of int64, shape (n_chunks, 2)
        First bit and width of each chunk.
    slot_bits, starts, buckets, owners, seen
        As :func:`fill` made them, chunks along the first axis.
    masks : ndarray of uint64, shape (n_masks,)
        What to flip in the keys of chunk 0, then of chunk 1 and so on.
    cuts : ndarray of int64, shape (n_chunks + 1,)
        Where each chunk's masks begin and end.
    chunks : ndarray of int64, shape (n_masks,)
        The chunk of each mask.
    reach : ndarray of int64, shape (n_chunks,)
        How many bits the masks of a chunk flip at most.
    groups, rows : ndarray of int64
        ``rows[groups[g]:groups[g + 1]]`` have the code number g.
    row_bits, distance_bits : int
        That rows and distances take.
    offsets : ndarray of int64, shape (n_queries + 1,)
        ``offsets[i + 1]`` becomes where the hits of query i end.

    Returns
    -------
    tuple
        Rows and distances, query after query, by distance and row; the query it stopped at; nanoseconds spent.
    """
    # Arrays are handed to kernels and not assigned in loops: assigning counts references, in every turn.
    n_masks, total, spent = masks.shape[0], 0, 0
    keys = np.empty(256, np.int64)
    spare = keys[:0]
    # Buckets are found for many queries before the first is opened: the waits for memory overlap.
    ahead = max(1, min(end - begin, _PROBES_AHEAD // n_masks))
    n_groups = (n_masks + 63) >> 6
    work, probes = np.empty((n_masks + n_groups + 2, ahead), np.uint64), np.empty((ahead * n_masks + 1, 5), np.uint32)
    own, words, hits, mixed = work[0], work[1], work[2 : 2 + n_groups], work[2 + n_groups :]
    offsets[begin + 1 if begin else 0 : end + 1] = 0
    first, current, sorted_to = begin, begin, 0
    while first < end and spent < budget:
        block = queries[first : min(first + ahead, end)]
        n = block.shape[0]
        _sift(block, edges, slot_bits, seen, masks, cuts, own, words, mixed, hits)
        n_probes, n_codes = _probe(n, slot_bits, starts, chunks, mixed, hits, probes)
        n_near = _near(block, radius, buckets, chunks, probes, n_probes)
        spent += n * n_masks * _SIFTED + n_probes * _OPENED + n_codes
        for z in range(n_near):
            p = probes[z, 4]
            q, f, at, stop = int(probes[p, 0]), probes[p, 1], int(probes[p, 2]), int(probes[p, 3])
            c, before = chunks[f], total
            if first + q != current:
                spare = sort_hits(keys[sorted_to:total], spare, row_bits, distance_bits)
                current, sorted_to = first + q, total
            while at < stop:
                at, total = _take(
                    block, q, radius, edges, buckets, owners, c, at, stop, masks[f], reach, groups, rows, keys, total
                )
                if at < stop:
                    g = owners[c, at]
                    keys = grown(keys, total + groups[g + 1] - groups[g])
            offsets[current + 1] += total - before
            spent += _HIT * (total - before)
        first += n
    sort_hits(keys[sorted_to:total], spare, row_bits, distance_bits)
    for i in range(begin + 2, first + 1):
        offsets[i] += offsets[i - 1]
    return *unpack_hits(keys, total), first, spent
