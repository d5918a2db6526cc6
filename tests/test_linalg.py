from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from modalhash.linalg import CentredMatrix, sigmoid


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, sparse.csr_matrix])
@pytest.mark.parametrize("centred", [True, False])
def test_centred_matrix_multiplies_like_the_dense_one(rng, form, centred):
    X = rng.random((20, 6)) * (rng.random((20, 6)) < 0.5)
    mean = X.mean(axis=0) if centred else None
    dense = (X - (mean if centred else 0)) * 3.0
    M = CentredMatrix(form(X), mean, 3.0)
    W, G = rng.normal(size=(6, 4)), rng.normal(size=(20, 4))
    np.testing.assert_allclose(M @ W, dense @ W, atol=1e-12)
    np.testing.assert_allclose(M.tdot(G), dense.T @ G, atol=1e-12)
    assert M.shape == (20, 6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sigmoid_is_stable(dtype):
    x = np.array([-1e4, -30, 0, 30, 1e4], dtype=dtype)
    y = sigmoid(x)
    assert y.dtype == dtype
    assert y[0] == 0
    assert y[-1] == 1
    np.testing.assert_allclose(y[1:4], 1 / (1 + np.exp(-x[1:4].astype(float))), rtol=1e-6)
