"""SCM: semantic correlation maximisation.

Paper
-----
D. Zhang and W.-J. Li, "Large-scale supervised multimodal hashing with semantic correlation maximization", AAAI 2014.

Objective
---------
min ‖ sgn(X Wx) sgn(Y Wy)' - c S ‖_F^2 with S = 2 Ln Ln' - 1 1', relaxed to
max tr(Wx'Cxy Wy) with Wx'Cxx Wx = I, Wy'Cyy Wy = I (orth), or bit by bit on the residual of S (seq).

Symbols
-------
n rows, c ``n_bits``, q labels.
X, Y    the two views in order of name, centred on the training rows, (n, d), (n, e)
Wx, Wy  ``weights_``, (d, c), (e, c)
Ln      label matrix with unit rows, (n, q)
Cxy     c (2 (X'Ln)(Y'Ln)' - (X'1)(Y'1)'), (d, e); the second term is zero for centred views
Cxx     X'X + ridge I; Cyy likewise

Steps
-----
orth  the c leading singular pairs of Cxx^-1/2 Cxy Cyy^-1/2  :func:`modalhash.spectral.cca`
seq   one leading pair per bit  :func:`modalhash.spectral.top_singular_pair`, then
      C <- C - (X' sgn(X wx)) (Y' sgn(Y wy))'

Departures from the paper
-------------------------
- As the authors' program does: when the leading value grows instead of falling, the sequence stops, and the
  remaining bits are the leading pairs of the unsupervised CCA, in reverse order. Where the views have fewer pairs
  than that needs (a narrow view), the sequence goes on until they suffice, and a RankWarning says so.
- Directions in which a view does not vary are left out, so that "orth" never turns complex; bits beyond those that
  exist are zero, with a RankWarning.

Checked against
---------------
Outputs of the authors' program, "seq" at 16 and 32 bits and "orth" within its rank: every bit, up to a column's
sign (tests/test_methods_scm.py); the paper's row on MIRFlickr (docs/methods/scm.md).
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..base import CrossModalHasher, TrainingData
from ..exceptions import InputError, RankWarning
from ..linalg import CentredMatrix, cross, gram, unit_rows
from ..spectral import cca, fix_signs, top_singular_pair, whitener

__all__ = ["SCM"]

VARIANTS = ("seq", "orth")


class SCM(CrossModalHasher):
    """Semantic correlation maximisation: two views and labels, closed form, no n x n matrix.

    Parameters
    ----------
    n_bits : int
        Length of a code. Codes of fewer bits are not a prefix of codes of more.
    variant : "seq" or "orth"
        "seq" learns bit after bit, any number of them. "orth" learns all at once; it has no more directions than
        there are labels, and warns beyond.
    ridge : float
        Added to the diagonal of each view's second moments.

    Attributes
    ----------
    correlations_ : ndarray of shape (n_bits,)
        The value maximised, by bit; for bits filled from CCA, their canonical correlation.
    n_sequential_ : int
        How many bits came from the labels.

    Examples
    --------
    >>> import modalhash as mh
    >>> data = mh.datasets.make_synthetic(n=300, random_state=0)
    >>> hasher = mh.SCM(n_bits=16).fit(data.views, labels=data.labels)
    >>> hasher.encode("text", data.views["text"]).shape
    (300, 2)
    """

    requires_labels: ClassVar[bool] = True
    min_views: ClassVar[int] = 2
    max_views: ClassVar[int | None] = 2
    accepts_torch: ClassVar[bool] = True

    correlations_: NDArray[np.float64]
    n_sequential_: int

    def __init__(self, n_bits: int = 64, *, variant: str = "seq", ridge: float = 1e-6) -> None:
        self.n_bits = n_bits
        self.variant = variant
        self.ridge = ridge

    def _check_params(self) -> None:
        if self.variant not in VARIANTS:
            raise InputError(f"variant must be one of {', '.join(VARIANTS)}; got {self.variant!r}.")
        if not self.ridge >= 0:
            raise InputError(f"ridge must not be negative; got {self.ridge!r}.")

    def _fit(self, data: TrainingData) -> None:
        Ln = CentredMatrix(unit_rows(data.require_labels_of_all("SCM").matrix))
        views, transforms = data.centred()
        X, Y = views.values()
        Tx, Ty = (whitener(gram(view), self.ridge) for view in (X, Y))
        for name, T in zip(views, (Tx, Ty), strict=True):
            if T.shape[1] == 0:
                raise InputError(f"view {name!r} is constant: every row is the same. Leave it out.")
        XL, YL = cross(X, Ln), cross(Y, Ln)
        # Labels that never change are orthogonal to centred views, up to rounding; ‖Ln‖_F is the root of n.
        if min(np.linalg.norm(Tx.T @ XL), np.linalg.norm(Ty.T @ YL)) <= 1e-8 * np.sqrt(data.n_rows):
            raise InputError("the labels are the same for every row; SCM has nothing to learn from them.")
        Cxy = 2.0 * self.n_bits * XL @ YL.T
        if self.variant == "orth":
            Wx, Wy = self._orthogonal(Tx, Ty, Cxy)
        else:
            Wx, Wy = self._sequential(X, Y, Tx, Ty, Cxy)
        for name, W in zip(views, (Wx, Wy), strict=True):
            self._set_linear(name, W, np.zeros(self.n_bits), transforms[name])

    def _orthogonal(self, Tx: Any, Ty: Any, Cxy: Any) -> tuple[Any, Any]:
        c, k = self.n_bits, min(self.n_bits, Tx.shape[1], Ty.shape[1])
        Wx, Wy, values = np.zeros((len(Tx), c)), np.zeros((len(Ty), c)), np.zeros(c)
        Wx[:, :k], Wy[:, :k], values[:k] = cca(Tx, Ty, Cxy, k)
        rank = int((values > 1e-9 * values[0]).sum())
        if rank < c:
            warnings.warn(
                f"labels and views have {rank} directions in common: of the {c} bits of SCM-orth, {c - rank} are "
                f'noise. Ask for at most {rank} bits, or use variant="seq".',
                RankWarning,
                stacklevel=4,
            )
        self.correlations_, self.n_sequential_ = values, rank
        return Wx, Wy

    def _sequential(self, X: CentredMatrix, Y: CentredMatrix, Tx: Any, Ty: Any, Cxy: Any) -> tuple[Any, Any]:
        c = self.n_bits
        Wx, Wy, values = np.zeros((len(Tx), c)), np.zeros((len(Ty), c)), np.zeros(c)
        C = Tx.T @ Cxy @ Ty  # the residual, whitened once
        fill, previous, overrun, t = min(Tx.shape[1], Ty.shape[1]), np.inf, 0, 0
        while t < c:
            u, v, w = top_singular_pair(C)
            if w > previous or overrun:
                if c - t <= fill:
                    break
                overrun += 1
            wx, wy = Tx @ u, Ty @ v
            sign = fix_signs(wx[:, None])
            Wx[:, t], Wy[:, t], values[t], previous = wx * sign, wy * sign, w, w
            hx, hy = (np.where(view.apply(z[:, None]) > 0, 1.0, -1.0) for view, z in ((X, wx), (Y, wy)))
            C -= (Tx.T @ X.apply_transposed(hx)) @ (Ty.T @ Y.apply_transposed(hy)).T
            t += 1
        if t < c:
            A, B, s = cca(Tx, Ty, cross(X, Y), c - t)
            Wx[:, t:], Wy[:, t:], values[t:] = A[:, ::-1], B[:, ::-1], s[::-1]
        if overrun:
            warnings.warn(
                f"the sequence should have stopped at {t - overrun} bits, and the views have only {fill} unsupervised "
                f"pairs for the rest: {overrun} bits carry little. Ask for fewer bits.",
                RankWarning,
                stacklevel=4,
            )
        self.correlations_, self.n_sequential_ = values, t
        return Wx, Wy
