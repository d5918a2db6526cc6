"""What an index promises: adding, removing, filters, payload, scores, bad input, threads."""

from __future__ import annotations

import threading
from unittest import mock

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import modalhash as mh
from modalhash import HammingIndex
from modalhash.codes import hamming, pack, unpack
from modalhash.exceptions import InputError
from modalhash.index import SearchIndex
from modalhash.indexing import state as state_module
from modalhash.indexing.matches import Matches
from modalhash.indexing.records import Growing, TextColumn

N_BITS = 20


def some_codes(n, seed=0, n_bits=N_BITS):
    return pack(np.random.default_rng(seed).integers(0, 2, (n, n_bits)))


class Model(RuleBasedStateMachine):
    """Any sequence of changes leaves what a dict from id to code and title would hold."""

    plan = None  # number of chunks that lookup uses; None scans

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed):
        self.rng = np.random.default_rng(seed)
        self.index = HammingIndex(N_BITS)
        self.model = {}
        self.patches = [
            mock.patch.object(state_module, "_REBUILD_LEAST", 8),
            mock.patch("modalhash.indexing.tables.best_plan", return_value=self.plan),
        ]
        for patch in self.patches:
            patch.start()

    def teardown(self):
        for patch in getattr(self, "patches", []):
            patch.stop()

    def draw(self, n):
        codes = pack(self.rng.integers(0, 2, (n, N_BITS)) & self.rng.integers(0, 2, (n, N_BITS)))
        return codes, [f"<{self.rng.integers(1000)}ß>" for _ in range(n)]

    @rule(ids=st.lists(st.integers(-40, 40), unique=True, max_size=12))
    def add(self, ids):
        ids = [i for i in ids if i not in self.model]
        codes, titles = self.draw(len(ids))
        if ids:
            self.index.add(codes, ids, payload={"title": titles})
        self.model |= {i: (c.tobytes(), t) for i, c, t in zip(ids, codes, titles, strict=True)}

    @rule(n=st.integers(1, 30))
    def add_without_ids(self, n):
        codes, titles = self.draw(n)
        before = set(self.index.ids.tolist())
        self.index.add(codes, payload={"title": titles})
        ids = sorted(set(self.index.ids.tolist()) - before)
        assert len(ids) == n
        self.model |= {i: (c.tobytes(), t) for i, c, t in zip(ids, codes, titles, strict=True)}

    @rule(ids=st.lists(st.integers(-40, 60), unique=True, min_size=1, max_size=12))
    def upsert(self, ids):
        codes, titles = self.draw(len(ids))
        self.index.upsert(codes, ids, payload={"title": titles})
        self.model |= {i: (c.tobytes(), t) for i, c, t in zip(ids, codes, titles, strict=True)}

    @rule(data=st.data())
    def remove(self, data):
        if self.model:
            ids = data.draw(st.lists(st.sampled_from(sorted(self.model)), unique=True, max_size=10))
            self.index.remove(ids)
            for i in ids:
                del self.model[i]

    @rule()
    def look_up(self):
        queries, _ = self.draw(4)
        radius = int(self.rng.integers(0, 5))
        for query, found in zip(queries, self.index.lookup(queries, radius), strict=True):
            assert list(zip(found.distances, found.ids, strict=True)) == [x for x in self.all(query) if x[0] <= radius]

    @rule(k=st.integers(1, 20))
    def search(self, k):
        queries, _ = self.draw(4)
        for query, found in zip(queries, self.index.search(queries, k), strict=True):
            assert list(zip(found.distances, found.ids, strict=True)) == self.all(query)[:k]

    def all(self, query):
        if not self.model:
            return []
        codes = np.array([np.frombuffer(c, np.uint8) for c, _ in self.model.values()])
        return sorted(zip(hamming(query[None], codes)[0].tolist(), self.model, strict=True))

    @invariant()
    def holds_the_same(self):
        if not hasattr(self, "model"):
            return
        ids = sorted(self.model)
        assert len(self.index) == len(ids)
        assert self.index.ids.tolist() == ids
        if ids:
            assert [c.tobytes() for c in self.index.codes(ids)] == [self.model[i][0] for i in ids]
            assert self.index.payload(ids)["title"] == [self.model[i][1] for i in ids]


class ModelWithTables(Model):
    plan = 3


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)
TestModelWithTables = ModelWithTables.TestCase
TestModelWithTables.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)


def test_is_public_and_follows_the_protocol():
    index: SearchIndex = mh.HammingIndex(n_bits=8)
    assert isinstance(index.add(some_codes(3, n_bits=8)), HammingIndex)
    assert repr(index) == "HammingIndex(n_bits=8, kind='flat'): 3 codes"
    assert 2 in index
    assert 3 not in index


def test_ids_go_on_and_are_not_used_twice():
    index = HammingIndex(N_BITS).add(some_codes(3)).add(some_codes(2), ids=[10, -4])
    assert index.add(some_codes(1)).ids.tolist() == [-4, 0, 1, 2, 10, 11]
    index.remove([11])
    assert index.add(some_codes(1)).ids[-1] == 12
    index.add(some_codes(1), ids=[2**63 - 1])
    with pytest.raises(InputError, match="no id is left"):
        index.add(some_codes(1))


def test_filter_by_ids():
    codes = some_codes(500)
    index = HammingIndex(N_BITS).add(codes, ids=np.arange(500) * 3)
    queries = some_codes(5, seed=1)
    allowed = np.array([30, 3, 3, 600, 9, 999_999])  # repeated and unknown ids do no harm
    found = index.search(queries, k=10, within=allowed)
    distances = hamming(queries, codes[[1, 3, 10, 200]])
    for i in range(5):
        expected = sorted(zip(distances[i].tolist(), [3, 9, 30, 600], strict=True))
        assert list(zip(found.distances[i], found.ids[i], strict=True)) == expected
        near = index.lookup(queries, radius=9, within=allowed)[i]
        assert list(zip(near.distances, near.ids, strict=True)) == [x for x in expected if x[0] <= 9]
    assert index.search(queries, within=[]).ids.shape == (5, 0)
    assert len(index.lookup(queries, 3, within=[7])[0].ids) == 0


def test_payload_is_given_back_in_the_order_asked():
    index = HammingIndex(8).add(
        np.array([[1], [2], [3]], np.uint8),
        ids=[5, 1, 3],
        payload={"title": ["fünf", "", "drei"], "path": ["a", "b", "c"]},
    )
    assert index.columns == ["path", "title"]
    assert index.payload([5, 1, 5]) == {"title": ["fünf", "", "fünf"], "path": ["a", "b", "a"]}
    assert index.remove([1]).payload([3, 5])["title"] == ["drei", "fünf"]


def test_scores_rank_the_candidates():
    rng = np.random.default_rng(0)
    codes, scores = some_codes(3000, n_bits=37), rng.normal(size=(6, 37))
    queries = pack(scores > 0)
    index = HammingIndex(37).add(codes)
    found = index.search(queries, k=20, scores=scores, candidates=3000)
    exact = np.tanh(scores) @ (unpack(codes, 37) * 2.0 - 1).T
    np.testing.assert_allclose(found.scores, -np.sort(-exact, axis=1)[:, :20], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.scores, np.take_along_axis(exact, found.ids, 1), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found.distances, np.take_along_axis(hamming(queries, codes), found.ids, 1))
    np.testing.assert_allclose(mh.index.asymmetric_scores(scores, codes), exact, rtol=1e-4, atol=1e-5)
    few = index.search(queries, k=20, scores=scores, candidates=20)  # the 20 nearest in another order
    plain = index.search(queries, k=20)
    assert [set(a) for a in few.ids.tolist()] == [set(a) for a in plain.ids.tolist()]


def test_equal_scores_fall_back_to_distance_and_id():
    codes = np.array([[0b11], [0b01], [0b10], [0b01]], np.uint8)
    index = HammingIndex(2).add(codes, ids=[9, 8, 7, 6])
    found = index.search(np.array([[0b11]], np.uint8), k=4, scores=np.zeros((1, 2)))
    assert found.ids.tolist() == [[9, 6, 7, 8]]
    large = index.search(np.array([[0b11]], np.uint8), k=4, scores=np.full((1, 2), 50.0))
    assert large.ids.tolist() == [[9, 6, 7, 8]]  # tanh saturates: the order of the Hamming distance


def test_matches_read_the_same_whatever_their_form():
    flat = Matches(np.array([[1, 2], [3, 4]]), np.array([[0, 1], [0, 2]]), scores=np.array([[3.0, 2.0], [5.0, 1.0]]))
    assert len(flat) == 2
    assert flat[-1].ids.tolist() == [3, 4]
    assert flat[1].scores.tolist() == [5.0, 1.0]
    with pytest.raises(IndexError):
        flat[2]
    ragged = Matches(np.array([1, 2, 3]), np.array([0, 1, 0]), offsets=np.array([0, 2, 2, 3]))
    assert [m.ids.tolist() for m in ragged] == [[1, 2], [], [3]]


def test_empty_index_and_no_queries():
    index = HammingIndex(N_BITS)
    queries = some_codes(3)
    assert index.search(queries).ids.shape == (3, 0)
    assert index.search(queries, scores=np.zeros((3, N_BITS))).ids.shape == (3, 0)
    assert [len(m.ids) for m in index.lookup(queries, 2)] == [0, 0, 0]
    assert len(index.add(some_codes(0))) == 0
    index.add(some_codes(4))
    assert index.search(some_codes(0)).ids.shape == (0, 4)
    assert len(index.lookup(some_codes(0), 2)) == 0
    assert index.remove(index.ids).search(queries).ids.shape == (3, 0)


def test_k_and_radius_beyond_the_index_return_all():
    index = HammingIndex(N_BITS).add(some_codes(4))
    assert sorted(index.search(some_codes(2), k=10**9).ids[0].tolist()) == [0, 1, 2, 3]
    assert sorted(index.lookup(some_codes(2), radius=10**9)[1].ids.tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda i: HammingIndex(0), "n_bits must be a whole number"),
        (lambda i: HammingIndex(9000), "at most 8191"),
        (lambda i: HammingIndex(8, kind="tree"), "kind must be 'flat', 'ivf' or 'hnsw'; got 'tree'"),
        (lambda i: HammingIndex(8, effort=3), "effort is for the kinds"),
        (lambda i: HammingIndex(8, kind="ivf", effort=0), "effort must be a whole number of at least 1"),
        (lambda i: HammingIndex(8, threads=0), "threads must be a whole number of at least 1"),
        (lambda i: i.add(some_codes(2, n_bits=32)), "4 bytes per code; 20 bits need 3"),
        (lambda i: i.add(np.full((1, 3), 255, np.uint8)), "bits set beyond bit 20"),
        (lambda i: i.add(np.zeros((2, 3))), "packed codes"),
        (lambda i: i.add(some_codes(2), ids=[7]), "1 ids came for 2 codes"),
        (lambda i: i.add(some_codes(2), ids=[7, 7]), "ids must differ; 7 comes more than once"),
        (lambda i: i.add(some_codes(2), ids=[1, 77]), "id 1 is in the index already. Use upsert"),
        (lambda i: i.add(some_codes(2), ids=[1.5, 2]), "ids must be a list of whole numbers"),
        (lambda i: i.add(some_codes(1), ids=np.array([2**63], np.uint64)), "fit in 64 bits"),
        (lambda i: i.add(some_codes(1), payload={"title": ["a"]}), "must have the columns"),
        (lambda i: HammingIndex(N_BITS).add(some_codes(1), payload={"title": [3]}), "must hold strings; it has 3"),
        (lambda i: HammingIndex(N_BITS).add(some_codes(2), payload={"title": ["a"]}), "1 values for 2 codes"),
        (lambda i: HammingIndex(N_BITS).add(some_codes(1), payload={"": ["a"]}), "needs a name"),
        (lambda i: i.upsert(some_codes(1), [1], payload={"title": ["a"]}), "must have the columns"),
        (lambda i: i.upsert(some_codes(2), [1]), "1 ids came for 2 codes"),
        (lambda i: i.remove([1, 50, 60]), "does not hold id 50 and 1 more"),
        (lambda i: i.remove([1, 1]), "ids must differ"),
        (lambda i: i.codes([99]), "does not hold id 99"),
        (lambda i: i.payload([[1]]), "ids must be a list"),
        (lambda i: i.search(some_codes(1), k=0), "k must be a whole number of at least 1; got 0"),
        (lambda i: i.search(some_codes(1), k=True), "k must be a whole number"),
        (lambda i: i.search(some_codes(1, n_bits=8)), "query codes have 1 bytes"),
        (lambda i: i.search(some_codes(1)[0]), "query codes must be packed codes"),
        (lambda i: i.search(some_codes(1), candidates=5), "pass scores too"),
        (lambda i: i.search(some_codes(1), scores=np.zeros((1, 4))), r"scores must be numbers of shape \(1, 20\)"),
        (lambda i: i.search(some_codes(1), scores=np.full((1, N_BITS), np.nan)), "must be finite"),
        (lambda i: i.search(some_codes(1), within=["a"]), "ids must be a list of whole numbers"),
        (lambda i: i.lookup(some_codes(1), -1), "radius must be a whole number of at least 0"),
        (lambda i: i.lookup(some_codes(1), 2.0), "radius must be a whole number"),
        (lambda i: HammingIndex(N_BITS).recall(some_codes(1)), "at least one query and one code"),
    ],
)
def test_bad_input_is_named_and_changes_nothing(call, message):
    index = HammingIndex(N_BITS).add(some_codes(5))
    with pytest.raises(InputError, match=message):
        call(index)
    assert index.ids.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(index.codes(range(5)), some_codes(5))


def test_growing_copies_when_a_sibling_has_taken_the_room():
    base = Growing(np.arange(2)).extended(np.array([2]))
    a, b = base.extended(np.array([10])), base.extended(np.array([20]))
    assert (base.array.tolist(), a.array.tolist(), b.array.tolist()) == ([0, 1, 2], [0, 1, 2, 10], [0, 1, 2, 20])
    assert np.shares_memory(a.data, base.data)
    assert not np.shares_memory(b.data, base.data)


def test_text_column_selects_and_grows():
    column = TextColumn.of(["a", "", "ccc", "dd"])
    picked = column.selected(np.array([3, 1, 2, 3])).extended(["e"])
    assert picked.take(np.arange(5)) == ["dd", "", "ccc", "dd", "e"]
    assert column.selected(np.array([], np.int64)).take(np.array([], np.int64)) == []


def test_readers_see_whole_states_while_one_thread_writes():
    # The writer adds batches whose codes are all the same word, then removes batches: in any one state a batch is there
    # wholly or not at all, and ids tell which batch a hit belongs to.
    size, rounds, n_bits = 50, 60, 32
    index = HammingIndex(n_bits, threads=1)
    queries = np.zeros((2, 4), np.uint8)
    stop, problems, reads = threading.Event(), [], [0]

    def read():
        try:
            while not stop.is_set():
                near, all_of_it = index.lookup(queries, 1)[1], index.search(queries, k=10**6)
                for ids, distances in ((near.ids, near.distances), (all_of_it.ids[0], all_of_it.distances[0])):
                    batches, counts = np.unique(ids // size, return_counts=True)
                    if not (counts == size).all():
                        problems.append(("torn", batches, counts))
                    if not (distances == (ids // size) % 2).all():  # odd batches have one bit set
                        problems.append(("wrong distance", ids, distances))
                reads[0] += 1
        except Exception as error:  # reported by the assertion below
            problems.append(error)

    with (
        mock.patch.object(state_module, "_REBUILD_LEAST", 200),
        mock.patch("modalhash.indexing.tables.best_plan", lambda n, n_bits, radius: 2 if n else None),
    ):
        index.lookup(queries, 1)
        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        for batch in range(rounds):
            codes = np.zeros((size, 4), np.uint8)
            codes[:, 0] = batch % 2
            ids = np.arange(batch * size, (batch + 1) * size)
            index.add(codes, ids if batch % 5 else ids[::-1].copy())
            if batch % 3 == 2:
                index.remove(np.arange((batch - 1) * size, batch * size))
        stop.set()
        for reader in readers:
            reader.join(30)
    assert not problems
    assert reads[0] > 0
    assert len(index) == (rounds - rounds // 3) * size
