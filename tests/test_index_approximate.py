"""Approximate kinds: right distances and order, measured recall, and nothing lost when rows change."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

from modalhash import HammingIndex
from modalhash.codes import hamming, pack
from modalhash.exceptions import MissingExtraError, ModelFormatError
from modalhash.indexing import approximate
from modalhash.indexing.storage import read_index, write_index

pytest.importorskip("faiss")
N, N_BITS = 3_000, 60


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Let the structures be used for fewer rows than usual; few threads, since other tests run beside."""
    monkeypatch.setattr("modalhash.index._SCAN_BELOW", 1000)


@pytest.fixture(scope="module")
def codes():
    rng = np.random.default_rng(0)
    centres = rng.integers(0, 2, (40, N_BITS))
    return pack(centres[rng.integers(0, 40, N + 50)] ^ (rng.random((N + 50, N_BITS)) < 0.1))


@pytest.fixture(scope="module", params=["ivf", "hnsw"])
def index(request, codes):
    return HammingIndex(N_BITS, kind=request.param, threads=1).add(codes[:N], ids=np.arange(N) * 2)


def check(index, queries, database, ids, k):
    """Distances are true, order is by distance and id, ids differ."""
    found = index.search(queries, k)
    rows = np.searchsorted(ids, found.ids)
    np.testing.assert_array_equal(ids[rows], found.ids)
    np.testing.assert_array_equal(np.take_along_axis(hamming(queries, database), rows, 1), found.distances)
    for i, d in zip(found.ids, found.distances, strict=True):
        assert list(zip(d, i, strict=True)) == sorted(set(zip(d, i, strict=True)))
    return found


def test_what_is_found_is_right_and_most_is_found(index, codes):
    queries = codes[N:]
    found = check(index, queries, codes[:N], np.arange(N) * 2, k=20)
    assert found.ids.shape == (50, 20)
    assert index.search(queries[:0], 20).ids.shape == (0, 20)
    exact = np.sort(hamming(queries, codes[:N]), axis=1)[:, :20]
    share = (found.distances <= exact[:, -1:]).mean()
    assert index.recall(queries, k=20) == pytest.approx(share)
    assert share > 0.9
    assert index._state.covers["search"].structure.built


def test_more_effort_finds_more():
    codes = pack(np.random.default_rng(0).integers(0, 2, (N + 50, N_BITS)))
    recalls = [
        HammingIndex(N_BITS, kind="ivf", effort=effort, threads=1).add(codes[:N]).recall(codes[N:], k=5)
        for effort in (1, 8, 10**6)
    ]
    assert recalls[0] < recalls[1] < recalls[2] == 1.0


def test_rows_that_change_after_the_build_are_searched_right(index, codes):
    changed = HammingIndex(N_BITS, kind=index.kind, threads=1).add(codes[:N]).build()
    queries = codes[N:]
    best = changed.search(queries, 5).ids
    changed.remove(np.unique(best))
    assert not np.isin(changed.search(queries, 5).ids, best).any()
    changed.add(queries, ids=np.arange(-50, 0))  # each query itself
    assert changed.search(queries, 1).distances.tolist() == [[0]] * 50
    moved = changed.ids[-20:]
    changed.upsert(np.repeat(queries[:1], 20, axis=0), moved)
    assert set(moved.tolist()) <= set(changed.search(queries[:1], 100).ids[0].tolist())
    ids = changed.ids
    check(changed, queries, changed.codes(ids), ids, k=30)
    cover = changed._state.covers["search"]
    assert cover.fresh.size == 70
    check(changed.build(), queries, changed.codes(ids), ids, k=30)
    assert not changed._state.covers["search"].changed


def test_filter_and_lookup_are_exact(index, codes):
    queries, allowed = codes[N:], np.arange(0, N, 5) * 2
    flat = HammingIndex(N_BITS).add(codes[:N], ids=np.arange(N) * 2)
    np.testing.assert_array_equal(
        index.search(queries, 9, within=allowed).ids, flat.search(queries, 9, within=allowed).ids
    )
    np.testing.assert_array_equal(index.lookup(queries, 3).ids, flat.lookup(queries, 3).ids)


def test_fewer_found_than_asked_are_searched_exactly(codes):
    index = HammingIndex(N_BITS, kind="ivf", effort=1).add(codes[:N])
    flat = HammingIndex(N_BITS).add(codes[:N])
    np.testing.assert_array_equal(index.search(codes[N : N + 3], k=N).ids, flat.search(codes[N : N + 3], k=N).ids)


def test_structure_is_saved_and_loaded(index, codes, tmp_path):
    queries = codes[N:]
    index.build()
    loaded = HammingIndex.load(index.save(tmp_path))
    assert loaded.kind == index.kind
    assert loaded.effort == index.effort
    assert loaded._state.covers["search"].structure.built
    np.testing.assert_array_equal(loaded.search(queries, 10).ids, index.search(queries, 10).ids)
    config, arrays = read_index(tmp_path)
    other = {"ivf": "hnsw", "hnsw": "ivf"}[index.kind]
    for wrong in ({**config, "kind": other}, config):
        arrays = dict(arrays)
        if wrong is config:
            arrays["structure"] = np.frombuffer(b"nothing of the kind", np.uint8)
        write_index(tmp_path, wrong, arrays)
        with pytest.raises(ModelFormatError, match="FAISS part"):
            HammingIndex.load(tmp_path)


def test_other_threads_search_exactly_while_the_first_build_runs(codes, monkeypatch):
    index, started, go_on = (
        HammingIndex(N_BITS, kind="ivf", threads=1).add(codes[:N]),
        threading.Event(),
        threading.Event(),
    )
    build = approximate.ApproximateNeighbors.build

    def slow(self, some):
        started.set()
        go_on.wait(30)
        build(self, some)

    monkeypatch.setattr(approximate.ApproximateNeighbors, "build", slow)
    builder = threading.Thread(target=index.search, args=(codes[N:],))
    builder.start()
    assert started.wait(30)
    flat = HammingIndex(N_BITS).add(codes[:N])
    np.testing.assert_array_equal(index.search(codes[N:]).ids, flat.search(codes[N:]).ids)
    index.add(codes[N : N + 1], ids=[999_999])  # neither does a writer wait
    go_on.set()
    builder.join(60)
    assert index._state.covers["search"].fresh.tolist() == [999_999]
    assert index.search(codes[N : N + 1], 1).distances.tolist() == [[0]]


def test_a_build_that_fails_leaves_the_index_usable(codes, monkeypatch):
    index = HammingIndex(N_BITS, kind="ivf", threads=1).add(codes[:N])
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'modalhash\[ann\]'"):
        index.search(codes[N:])
    assert not index._state.covers
    assert index.search(codes[N:], within=[1, 2]).ids.shape == (50, 2)
    monkeypatch.undo()
    assert index.search(codes[N:], 3).ids.shape == (50, 3)


def test_small_indexes_are_scanned(codes):
    index = HammingIndex(N_BITS, kind="hnsw").add(codes[:500])
    assert index.recall(codes[N:]) == 1.0
    assert not index._state.covers
    assert HammingIndex(8).build().kind == "flat"
