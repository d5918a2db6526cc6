"""Search and lookup against the definition, on random and clustered codes of 1 to 256 bits."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from modalhash import HammingIndex
from modalhash.codes import hamming, pack
from modalhash.exceptions import InputError
from modalhash.indexing import scan, tables
from modalhash.indexing.records import codes_of_words, words_of_codes


def make_codes(n, n_bits, kind, rng):
    """Random codes, or copies of a few centres with some bits flipped: many ties and repetitions."""
    if kind == "random":
        return pack(rng.integers(0, 2, (n, n_bits)))
    centres = rng.integers(0, 2, (5, n_bits))
    noise = rng.random((n, n_bits)) < (0.0 if kind == "repeated" else 0.06)
    return pack(centres[rng.integers(0, 5, n)] ^ noise)


def brute_nearest(database, ids, queries, k):
    distances = hamming(queries, database)
    order = np.lexsort((np.broadcast_to(ids, distances.shape), distances), axis=1)[:, :k]
    return ids[order], np.take_along_axis(distances, order, 1)


def brute_within(database, ids, queries, radius):
    found = []
    for row in hamming(queries, database):
        near = np.flatnonzero(row <= radius)
        near = near[np.lexsort((ids[near], row[near]))]
        found.append((ids[near].tolist(), row[near].tolist()))
    return found


def rows(matches):
    return [(one.ids.tolist(), one.distances.tolist()) for one in matches]


kinds = st.sampled_from(["random", "clustered", "repeated"])
sizes = st.sampled_from([1, 2, 37, 300, 5000])


@given(
    n=sizes, n_bits=st.integers(1, 256), kind=kinds, k=st.integers(1, 400), seed=st.integers(0, 2**32), data=st.data()
)
@settings(max_examples=60)
def test_search_and_lookup_equal_brute_force(n, n_bits, kind, k, seed, data):
    rng = np.random.default_rng(seed)
    codes = make_codes(n + 7, n_bits, kind, rng)
    database, queries = codes[:n], np.concatenate([codes[n:], codes[:2]])
    ids = rng.choice(np.arange(-5 * n, 5 * n), n, replace=False)
    index = HammingIndex(n_bits).add(database, ids)

    found = index.search(queries, k)
    expected_ids, expected = brute_nearest(database, ids, queries, k)
    np.testing.assert_array_equal(found.distances, expected)
    np.testing.assert_array_equal(found.ids, expected_ids)
    for i, row in enumerate(hamming(queries, database)):  # ties as sets per distance, whatever the order
        kth = expected[i, -1]
        assert set(found.ids[i][found.distances[i] < kth]) == set(ids[row < kth])
        assert set(found.ids[i]) <= set(ids[row <= kth])

    radius = data.draw(st.integers(0, n_bits // 4 + 3))
    assert rows(index.lookup(queries, radius)) == brute_within(database, ids, queries, radius)


@given(
    n=st.sampled_from([1, 5, 400]),
    n_bits=st.integers(1, 256),
    kind=kinds,
    n_chunks=st.integers(1, 6),
    radius=st.integers(0, 7),
    seed=st.integers(0, 2**32),
)
@example(n=400, n_bits=256, kind="clustered", n_chunks=1, radius=1, seed=0)  # a chunk over 64 bits
@example(n=400, n_bits=130, kind="clustered", n_chunks=2, radius=3, seed=0)  # a chunk across words
@example(n=400, n_bits=24, kind="clustered", n_chunks=3, radius=2, seed=0)  # keys that are slots
@settings(max_examples=80)
def test_tables_find_all_within_any_radius(n, n_bits, kind, n_chunks, radius, seed):
    n_chunks = min(n_chunks, n_bits)
    if max(tables.chunk_radii(radius, n_chunks)) > 2:
        radius = 3 * n_chunks - 1
    rng = np.random.default_rng(seed)
    database, queries = make_codes(n, n_bits, kind, rng), make_codes(6, n_bits, kind, rng)
    queries[:3] = database[rng.integers(0, n, 3)]
    words = np.ascontiguousarray(words_of_codes(database, n_bits).T)
    built = tables.ChunkTables(words, n_bits)
    with mock.patch.object(tables, "best_plan", return_value=n_chunks):
        found, distances, offsets = built.within(words_of_codes(queries, n_bits), radius, threads=2)
    expected = brute_within(database, np.arange(n), queries, radius)
    assert np.diff(offsets, prepend=0).tolist() == [0, *(len(ids) for ids, _ in expected)]
    assert found.tolist() == [i for ids, _ in expected for i in ids]
    assert distances.tolist() == [d for _, ds in expected for d in ds]


@pytest.mark.parametrize(("n_bits", "kind"), [(24, "repeated"), (64, "clustered"), (130, "clustered")])
def test_many_tasks_find_what_one_finds(n_bits, kind):
    rng = np.random.default_rng(0)
    database, queries = make_codes(3000, n_bits, kind, rng), make_codes(700, n_bits, kind, rng)
    queries[::2] = database[:350]
    words, asked = np.ascontiguousarray(words_of_codes(database, n_bits).T), words_of_codes(queries, n_bits)
    with mock.patch.object(tables, "best_plan", return_value=3):
        built = tables.ChunkTables(words, n_bits)
        with mock.patch.object(tables, "_HEAD", tables._NO_LIMIT):
            whole = built.within(asked, 2, threads=1)
        with mock.patch.object(tables, "_HEAD", 1), mock.patch.object(tables, "_TASK", 1):
            parts = built.within(asked, 2, threads=3)
    expected = brute_within(database, np.arange(3000), queries, 2)
    assert whole[0].tolist() == [i for ids, _ in expected for i in ids]
    assert whole[2][-1] > 350
    for a, b in zip(whole, parts, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_queries_that_are_not_contiguous_are_looked_up():
    rng = np.random.default_rng(0)
    codes = make_codes(4000, 64, "clustered", rng)
    index = HammingIndex(64).add(codes)
    twice = np.repeat(codes[:20], 2, axis=1)
    for queries in (twice[:, ::2], np.asfortranarray(codes[:20]), codes[:20].tolist()):
        if isinstance(queries, list):  # numbers of unknown type are refused, whatever they hold
            with pytest.raises(InputError, match="packed codes"):
                index.lookup(queries, 2)
        else:
            assert rows(index.lookup(queries, 2)) == rows(index.lookup(codes[:20], 2))


@given(
    n=st.integers(1, 9000),
    m=st.integers(1, 9),
    k=st.integers(1, 300),
    n_bits=st.sampled_from([7, 32, 33, 64, 200]),
    threads=st.integers(1, 5),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=40)
def test_threads_do_not_change_the_result(n, m, k, n_bits, threads, seed):
    rng = np.random.default_rng(seed)
    database, queries = (words_of_codes(make_codes(x, n_bits, "clustered", rng), n_bits) for x in (n, m))
    words, k = np.ascontiguousarray(database.T), min(n, k)
    one, one_within = scan.nearest(words, n, queries, k, n_bits, 1), scan.within(words, n, queries, 3, 1)
    with mock.patch.object(scan, "_SMALL", 0):
        several = scan.nearest(words, n, queries, k, n_bits, threads)
        several_within = scan.within(words, n, queries, 3, threads)
    for a, b in zip((*one, *one_within), (*several, *several_within), strict=True):
        np.testing.assert_array_equal(a, b)


@given(n_bits=st.integers(1, 300), seed=st.integers(0, 2**32))
def test_words_round_trip(n_bits, seed):
    codes = make_codes(4, n_bits, "random", np.random.default_rng(seed))
    words = words_of_codes(codes, n_bits)
    assert words.dtype == (np.uint32 if n_bits <= 32 else np.uint64)
    np.testing.assert_array_equal(codes_of_words(words, n_bits), codes)


def test_pigeonhole_radii():
    # Differences d_c per chunk with every d_c > reach_c sum to at least radius + 1: nothing within is missed.
    for n_chunks in range(1, 9):
        for radius in range(40):
            reach = tables.chunk_radii(radius, n_chunks)
            assert len(reach) == n_chunks
            assert sum(r + 1 for r in reach) == radius + 1


def test_plan_prefers_tables_for_small_radii_and_the_scan_for_large_ones():
    assert tables.best_plan(1_000_000, 64, 2) == 3
    assert tables.best_plan(1_000_000, 64, 25) is None
    assert tables.best_plan(10, 64, 2) is None  # ten codes are scanned sooner than three buckets are met


def test_radii_over_which_each_path_is_taken_agree():
    rng = np.random.default_rng(0)
    database, queries = make_codes(20_000, 48, "clustered", rng), make_codes(20, 48, "clustered", rng)
    queries[:10] = database[:10]
    index = HammingIndex(48).add(database)
    plans = {radius: tables.best_plan(20_000, 48, radius) for radius in range(12)}
    assert {plan is None for plan in plans.values()} == {True, False}
    for radius in plans:
        assert rows(index.lookup(queries, radius)) == brute_within(database, np.arange(20_000), queries, radius)


@pytest.mark.parametrize("n_bits", [12, 64])
def test_golden_worked_by_hand(n_bits):
    # Query 0b0111. Distances: 0b0111 -> 0, 0b0011 -> 1, 0b1111 -> 1, 0b1000 -> 4, 0b0001 -> 2.
    width = -(-n_bits // 8)
    database = np.zeros((5, width), np.uint8)
    database[:, 0] = [0b1000, 0b1111, 0b0001, 0b0011, 0b0111]
    index = HammingIndex(n_bits).add(database, ids=[5, 9, 2, 4, 7])
    query = np.zeros((1, width), np.uint8)
    query[0, 0] = 0b0111
    found = index.search(query, 4)
    assert found.ids.tolist() == [[7, 4, 9, 2]]
    assert found.distances.tolist() == [[0, 1, 1, 2]]
    assert rows(index.lookup(query, 1)) == [([7, 4, 9], [0, 1, 1])]
