"""The block engine equals the plain version, on every kind of view."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit

from modalhash import DMH
from modalhash.datasets import make_synthetic
from modalhash.linalg import CentredMatrix
from modalhash.solvers.cpu import BlockEngine, _Repeating
from modalhash.solvers.kernels import embed_block
from modalhash.solvers.objective import Part, ReferenceEngine, choose_engine

pytestmark = pytest.mark.filterwarnings("ignore::modalhash.exceptions.ConstantBitsWarning")


def _parts(rng, n, c, dtype=np.float32):
    image = rng.normal(3, 2, (n, 37)).astype(dtype)
    text = sparse.random(n, 90, 0.05, "csr", dtype, rng=rng)
    labels = (rng.random((n, 6)) < 0.3).astype(dtype)
    parts = []
    for name, X, mean, scale, alpha in (
        ("image", image, image.mean(axis=0), 5.0, 1.0),
        ("text", text, np.asarray(text.mean(axis=0)).ravel(), 40.0, 2.0),
        ("labels", labels, None, 255.0, 10.0),
    ):
        W = rng.normal(0, 0.01, (X.shape[1], c)).astype(dtype)
        v = rng.normal(0, 0.1, c).astype(dtype)
        parts.append(Part(name, CentredMatrix(X, mean, scale), W, v, alpha, gamma=0.05))
    return parts


@pytest.mark.parametrize("kind", ["paper", "weights", None])
@pytest.mark.parametrize("n", [1, 511, 2500])
@pytest.mark.parametrize("threads", [1, 3])
def test_block_engine_equals_the_plain_version(rng, kind, n, threads):
    parts = _parts(rng, n, 13)
    with ReferenceEngine(parts, n, kind) as engine:
        expected = engine.gradients()
    with BlockEngine(parts, n, kind, threads=threads) as engine:
        got = engine.gradients()
    for one, other in zip(expected, got, strict=True):
        for a, b in zip(one, other, strict=True):
            scale = np.abs(np.asarray(a)).max()
            np.testing.assert_allclose(b, a, rtol=1e-3, atol=2e-5 * scale)


def test_rows_that_repeat_are_found(rng):
    engine = BlockEngine(_parts(rng, 2500, 8), 2500, "paper")
    assert [isinstance(view, _Repeating) for view in engine.views] == [False, False, True]


def test_the_result_does_not_depend_on_the_number_of_threads(rng):
    results = []
    for threads in (1, 2, 5):
        parts = _parts(np.random.default_rng(1), 3000, 16)
        with BlockEngine(parts, 3000, "paper", threads=threads) as engine:
            results.append(engine.gradients())
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            for a, b in zip(one, two, strict=True):
                np.testing.assert_array_equal(a, b)


def test_sigmoid_to_1e6():
    x = np.concatenate([np.linspace(-110, 110, 400_001), [0.0, -0.0, 1e30, -1e30]]).astype(np.float32)[None, :]
    Z, T = x.copy(), np.empty_like(x)
    bits = np.empty(x.shape[1], dtype=np.int32)
    embed_block(Z, np.zeros(x.shape[1], np.float32), np.float32(1), T, True, bits, bits.view(np.float32))
    assert np.abs(Z - expit(x.astype(np.float64))).max() < 1e-6
    np.testing.assert_array_equal(T, Z - np.float32(0.5))


def test_who_is_chosen(rng):
    assert isinstance(choose_engine(_parts(rng, 50, 8), 50, "paper"), ReferenceEngine)
    assert isinstance(choose_engine(_parts(rng, 40_000, 16), 40_000, "paper"), BlockEngine)
    assert isinstance(choose_engine(_parts(rng, 40_000, 16, np.float64), 40_000, "paper"), ReferenceEngine)
    assert isinstance(choose_engine(_parts(rng, 40_000, 16), 40_000, "centered"), ReferenceEngine)


@pytest.mark.slow
def test_a_whole_fit_by_both(monkeypatch):
    """From the same start, 100 iterations: the engines differ by rounding, their codes on hardly a bit."""
    data = make_synthetic(n=20_000, sparse_text=True, random_state=0)
    fast = DMH(32, n_iter=100, random_state=0).fit(data.views, labels=data.labels)
    plain_engine = lambda parts, n, kind, storage: ReferenceEngine(parts, n, kind)  # noqa: E731
    monkeypatch.setattr("modalhash.methods.dmh.choose_engine", plain_engine)
    plain = DMH(32, n_iter=100, random_state=0).fit(data.views, labels=data.labels)
    np.testing.assert_allclose(fast.objective_, plain.objective_, rtol=1e-4)
    differ = np.unpackbits(fast.train_codes_ ^ plain.train_codes_).mean()
    assert differ < 0.002
