"""Principal components of dense or sparse data, always centred, a sparse matrix never made dense."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..exceptions import InputError
from ..views import check_view, row_blocks
from .transformer import FeatureTransformer, check_count

__all__ = ["PCA"]

_WIDE = 4000  # columns; the covariance of more would take over 128 MB and minutes


class PCA(FeatureTransformer):
    """Project centred data onto the directions of largest variance.

    Up to 4,000 columns the covariance is formed (from a sparse matrix by a sparse product) and solved exactly; wider
    data goes through Lanczos steps (ARPACK) on the implicitly centred matrix.

    Parameters
    ----------
    n_components : int
        Directions to keep (500 for the paper's MIRFlickr text).

    Attributes
    ----------
    mean_ : ndarray of shape (d,)
    components_ : ndarray of shape (n_components, d)
        Unit rows; the largest entry of each in absolute value is positive.
    explained_variance_ : ndarray of shape (n_components,)

    Examples
    --------
    >>> X = np.array([[0.0, 0.0], [2.0, 2.0], [4.0, 4.0]])
    >>> PCA(n_components=1).fit_transform(X).ravel().round(3).tolist()
    [-2.828, 0.0, 2.828]
    """

    _arrays = ("mean_", "components_", "explained_variance_")

    def __init__(self, n_components: int = 500) -> None:
        self.n_components = n_components

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the mean and the directions from training rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
        y : ignored

        Returns
        -------
        self
        """
        k = check_count(self.n_components, "n_components")
        X = _complete(X)
        n, d = X.shape
        if k > min(n - 1, d):
            raise InputError(
                f"n_components is {k}; {n} training rows of {d} columns have at most {min(n - 1, d)} principal "
                "components. Lower it."
            )
        mean = _sum_rows(X) / n
        if d <= _WIDE:
            variance, directions = _from_covariance(X, mean, k)
        else:
            variance, directions = _from_lanczos(X, mean, k)
        sign = np.sign(directions[np.arange(k), np.abs(directions).argmax(axis=1)])
        self.mean_ = mean
        self.components_ = directions * np.where(sign == 0, 1, sign)[:, None]
        self.explained_variance_ = np.maximum(variance, 0)
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        """Project rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)

        Returns
        -------
        ndarray of shape (n, n_components)
            Float32 for float32 (and smaller) input, else float64.
        """
        self._check_fitted()
        X = _complete(X, n_columns=self.components_.shape[1])
        W = self.components_.T.astype(X.dtype)
        offset = (self.mean_ @ self.components_.T).astype(X.dtype)
        out: NDArray[Any] = np.asarray(X @ W) - offset
        return out

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the components.

        Parameters
        ----------
        input_features : ignored

        Returns
        -------
        ndarray of str
        """
        self._check_fitted()
        return np.array([f"component {j}" for j in range(self.components_.shape[0])], dtype=object)


def _complete(X: Any, n_columns: int | None = None) -> Any:
    return check_view(X, "X", n_columns=n_columns).require_complete("PCA")


def _sum_rows(X: Any) -> NDArray[np.float64]:
    total: NDArray[np.float64] = np.zeros(X.shape[1])
    if sparse.issparse(X):
        np.add.at(total, X.indices, X.data)
        return total
    for rows in row_blocks(*X.shape):
        total += X[rows].sum(axis=0, dtype=np.float64)
    return total


def _from_covariance(X: Any, mean: NDArray[np.float64], k: int) -> tuple[Any, Any]:
    from scipy.linalg import eigh

    n, d = X.shape
    if sparse.issparse(X):
        X = X.astype(np.float64)
        gram = (X.T @ X).toarray()
    else:
        gram = np.zeros((d, d))
        for rows in row_blocks(n, d):
            block = X[rows].astype(np.float64) - mean
            gram += block.T @ block
    if sparse.issparse(X):
        gram -= n * np.outer(mean, mean)
    values, vectors = eigh(gram / (n - 1), subset_by_index=(d - k, d - 1), driver="evr")
    return values[::-1], vectors[:, ::-1].T


def _from_lanczos(X: Any, mean: NDArray[np.float64], k: int) -> tuple[Any, Any]:
    from scipy.sparse.linalg import LinearOperator, svds

    n, d = X.shape
    X = X.astype(np.float64)
    if k >= min(n, d):
        raise InputError(f"n_components must be below {min(n, d)} for a matrix of shape {(n, d)}; got {k}.")
    centred = LinearOperator(
        (n, d),
        matvec=lambda v: X @ np.ravel(v) - mean @ np.ravel(v),
        rmatvec=lambda u: X.T @ np.ravel(u) - mean * np.sum(u),
        dtype=np.float64,
    )
    start = np.random.default_rng(0).standard_normal(min(n, d))
    _, values, vectors = svds(centred, k=k, v0=start, return_singular_vectors="vh")
    order = np.argsort(-values)
    return np.square(values[order]) / (n - 1), vectors[order]
