"""CVH against the objective written out with its n x n matrices, and its errors."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.linalg import block_diag, eigh

import modalhash as mh
from modalhash.codes import unpack
from modalhash.exceptions import InputError, LabelsRequiredError, RankWarning


def _views(rng, n=80, widths=(7, 6)):
    hidden = rng.normal(size=(n, 5))
    return {f"view{j}": hidden @ rng.normal(size=(5, d)) + 0.5 * rng.normal(size=(n, d)) for j, d in enumerate(widths)}


def _labels(rng, n=80, q=4):
    L = (rng.random((n, q)) < 0.4).astype(np.uint8)
    L[np.arange(n), rng.integers(0, q, n)] = 1
    return L


def _literal(views, S, k, ridge=1e-6):
    """The generalised eigenproblem with S, its degrees and its Laplacian formed in full."""
    X = [V - V.mean(axis=0) for V in views.values()]
    g, degree = len(X), np.diag(S.sum(axis=1))
    laplacian = degree - S
    A = np.block(
        [
            [x.T @ (2 * laplacian + (g - 1) * degree) @ x if x is y else -x.T @ S @ y for y in X]
            for x in X
        ]
    )  # fmt: skip
    B = block_diag(*[x.T @ x + ridge * np.eye(x.shape[1]) for x in X])
    w, W = eigh(A, B)
    return w[:k], np.split(W[:, :k], np.cumsum([x.shape[1] for x in X])[:-1]), X


def _same_up_to_sign(hasher, views, W, X):
    flips = None
    for name, W_u, x in zip(views, W, X, strict=True):
        ours, theirs = unpack(hasher.encode(name, views[name]), hasher.n_bits), x @ W_u > 0
        differ = (ours != theirs).mean(axis=0)
        assert set(differ) <= {0.0, 1.0}
        if flips is not None:  # one sign per bit, for all views together
            np.testing.assert_array_equal(differ, flips)
        flips = differ


@pytest.mark.parametrize("widths", [(7, 6), (7, 6, 5)])
def test_labels_affinity_is_the_written_out_problem(rng, widths):
    views, L = _views(rng, widths=widths), _labels(rng)
    Ln = L / np.linalg.norm(L, axis=1, keepdims=True)
    hasher = mh.CVH(4).fit(views, labels=L)
    w, W, X = _literal(views, Ln @ Ln.T, 4)
    np.testing.assert_allclose(hasher.eigenvalues_, w, rtol=1e-6)
    _same_up_to_sign(hasher, views, W, X)


@pytest.mark.parametrize("widths", [(7, 6), (7, 6, 5)])
def test_pairs_affinity_is_the_written_out_problem(rng, widths):
    views = _views(rng, widths=widths)
    hasher = mh.CVH(4).fit(views)
    w, W, X = _literal(views, np.eye(80), 4)
    np.testing.assert_allclose(hasher.eigenvalues_, w / (len(widths) - 1), atol=1e-6)
    _same_up_to_sign(hasher, views, W, X)


def test_pairs_of_two_views_are_canonical_correlations(rng):
    views = _views(rng)
    x, y = (V - V.mean(axis=0) for V in views.values())
    qx, qy = np.linalg.qr(x)[0], np.linalg.qr(y)[0]
    rho = np.linalg.svd(qx.T @ qy)[1]  # cosines between the column spaces
    np.testing.assert_allclose(1 - mh.CVH(6).fit(views).eigenvalues_, rho, atol=1e-6)


def test_auto_takes_labels_when_given(rng):
    views, L = _views(rng), _labels(rng)
    codes = {a: mh.CVH(4, affinity=a).fit(views, labels=L).encode("view0", views["view0"]) for a in ("auto", "labels")}
    np.testing.assert_array_equal(codes["auto"], codes["labels"])
    pairs = mh.CVH(4, affinity="pairs").fit(views, labels=L)
    np.testing.assert_array_equal(pairs.eigenvalues_, mh.CVH(4).fit(views).eigenvalues_)


def test_rows_without_labels_are_like_no_other_row(rng):
    views, L = _views(rng), _labels(rng)
    L[:20] = 0
    Ln = L / np.maximum(np.linalg.norm(L, axis=1, keepdims=True), 1e-300)
    hasher = mh.CVH(4).fit(views, labels=L)
    np.testing.assert_allclose(hasher.eigenvalues_, _literal(views, Ln @ Ln.T, 4)[0], rtol=1e-6)


def test_sparse_labels_and_views(rng):
    views, L = _views(rng), _labels(rng)
    a = mh.CVH(4).fit(views, labels=L)
    b = mh.CVH(4).fit({"view0": sparse.csr_array(views["view0"]), "view1": views["view1"]}, labels=sparse.csr_array(L))
    for name in views:
        np.testing.assert_allclose(a.weights_[name], b.weights_[name], atol=1e-8)


def test_a_constant_column_changes_nothing(rng):
    views, L = _views(rng), _labels(rng)
    wide = {"view0": np.hstack([views["view0"], np.full((80, 1), 3.0)]), "view1": views["view1"]}
    for affinity in ("pairs", "labels"):
        a, b = (mh.CVH(4, affinity=affinity).fit(v, labels=L) for v in (views, wide))
        np.testing.assert_array_equal(a.encode("view0", views["view0"]), b.encode("view0", wide["view0"]))
        assert abs(b.weights_["view0"][-1]).max() < 1e-6


def test_more_bits_than_the_narrowest_view_is_refused(rng):
    with pytest.raises(InputError, match=r"'view1' has 6, n_bits is 7\. Ask for fewer bits"):
        mh.CVH(7).fit(_views(rng))


def test_a_view_of_low_rank_warns(rng):
    views = _views(rng)
    views["view1"] = views["view1"][:, [0, 1, 2, 0, 1, 2]]
    with pytest.warns(RankWarning, match="'view1' varies in 3 directions only; of the 5 bits"):
        mh.CVH(5).fit(views)


def test_bad_input(rng):
    views = _views(rng)
    with pytest.raises(InputError, match="'view0' is constant"):
        mh.CVH(4).fit({"view0": np.ones((80, 5)), "view1": views["view1"]})
    with pytest.raises(InputError, match="vary in 2 directions together"):
        mh.CVH(3).fit({"a": np.tile(np.arange(80.0)[:, None], 3), "b": np.tile(np.arange(80.0)[::-1, None] ** 2, 3)})
    with pytest.raises(InputError, match="at least 2 view"):
        mh.CVH(4).fit({"view0": views["view0"]})
    with pytest.raises(InputError, match="affinity must be one of"):
        mh.CVH(4, affinity="cosine").fit(views)
    with pytest.raises(InputError, match="ridge must not be negative"):
        mh.CVH(4, ridge=-1.0).fit(views)
    with pytest.raises(LabelsRequiredError, match="needs labels"):
        mh.CVH(4, affinity="labels").fit(views)
