"""CMFH against its update formulas written out over all rows, its unified rule and its errors."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import modalhash as mh
from modalhash.codes import pack_scores
from modalhash.exceptions import ConvergenceWarning, InputError


def _views(rng, n=120, widths=(9, 7)):
    hidden = 0.01 * rng.normal(size=(n, 4))
    return {
        f"v{j}": 3 + hidden @ rng.normal(size=(4, d)) + 0.002 * rng.normal(size=(n, d)) for j, d in enumerate(widths)
    }


def _literal(views, P, V, lam, form, n_iter, mu=100.0, gamma=0.01):
    """Columns are items; the authors' updates over the full matrices, objective by its norms."""
    X = {i: (Z - Z.mean(axis=0)).T for i, Z in views.items()}
    P, V = {i: z.T for i, z in P.items()}, V.T
    inv, norm, c, curve = np.linalg.inv, np.linalg.norm, V.shape[0], []
    later = form == "2015"
    for _ in range(n_iter):
        U = {i: x @ V.T @ inv(V @ V.T + gamma * np.eye(c)) for i, x in X.items()}
        weight = {i: lam[i] * mu if later else mu for i in X}
        left = sum(lam[i] * U[i].T @ U[i] + weight[i] * np.eye(c) for i in X) + gamma * np.eye(c)
        V = inv(left) @ sum(lam[i] * U[i].T @ X[i] + weight[i] * P[i] @ X[i] for i in X)
        for i, x in X.items():
            identity = np.eye(len(x))
            P[i] = (
                gamma * V @ x.T @ inv(mu * x @ x.T + gamma * identity)
                if later
                else V @ x.T @ inv(x @ x.T + gamma * identity)
            )
        curve.append(
            sum(lam[i] * norm(X[i] - U[i] @ V) + weight[i] * norm(V - P[i] @ X[i]) for i in X)
            + gamma * (norm(V) + sum(norm(U[i]) + norm(P[i]) for i in X))
        )
        if not later and len(curve) > 1 and curve[-2] - curve[-1] < 0.01:
            break
    return V, P, curve


@pytest.mark.parametrize("form", ["2013", "2015"])
@pytest.mark.parametrize("widths", [(9, 7), (9, 7, 5)])
def test_is_the_literal_version(rng, form, widths):
    views = _views(rng, widths=widths)
    P = {i: rng.random((X.shape[1], 6)) for i, X in views.items()}
    V = rng.random((120, 6))
    lam = {i: (2.0 if i == "v0" else 1.0) / (len(widths) + 1) for i in views}
    hasher = mh.CMFH(6, form=form, init=P, init_factor=V, view_weights={"v0": 2.0}).fit(views)
    V, P, curve = _literal(views, P, V, lam, form, 25 if form == "2015" else 1000)
    np.testing.assert_allclose(hasher.objective_, curve, rtol=1e-8)
    np.testing.assert_array_equal(hasher.train_codes_, pack_scores(V.T - V.T.mean(axis=0)))
    for i in views:
        np.testing.assert_allclose(hasher.weights_[i], P[i].T, rtol=1e-6, atol=1e-6 * abs(P[i]).max())


def test_unified_rule_on_new_rows(rng):
    views = _views(rng, n=200)
    train, new = {i: X[:150] for i, X in views.items()}, {i: X[150:] for i, X in views.items()}
    hasher = mh.CMFH(6, random_state=0).fit(train)
    np.testing.assert_array_equal(hasher.database_codes(train, rule="unified"), hasher.train_codes_)
    V = sum((new[i] - train[i].mean(axis=0)) @ hasher.unified_weights_[i] for i in new)
    np.testing.assert_array_equal(hasher.database_codes(new, rule="unified"), pack_scores(V))
    with pytest.raises(InputError, match="'v1' is not given"):
        hasher.database_codes({"v0": new["v0"]}, rule="unified")


def test_sparse_equals_dense(rng):
    views = _views(rng)
    a, b = (
        mh.CMFH(6, random_state=0, form="2015").fit(v)
        for v in (views, {i: sparse.csr_array(X) for i, X in views.items()})
    )
    np.testing.assert_allclose(a.unified_weights_["v1"], b.unified_weights_["v1"], rtol=1e-6)
    np.testing.assert_array_equal(a.train_codes_, b.train_codes_)


def test_constant_columns_change_nothing(rng):
    views = _views(rng)
    P = {i: rng.random((X.shape[1], 6)) for i, X in views.items()}
    V = rng.random((120, 6))
    wide = {i: np.hstack([X, np.full((120, 1), 4.0)]) for i, X in views.items()}
    a = mh.CMFH(6, init=P, init_factor=V).fit(views)
    b = mh.CMFH(6, init={i: np.vstack([z, np.ones((1, 6))]) for i, z in P.items()}, init_factor=V).fit(wide)
    np.testing.assert_array_equal(a.train_codes_, b.train_codes_)


def test_more_bits_than_directions_still_give_codes(rng):
    hasher = mh.CMFH(24, random_state=0, form="2015").fit(_views(rng))
    assert hasher.train_codes_.shape == (120, 3)


def test_says_when_it_did_not_converge(rng):
    with pytest.warns(ConvergenceWarning, match=r"did not reach tol=0.01 in 2 iterations"):
        mh.CMFH(6, n_iter=2, random_state=0).fit(_views(rng))


def test_bad_input(rng):
    views = _views(rng)
    with pytest.raises(InputError, match="form must be one of 2013, 2015"):
        mh.CMFH(6, form="2014").fit(views)
    with pytest.raises(InputError, match=r"init_factor must be finite, of shape \(120, 6\)"):
        mh.CMFH(6, init_factor=np.ones((6, 120))).fit(views)
    with pytest.raises(InputError, match="init names view 'audio'"):
        mh.CMFH(6, init={"audio": 1}).fit(views)
    for name, value in {"projection_weight": 0, "ridge": 0.0, "tol": -1, "n_iter": 0}.items():
        with pytest.raises(InputError, match=name):
            mh.CMFH(6, **{name: value}).fit(views)
