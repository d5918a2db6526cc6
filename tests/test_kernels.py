"""Kernels, anchors, logistic regression and tiled affinities, each against a slow literal version."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import check_grad

from modalhash import kernels
from modalhash.exceptions import InputError
from modalhash.kernels import (
    LabelAffinity,
    choose_anchors,
    kernel_logistic_regression,
    mean_squared_distance,
    rbf_kernel,
    squared_distances,
)


def slow_distances(X, A):
    return np.array([[sum((x - a) ** 2) for a in A] for x in X])


@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_mean_squared_distance_is_the_mean_over_all_pairs(n, d, seed):
    X = np.random.default_rng(seed).normal(size=(n, d)) * 3 + 1
    X[X < 0] = 0
    expected = slow_distances(X, X).mean()
    assert mean_squared_distance(X) == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert mean_squared_distance(sparse.csr_array(X)) == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert mean_squared_distance(X.astype(np.float32)) == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_mean_squared_distance_keeps_its_digits_far_from_the_origin(rng):
    X = rng.normal(size=(200, 4))
    assert mean_squared_distance(X + 1e7) == pytest.approx(mean_squared_distance(X), rel=1e-7)
    far = sparse.csr_array(X + 1e7)
    assert mean_squared_distance(far) == pytest.approx(mean_squared_distance(X), rel=1e-7)


@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, -1e9])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_equal_rows_have_no_distance_at_all(value, form):
    assert mean_squared_distance(form(np.full((1000, 3), value))) == 0.0


def test_squared_distances_and_kernel_equal_the_definition(rng, monkeypatch):
    X, A = rng.normal(size=(11, 3)), rng.normal(size=(4, 3))
    X[rng.random(X.shape) < 0.5] = 0
    monkeypatch.setattr(kernels, "_BLOCK_NUMBERS", 8)  # several blocks
    for form in (X, sparse.csr_array(X), sparse.csc_array(X)):
        np.testing.assert_allclose(squared_distances(form, A), slow_distances(X, A), rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(rbf_kernel(form, A, 0.7), np.exp(-slow_distances(X, A) / 0.7), rtol=1e-12)
    assert squared_distances(X.astype(np.float32), A).dtype == np.float64


def test_distance_to_itself_is_zero_and_never_negative(rng):
    X = rng.normal(size=(50, 8)) * 1e-3 + 1e3
    D = squared_distances(X, X)
    assert D.min() >= 0
    assert np.diag(D).max() < 1e-12 * 1e-6 * 1e3


@pytest.mark.parametrize("width", [0.0, -1.0, np.nan, np.inf])
def test_kernel_refuses_a_width_that_is_not_positive(width):
    with pytest.raises(InputError, match="width of a Gaussian kernel must be positive"):
        rbf_kernel(np.eye(2), np.eye(2), width)


def test_anchors_are_rows_or_centres(rng):
    X = rng.normal(size=(40, 3))
    rows = choose_anchors(X, 7, "random", np.random.default_rng(1))
    assert rows.shape == (7, 3)
    assert all((row == X).all(axis=1).any() for row in rows)
    assert len(np.unique(rows, axis=0)) == 7
    # two far groups: the centres are their means
    groups = np.concatenate([rng.normal(size=(20, 3)), rng.normal(size=(30, 3)) + 100])
    centres = choose_anchors(groups, 2, "kmeans", np.random.default_rng(0))
    centres = centres[np.argsort(centres[:, 0])]
    np.testing.assert_allclose(centres, [groups[:20].mean(axis=0), groups[20:].mean(axis=0)], atol=1e-9)


@pytest.mark.parametrize("kind", ["kmeans", "random"])
def test_anchors_of_sparse_rows_equal_those_of_dense_rows(rng, kind):
    X = np.where(rng.random((60, 5)) < 0.3, rng.normal(size=(60, 5)), 0.0)
    a = choose_anchors(X, 6, kind, np.random.default_rng(3))
    b = choose_anchors(sparse.csr_array(X), 6, kind, np.random.default_rng(3))
    np.testing.assert_allclose(a, b, atol=1e-12)
    np.testing.assert_array_equal(a, choose_anchors(X, 6, kind, np.random.default_rng(3)))  # same seed, same anchors


def test_fewer_rows_than_anchors_makes_every_row_an_anchor(rng):
    X = rng.normal(size=(5, 2)).astype(np.float32)
    for kind in ("kmeans", "random"):
        A = choose_anchors(X, 500, kind, rng)
        np.testing.assert_array_equal(A, X)
        assert A.dtype == np.float64
        assert not np.shares_memory(A, X)


def test_fewer_distinct_rows_than_anchors_is_no_trouble(rng):
    X = np.repeat(np.eye(3), 10, axis=0)
    A = choose_anchors(X, 8, "kmeans", rng)
    assert A.shape == (8, 3)
    assert np.isfinite(A).all()


@pytest.mark.parametrize("bad", [0, -3, 2.5, True, "many"])
def test_a_bad_number_of_anchors_is_refused(bad):
    with pytest.raises(InputError, match="n_anchors must be a whole number of at least 1"):
        choose_anchors(np.eye(3), bad, "random", np.random.default_rng(0))


def test_an_unknown_kind_of_anchors_is_refused():
    with pytest.raises(InputError, match="one of kmeans, random; got 'grid'"):
        choose_anchors(np.eye(3), 2, "grid", np.random.default_rng(0))


def logistic(K, H, K0, W, ridge):
    return np.log1p(np.exp(-H * (K @ W))).sum() + ridge * np.trace(W.T @ K0 @ W)


def test_logistic_regression_reaches_the_minimum_of_every_bit(rng):
    """All bits at once equal Newton's method on each bit alone."""
    X, A = rng.normal(size=(60, 3)), rng.normal(size=(6, 3))
    K, K0 = rbf_kernel(X, A, 2.0), rbf_kernel(A, A, 2.0)
    H = np.where(rng.random((60, 4)) < 0.5, 1.0, -1.0)
    W, curve = kernel_logistic_regression(K, H, K0, ridge=0.05, max_iter=500, tol=1e-10)
    for b in range(4):
        w = np.zeros(6)
        for _ in range(50):
            p = 1 / (1 + np.exp(-K @ w))
            gradient = K.T @ (p - (H[:, b] + 1) / 2) + 2 * 0.05 * K0 @ w
            w -= np.linalg.solve(K.T @ (K * (p * (1 - p))[:, None]) + 2 * 0.05 * K0, gradient)
        np.testing.assert_allclose(W[:, b], w, rtol=1e-4, atol=1e-6)
    assert curve[0] == pytest.approx(60 * 4 * np.log(2))
    assert (np.diff(curve) <= 1e-9).all()
    assert curve[-1] == pytest.approx(logistic(K, H, K0, W, 0.05), rel=1e-10)


def test_logistic_regression_in_strips_equals_the_whole(rng, monkeypatch):
    X, A = rng.normal(size=(90, 3)), rng.normal(size=(6, 3))
    K, K0 = rbf_kernel(X, A, 2.0), rbf_kernel(A, A, 2.0)
    H = np.where(rng.random((90, 3)) < 0.5, 1.0, -1.0)
    whole, _ = kernel_logistic_regression(K, H, K0, max_iter=20)
    monkeypatch.setattr(kernels, "_SMALL", 0)
    strips, _ = kernel_logistic_regression(K, H, K0, max_iter=20)
    np.testing.assert_allclose(strips, whole, rtol=1e-6)


def test_logistic_regression_survives_anchors_that_coincide(rng):
    X, A = rng.normal(size=(40, 3)), rng.normal(size=(5, 3))
    A = np.concatenate([A, A[:2]])
    K, K0 = rbf_kernel(X, A, 2.0), rbf_kernel(A, A, 2.0)
    H = np.where(X[:, :1] > 0, 1.0, -1.0)
    W, _ = kernel_logistic_regression(K, H, K0)
    once, _ = kernel_logistic_regression(K[:, :5], H, K0[:5, :5])
    assert np.isfinite(W).all()
    np.testing.assert_allclose(K @ W, K[:, :5] @ once, rtol=1e-2, atol=1e-2)


def test_logistic_regression_stops_when_told(rng):
    K = rbf_kernel(rng.normal(size=(30, 2)), rng.normal(size=(4, 2)), 1.0)
    H = np.where(rng.random((30, 2)) < 0.5, 1.0, -1.0)
    assert kernel_logistic_regression(K, H, np.eye(4), max_iter=3)[1].size == 4
    assert kernel_logistic_regression(K, H, np.eye(4), max_iter=300, tol=1.0)[1].size < 10


# ---------------------------------------------------------------------------- affinities of rows


def slow_affinities(L, Y):
    """P, Q and N written out entry by entry."""
    n = len(L)
    P, N = np.zeros((n, n)), np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if i != j:
                P[i, j] = L[i] @ L[j] / np.sqrt((L[i] @ L[i]) * (L[j] @ L[j]))
                N[i, j] = 1 / (1 + ((Y[i] - Y[j]) ** 2).sum() / 4)
    return P / P.sum(), N / N.sum(), N


def slow_divergence(L, Y):
    P, Q, _ = slow_affinities(L, Y)
    return sum(P[i, j] * np.log(P[i, j] / Q[i, j]) for i, j in zip(*np.nonzero(P), strict=True))


def labels_of(rng, n, q=4):
    L = (rng.random((n, q)) < 0.4).astype(np.uint8)
    L[np.arange(n), rng.integers(q, size=n)] = 1
    return L


@pytest.mark.parametrize("tile", [3, 7, 256])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_divergence_equals_the_definition(rng, monkeypatch, tile, form):
    monkeypatch.setattr(kernels, "_TILE", tile)
    L, Y = labels_of(rng, 23), rng.normal(size=(23, 3))
    P, Q, N = slow_affinities(L.astype(float), Y)
    M = (P - Q) * N
    affinity = LabelAffinity(form(L))
    value, gradient = affinity.divergence(Y)
    assert affinity.entropy == pytest.approx((P[P > 0] * np.log(P[P > 0])).sum(), rel=1e-12)
    assert value == pytest.approx(slow_divergence(L.astype(float), Y), rel=1e-12)
    np.testing.assert_allclose(gradient, np.diag(M.sum(axis=1)) @ Y - M @ Y, rtol=1e-10, atol=1e-15)
    M = (4 * P - Q) * N
    stronger = affinity.divergence(Y, exaggeration=4.0)
    assert stronger[0] == value
    np.testing.assert_allclose(stronger[1], np.diag(M.sum(axis=1)) @ Y - M @ Y, rtol=1e-10, atol=1e-15)


def test_the_gradient_is_that_of_the_divergence(rng):
    affinity = LabelAffinity(labels_of(rng, 12))
    Y = rng.normal(size=(12, 2))
    error = check_grad(
        lambda y: affinity.divergence(y.reshape(12, 2))[0],
        lambda y: affinity.divergence(y.reshape(12, 2))[1].ravel(),
        Y.ravel(),
    )
    assert error < 1e-6


def test_divergence_does_not_depend_on_the_number_of_threads(rng, monkeypatch):
    L, Y = labels_of(rng, 900), rng.normal(size=(900, 4))
    results = []
    for cores in (1, 2, 5):
        monkeypatch.setattr(kernels.os, "cpu_count", lambda cores=cores: cores)
        results.append(LabelAffinity(L).divergence(Y))
    for value, gradient in results[1:]:
        assert value == results[0][0]
        np.testing.assert_array_equal(gradient, results[0][1])


def test_affinity_refuses_labels_that_no_two_rows_share():
    with pytest.raises(InputError, match="no two rows share a label"):
        LabelAffinity(np.eye(4, dtype=np.uint8))
