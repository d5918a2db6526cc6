"""SCM against a literal version with Cholesky factors and full SVDs, and its errors."""

from __future__ import annotations

import numpy as np
import pytest

import modalhash as mh
from modalhash.codes import unpack
from modalhash.exceptions import InputError, LabelsRequiredError, RankWarning


def _data(rng, n=200, d=9, e=7, q=4, single=False):
    L = np.eye(q)[rng.integers(0, q, n)]
    if not single:
        L = np.maximum(L, rng.random((n, q)) < 0.3)
    hidden = L @ rng.normal(size=(q, 6)) + 0.7 * rng.normal(size=(n, 6))
    X = hidden @ rng.normal(size=(6, d)) + 0.5 * rng.normal(size=(n, d))
    Y = np.tanh(hidden @ rng.normal(size=(6, e))) + 0.5 * rng.normal(size=(n, e))
    return {"image": X, "text": Y}, L.astype(np.uint8)


def _literal(views, L, k, variant):
    X, Y = (V - V.mean(axis=0) for V in views.values())
    Ln = L / np.linalg.norm(L, axis=1, keepdims=True)
    S = 2 * Ln @ Ln.T - 1
    C = k * X.T @ S @ Y
    A, B = (np.linalg.inv(np.linalg.cholesky(Z.T @ Z + 1e-6 * np.eye(Z.shape[1]))).T for Z in (X, Y))

    def pairs(C):
        U, s, Vt = np.linalg.svd(A.T @ C @ B)
        return A @ U, B @ Vt.T, s

    if variant == "orth":
        Wx, Wy, s = pairs(C)
        return X @ Wx[:, :k] > 0, Y @ Wy[:, :k] > 0, s[:k]
    hx, hy, values = [], [], []
    for _ in range(k):
        Wx, Wy, s = pairs(C)
        if values and s[0] > values[-1]:
            break
        values.append(s[0])
        hx.append(X @ Wx[:, 0])
        hy.append(Y @ Wy[:, 0])
        C = C - np.outer(X.T @ np.sign(hx[-1]), Y.T @ np.sign(hy[-1]))
    learned = len(hx)
    Wx, Wy, s = pairs(X.T @ Y)
    for j in range(k - learned - 1, -1, -1):
        hx.append(X @ Wx[:, j])
        hy.append(Y @ Wy[:, j])
        values.append(s[j])
    return np.array(hx).T > 0, np.array(hy).T > 0, np.array(values), learned


def _compare(hasher, views, hx, hy):
    k = hasher.n_bits
    ours = [unpack(hasher.encode(name, views[name]), k) for name in ("image", "text")]
    flips = (ours[0] != hx).mean(axis=0)
    assert set(flips) <= {0.0, 1.0}
    np.testing.assert_array_equal(ours[1] != hy, np.broadcast_to(flips == 1, hy.shape))


@pytest.mark.parametrize("k", [4, 8])
def test_seq_is_the_literal_version(rng, k):
    views, L = _data(rng)
    hasher = mh.SCM(k).fit(views, labels=L)
    hx, hy, values, learned = _literal(views, L, k, "seq")
    assert hasher.n_sequential_ == learned
    np.testing.assert_allclose(hasher.correlations_, values, rtol=1e-6)
    _compare(hasher, views, hx, hy)


def test_the_cases_above_include_a_sequence_that_stops(rng):
    views, L = _data(rng)
    assert 0 < mh.SCM(8).fit(views, labels=L).n_sequential_ < 8


def test_orth_is_the_literal_version(rng):
    views, L = _data(rng)
    hasher = mh.SCM(4, variant="orth").fit(views, labels=L)
    hx, hy, values = _literal(views, L, 4, "orth")
    np.testing.assert_allclose(hasher.correlations_, values, rtol=1e-6)
    _compare(hasher, views, hx, hy)


def test_a_narrow_view_runs_out_of_pairs_and_says_so(rng):
    views, L = _data(rng, e=3)
    with pytest.warns(RankWarning, match="only 3 unsupervised pairs"):
        hasher = mh.SCM(24).fit(views, labels=L)
    assert hasher.n_sequential_ == 21
    assert (abs(hasher.weights_["text"]).max(axis=0) > 0).all()


def test_orth_warns_beyond_its_rank(rng):
    views, L = _data(rng)
    with pytest.warns(RankWarning, match="4 directions in common: of the 6 bits of SCM-orth, 2 are noise"):
        mh.SCM(6, variant="orth").fit(views, labels=L)


def test_orth_on_single_label_data_has_one_direction_less_than_classes(rng):
    views, L = _data(rng, single=True)
    assert mh.SCM(3, variant="orth").fit(views, labels=L).n_sequential_ == 3
    with pytest.warns(RankWarning, match="3 directions in common: of the 4 bits"):
        mh.SCM(4, variant="orth").fit(views, labels=L.argmax(axis=1))


def test_orth_beyond_the_narrower_view_pads_with_zeros(rng):
    views, L = _data(rng, e=3)
    with pytest.warns(RankWarning, match="of the 5 bits of SCM-orth, 2 are noise"):
        hasher = mh.SCM(5, variant="orth").fit(views, labels=L)
    assert not hasher.weights_["text"][:, 3:].any()


def test_constant_columns_change_nothing(rng):
    views, L = _data(rng)
    wide = {name: np.hstack([X, np.full((len(X), 2), 7.0)]) for name, X in views.items()}
    for variant, k in (("seq", 8), ("orth", 4)):
        a, b = (mh.SCM(k, variant=variant).fit(v, labels=L) for v in (views, wide))
        np.testing.assert_array_equal(a.encode("text", views["text"]), b.encode("text", wide["text"]))


def test_bad_input(rng):
    views, L = _data(rng)
    with pytest.raises(LabelsRequiredError, match="SCM learns from labels"):
        mh.SCM(4).fit(views)
    with pytest.raises(InputError, match="needs 2 view"):
        mh.SCM(4).fit({**views, "audio": views["text"]}, labels=L)
    for variant in ("seq", "orth"):
        with pytest.raises(InputError, match="labels are the same for every row"):
            mh.SCM(4, variant=variant).fit(views, labels=np.ones((200, 2)))
    with pytest.raises(InputError, match="'text' is constant"):
        mh.SCM(4).fit({"image": views["image"], "text": np.ones((200, 3))}, labels=L)
    L[3] = 0
    with pytest.raises(InputError, match="1 of 200 rows have no label; SCM needs a label of every row"):
        mh.SCM(4).fit(views, labels=L)
    with pytest.raises(InputError, match="variant must be one of"):
        mh.SCM(4, variant="par").fit(views, labels=L)
    with pytest.raises(InputError, match="ridge must not be negative"):
        mh.SCM(4, ridge=-1.0).fit(views, labels=L)
