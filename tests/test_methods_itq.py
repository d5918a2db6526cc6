"""ITQ and multi-view ITQ against Eq. (multiITQ) written out."""

from __future__ import annotations

import numpy as np
import pytest

import modalhash as mh
from modalhash.codes import pack_scores
from modalhash.exceptions import InputError


def _views(rng, n=150, widths=(9, 7)):
    hidden = rng.normal(size=(n, 5)) * [5, 4, 3, 2, 1]
    return {f"v{j}": 1 + hidden @ rng.normal(size=(5, d)) + 0.3 * rng.normal(size=(n, d)) for j, d in enumerate(widths)}


def _literal(views, c, alpha, seed, n_iter):
    rng, Z, R = np.random.default_rng(seed), {}, {}
    for i, X in views.items():
        X = X - X.mean(axis=0)
        V = np.linalg.svd(X, full_matrices=False)[2][:c].T
        V *= np.sign(np.take_along_axis(V, abs(V).argmax(axis=0)[None], axis=0))  # signs as the package fixes them
        Z[i] = X @ V
        Z[i] /= np.sqrt((Z[i] ** 2).mean())
        R[i] = np.linalg.qr(rng.standard_normal((c, c)))[0]
    curve = []
    for _ in range(n_iter):
        B = np.where(sum(alpha[i] * Z[i] @ R[i] for i in Z) > 0, 1.0, -1.0)
        for i in Z:
            U, _, Vt = np.linalg.svd(B.T @ Z[i])  # R = Vt'U' maximises tr(R B'Z)
            R[i] = Vt.T @ U.T
        curve.append(sum(alpha[i] * np.linalg.norm(B - Z[i] @ R[i]) ** 2 for i in Z))
    return sum(alpha[i] * Z[i] @ R[i] for i in Z), curve


@pytest.mark.parametrize("widths", [(9,), (9, 7), (9, 7, 6)])
def test_is_the_literal_version(rng, widths):
    views = _views(rng, widths=widths)
    total = 2.0 + len(widths) - 1
    alpha = {i: (2.0 if i == "v0" else 1.0) / total for i in views}
    hasher = mh.MultiViewITQ(5, view_weights={"v0": 2.0}, n_iter=20, random_state=3).fit(views)
    scores, curve = _literal(views, 5, alpha, 3, 20)
    np.testing.assert_allclose(hasher.objective_, curve, rtol=1e-8)
    np.testing.assert_array_equal(hasher.train_codes_, pack_scores(scores))


def test_objective_never_rises(rng):
    curve = mh.MultiViewITQ(5, random_state=0).fit(_views(rng)).objective_
    assert len(curve) == 50
    assert (np.diff(curve) <= 1e-9 * curve[0]).all()
    assert curve[-1] < curve[0]


def test_one_view_is_itq(rng):
    views = _views(rng, widths=(9,))
    a, b = mh.ITQ(6, random_state=1).fit(views), mh.MultiViewITQ(6, random_state=1).fit(views)
    np.testing.assert_array_equal(a.train_codes_, b.train_codes_)
    np.testing.assert_array_equal(a.encode("v0", views["v0"]), a.train_codes_)
    W = a.weights_["v0"]
    np.testing.assert_allclose(W.T @ W, np.eye(6), atol=1e-10)  # principal directions, rotated
    with pytest.raises(InputError, match="2: v0, v1"):
        mh.ITQ(6).fit(_views(rng))


def test_unified_rule(rng):
    views = _views(rng)
    hasher = mh.MultiViewITQ(5, random_state=0).fit(views)
    np.testing.assert_array_equal(hasher.database_codes(views, rule="unified"), hasher.train_codes_)
    with pytest.raises(InputError, match="'v1' is not given"):
        hasher.database_codes({"v0": views["v0"]}, rule="unified")


def test_more_bits_than_principal_components_is_refused(rng):
    views = _views(rng)
    with pytest.raises(InputError, match="'v1' has 7, n_bits is 8"):
        mh.MultiViewITQ(8).fit(views)
    views["v1"] = np.hstack([views["v1"], np.ones((150, 5))])  # constant columns are not components
    with pytest.raises(InputError, match="'v1' has 7, n_bits is 8"):
        mh.MultiViewITQ(8).fit(views)
    with pytest.raises(InputError, match="n_iter must be"):
        mh.ITQ(5, n_iter=0).fit({"v0": views["v0"]})
