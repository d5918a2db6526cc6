"""MDBE: multimodal discriminative binary embedding.

Paper
-----
D. Wang, X. Gao, X. Wang, L. He and B. Yuan, "Multimodal discriminative binary embedding for large-scale cross-modal
retrieval", IEEE Transactions on Image Processing 25(10), 2016.

Objective
---------
min sum_i lam_i ( ‖L - W_i P_i X_i‖_F^2 + beta ‖P_i X_i - D L‖_F^2 + gamma ‖W_i‖_F^2 ):
every view goes to a latent space from which its labels can be read off, and the labels go to the same space.

Symbols
-------
Columns are items, as in the paper: n items, d_i features, q labels, c ``n_bits``, g views.
X_i    view, centred on the training rows, (d_i, n); L labels, 0/1, (q, n)
P_i    ``weights_[view]``, transposed, (c, d_i); D ``weights_["labels"]``, transposed, (c, q)
W_i    reads labels off the latent space, (q, c)
lam_i  ``view_weights``; beta ``latent_weight``; gamma ``ridge``

Steps
-----
With the second moments XX', LX', LL' formed once, an iteration costs nothing in n:
D    sum_i lam_i P_i X_i L' (LL')^-1
W_i  L X_i'P_i' (P_i X_i X_i'P_i' + gamma I)^-1
P_i  (W_i'W_i + beta I)^-1 (W_i'L X_i' + beta D L X_i') (X_i X_i' + gamma I)^-1

Departures from the paper
-------------------------
- Database codes come from the labels, sgn(D l), as in the authors' program (rule "label"); "encoded" uses P x.
- Any number of views; the paper has two.
- The curve, and the rule that stops when it falls by less than ``tol``, are of the norms not squared, as in the
  authors' program.
- LL' must be regular: a label that no row has is an error unless ``label_ridge`` is positive.

Checked against
---------------
Outputs of the authors' program from its own random start: every bit and the objective's curve
(tests/test_methods_mdbe.py); the paper's row on MIRFlickr (docs/methods/mdbe.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..base import CrossModalHasher, TrainingData
from ..codes import Codes, pack_scores
from ..exceptions import InputError
from ..labels import Labels
from ..linalg import CentredMatrix, cross, gram
from ..parameters import check_count, check_random_state
from ..spectral import ridge_solver
from ..views import LABELS, View, ViewTransform

__all__ = ["MDBE"]


class MDBE(CrossModalHasher):
    """Multimodal discriminative binary embedding: labels and any number of views.

    Parameters
    ----------
    n_bits : int
        Length of a code.
    view_weights : dict of str to float, optional
        lam_i, divided by their sum; views not named weigh as 1.
    latent_weight : float
        beta.
    ridge : float
        gamma.
    label_ridge : float
        Added to the diagonal of LL'; needed when a label never occurs or two always occur together.
    n_iter : int
        Iterations at most.
    tol : float
        Stop when the objective falls by less.
    init : dict of str to array (d, n_bits), optional
        The start of P by view; uniform on (0, 1) where not given.
    random_state : int, numpy.random.Generator or None

    Attributes
    ----------
    train_codes_ : ndarray of uint8, shape (n, ceil(n_bits / 8))
        Codes of the training rows under the "label" rule.
    objective_ : ndarray of shape (n_iter_,)
    n_iter_ : int

    Examples
    --------
    >>> import modalhash as mh
    >>> data = mh.datasets.make_synthetic(n=300, random_state=0)
    >>> hasher = mh.MDBE(n_bits=16, random_state=0).fit(data.views, labels=data.labels)
    >>> hasher.database_codes({}, data.labels, rule="label").shape
    (300, 2)
    """

    database_rules: ClassVar[tuple[str, ...]] = ("encoded", "label")
    requires_labels: ClassVar[bool] = True
    accepts_torch: ClassVar[bool] = True

    train_codes_: Codes
    objective_: NDArray[np.float64]
    n_iter_: int

    def __init__(
        self,
        n_bits: int = 64,
        *,
        view_weights: Mapping[str, float] | None = None,
        latent_weight: float = 100.0,
        ridge: float = 1e-3,
        label_ridge: float = 0.0,
        n_iter: int = 20,
        tol: float = 0.01,
        init: Mapping[str, Any] | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_bits = n_bits
        self.view_weights = view_weights
        self.latent_weight = latent_weight
        self.ridge = ridge
        self.label_ridge = label_ridge
        self.n_iter = n_iter
        self.tol = tol
        self.init = init
        self.random_state = random_state

    def _check_params(self) -> None:
        for name in ("latent_weight", "ridge"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be positive; got {getattr(self, name)!r}.")
        for name in ("label_ridge", "tol"):
            if not getattr(self, name) >= 0:
                raise InputError(f"{name} must not be negative; got {getattr(self, name)!r}.")
        check_count(self.n_iter, "n_iter")

    def _fit(self, data: TrainingData) -> None:
        rng = check_random_state(self.random_state)
        labels = data.require_labels_of_all("MDBE")
        lam, c, beta, gamma = data.shares(self.view_weights), self.n_bits, self.latent_weight, self.ridge
        views, transforms = data.centred()
        L = CentredMatrix(labels.matrix.astype(np.float64))
        LL = gram(L)
        solve_labels = self._label_solver(LL, labels)
        XX = {i: gram(X) for i, X in views.items()}
        LX = {i: cross(L, X) for i, X in views.items()}
        LX_inverse = {i: ridge_solver(XX[i], gamma, f"view {i!r}")(LX[i].T).T for i in views}  # L X'(XX' + gamma I)^-1
        P = {i: start.T for i, start in data.starts(self.init, c, rng).items()}
        identity = np.eye(c)
        curve: list[float] = []
        D = np.zeros((c, LL.shape[0]))
        while len(curve) < self.n_iter:
            D = solve_labels(sum(lam[i] * LX[i] @ P[i].T for i in views)).T
            value = 0.0
            for i in views:
                W = np.linalg.solve(P[i] @ XX[i] @ P[i].T + gamma * identity, P[i] @ LX[i].T).T
                P[i] = np.linalg.solve(W.T @ W + beta * identity, (W.T + beta * D) @ LX_inverse[i])
                value += lam[i] * self._objective(W, P[i], D, XX[i], LX[i], LL)
            curve.append(value)
            if len(curve) > 1 and curve[-2] - curve[-1] < self.tol:
                break
        self.objective_, self.n_iter_ = np.array(curve), len(curve)
        for i in views:
            self._set_linear(i, np.ascontiguousarray(P[i].T), np.zeros(c), transforms[i])
        self._set_linear(LABELS, np.ascontiguousarray(D.T), np.zeros(c), ViewTransform(None, 1.0))
        self.train_codes_ = pack_scores(self._project(LABELS, labels.matrix))

    def _objective(self, W: Any, P: Any, D: Any, XX: Any, LX: Any, LL: Any) -> float:
        """‖L - W P X‖ + beta ‖P X - D L‖ + gamma ‖W‖ from second moments; norms not squared."""
        PXX, WP = P @ XX, W @ P
        reading = np.trace(LL) - 2 * np.vdot(WP, LX) + np.vdot(W @ PXX, WP)
        latent = np.vdot(PXX, P) - 2 * np.vdot(P @ LX.T, D) + np.vdot(D @ LL, D)
        norms = np.sqrt(np.maximum([reading, latent], 0.0))
        return float(norms[0] + self.latent_weight * norms[1] + self.ridge * np.linalg.norm(W))

    def _label_solver(self, LL: NDArray[np.float64], labels: Labels) -> Any:
        if not self.label_ridge:
            never = [str(labels.names[j]) for j in np.flatnonzero(np.diag(LL) == 0)]
            if never:
                raise InputError(
                    f"{len(never)} label(s) never occur in the training rows: {', '.join(never[:5])}. "
                    "Leave those columns out, or set label_ridge=1e-3."
                )
            scale = np.sqrt(np.diag(LL))
            if np.linalg.cond(LL / np.outer(scale, scale)) > 1e12:
                raise InputError(
                    "some labels are determined by the others (two always occur together, or they sum to a third). "
                    "Leave them out, or set label_ridge=1e-3."
                )
        return ridge_solver(LL, self.label_ridge, "the labels")

    def _database_codes(self, rule: str, views: dict[str, View], labels: Labels | None) -> Codes:
        """sgn(D l)."""
        if labels is None or not labels.known.all():
            raise InputError("the label rule makes a row's code from its labels, and some rows have none.")
        return pack_scores(self._project(LABELS, labels.matrix))
