"""The CCA floor: correlations against scikit-learn's, rankings against a literal sort, errors."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import modalhash as mh
from modalhash.exceptions import InputError, NotFittedError


def _views(rng, n=150):
    hidden = rng.normal(size=(n, 4))
    return {
        "image": 2 + hidden @ rng.normal(size=(4, 8)) + rng.normal(size=(n, 8)),
        "text": hidden @ rng.normal(size=(4, 6)) + rng.normal(size=(n, 6)),
    }


def test_correlations_are_those_of_scikit_learn(rng):
    from sklearn.cross_decomposition import CCA

    views = _views(rng)
    floor = mh.CCARetriever(3).fit(views)
    x, y = CCA(n_components=3, max_iter=5000, tol=1e-12).fit_transform(views["image"], views["text"])
    expected = [np.corrcoef(x[:, j], y[:, j])[0, 1] for j in range(3)]
    np.testing.assert_allclose(floor.correlations_, expected, atol=1e-6)


def test_ranking_is_by_cosine_and_ties_by_row(rng):
    views = _views(rng)
    floor = mh.CCARetriever(4, power=0.0).fit(views)
    twice = np.vstack([views["text"], views["text"]])  # every row again: all cosines tie in pairs
    ids = floor.rank("image", views["image"][:7], "text", twice)
    q, d = ((V - V.mean(axis=0)) @ floor.weights_[i] for i, V in views.items())
    d = np.vstack([d, d])
    for row in range(7):
        cosine = d @ q[row] / (np.linalg.norm(d, axis=1) * np.linalg.norm(q[row]))
        np.testing.assert_array_equal(ids[row], np.lexsort([np.arange(300), -cosine.round(12)]))
    np.testing.assert_array_equal(floor.rank("image", views["image"][:7], "text", twice, k=5), ids[:, :5])


def test_a_row_finds_itself_across_views(rng):
    hidden = rng.normal(size=(100, 4))
    views = {"image": hidden @ rng.normal(size=(4, 8)), "text": hidden @ rng.normal(size=(4, 6))}  # rank 4, no noise
    floor = mh.CCARetriever().fit(views)
    assert floor.correlations_.shape == (4,)
    np.testing.assert_allclose(floor.correlations_, 1, atol=1e-6)
    np.testing.assert_array_equal(floor.rank("text", views["text"], "image", views["image"], k=1)[:, 0], np.arange(100))


def test_sparse_equals_dense(rng):
    views = _views(rng)
    a = mh.CCARetriever(3).fit(views)
    b = mh.CCARetriever(3).fit({i: sparse.csr_array(V) for i, V in views.items()})
    np.testing.assert_allclose(
        a.project("image", views["image"]), b.project("image", sparse.csr_array(views["image"])), atol=1e-9
    )


def test_bad_input(rng):
    views = _views(rng)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        mh.CCARetriever().project("image", views["image"])
    with pytest.raises(InputError, match="needs 2 views; got 1"):
        mh.CCARetriever().fit({"image": views["image"]})
    with pytest.raises(InputError, match="share 6 directions at most; n_components is 7"):
        mh.CCARetriever(7).fit(views)
    with pytest.raises(InputError, match="share 0 directions"):
        mh.CCARetriever().fit({"image": np.ones((150, 3)), "text": views["text"]})
    floor = mh.CCARetriever(3).fit(views)
    with pytest.raises(InputError, match="unknown view 'audio'"):
        floor.project("audio", views["image"])
    with pytest.raises(InputError, match="has 6 columns; the model was fitted with 8"):
        floor.project("image", views["text"])
    with pytest.raises(InputError, match="k must be"):
        floor.rank("image", views["image"], "text", views["text"], k=0)
    for bad in ({"n_components": 0}, {"ridge": -1.0}, {"power": -1.0}):
        with pytest.raises(InputError, match=next(iter(bad))):
            mh.CCARetriever(**bad).fit(views)
