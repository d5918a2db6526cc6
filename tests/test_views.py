from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

from modalhash.exceptions import InputError
from modalhash.views import ViewTransform, check_view, check_views, row_blocks


def test_nothing_is_copied_that_can_be_used(rng, tmp_path):
    X = rng.random((5, 3))
    assert np.shares_memory(check_view(X, "image").X, X)
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert np.shares_memory(check_view(mapped, "image").X, mapped)
    S = sparse.csr_array(X)
    assert np.shares_memory(check_view(S, "text").X.data, S.data)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("float16", "float32"), ("bool", "float32"), ("uint8", "float32"), ("int64", "float64"), (">f8", "float64")],
)
def test_types(dtype, expected):
    assert check_view(np.ones((2, 2), dtype), "x").X.dtype == expected
    assert check_view(np.ones((2, 2), dtype), "x", dtype="float32").X.dtype == np.float32


def test_frames():
    assert check_view(pd.DataFrame({"a": [1, 2], "b": [0.5, 1]}), "x").X.tolist() == [[1, 0.5], [2, 1]]
    assert check_view(pl.DataFrame({"a": [1, 2], "b": [True, False]}), "x").X.tolist() == [[1, 1], [2, 0]]
    with pytest.raises(InputError, match="not numbers: name"):
        check_view(pd.DataFrame({"a": [1], "name": ["x"]}), "x")
    with pytest.raises(InputError, match="not numbers: name"):
        check_view(pl.DataFrame({"a": [1], "name": ["x"]}), "x")


def test_sparse_stays_sparse_and_becomes_canonical():
    coo = sparse.coo_matrix((np.ones(3, int), ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    view = check_view(coo, "text")
    assert sparse.issparse(view.X)
    assert view.X.format == "csr"
    assert view.X.toarray().tolist() == [[0, 2], [1, 0]]
    unsorted = sparse.csr_array((np.array([1.0, 2.0]), np.array([1, 0]), np.array([0, 2])), shape=(1, 2))
    before = unsorted.indices.copy()
    check_view(unsorted, "text")
    np.testing.assert_array_equal(unsorted.indices, before)


def test_missing_rows(rng):
    X = rng.random((4, 3))
    X[2] = np.nan
    view = check_view(X, "image")
    assert view.rows.tolist() == [0, 1, 3]
    assert view.n_rows == 4
    both = check_view(X, "image", present=np.array([False, True, True, True]))
    assert both.rows.tolist() == [1, 3]
    X[0, 1] = np.inf  # a row that is masked may hold anything
    assert check_view(X, "image", present=np.array([False, True, True, True])).rows.tolist() == [1, 3]
    with pytest.raises(InputError, match="missing for 1 of 4 rows; SCM needs every view"):
        view.require_complete("SCM")
    S = sparse.csr_array(np.eye(3))
    assert check_view(S, "text", present=np.array([True, False, True])).X.shape == (2, 3)


def test_views_are_ordered_by_name():
    assert list(check_views({"b": np.ones((1, 1)), "a": np.ones((1, 1))})) == ["a", "b"]


def _bad(value, at=(1, 1)):
    X = np.ones((3, 2))
    X[at] = value
    return X


@pytest.mark.parametrize(
    ("views", "message"),
    [
        ({"image": _bad(np.nan)}, "view 'image' has NaN at row 1, column 1"),
        ({"image": _bad(np.inf)}, "view 'image' has infinity at row 1, column 1"),
        ({"text": sparse.csr_array(_bad(np.nan))}, "view 'text' has NaN at row 1, column 1"),
        ({"a": np.ones((3, 2)), "b": np.ones((4, 2))}, "view 'b' has 4 rows; the others have 3"),
        ({"a": np.ones((0, 2))}, "view 'a' is empty"),
        ({"a": np.ones((2, 0))}, "view 'a' is empty"),
        ({"a": np.ones(3)}, "must be a matrix .n, d.; got shape .3,"),
        ({"a": np.ones((2, 2), complex)}, "real numbers"),
        ({"a": np.array([["x"]])}, "real numbers"),
        ({"a": [[1, 2], [3]]}, "not a matrix of numbers"),
        ({"a": sparse.csr_array(np.ones((2, 2), complex))}, "real numbers"),
        ({"labels": np.ones((2, 2))}, "reserved name"),
        ({3: np.ones((2, 2))}, "non-empty string"),
        ({"a/b": np.ones((2, 2))}, "without '/'"),
        ({}, "views is empty"),
        ([np.ones((2, 2))], "never positional"),
        ({"a": np.full((2, 2), np.nan)}, "missing for every row"),
    ],
)
def test_bad_views(views, message):
    with pytest.raises(InputError, match=message):
        check_views(views)


def test_bad_masks():
    views = {"a": np.ones((3, 2))}
    with pytest.raises(InputError, match="boolean mask of shape"):
        check_views(views, present={"a": np.ones(2, bool)})
    with pytest.raises(InputError, match="boolean mask of shape"):
        check_views(views, present={"a": np.ones(3)})
    with pytest.raises(InputError, match="present names view 'b'"):
        check_views(views, present={"b": np.ones(3, bool)})


def test_width():
    with pytest.raises(InputError, match=r"view 'text' has 2 columns; the model was fitted with 5\. Pass the same"):
        check_view(np.ones((3, 2)), "text", n_columns=5)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_auto_scale_makes_the_rms_row_norm_400(rng, center, form):
    X = rng.random((50, 7)) * (rng.random((50, 7)) < 0.4) * 3 + (0 if form is sparse.csr_array else 100)
    transform = ViewTransform.fit(form(X), center=center, scale="auto")
    Z = (X - (X.mean(axis=0) if center else 0)) * transform.scale
    assert np.sqrt((Z**2).sum(axis=1).mean()) == pytest.approx(400, rel=1e-9)
    if center:
        np.testing.assert_allclose(transform.mean, X.mean(axis=0), rtol=1e-12)
    else:
        assert transform.mean is None


def test_other_scales():
    X = np.ones((3, 2))
    assert ViewTransform.fit(X, center=True, scale="auto").scale == 1.0  # nothing varies: left alone
    assert ViewTransform.fit(X, center=False, scale=255).scale == 255.0
    assert ViewTransform.fit(X, center=False, scale=None).scale == 1.0
    for bad in ("big", 0, -1, np.nan):
        with pytest.raises(InputError, match="scale"):
            ViewTransform.fit(X, center=True, scale=bad)


def test_row_blocks_cover_every_row_once():
    rows = [i for s in row_blocks(1000, width=10**6) for i in range(s.start, s.stop)]
    assert rows == list(range(1000))
