from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from modalhash.exceptions import InputError
from modalhash.similarity import label_words, relevance, shared_labels


@given(st.integers(1, 150), st.integers(0, 2**32 - 1), st.booleans())
def test_relevance_is_sharing_a_label(q, seed, as_sparse):
    rng = np.random.default_rng(seed)
    a, b = rng.random((4, q)) < 0.1, rng.random((5, q)) < 0.1
    expected = a.astype(int) @ b.T.astype(int)
    if as_sparse:
        a, b = sparse.csr_array(a), sparse.csr_array(b)
    np.testing.assert_array_equal(shared_labels(a, b), expected)
    np.testing.assert_array_equal(relevance(a, b), expected > 0)


def test_explicit_zeros_of_a_sparse_matrix_are_no_labels():
    labels = sparse.csr_array((np.array([0, 1]), (np.array([0, 0]), np.array([1, 2]))), shape=(1, 3))
    assert label_words(labels).tolist() == [[4]]


def test_other_label_columns_are_refused():
    with pytest.raises(InputError, match="same label columns"):
        relevance(np.ones((1, 2)), np.ones((1, 3)))
    with pytest.raises(InputError, match="0/1 matrix"):
        label_words(np.ones(3))
