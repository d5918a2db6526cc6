"""Codes that are torch tensors: the same numbers, from matrix products in place of popcount."""

from __future__ import annotations

import numpy as np
import pytest

from modalhash.codes import pack
from modalhash.evaluation import distance_counts, evaluate
from modalhash.exceptions import InputError, MissingExtraError

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="torch is not installed (torch extra)")

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]


def make(n_bits, n_labels=7, n_queries=8, n=3000, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.integers(0, 2, (3, n_bits))
    codes = pack(centres[rng.integers(0, 3, n_queries + n)] ^ (rng.random((n_queries + n, n_bits)) < 0.15))
    labels = (rng.random((n_queries + n, n_labels)) < 0.3).astype(np.uint8)
    return codes[:n_queries], codes[n_queries:], labels[:n_queries], labels[n_queries:]


def both(n_bits, device, *, block_bytes=1 << 28, **options):
    queries, database, query_labels, labels = make(n_bits, **options)
    common = {
        "query_labels": query_labels,
        "database_labels": labels,
        "n_bits": n_bits,
        "ties": ["expected", "id", "best", "worst"],
        "per_query": True,
        "k": [5, 1000],
        "gain": ["linear", "exponential"],
    }
    ours = evaluate(queries, database, **common)
    tensors = torch.tensor(queries, device=device), torch.tensor(database, device=device)
    return ours, evaluate(*tensors, **common, block_bytes=block_bytes)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("n_bits", "n_labels"), [(1, 3), (32, 7), (65, 70), (130, 1)])
@pytest.mark.parametrize("block_bytes", [1, 600_000, 1 << 28])
def test_tensors_give_the_same(n_bits, n_labels, block_bytes, device):
    ours, theirs = both(n_bits, device, n_labels=n_labels, block_bytes=block_bytes)
    assert theirs.values == pytest.approx(ours.values, abs=1e-12)
    assert theirs.n_without_relevant == ours.n_without_relevant
    for name, values in ours.per_query.items():
        np.testing.assert_allclose(theirs.per_query[name], values, atol=1e-12)
    for name, curve in ours.curves.items():
        for axis, values in curve.items():
            np.testing.assert_allclose(theirs.curves[name][axis], values, atol=1e-12)
    assert theirs.bits["database"].distinct_codes == ours.bits["database"].distinct_codes


@pytest.mark.parametrize("device", DEVICES)
def test_counts_are_equal(device):
    queries, database, query_labels, labels = make(48, n=20_000)
    options = {"query_labels": query_labels, "database_labels": labels, "n_bits": 48, "graded": True}
    expected = distance_counts(queries, database, **options)
    found = distance_counts(torch.tensor(queries, device=device), torch.tensor(database, device=device), **options)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(distance_counts(queries, database, device=device, **options), expected)


def test_one_side_a_tensor_and_labels_as_tensors():
    queries, database, query_labels, labels = make(16)
    expected = evaluate(queries, database, query_labels=query_labels, database_labels=labels, n_bits=16)
    found = evaluate(
        queries,
        torch.tensor(database),
        query_labels=torch.tensor(query_labels),
        database_labels=torch.tensor(labels),
        n_bits=16,
    )
    assert found.values == pytest.approx(expected.values, abs=1e-12)


def test_bad_tensors_and_devices():
    queries, database, query_labels, labels = make(16)
    options = {"query_labels": query_labels, "database_labels": labels, "n_bits": 16}
    with pytest.raises(InputError, match="query_codes must be packed codes"):
        evaluate(torch.tensor(queries).float(), torch.tensor(database), **options)
    with pytest.raises(InputError, match="have 1 bytes per code; 16 bits need 2"):
        evaluate(torch.tensor(queries), torch.tensor(database)[:, :1], **options)
    with pytest.raises(InputError, match="cannot be used here"):
        evaluate(queries, database, device="nowhere", **options)


def test_device_without_torch_says_the_pip_line(monkeypatch):
    import sys

    queries, database, query_labels, labels = make(16)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"modalhash\[torch\]"):
        evaluate(queries, database, query_labels=query_labels, database_labels=labels, n_bits=16, device="cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_two_devices_are_refused():
    queries, database, query_labels, labels = make(16)
    with pytest.raises(InputError, match="on different devices"):
        evaluate(
            torch.tensor(queries),
            torch.tensor(database, device="cuda"),
            query_labels=query_labels,
            database_labels=labels,
            n_bits=16,
        )
