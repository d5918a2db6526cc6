"""The steps from ITQ to DMH, each a hasher: the linear model, and the list of all of them.

Paper
-----
D. Tian, "Learning Decorrelated Hashing Codes for Multimodal Retrieval", section "Problem Formulation".

Objective
---------
Multi-view ITQ, Eq. (multiITQ): :class:`modalhash.MultiViewITQ`.
The linear model, Eq. (preModel): min over B and W^i of E = sum_i alpha_i ‖B - X^i W^i‖_F^2.
The sigmoid model, Eq. (preModel2), and with a regulariser, Eq. (model): :class:`modalhash.DMH`.

Symbols
-------
n rows, d_i columns, c ``n_bits``, g views; labels are one more view.
X^i  view, centred on the training rows, labels too, (n, d_i)
W^i  ``weights_``, (d_i, c)
B    ``train_codes_``, (n, c), -1 or +1 before packing
alpha_i ``view_weights``, ``label_weight``

Steps
-----
B    sgn(sum_i alpha_i X^i W^i)
W^i  (X^i'X^i + ridge I)^-1 X^i'B  :func:`modalhash.spectral.ridge_solver`

Departures from the paper
-------------------------
- The paper gives no algorithm for Eq. (preModel). Both steps here are exact, so that E never rises, and they end
  when B stops changing.
- ``ridge`` is a small share of a view's mean variance; without it, a view with more columns than rows reproduces any
  B, and the start is already the end.
- B is -1 or +1 and every view is centred, which is 0 or 1 with the offset that Eq. (preModel) lacks.
- The start is random W^i, on views scaled to a root-mean-square row norm of 1; the paper gives none.

Checked against
---------------
A literal implementation in tests/test_methods_linear.py; E never rises. The authors published no program.
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
from ..linalg import CentredMatrix, gram
from ..parameters import check_count, check_random_state
from ..spectral import ridge_solver
from ..views import LABELS, View, ViewTransform
from .dmh import DMH
from .itq import MultiViewITQ

__all__ = ["MultiViewLinear", "ladder"]


class MultiViewLinear(CrossModalHasher):
    """The linear model: codes that every view, and the labels, predict by least squares.

    Parameters
    ----------
    n_bits : int
        Length of a code.
    view_weights : dict of str to float, optional
        alpha_i; views not named weigh 1.
    label_weight : float
        alpha of the labels, where they are given.
    ridge : float
        Added to the diagonal of a view's second moments, as a share of their mean diagonal.
    n_iter : int
        Iterations at most.
    random_state : int, numpy.random.Generator or None

    Attributes
    ----------
    train_codes_ : ndarray of uint8, shape (n, ceil(n_bits / 8))
    objective_ : ndarray of shape (n_iter_,)
    n_iter_ : int

    Examples
    --------
    >>> import modalhash as mh
    >>> data = mh.datasets.make_synthetic(n=300, random_state=0)
    >>> hasher = mh.MultiViewLinear(n_bits=16, random_state=0).fit(data.views, labels=data.labels)
    >>> bool((np.diff(hasher.objective_) <= 1e-9).all())
    True
    """

    database_rules: ClassVar[tuple[str, ...]] = ("encoded", "learned", "fused")
    accepts_torch: ClassVar[bool] = True

    train_codes_: Codes
    objective_: NDArray[np.float64]
    n_iter_: int

    def __init__(
        self,
        n_bits: int = 64,
        *,
        view_weights: Mapping[str, float] | None = None,
        label_weight: float = 10.0,
        ridge: float = 1e-3,
        n_iter: int = 50,
        random_state: Any = None,
    ) -> None:
        self.n_bits = n_bits
        self.view_weights = view_weights
        self.label_weight = label_weight
        self.ridge = ridge
        self.n_iter = n_iter
        self.random_state = random_state

    def _check_params(self) -> None:
        for name in ("label_weight", "ridge"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be positive; got {getattr(self, name)!r}.")
        check_count(self.n_iter, "n_iter")

    def _fit(self, data: TrainingData) -> None:
        rng = check_random_state(self.random_state)
        n, c = data.n_rows, self.n_bits
        alpha = {i: len(data.views) * share for i, share in data.shares(self.view_weights).items()}
        X, transforms = data.centred()
        if data.labels is not None:
            L = data.require_labels_of_all("the linear model").matrix.astype(np.float64)
            transforms[LABELS] = ViewTransform.fit(L, center=True, scale=None)
            X[LABELS], alpha[LABELS] = CentredMatrix(L, transforms[LABELS].mean), float(self.label_weight)
        solve, W = {}, {}
        for i in X:
            G = gram(X[i])
            size = float(np.trace(G)) or 1.0  # zero for a constant view, whose W is zero whatever the ridge
            solve[i] = ridge_solver(G, self.ridge * size / len(G))
            W[i] = np.sqrt(n / size) * rng.standard_normal((len(G), c))
        B = np.where(sum(alpha[i] * X[i].apply(W[i]) for i in X) > 0, 1.0, -1.0)
        curve: list[float] = []
        while len(curve) < self.n_iter:
            XB = {i: X[i].apply_transposed(B) for i in X}
            W = {i: solve[i](XB[i].astype(np.float64)) for i in X}
            # ‖B - X W‖^2 + ridge ‖W‖^2 at its minimum is ‖B‖^2 - <X'B, W>
            curve.append(float(sum(alpha[i] * (n * c - np.vdot(XB[i], W[i])) for i in X)))
            previous, B = B, np.where(sum(alpha[i] * X[i].apply(W[i]) for i in X) > 0, 1.0, -1.0)
            if np.array_equal(B, previous):
                break
        self.objective_, self.n_iter_ = np.array(curve), len(curve)
        for i in X:
            self._set_linear(i, W[i], np.zeros(c), transforms[i])
        self.view_weights_ = alpha
        self.train_codes_ = self._database_codes("learned", data.views, data.labels)

    def _database_codes(self, rule: str, views: dict[str, View], labels: Labels | None) -> Codes:
        """B = sgn(sum_i alpha_i X^i W^i) of any rows: with labels ("learned") or without ("fused")."""
        matrices = {i: view.X for i, view in views.items()}
        if labels is not None:
            if LABELS not in self.weights_:
                raise InputError("the model was fitted without labels; use the fused rule.")
            if not labels.known.all():
                raise InputError("the learned rule needs a label of every row. Use the fused rule for rows without.")
            matrices[LABELS] = labels.matrix.astype(np.float64)
        absent = sorted(set(self.weights_) - set(matrices) - {LABELS})
        if absent:
            raise InputError(f"the {rule} rule joins all views; {', '.join(map(repr, absent))} is not given.")
        return pack_scores(
            sum(
                self.view_weights_[i] * CentredMatrix(M, self.means_[i]).apply(self.weights_[i])
                for i, M in matrices.items()
            )
        )


def ladder(n_bits: int, *, random_state: Any = None) -> dict[str, CrossModalHasher]:
    """The paper's steps in its order, by name, each ready to fit.

    Multi-view ITQ does without labels and needs ``n_bits`` to be at most the narrowest view's rank; all others take
    labels and any length.

    Parameters
    ----------
    n_bits : int
    random_state : int, numpy.random.Generator or None

    Returns
    -------
    dict of str to CrossModalHasher

    Examples
    --------
    >>> list(ladder(16))
    ['multi-view ITQ', 'linear', 'sigmoid', 'DMH', 'DMH, weight regulariser', 'DMH, centred MCR']
    """
    return {
        "multi-view ITQ": MultiViewITQ(n_bits, random_state=random_state),
        "linear": MultiViewLinear(n_bits, random_state=random_state),
        "sigmoid": DMH(n_bits, decorrelation_kind=None, random_state=random_state),
        "DMH": DMH(n_bits, random_state=random_state),
        "DMH, weight regulariser": DMH(n_bits, decorrelation_kind="weights", random_state=random_state),
        "DMH, centred MCR": DMH(n_bits, decorrelation_kind="centered", random_state=random_state),
    }
