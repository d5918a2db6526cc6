"""Second moments and closed forms, each against its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from modalhash import spectral
from modalhash.exceptions import InputError
from modalhash.linalg import CentredMatrix, cross, gram, unit_rows

FORMS = {"dense": np.asarray, "csr": sparse.csr_array}


@pytest.mark.parametrize("a", FORMS)
@pytest.mark.parametrize("b", FORMS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("centred", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("block", [7, 2**22])
def test_cross_is_the_product(rng, monkeypatch, a, b, weighted, centred, block):
    monkeypatch.setattr("modalhash.linalg._BLOCK_NUMBERS", block)
    X, Y = (rng.random((30, d)) * (rng.random((30, d)) < 0.5) for d in (5, 4))
    w = rng.random(30) if weighted else None
    means = [Z.mean(axis=0) if c else None for Z, c in zip((X, Y), centred, strict=True)]
    dense = [(Z - (0 if m is None else m)) * s for Z, m, s in zip((X, Y), means, (2.0, 3.0), strict=True)]
    expected = dense[0].T @ ((np.ones(30) if w is None else w)[:, None] * dense[1])
    found = cross(CentredMatrix(FORMS[a](X), means[0], 2.0), CentredMatrix(FORMS[b](Y), means[1], 3.0), w)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_gram_in_float32_keeps_float64_digits(rng, form):
    X = (1000 + rng.normal(size=(500, 6))).astype(np.float32)  # a large mean: X'X - n m m' in float32 keeps nothing
    exact = X.astype(np.float64)
    exact -= exact.mean(axis=0)
    G = gram(CentredMatrix(FORMS[form](X), X.astype(np.float64).mean(axis=0)))
    assert G.dtype == np.float64
    np.testing.assert_array_equal(G, G.T)
    np.testing.assert_allclose(G, exact.T @ exact, rtol=1e-7 if form == "csr" else 1e-12, atol=1e-4)


@pytest.mark.torch
def test_moments_of_torch_tensors_are_those_of_numpy(rng):
    torch = pytest.importorskip("torch")
    X, Y, L = rng.normal(size=(40, 5)), rng.normal(size=(40, 4)), (rng.random((40, 3)) < 0.5).astype(float)
    M, N = CentredMatrix(torch.from_numpy(X), X.mean(axis=0)), CentredMatrix(torch.from_numpy(Y), Y.mean(axis=0))
    expected = cross(CentredMatrix(X, X.mean(axis=0)), CentredMatrix(Y, Y.mean(axis=0)))
    for other in (N, CentredMatrix(Y, Y.mean(axis=0)), CentredMatrix(sparse.csr_array(Y), Y.mean(axis=0))):
        found = cross(M, other)
        assert isinstance(found, np.ndarray)
        np.testing.assert_allclose(found, expected, atol=1e-12)
        np.testing.assert_allclose(cross(other, M), expected.T, atol=1e-12)
    w = rng.random(40)
    np.testing.assert_allclose(gram(M, w), gram(CentredMatrix(X, X.mean(axis=0)), w), atol=1e-12)
    np.testing.assert_allclose(cross(M, CentredMatrix(L)), (X - X.mean(axis=0)).T @ L, atol=1e-12)
    W = rng.normal(size=(5, 2))
    np.testing.assert_allclose(M.apply(W), (X - X.mean(axis=0)) @ W, atol=1e-12)
    np.testing.assert_allclose(M.apply_transposed(L), (X - X.mean(axis=0)).T @ L, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_unit_rows(rng, form):
    L = np.vstack([(rng.random((10, 4)) < 0.5).astype(np.uint8), np.zeros((1, 4), np.uint8)])
    found = unit_rows(FORMS[form](L))
    assert sparse.issparse(found) == (form == "csr")
    dense = found.toarray() if form == "csr" else found
    length = np.linalg.norm(L, axis=1, keepdims=True)
    np.testing.assert_allclose(dense, np.divide(L, length, out=np.zeros((11, 4)), where=length > 0))


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(0, 3))
def test_whitener_whitens_what_varies(seed, rank, extra):
    rng = np.random.default_rng(seed)
    F = rng.normal(size=(rank + extra, rank))
    G = F @ F.T
    T = spectral.whitener(G, 0.5)
    assert T.shape == (rank + extra, rank)
    np.testing.assert_allclose(T.T @ (G + 0.5 * np.eye(rank + extra)) @ T, np.eye(rank), atol=1e-8)


def test_whitener_of_nothing():
    assert spectral.whitener(np.zeros((3, 3))).shape == (3, 0)


@given(st.integers(0, 10_000))
def test_cca_pairs_are_diagonal_and_normed(seed):
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(30, 5)), rng.normal(size=(30, 4))
    Y[:, 0] += X[:, 1]
    Tx, Ty = spectral.whitener(X.T @ X), spectral.whitener(Y.T @ Y)
    Wx, Wy, s = spectral.cca(Tx, Ty, X.T @ Y, 3)
    np.testing.assert_allclose(Wx.T @ X.T @ X @ Wx, np.eye(3), atol=1e-8)
    np.testing.assert_allclose(Wx.T @ X.T @ Y @ Wy, np.diag(s), atol=1e-8)
    assert (np.diff(s) <= 0).all()


@given(st.integers(0, 10_000), st.integers(1, 7), st.integers(1, 7))
def test_top_singular_pair(seed, m, n):
    M = np.random.default_rng(seed).normal(size=(m, n))
    u, v, s = spectral.top_singular_pair(M)
    assert s == pytest.approx(np.linalg.norm(M, 2))
    np.testing.assert_allclose(M @ v, s * u, atol=1e-6 * s)
    assert np.linalg.norm(u) == pytest.approx(1)
    assert np.linalg.norm(v) == pytest.approx(1)


def test_top_singular_pair_of_zero():
    assert spectral.top_singular_pair(np.zeros((2, 3)))[2] == 0


def test_smallest_eigenvectors_minimise(rng):
    A, F = rng.normal(size=(6, 6)), rng.normal(size=(9, 6))
    A, B = A + A.T, F.T @ F
    W, w = spectral.smallest_eigenvectors(A, spectral.whitener(B), 3)
    np.testing.assert_allclose(W.T @ B @ W, np.eye(3), atol=1e-9)
    np.testing.assert_allclose(A @ W, B @ W * w, atol=1e-8)
    for _ in range(20):  # no other feasible point is better
        Q = np.linalg.qr(rng.normal(size=(6, 3)))[0]
        V = spectral.whitener(B) @ Q
        assert np.trace(V.T @ A @ V) >= w.sum() - 1e-9


def test_procrustes_beats_other_rotations(rng):
    A, B = rng.normal(size=(20, 4)), rng.normal(size=(20, 4))
    R = spectral.procrustes(A, B)
    np.testing.assert_allclose(R.T @ R, np.eye(4), atol=1e-12)
    best = np.linalg.norm(B - A @ R)
    for _ in range(50):
        assert best <= np.linalg.norm(B - A @ np.linalg.qr(rng.normal(size=(4, 4)))[0]) + 1e-12


def test_principal_directions_are_those_of_the_svd(rng):
    X = rng.normal(size=(30, 6)) * [6, 5, 4, 3, 2, 1]
    V = np.linalg.svd(X)[2][:3].T
    W = spectral.principal_directions(X.T @ X, 3)
    np.testing.assert_allclose(abs(W.T @ V), np.eye(3), atol=1e-9)
    assert (np.take_along_axis(W, abs(W).argmax(axis=0)[None], axis=0) > 0).all()


def test_ridge_solver(rng):
    F = rng.normal(size=(10, 4))
    R = rng.normal(size=(4, 2))
    G = F.T @ F
    np.testing.assert_allclose(spectral.ridge_solver(G, 0.3)(R), np.linalg.solve(G + 0.3 * np.eye(4), R))
    with pytest.raises(InputError, match="second moments of view 'a' are singular"):
        spectral.ridge_solver(np.zeros((2, 2)), 0.0, "view 'a'")
