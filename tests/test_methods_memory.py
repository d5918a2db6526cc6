"""Sparse views stay sparse, and no method of closed form builds anything of n x n."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pytest
from scipy import sparse

import modalhash as mh

METHODS = {
    "CVH, labels": lambda: mh.CVH(8),
    "CVH, pairs": lambda: mh.CVH(8, affinity="pairs"),
    "SCM, seq": lambda: mh.SCM(8),
    "SCM, orth": lambda: mh.SCM(8, variant="orth"),
    "MDBE": lambda: mh.MDBE(8, random_state=0),
    "CMFH, 2013": lambda: mh.CMFH(8, n_iter=5, random_state=0),
    "CMFH, 2015": lambda: mh.CMFH(8, form="2015", random_state=0),
    "MultiViewITQ": lambda: mh.MultiViewITQ(8, random_state=0),
    "MultiViewLinear": lambda: mh.MultiViewLinear(8, random_state=0),
    "LSH": lambda: mh.LSH(8, random_state=0),
}


def _data(n=20_000, d=400):
    rng = np.random.default_rng(0)
    L = np.eye(10, dtype=np.uint8)[rng.integers(0, 10, n)] | (rng.random((n, 10)) < 0.1)
    image = (L @ rng.normal(size=(10, 12)) + rng.normal(size=(n, 12))).astype(np.float32)
    words = rng.integers(0, d, size=(n, 5))
    words[:, 0] = L.argmax(axis=1)
    text = sparse.csr_array(
        (np.ones(words.size, np.float32), (np.repeat(np.arange(n), 5), words.ravel())), shape=(n, d)
    )
    text.sum_duplicates()
    return {"image": image, "text": text}, L


@pytest.mark.parametrize("method", METHODS)
def test_memory_stays_linear_in_rows_and_sparse_stays_sparse(method):
    views, L = _data()
    # n x n in bytes alone is 400 MB; the text view held dense is 64 MB in float64. Both are ruled out, since the rest
    # (moments of 400 columns, blocks of 32 MB, 20,000 rows of 8 scores) stays below 45 MB.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hasher = METHODS[method]()
        tracemalloc.start()
        hasher.fit(views, labels=L)
        hasher.encode("text", views["text"])
        for rule in hasher.database_rules[1:]:
            hasher.database_codes(views, L, rule=rule)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 45e6, f"{method} allocated {peak / 1e6:.0f} MB"


@pytest.mark.torch
@pytest.mark.parametrize("method", METHODS)
def test_torch_tensors_give_the_codes_of_numpy(method, small):
    torch = pytest.importorskip("torch")
    views = {name: X.astype(np.float64) for name, X in small.views.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        a = METHODS[method]().fit(views, labels=small.labels)
        b = METHODS[method]().fit({name: torch.from_numpy(X.copy()) for name, X in views.items()}, labels=small.labels)
    for name, X in views.items():
        np.testing.assert_array_equal(a.encode(name, X), b.encode(name, torch.from_numpy(X.copy())))
