"""CCA: exact cosine ranking across views, without codes: what the features alone give.

Paper
-----
H. Hotelling, "Relations between two sets of variates", Biometrika 28, 1936; for retrieval across views, N. Rasiwasia
et al., "A new approach to cross-modal multimedia retrieval", ACM Multimedia 2010.

Objective
---------
max tr(Wx'X'Y Wy) subject to Wx'(X'X + ridge I)Wx = I and Wy'(Y'Y + ridge I)Wy = I. Rows are ranked by the cosine of
their projections.

Symbols
-------
X, Y    the two views in order of name, centred on the training rows, (n, d), (n, e)
Wx, Wy  ``weights_``, (d, k), (e, k); k ``n_components``

Steps
-----
moments  :func:`modalhash.linalg.gram`, :func:`modalhash.linalg.cross`
pairs    :func:`modalhash.spectral.cca`

Departures from the paper
-------------------------
- Each direction is weighted by its canonical correlation to the power ``power`` (0 is plain CCA), as Y. Gong et al.,
  "A multi-view embedding space for modeling internet images, tags, and their semantics", IJCV 2014, do.
- Directions in which a view does not vary are left out.

Checked against
---------------
scikit-learn's CCA on random data, and a literal ranking (tests/test_methods_cca.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..base import TrainingData
from ..exceptions import InputError
from ..linalg import CentredMatrix, cross, gram, unit_rows
from ..parameters import Parameters, check_count
from ..spectral import cca, whitener
from ..views import check_view, check_views, row_blocks

__all__ = ["CCARetriever"]


class CCARetriever(Parameters):
    """Rank one view's rows for another view's queries by cosine after CCA. Not a hasher: it has no codes.

    Every table of codes shows it as a floor: real numbers, no labels.

    Parameters
    ----------
    n_components : int or None
        Directions kept; None keeps all that both views have.
    ridge : float
        Added to the diagonal of each view's second moments.
    power : float
        Directions are multiplied by their correlation to this power; at 4 the number kept hardly matters.

    Attributes
    ----------
    correlations_ : ndarray of shape (n_components,)
        Canonical correlations, largest first.
    view_names_ : list of str
    weights_, means_ : dict of str to ndarray, shapes (d, n_components) and (d,)

    Examples
    --------
    >>> import modalhash as mh
    >>> data = mh.datasets.make_synthetic(n=300, random_state=0)
    >>> floor = mh.CCARetriever(n_components=10).fit(data.views)
    >>> ids = floor.rank("image", data.views["image"][:5], "text", data.views["text"])
    >>> ids.shape
    (5, 300)
    """

    correlations_: NDArray[np.float64]
    view_names_: list[str]
    weights_: dict[str, NDArray[np.float64]]
    means_: dict[str, NDArray[np.float64]]

    def __init__(self, n_components: int | None = None, *, ridge: float = 1e-6, power: float = 4.0) -> None:
        self.n_components = n_components
        self.ridge = ridge
        self.power = power

    def fit(self, views: Mapping[str, Any]) -> Self:
        """Learn the directions from two views of the same rows.

        Parameters
        ----------
        views : dict of str to matrix (n, d)
            Exactly two; see :mod:`modalhash.views`.

        Returns
        -------
        self
        """
        k = self.n_components
        if k is not None:
            check_count(k, "n_components")
        if not self.ridge >= 0 or not self.power >= 0:
            raise InputError(f"ridge and power must not be negative; got {self.ridge!r} and {self.power!r}.")
        checked = check_views(views)
        if len(checked) != 2:
            raise InputError(f"CCARetriever needs 2 views; got {len(checked)}: {', '.join(checked)}.")
        data = TrainingData(checked, None, next(iter(checked.values())).n_rows)
        for view in checked.values():
            view.require_complete("CCARetriever")
        matrices, transforms = data.centred()
        X, Y = matrices.values()
        Tx, Ty = whitener(gram(X), self.ridge), whitener(gram(Y), self.ridge)
        available = min(Tx.shape[1], Ty.shape[1])
        if available < (k or 1):
            raise InputError(
                f"the views share {available} directions at most; n_components is {k}. Ask for fewer, or leave it None."
            )
        Wx, Wy, self.correlations_ = cca(Tx, Ty, cross(X, Y), k)
        weight = self.correlations_**self.power
        self.view_names_ = list(matrices)
        self.weights_ = {name: W * weight for name, W in zip(matrices, (Wx, Wy), strict=True)}
        self.means_ = {name: t.mean for name, t in transforms.items() if t.mean is not None}
        return self

    def project(self, view: str, X: Any) -> NDArray[Any]:
        """Rows of a view in the common space, each of length 1: their inner products are the cosines.

        Parameters
        ----------
        view : str
        X : matrix of shape (n, d)

        Returns
        -------
        ndarray of shape (n, n_components)
        """
        if not hasattr(self, "weights_"):
            from ..exceptions import NotFittedError

            raise NotFittedError("this CCARetriever is not fitted yet. Call fit first.")
        if view not in self.weights_:
            raise InputError(f"unknown view {view!r}; fitted were {', '.join(map(repr, self.view_names_))}.")
        W = self.weights_[view]
        matrix = check_view(X, view, n_columns=W.shape[0]).require_complete("ranking")
        scores: NDArray[Any] = unit_rows(CentredMatrix(matrix, self.means_[view]).apply(W))
        return scores

    def rank(self, query_view: str, Q: Any, database_view: str, D: Any, *, k: int | None = None) -> NDArray[np.intp]:
        """Database rows in order of falling cosine to each query; equal ones in order of row.

        Parameters
        ----------
        query_view : str
        Q : matrix of shape (m, d)
        database_view : str
        D : matrix of shape (n, e)
        k : int, optional
            How many; all n without it.

        Returns
        -------
        ndarray of int, shape (m, k or n)
        """
        q, d = self.project(query_view, Q), self.project(database_view, D)
        if k is not None:
            check_count(k, "k")
        k = d.shape[0] if k is None else min(int(k), d.shape[0])
        out = np.empty((q.shape[0], k), dtype=np.intp)
        for rows in row_blocks(q.shape[0], d.shape[0]):
            out[rows] = np.argsort(-(q[rows] @ d.T), axis=1, kind="stable")[:, :k]
        return out
