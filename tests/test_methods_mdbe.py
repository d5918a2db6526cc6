"""MDBE against its update formulas written out over all rows, its label rule and its errors."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import modalhash as mh
from modalhash.codes import pack_scores
from modalhash.exceptions import InputError, LabelsRequiredError


def _data(rng, n=120, q=4, widths=(9, 7)):
    L = np.maximum(np.eye(q)[rng.integers(0, q, n)], rng.random((n, q)) < 0.2)
    hidden = L @ rng.normal(size=(q, 6)) + 0.5 * rng.normal(size=(n, 6))
    views = {f"v{j}": hidden @ rng.normal(size=(6, d)) + 0.3 * rng.normal(size=(n, d)) for j, d in enumerate(widths)}
    return views, L.astype(np.uint8)


def _literal(views, L, start, lam, n_iter, beta=100.0, gamma=1e-3):
    """Columns are items; every formula over the full matrices, objective by its norms."""
    X = {i: (V - V.mean(axis=0)).T for i, V in views.items()}
    P, L = {i: start[i].T for i in X}, L.T.astype(float)
    inv, norm, curve = np.linalg.inv, np.linalg.norm, []
    for _ in range(n_iter):
        D = sum(lam[i] * P[i] @ X[i] @ L.T for i in X) @ inv(L @ L.T)
        c, value = D.shape[0], 0.0
        for i, x in X.items():
            W = L @ x.T @ P[i].T @ inv(P[i] @ x @ x.T @ P[i].T + gamma * np.eye(c))
            P[i] = (
                inv(W.T @ W + beta * np.eye(c))
                @ (W.T @ L @ x.T + beta * D @ L @ x.T)
                @ inv(x @ x.T + gamma * np.eye(len(x)))
            )
            value += lam[i] * (norm(L - W @ P[i] @ x) + beta * norm(P[i] @ x - D @ L) + gamma * norm(W))
        curve.append(value)
        if len(curve) > 1 and curve[-2] - curve[-1] < 0.01:
            break
    return P, D, curve


@pytest.mark.parametrize("widths", [(9, 7), (9, 7, 5)])
def test_is_the_literal_version(rng, widths):
    views, L = _data(rng, widths=widths)
    start = {i: rng.random((V.shape[1], 8)) for i, V in views.items()}
    weights = {"v0": 3.0}
    total = 3.0 + len(widths) - 1
    lam = {i: weights.get(i, 1.0) / total for i in views}
    hasher = mh.MDBE(8, init=start, view_weights=weights).fit(views, labels=L)
    P, D, curve = _literal(views, L, start, lam, 20)
    np.testing.assert_allclose(hasher.objective_, curve, rtol=1e-8)
    for i in views:
        np.testing.assert_allclose(hasher.weights_[i], P[i].T, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(hasher.weights_["labels"], D.T, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(hasher.train_codes_, pack_scores(L @ D.T))


def test_stops_when_the_objective_stops_falling(rng):
    views, L = _data(rng)
    hasher = mh.MDBE(8, random_state=0, tol=5.0, n_iter=1000).fit(views, labels=L)
    drops = -np.diff(hasher.objective_)
    assert hasher.n_iter_ < 1000
    assert drops[-1] < 5.0
    assert (drops[:-1] >= 5.0).all()


def test_label_rule(rng):
    views, L = _data(rng)
    hasher = mh.MDBE(8, random_state=0).fit(views, labels=L)
    np.testing.assert_array_equal(hasher.database_codes({}, L, rule="label"), hasher.train_codes_)
    np.testing.assert_array_equal(hasher.encode("labels", L), hasher.train_codes_)
    with pytest.raises(LabelsRequiredError, match="label rule"):
        hasher.database_codes(views, rule="label")
    L[5] = 0
    with pytest.raises(InputError, match="some rows have none"):
        hasher.database_codes(views, L, rule="label")


def test_sparse_equals_dense(rng):
    views, L = _data(rng)
    a = mh.MDBE(8, random_state=0).fit(views, labels=L)
    b = mh.MDBE(8, random_state=0).fit({i: sparse.csr_array(V) for i, V in views.items()}, labels=sparse.csr_array(L))
    np.testing.assert_allclose(a.weights_["v1"], b.weights_["v1"], rtol=1e-8, atol=1e-10)
    np.testing.assert_array_equal(a.train_codes_, b.train_codes_)


def test_a_label_that_never_occurs(rng):
    views, L = _data(rng)
    L[:, 2] = 0
    L[~L.any(axis=1), 0] = 1
    with pytest.raises(InputError, match=r"1 label\(s\) never occur in the training rows: 2\. Leave those columns out"):
        mh.MDBE(8).fit(views, labels=L)
    hasher = mh.MDBE(8, label_ridge=1e-3, random_state=0).fit(views, labels=L)
    np.testing.assert_array_equal(hasher.weights_["labels"][2], 0)


def test_labels_that_depend_on_each_other(rng):
    views, L = _data(rng)
    with pytest.raises(InputError, match="determined by the others"):
        mh.MDBE(8).fit(views, labels=np.hstack([L, L[:, :1]]))


def test_constant_columns_and_low_rank(rng):
    views, L = _data(rng)
    start = {i: rng.random((V.shape[1], 12)) for i, V in views.items()}
    wide = {i: np.hstack([V, np.full((len(V), 1), 5.0)]) for i, V in views.items()}
    wide_start = {i: np.vstack([z, np.ones((1, 12))]) for i, z in start.items()}
    a, b = mh.MDBE(12, init=start).fit(views, labels=L), mh.MDBE(12, init=wide_start).fit(wide, labels=L)
    np.testing.assert_allclose(b.weights_["v0"][:-1], a.weights_["v0"], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(b.weights_["v0"][-1], 0, atol=1e-9)


def test_bad_input(rng):
    views, L = _data(rng)
    with pytest.raises(LabelsRequiredError):
        mh.MDBE(8).fit(views)
    with pytest.raises(InputError, match="rows have no label; MDBE needs"):
        mh.MDBE(8).fit(views, labels=np.where(np.arange(120)[:, None] < 3, 0, L))
    with pytest.raises(InputError, match="init names view 'audio'"):
        mh.MDBE(8, init={"audio": 1}).fit(views, labels=L)
    with pytest.raises(InputError, match=r"init\['v0'\] must be finite, of shape \(9, 8\); got shape \(8, 9\)"):
        mh.MDBE(8, init={"v0": np.ones((8, 9))}).fit(views, labels=L)
    with pytest.raises(InputError, match=r"init\['v0'\] must be a matrix of numbers"):
        mh.MDBE(8, init={"v0": "random"}).fit(views, labels=L)
    with pytest.raises(InputError, match="view_weights names view 'audio'"):
        mh.MDBE(8, view_weights={"audio": 1.0}).fit(views, labels=L)
    with pytest.raises(InputError, match="weight of view 'v0' must be positive"):
        mh.MDBE(8, view_weights={"v0": 0.0}).fit(views, labels=L)
    for name, value in {"latent_weight": 0, "ridge": 0.0, "label_ridge": -1, "tol": -1, "n_iter": 0}.items():
        with pytest.raises(InputError, match=name):
            mh.MDBE(8, **{name: value}).fit(views, labels=L)
