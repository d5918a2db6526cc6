"""The linear model, Eq. (preModel), written out; and the ladder of the paper's steps."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import modalhash as mh
from modalhash.codes import pack_scores
from modalhash.exceptions import InputError
from modalhash.methods import ladder


def _data(rng, n=150, q=4, widths=(9, 7)):
    L = np.maximum(np.eye(q)[rng.integers(0, q, n)], rng.random((n, q)) < 0.2)
    hidden = L @ rng.normal(size=(q, 6)) + 0.5 * rng.normal(size=(n, 6))
    views = {
        f"v{j}": 2 + hidden @ rng.normal(size=(6, d)) + 0.3 * rng.normal(size=(n, d)) for j, d in enumerate(widths)
    }
    return views, L.astype(np.uint8)


def _literal(views, L, c, seed, alpha):
    rng = np.random.default_rng(seed)
    X = {i: V - V.mean(axis=0) for i, V in {**views, "labels": L}.items()}
    W = {i: rng.standard_normal((x.shape[1], c)) / np.sqrt((x**2).sum() / len(x)) for i, x in X.items()}
    ridge = {i: 1e-3 * (x**2).sum() / x.shape[1] for i, x in X.items()}
    B = np.where(sum(alpha[i] * X[i] @ W[i] for i in X) > 0, 1.0, -1.0)
    curve = []
    for _ in range(50):
        W = {i: np.linalg.solve(x.T @ x + ridge[i] * np.eye(x.shape[1]), x.T @ B) for i, x in X.items()}
        curve.append(sum(alpha[i] * (((B - X[i] @ W[i]) ** 2).sum() + ridge[i] * (W[i] ** 2).sum()) for i in X))
        new = np.where(sum(alpha[i] * X[i] @ W[i] for i in X) > 0, 1.0, -1.0)
        if (new == B).all():
            break
        B = new
    return B, W, curve


def test_is_the_literal_version(rng):
    views, L = _data(rng)
    alpha = {"v0": 2.0, "v1": 1.0, "labels": 10.0}
    hasher = mh.MultiViewLinear(8, view_weights={"v0": 2.0}, random_state=5).fit(views, labels=L)
    # what is stored is divided by its sum and multiplied by the number of views, which leaves labels relatively heavier
    alpha = {i: a * 2 / 3 if i != "labels" else a for i, a in alpha.items()}
    B, W, curve = _literal(views, L, 8, 5, alpha)
    np.testing.assert_allclose(hasher.objective_, curve, rtol=1e-8)
    np.testing.assert_array_equal(hasher.train_codes_, pack_scores(B))
    np.testing.assert_allclose(hasher.weights_["v1"], W["v1"], rtol=1e-6, atol=1e-9)


def test_objective_never_rises_and_it_ends(rng):
    views, L = _data(rng)
    hasher = mh.MultiViewLinear(16, n_iter=500, random_state=0).fit(views, labels=L)
    assert hasher.n_iter_ < 500
    assert (np.diff(hasher.objective_) <= 1e-9 * hasher.objective_[0]).all()


def test_rules(rng):
    views, L = _data(rng)
    hasher = mh.MultiViewLinear(8, random_state=0).fit(views, labels=L)
    np.testing.assert_array_equal(hasher.database_codes(views, L, rule="learned"), hasher.train_codes_)
    fused = hasher.database_codes(views, rule="fused")
    assert fused.shape == hasher.train_codes_.shape
    assert (fused != hasher.train_codes_).any()
    without = mh.MultiViewLinear(8, random_state=0).fit(views)
    np.testing.assert_array_equal(without.database_codes(views, rule="fused"), without.train_codes_)
    with pytest.raises(InputError, match="fitted without labels"):
        without.database_codes(views, np.ones(150), rule="learned")
    with pytest.raises(InputError, match="'v1' is not given"):
        hasher.database_codes({"v0": views["v0"]}, rule="fused")
    L[0] = 0
    with pytest.raises(InputError, match="needs a label of every row"):
        hasher.database_codes(views, L, rule="learned")


def test_more_columns_than_rows_and_constant_views(rng):
    X = rng.normal(size=(20, 50))
    hasher = mh.MultiViewLinear(8, random_state=0).fit({"a": X, "b": np.ones((20, 3))})
    assert hasher.train_codes_.shape == (20, 1)
    np.testing.assert_array_equal(hasher.weights_["b"], 0)


def test_sparse_equals_dense(rng):
    views, L = _data(rng)
    a, b = (
        mh.MultiViewLinear(8, random_state=0).fit(v, labels=L)
        for v in (views, {i: sparse.csr_array(X) for i, X in views.items()})
    )
    np.testing.assert_array_equal(a.train_codes_, b.train_codes_)


def test_bad_parameters(rng):
    views, _ = _data(rng)
    for name, value in {"label_weight": 0, "ridge": 0, "n_iter": 0}.items():
        with pytest.raises(InputError, match=name):
            mh.MultiViewLinear(8, **{name: value}).fit(views)


def test_ladder_is_the_papers_steps():
    steps = ladder(12, random_state=7)
    assert [type(h).__name__ for h in steps.values()] == ["MultiViewITQ", "MultiViewLinear", *["DMH"] * 4]
    assert [h.decorrelation_kind for h in list(steps.values())[2:]] == [None, "paper", "weights", "centered"]
    for hasher in steps.values():
        assert (hasher.n_bits, hasher.random_state) == (12, 7)


@pytest.mark.slow
def test_the_steps_with_labels_beat_the_step_without():
    data = mh.datasets.make_synthetic(n=600, noise=1.0, random_state=0)
    train, query = data.rows("train"), data.rows("query")
    found = {}
    for name, hasher in ladder(32, random_state=0).items():
        hasher.fit(train.views, labels=train.labels)
        report = mh.evaluate(
            hasher.encode("image", query.views["image"]),
            hasher.train_codes_,
            query_labels=query.labels,
            database_labels=train.labels,
            n_bits=32,
            metrics="MAP[ties=id]",
        )
        found[name] = report["MAP[ties=id]"]
    assert min(value for name, value in found.items() if name != "multi-view ITQ") > found["multi-view ITQ"] + 0.02
