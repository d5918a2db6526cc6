"""Several indexes as one give the answers of one."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modalhash import HammingIndex
from modalhash.codes import pack
from modalhash.exceptions import InputError, ModelFormatError
from modalhash.index import SearchIndex
from modalhash.shards import MANIFEST, ShardedIndex


def some_codes(n, n_bits, seed=0):
    rng = np.random.default_rng(seed)
    return pack(rng.integers(0, 2, (n, n_bits)) & rng.integers(0, 2, (n, n_bits)))


def same(a, b, queries, k, radius, **filters):
    for x, y in (
        (a.search(queries, k, **filters), b.search(queries, k, **filters)),
        (a.lookup(queries, radius, **filters), b.lookup(queries, radius, **filters)),
    ):
        np.testing.assert_array_equal(x.ids, y.ids)
        np.testing.assert_array_equal(x.distances, y.distances)
        if x.offsets is not None:
            np.testing.assert_array_equal(x.offsets, y.offsets)


@given(
    n_bits=st.integers(1, 100),
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=5),
    k=st.integers(1, 60),
    radius=st.integers(0, 30),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=40)
def test_merge_is_exact(n_bits, sizes, k, radius, seed):
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    codes, ids = some_codes(n, n_bits, seed), rng.choice(10 * n + 1, n, replace=False)
    cuts = np.cumsum([0, *sizes])
    parts = [HammingIndex(n_bits).add(codes[a:b], ids[a:b]) for a, b in pairwise(cuts)]
    sharded: SearchIndex = ShardedIndex(parts)
    whole = HammingIndex(n_bits).add(codes, ids)
    queries = some_codes(4, n_bits, seed + 1)
    same(sharded, whole, queries, k, radius)
    same(sharded, whole, queries, k, radius, within=ids[::2])
    assert len(sharded) == n
    np.testing.assert_array_equal(sharded.codes(ids), codes)


def test_changes_go_to_the_right_shard():
    sharded = ShardedIndex([HammingIndex(16) for _ in range(3)])
    whole = HammingIndex(16)
    for round_ in range(6):
        codes, titles = some_codes(10, 16, round_), [f"{round_}.{i}" for i in range(10)]
        for index in (sharded, whole):
            index.add(codes, payload={"title": titles})
    assert sorted(map(len, sharded.shards)) == [20, 20, 20]
    for index in (sharded, whole):
        index.remove([0, 15, 59])
        index.upsert(some_codes(3, 16, 9), [1, 44, 500], payload={"title": ["a", "b", "c"]})
        index.add(some_codes(1, 16, 10), payload={"title": ["last"]})
    np.testing.assert_array_equal(sharded.ids, whole.ids)
    assert sharded.ids[-1] == 501
    assert sharded.payload([500, 44, 2]) == whole.payload([500, 44, 2])
    same(sharded, whole, some_codes(5, 16, 3), k=70, radius=4)
    assert repr(sharded) == "ShardedIndex(n_bits=16): 59 codes in 3 shards"


def test_save_replaces_all_or_nothing(tmp_path, monkeypatch):
    first = ShardedIndex(
        [HammingIndex(20).add(some_codes(30, 20)), HammingIndex(20).add(some_codes(5, 20), range(40, 45))]
    )
    assert first.save(tmp_path) == tmp_path
    same(ShardedIndex.load(tmp_path), first, some_codes(3, 20, 7), k=9, radius=3)
    names = {p.name for p in tmp_path.iterdir()}

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    second = ShardedIndex([HammingIndex(20).add(some_codes(3, 20))])
    with monkeypatch.context() as patch:
        patch.setattr("modalhash.shards.atomic_write", full_disk)
        with pytest.raises(OSError, match="No space left"):
            second.save(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == names
    assert len(ShardedIndex.load(tmp_path)) == 35
    second.save(tmp_path)
    assert len(ShardedIndex.load(tmp_path)) == 3
    assert len(list(tmp_path.iterdir())) == 2  # the list and one shard: the old shards are gone


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"format_version": 9}',
        '{"format_version": 1, "shards": []}',
        '{"format_version": 1, "shards": ["../x"]}',
    ],
)
def test_broken_lists_are_refused(tmp_path, content):
    with pytest.raises(ModelFormatError, match="not the list of a sharded index"):
        ShardedIndex.load(tmp_path)
    (tmp_path / MANIFEST).write_text(content)
    with pytest.raises(ModelFormatError, match="not the list of a sharded index"):
        ShardedIndex.load(tmp_path)


def test_a_missing_shard_is_refused(tmp_path):
    (tmp_path / MANIFEST).write_text(json.dumps({"format_version": 1, "shards": ["shard-0"]}))
    with pytest.raises(ModelFormatError, match="no such folder"):
        ShardedIndex.load(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelFormatError, match="is a file"):
        ShardedIndex([HammingIndex(8)]).save(tmp_path / "file")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda i: ShardedIndex([]), "at least one shard"),
        (lambda i: ShardedIndex([HammingIndex(8), HammingIndex(9)]), r"one n_bits; got \[8, 9\]"),
        (lambda i: ShardedIndex([i.shards[0], i.shards[0]]), "ids must differ"),
        (lambda i: i.add(some_codes(1, 8), ids=[1]), "id 1 is in the index already"),
        (lambda i: i.add(some_codes(1, 16)), "bytes per code"),
        (lambda i: i.remove([0, 99]), "does not hold id 99"),
        (lambda i: i.codes([99]), "does not hold id 99"),
        (lambda i: i.search(some_codes(1, 8), k=0), "k must be"),
        (lambda i: i.lookup(some_codes(1, 8), -1), "radius must be"),
    ],
)
def test_bad_input_is_named(call, message):
    index = ShardedIndex([HammingIndex(8).add(some_codes(3, 8)), HammingIndex(8)])
    with pytest.raises(InputError, match=message):
        call(index)
    assert index.ids.tolist() == [0, 1, 2]
