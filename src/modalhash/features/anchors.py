"""Nearness to a set of training items as features, so that a linear method can bend."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..exceptions import InputError
from ..views import check_view, row_blocks
from .transformer import FeatureTransformer, check_count

__all__ = ["RBFAnchors"]


class RBFAnchors(FeatureTransformer):
    """Gaussian kernel between each row and anchors: ``exp(-|x - a|^2 / (2 s))``.

    The scale is ``s = width * m``, m the mean squared distance between the training rows (or a sample of them)
    and the anchors.

    Parameters
    ----------
    n_anchors : int
        Anchors; fewer training rows than that are all taken.
    width : float
        0.3 suits GIST on MIRFlickr; larger is smoother.
    method : {"sample", "kmeans"}
        Random training rows, or the centres of a MiniBatchKMeans.
    random_state : int

    Attributes
    ----------
    anchors_ : ndarray of shape (n_anchors, d)
    scale_ : float
        The number s.

    Examples
    --------
    >>> X = np.random.default_rng(0).standard_normal((50, 3))
    >>> K = RBFAnchors(n_anchors=10).fit_transform(X)
    >>> K.shape, float(K.max())
    ((50, 10), 1.0)
    """

    _arrays = ("anchors_",)
    _values = ("scale_",)

    def __init__(
        self, n_anchors: int = 1000, width: float = 0.3, method: str = "sample", random_state: int = 0
    ) -> None:
        self.n_anchors = n_anchors
        self.width = width
        self.method = method
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Choose the anchors and the scale from training rows.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)
        y : ignored

        Returns
        -------
        self
        """
        m = check_count(self.n_anchors, "n_anchors")
        if not self.width > 0:
            raise InputError(f"width must be a positive number; got {self.width!r}.")
        X = check_view(X, "X").require_complete("RBFAnchors")
        m = min(m, X.shape[0])
        rng = np.random.default_rng(self.random_state)
        if self.method == "sample":
            chosen = X[np.sort(rng.choice(X.shape[0], size=m, replace=False))]
            anchors = chosen.toarray() if sparse.issparse(chosen) else np.array(chosen)
        elif self.method == "kmeans":
            from sklearn.cluster import MiniBatchKMeans

            seed = int(rng.integers(2**31))
            model = MiniBatchKMeans(m, random_state=seed, n_init=3, batch_size=max(1024, 3 * m))
            anchors = model.fit(X).cluster_centers_
        else:
            raise InputError(f'method must be "sample" or "kmeans"; got {self.method!r}.')
        rows = np.sort(rng.choice(X.shape[0], size=min(X.shape[0], 2000), replace=False))
        mean = float(squared_distances(X[rows], anchors).mean(dtype=np.float64))
        if not mean > 0:
            raise InputError("all training rows are equal; there is no distance to scale the kernel by.")
        self.anchors_ = np.ascontiguousarray(anchors)
        self.scale_ = float(self.width * mean)
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        """Nearness of each row to each anchor.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, d)

        Returns
        -------
        ndarray of shape (n, n_anchors)
            Between 0 and 1, in the floating type of `X`.
        """
        self._check_fitted()
        X = check_view(X, "X", n_columns=self.anchors_.shape[1]).require_complete("RBFAnchors")
        m = self.anchors_.shape[0]
        out = np.empty((X.shape[0], m), dtype=X.dtype)
        for rows in row_blocks(X.shape[0], m):
            out[rows] = np.exp(squared_distances(X[rows], self.anchors_) / (-2 * self.scale_))
        return out


def squared_distances(X: Any, A: NDArray[Any]) -> NDArray[Any]:
    """Squared Euclidean distance of each row of `X` (dense or sparse) to each row of `A`, never negative.

    Parameters
    ----------
    X : array or CSR matrix of shape (n, d)
    A : ndarray of shape (m, d)

    Returns
    -------
    ndarray of shape (n, m)

    Examples
    --------
    >>> squared_distances(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0]])).tolist()
    [[25.0]]
    """
    A = A.astype(np.float64)
    X = X.astype(np.float64)
    squares = X.multiply(X) if sparse.issparse(X) else X * X
    norms = np.asarray(squares.sum(axis=1)).ravel()
    out: NDArray[Any] = np.asarray(X @ A.T)
    out *= -2
    out += norms[:, None]
    out += np.einsum("ij,ij->i", A, A)[None, :]
    np.maximum(out, 0, out=out)
    return out
