from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from modalhash.exceptions import InputError
from modalhash.labels import check_label_pair, check_labels


def test_every_form_gives_the_same_matrix():
    matrix = np.array([[1, 0, 1], [0, 1, 0]])
    forms = [
        matrix,
        matrix.astype(bool),
        matrix.astype(float),
        matrix.tolist(),
        sparse.csr_array(matrix),
        sparse.coo_matrix(matrix),
        pd.DataFrame(matrix, columns=["a", "b", "c"]),
        [["a", "c"], ["b"]],
        [{"a", "c"}, ("b",)],
    ]
    for form in forms:
        got = check_labels(form).matrix
        got = got.toarray() if sparse.issparse(got) else got
        np.testing.assert_array_equal(got, matrix)
        assert got.dtype == np.uint8


def test_class_ids():
    labels = check_labels(np.array([7, 3, 7, -1]))
    assert labels.names == [3, 7]
    assert labels.matrix.tolist() == [[0, 1], [1, 0], [0, 1], [0, 0]]
    assert labels.known.tolist() == [True, True, True, False]
    assert check_labels(["b", "a", None, ""]).known.tolist() == [True, True, False, False]
    assert check_labels(np.array([1.0, np.nan, 0.0])).known.tolist() == [True, False, True]
    assert check_labels(pd.Series(["x", "y"])).names == ["x", "y"]


def test_rows_without_a_label():
    assert check_labels(np.array([[1.0, 0.0], [np.nan, np.nan], [0.0, 0.0]])).known.tolist() == [True, False, False]
    assert check_labels([["a"], []]).known.tolist() == [True, False]


def test_many_classes_stay_sparse():
    labels = check_labels(np.arange(1000))
    assert sparse.issparse(labels.matrix)
    assert labels.matrix.nnz == 1000


def test_names_of_a_fitted_model_fix_the_columns():
    assert check_labels(["b"], names=["a", "b"]).matrix.tolist() == [[0, 1]]
    with pytest.raises(InputError, match="label 'z' at row 0"):
        check_labels(["z"], names=["a", "b"])
    with pytest.raises(InputError, match="fitted with 3"):
        check_labels(np.eye(2), names=["a", "b", "c"])


def test_pairs_share_their_columns():
    query, database = check_label_pair(["b"], ["a", "b"])
    assert query.matrix.tolist() == [[0, 1]]
    assert database.matrix.tolist() == [[1, 0], [0, 1]]
    with pytest.raises(InputError, match="same form"):
        check_label_pair(np.eye(2), [1, 2])
    with pytest.raises(InputError, match="same label columns"):
        check_label_pair(np.eye(2), np.eye(3))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([[0, 2]]), "0 and 1 only"),
        (np.array([[0.5, 1.0]]), "0 and 1 only"),
        (np.array([[1.0, np.nan]]), "0 and 1 only"),
        (sparse.csr_array([[3]]), "0 and 1 only"),
        (np.zeros((2, 0)), "no columns"),
        (np.zeros((2, 2, 2)), "0/1 matrix, class ids or lists"),
        (np.array(3), "0/1 matrix, class ids or lists"),
        ("cat", "0/1 matrix, class ids or lists"),
        (5, "0/1 matrix, class ids or lists"),
        ([1.5], "whole number"),
        ([1, "a"], "mix numbers and strings"),
        ([-1, -1], "no row has a label"),
    ],
)
def test_bad_labels(labels, message):
    with pytest.raises(InputError, match=message):
        check_labels(labels)


def test_row_count():
    with pytest.raises(InputError, match="labels have 2 rows; the views have 3"):
        check_labels(np.eye(2), n_rows=3)


@pytest.mark.parametrize("q", [5, 400])  # dense, and sparse for many classes
def test_a_long_vector_of_ids_is_read_as_a_list_of_them_is(q):
    rng = np.random.default_rng(0)
    ids = rng.integers(-1, q, 3000)
    fast, slow = check_labels(ids), check_labels(ids.tolist())
    assert fast.names == slow.names
    np.testing.assert_array_equal(fast.known, slow.known)
    assert sparse.issparse(fast.matrix) == sparse.issparse(slow.matrix) == (q == 400)
    np.testing.assert_array_equal(_dense(fast.matrix), _dense(slow.matrix))
    again = check_labels(ids[:50], names=fast.names)
    np.testing.assert_array_equal(_dense(again.matrix), _dense(fast.matrix)[:50])
    with pytest.raises(InputError, match=f"label {q + 7} at row 2 is not one the model knows"):
        check_labels(np.array([0, 1, q + 7]), names=fast.names)
    with pytest.raises(InputError, match="no row has a label"):
        check_labels(np.array([-1, -3]))


def _dense(matrix):
    return matrix.toarray() if sparse.issparse(matrix) else matrix
