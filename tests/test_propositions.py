"""The paper's propositions 1 to 4, each put to numbers: what holds, and what does not (docs/propositions.md).

D. Tian, "Learning Decorrelated Hashing Codes for Multimodal Retrieval", section "Minimum Correlation Regularization".
R(W) = ‖W'W - I‖_F, Eq. (mcrtmp), is `residual` here; W has d rows and c columns.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import modalhash as mh
from modalhash.linalg import sigmoid

SIZES = st.tuples(st.integers(1, 6), st.integers(1, 9), st.integers(0, 2**32 - 1))


def residual(W):
    return float(np.linalg.norm(W.T @ W - np.eye(W.shape[1])))


def orthogonal(size, rng):
    return np.linalg.qr(rng.standard_normal((size, size)))[0]


def parseval(d, c, rng):
    """Orthonormal columns where c <= d, orthonormal rows otherwise."""
    return orthogonal(max(d, c), rng)[:d, :c]


def angles(W):
    """Angles between different columns, in degrees."""
    G = W.T @ W
    norms = np.sqrt(np.diag(G))
    cosines = (G / np.outer(norms, norms))[np.triu_indices(len(G), 1)]
    return np.degrees(np.arccos(np.clip(cosines, -1, 1)))


def triangle():
    """Three columns in the plane, 120 degrees apart, each of squared length 2/3: the paper's figure."""
    t = 2 * np.pi * np.arange(3) / 3
    return np.sqrt(2 / 3) * np.array([np.cos(t), np.sin(t)])


def descend(W, steps=4000, step=0.02):
    for _ in range(steps):
        W = W - step * 4 * W @ (W.T @ W - np.eye(W.shape[1]))  # the gradient of R^2
    return W


def least(d, c):
    """W'W has at most d eigenvalues other than 0, so that c - d of those of W'W - I are -1."""
    return np.sqrt(max(c - d, 0))


# --- Proposition 1: for c <= d the minimiser has orthonormal columns. It holds. ---------------------------------------


@given(SIZES)
def test_proposition_1_the_minimum_is_zero_at_orthonormal_columns(sizes):
    d, c, seed = sizes
    rng = np.random.default_rng(seed)
    c = min(c, d)
    W = parseval(d, c, rng)
    assert residual(W) == pytest.approx(0, abs=1e-12)
    assert residual(1.1 * W) == pytest.approx(0.21 * np.sqrt(c))  # W'W - I = (1.21 - 1) I


def test_proposition_1_descent_ends_there(rng):
    W = descend(rng.normal(0, 0.3, (5, 3)))
    np.testing.assert_allclose(W.T @ W, np.eye(3), atol=1e-10)


# --- What the minimisers are for c > d: orthonormal rows, and nothing else about the columns. -------------------------


@given(SIZES)
def test_no_matrix_is_below_the_least_value(sizes):
    d, c, seed = sizes
    rng = np.random.default_rng(seed)
    assert residual(rng.standard_normal((d, c)) * rng.uniform(0, 2)) >= least(d, c) - 1e-9
    assert residual(parseval(d, c, rng)) == pytest.approx(least(d, c), abs=1e-9)


def test_descent_ends_at_orthonormal_rows(rng):
    W = descend(rng.normal(0, 0.3, (2, 5)))
    np.testing.assert_allclose(W @ W.T, np.eye(2), atol=1e-10)
    assert residual(W) == pytest.approx(np.sqrt(3))
    assert np.ptp(angles(W)) > 10  # and its columns are not at equal angles


# --- Proposition 2: at the minimum all angles between columns are equal. It does not hold for c > d. ------------------


def test_proposition_2_holds_up_to_d_columns(rng):
    np.testing.assert_allclose(angles(parseval(5, 4, rng)), 90)


def test_proposition_2_the_figure_is_a_minimiser_but_not_of_unit_columns():
    W = triangle()
    assert residual(W) == pytest.approx(1)  # sqrt(3 - 2)
    np.testing.assert_allclose(angles(W), 120)
    np.testing.assert_allclose((W**2).sum(axis=0), 2 / 3)
    # The proof takes columns of length 1. Scaled so, R^2 = 6 * (1/2)^2 = 1.5, more than 1.
    assert residual(W * np.sqrt(3 / 2)) == pytest.approx(np.sqrt(1.5))


def test_proposition_2_minimisers_with_other_angles():
    W = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])  # one column is zero and has no angle at all
    assert residual(W) == pytest.approx(residual(triangle()))
    W = np.sqrt(0.5) * np.array([[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]])
    assert residual(W) == pytest.approx(least(2, 4))
    np.testing.assert_allclose(sorted(angles(W)), [0, 0, 90, 90, 90, 90], atol=1e-6)


@given(st.integers(1, 6), st.floats(-0.99, 0.99))
def test_proposition_2_equal_angles_are_impossible_beyond_d_plus_1_columns(d, cosine):
    # Equal angles of unit columns: W'W = (1 - a) I + a 11', whose eigenvalue 1 - a > 0 occurs c - 1 times. Its rank is
    # at least c - 1, and at most d: so c <= d + 1.
    c = d + 2
    G = (1 - cosine) * np.eye(c) + cosine
    assert np.linalg.matrix_rank(G, tol=1e-9) >= c - 1 > d


def test_proposition_2_its_inequality_needs_what_is_not_there():
    # The means of AM-GM are of numbers that are not negative; the inner products of the figure's columns are all -1/3.
    products = (triangle().T @ triangle())[np.triu_indices(3, 1)]
    np.testing.assert_allclose(products, -1 / 3)
    # And their sum, which the proof minimises, is not R: 0 for the zero column above, -2 for the triangle, R alike.
    assert 2 * products.sum() == pytest.approx(-2)


# --- Proposition 3: W R minimises too, for orthogonal R. It holds, and contradicts Proposition 2. ---------------------


@given(SIZES)
def test_proposition_3_rotations_on_either_side_leave_the_value(sizes):
    d, c, seed = sizes
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((d, c))
    assert residual(W @ orthogonal(c, rng)) == pytest.approx(residual(W), rel=1e-9)
    assert residual(orthogonal(d, rng) @ W) == pytest.approx(residual(W), rel=1e-9)


def test_proposition_3_contradicts_proposition_2(rng):
    W = triangle()
    turned = W @ orthogonal(3, rng)
    assert residual(turned) == pytest.approx(residual(W))
    assert np.ptp(angles(turned)) > 10  # a minimiser whose angles differ
    np.testing.assert_allclose(angles(orthogonal(2, rng) @ W), 120)  # from the left, the figure's structure is kept


# --- Proposition 4: sigmoid(XW + 1v) has rank d + 1 at most, so that it is never orthogonal for c > d + 1. ------------


def corners(slope):
    """Four corners of a square, four half-planes that cut off one each: d = 2, c = 4."""
    X = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0], [-1.0, 1.0]])
    W, v = slope * X.T, np.full(4, -slope)
    return X @ W + v


def test_proposition_4_the_rank_claim_fails():
    # X X' is 2 on the diagonal, 0 beside it, -2 across: arguments 1, -1, -3 times the slope. At slope 1 the sigmoid has
    # a = 0.7311, b = 0.2689, e = 0.0474 there: a circulant with eigenvalues a + 2b + e, a - e (twice), a - 2b + e
    # = 1.3164, 0.6836, 0.6836, 0.2406. None is 0: rank 4, where the claim allows 3.
    A = corners(1.0)
    assert np.linalg.matrix_rank(A) == 3
    C = sigmoid(A)
    values = np.sort(np.linalg.eigvalsh(C))[::-1]
    np.testing.assert_allclose(values, [1.3164, 0.6836, 0.6836, 0.2406], atol=5e-5)
    assert np.linalg.matrix_rank(C) == 4


def test_proposition_4_orthogonality_is_approached():
    # "cannot be equal to I", "cannot even approximate an orthogonal matrix": C'C is as near to I as one likes.
    errors = [np.abs(sigmoid(corners(s)).T @ sigmoid(corners(s)) - np.eye(4)).max() for s in (1.0, 5.0, 25.0)]
    assert errors[0] > 0.4
    assert errors[1] < 0.02
    assert errors[2] < 1e-10
    # So are the columns of 2C - 1, which the regulariser "centered" looks at: S'S / n = I.
    S = 2 * sigmoid(corners(25.0)) - 1
    np.testing.assert_allclose(S.T @ S / 4, np.eye(4), atol=1e-10)


@pytest.mark.parametrize("n", [5, 8, 16])
def test_proposition_4_the_rank_has_no_bound_in_the_plane(n):
    # n points of a circle, each cut off by a line of its own.
    t = 2 * np.pi * np.arange(n) / n
    X = np.stack([np.cos(t), np.sin(t)], axis=1)
    edge = (1 + np.cos(2 * np.pi / n)) / 2
    A = 1000.0 * (X @ X.T - edge)
    assert np.linalg.matrix_rank(A) == 3
    assert np.linalg.matrix_rank(sigmoid(A)) == n


@given(SIZES)
def test_proposition_4_its_conclusion_has_another_reason(sizes):
    # A sigmoid is positive, and so is every inner product: never orthogonal for c >= 2, whatever d is.
    d, c, seed = sizes
    rng = np.random.default_rng(seed)
    C = sigmoid(rng.standard_normal((7, d)) @ rng.standard_normal((d, c)) + rng.standard_normal(c))
    G = C.T @ C / 7
    assert all(G[p, q] > 0 for p, q in itertools.combinations(range(c), 2))
    assert (np.diag(G) < 1).all()


# --- After Proposition 4: the identity is left out of the regulariser, ‖C'C / n‖_F. -----------------------------------


@pytest.mark.filterwarnings("ignore::modalhash.exceptions.ConstantBitsWarning")
def test_without_the_identity_the_least_value_is_no_code_at_all(small):
    def ones(**changed):
        hasher = mh.DMH(16, random_state=0, **changed).fit(small.views, labels=small.labels)
        return mh.codes.unpack(hasher.train_codes_, 16).mean()

    assert 0.3 < ones(decorrelation=0.001) < 0.7
    assert ones(decorrelation=10.0) == 0
    assert 0.3 < ones(decorrelation=10.0, decorrelation_kind="centered") < 0.7
