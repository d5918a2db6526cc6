"""Nearness to a set of training items as features, so that a linear method can bend."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..exceptions import InputError
from ..kernels import choose_anchors, mean_squared_distance, rbf_kernel
from ..views import check_view, row_blocks
from .transformer import FeatureTransformer

__all__ = ["RBFAnchors"]


class RBFAnchors(FeatureTransformer):
    """Gaussian kernel between each row and anchors: ``exp(-|x - a|^2 / (2 s))``.

    The scale is ``s = width * m``, m the mean squared distance between training rows.

    Parameters
    ----------
    n_anchors : int
        Anchors; fewer training rows than that are all taken.
    width : float
        0.3 suits GIST on MIRFlickr; larger is smoother.
    method : {"random", "kmeans"}
        Random training rows, or the centres of k-means.
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
        self, n_anchors: int = 1000, width: float = 0.3, method: str = "random", random_state: int = 0
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
        if not self.width > 0:
            raise InputError(f"width must be a positive number; got {self.width!r}.")
        X = check_view(X, "X").require_complete("RBFAnchors")
        anchors = choose_anchors(X, self.n_anchors, self.method, np.random.default_rng(self.random_state))
        scale = float(self.width * mean_squared_distance(X))
        if not scale > 0:
            raise InputError("all training rows are equal; there is no distance to scale the kernel by.")
        self.anchors_ = anchors
        self.scale_ = scale
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
            out[rows] = rbf_kernel(X[rows], self.anchors_, 2 * self.scale_)
        return out
