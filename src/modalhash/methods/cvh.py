"""CVH: cross-view hashing.

Paper
-----
S. Kumar and R. Udupa, "Learning hash functions for cross-view similarity search", IJCAI 2011.

Objective
---------
min sum_ij S_ij sum_(u <= v) ‖y_i^u - y_j^v‖^2 over codes y, relaxed to linear scores y^u = A_u'x^u:
min sum_u tr A_u'X_u'(2 Lap + (g-1) Deg)X_u A_u - sum_(u != v) tr A_u'X_u'S X_v A_v
subject to sum_u A_u'X_u'X_u A_u = I.

Symbols
-------
n rows, d_u columns, c ``n_bits``, g views, q labels.
X_u  view, centred on the training rows, (n, d_u)
A_u  ``weights_``, (d_u, c)
S    affinity of rows, (n, n), never formed: I for ``affinity="pairs"``, Ln Ln' for "labels", where
     Ln is the label matrix with unit rows, (n, q)
Deg  diagonal of the row sums of S; Lap = Deg - S

Steps
-----
X_u'S X_v = (X_u'Ln)(X_v'Ln)', Deg = diag(Ln(Ln'1))  :func:`modalhash.linalg.cross`
the c smallest generalised eigenvectors  :func:`modalhash.spectral.smallest_eigenvectors`

Departures from the paper
-------------------------
- The constraint carries ``ridge`` times I, and directions in which a view does not vary are left out.
- With S = I the problem is CCA (its eigenvalues are 1 minus the canonical correlations): same codes, one program.
- The paper leaves S to the user; cosine of label vectors is the choice that comes nearest to the published row on
  MIRFlickr.
- Every column's sign is fixed, so that codes do not depend on the LAPACK in use.

Checked against
---------------
Outputs of the authors' program for "pairs" on two data sets: every bit, up to the order and sign of columns
(tests/test_methods_cvh.py).
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..base import CrossModalHasher, TrainingData
from ..exceptions import InputError, LabelsRequiredError, RankWarning
from ..linalg import CentredMatrix, cross, gram, unit_rows
from ..spectral import smallest_eigenvectors, whitener

__all__ = ["CVH"]

AFFINITIES = ("auto", "pairs", "labels")


class CVH(CrossModalHasher):
    """Cross-view hashing: one generalised eigenproblem, any number of views, with or without labels.

    Parameters
    ----------
    n_bits : int
        Length of a code; at most the width of the narrowest view.
    affinity : "auto", "pairs" or "labels"
        Which rows are alike: each only itself ("pairs", unsupervised), or by the cosine of their labels. "auto"
        takes labels when they are given.
    ridge : float
        Added to the second moments' diagonal in the constraint.

    Attributes
    ----------
    eigenvalues_ : ndarray of shape (n_bits,)
        Smallest first; under "pairs" 1 minus the canonical correlations.

    Examples
    --------
    >>> import modalhash as mh
    >>> data = mh.datasets.make_synthetic(n=300, random_state=0)
    >>> hasher = mh.CVH(n_bits=16).fit(data.views, labels=data.labels)
    >>> hasher.encode("image", data.views["image"]).shape
    (300, 2)
    """

    min_views: ClassVar[int] = 2
    accepts_torch: ClassVar[bool] = True

    eigenvalues_: NDArray[np.float64]

    def __init__(self, n_bits: int = 64, *, affinity: str = "auto", ridge: float = 1e-6) -> None:
        self.n_bits = n_bits
        self.affinity = affinity
        self.ridge = ridge

    def _check_params(self) -> None:
        if self.affinity not in AFFINITIES:
            raise InputError(f"affinity must be one of {', '.join(AFFINITIES)}; got {self.affinity!r}.")
        if not self.ridge >= 0:
            raise InputError(f"ridge must not be negative; got {self.ridge!r}.")

    def _fit(self, data: TrainingData) -> None:
        if self.affinity == "labels" and data.labels is None:
            raise LabelsRequiredError('affinity="labels" needs labels. Pass fit(views, labels=...).')
        c, names = self.n_bits, list(data.views)
        narrow = min(data.views.values(), key=lambda view: view.n_columns)
        if c > narrow.n_columns:
            raise InputError(
                f"CVH gives at most as many bits as the narrowest view has columns: view {narrow.name!r} has "
                f"{narrow.n_columns}, n_bits is {c}. Ask for fewer bits, or use SCM or DMH."
            )
        X, transforms = data.centred()
        G = {name: gram(X[name]) for name in names}
        T = {name: whitener(G[name], self.ridge) for name in names}
        self._check_rank({name: T[name].shape[1] for name in names})
        if self.affinity == "pairs" or data.labels is None:
            blocks = self._pair_blocks(X, G)
        else:
            blocks = self._label_blocks(X, unit_rows(data.labels.matrix))
        T_all = _block_diagonal([T[name] for name in names])
        A, self.eigenvalues_ = smallest_eigenvectors(blocks, T_all, c)
        for name, A_u in zip(names, np.split(A, np.cumsum([T[name].shape[0] for name in names])[:-1]), strict=True):
            self._set_linear(name, A_u, np.zeros(c), transforms[name])

    def _pair_blocks(self, X: dict[str, CentredMatrix], G: dict[str, Any]) -> NDArray[np.float64]:
        """The objective's matrix for S = I, divided by g - 1: X_u'X_u + ridge I, and -X_u'X_v / (g - 1)."""
        g = len(X)
        rows = [
            [G[u] + self.ridge * np.eye(len(G[u])) if u == v else -cross(X[u], X[v]) / (g - 1) for v in X] for u in X
        ]
        return np.block(rows)

    def _label_blocks(self, X: dict[str, CentredMatrix], Ln: Any) -> NDArray[np.float64]:
        """The objective's matrix for S = Ln Ln': X_u'((g+1) Deg - 2 S)X_u, and -X_u'S X_v."""
        g = len(X)
        degree = np.asarray(Ln @ np.asarray(Ln.sum(axis=0)).ravel())
        XL = {u: cross(X[u], CentredMatrix(Ln)) for u in X}
        rows = [
            [(g + 1) * gram(X[u], degree) - 2 * XL[u] @ XL[u].T if u == v else -XL[u] @ XL[v].T for v in X] for u in X
        ]
        return np.block(rows)

    def _check_rank(self, ranks: dict[str, int]) -> None:
        poorest = min(ranks, key=lambda name: ranks[name])
        if ranks[poorest] == 0:
            raise InputError(f"view {poorest!r} is constant: every row is the same. Leave it out.")
        if sum(ranks.values()) < self.n_bits:
            raise InputError(
                f"the views vary in {sum(ranks.values())} directions together; n_bits is {self.n_bits}. "
                "Ask for fewer bits."
            )
        if ranks[poorest] < self.n_bits:
            warnings.warn(
                f"view {poorest!r} varies in {ranks[poorest]} directions only; of the {self.n_bits} bits, those beyond "
                "are noise for it. Ask for fewer bits.",
                RankWarning,
                stacklevel=4,
            )


def _block_diagonal(blocks: list[Any]) -> Any:
    from scipy.linalg import block_diag

    return block_diag(*blocks)
