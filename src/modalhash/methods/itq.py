"""ITQ: iterative quantisation, for one view and for several.

Paper
-----
Y. Gong and S. Lazebnik, "Iterative quantization: a Procrustean approach to learning binary codes", CVPR 2011; for
several views, Eq. (multiITQ) of D. Tian, "Learning Decorrelated Hashing Codes for Multimodal Retrieval".

Objective
---------
min over B and orthogonal R^i of E = sum_i alpha_i ‖B - X^i W^i R^i‖_F^2, where W^i holds the c leading principal
directions of view i. With one view this is ITQ.

Symbols
-------
n rows, d_i columns, c ``n_bits``, g views.
X^i  view, centred on the training rows, (n, d_i)
W^i R^i  ``weights_``, (d_i, c); R^i rotation, (c, c)
B    ``train_codes_``, (n, c), -1 or +1 before packing
alpha_i ``view_weights``

Steps
-----
W^i  :func:`modalhash.spectral.principal_directions`
B    sgn(sum_i alpha_i X^i W^i R^i)
R^i  :func:`modalhash.spectral.procrustes` of X^i W^i to B

Departures from the paper
-------------------------
- Eq. (multiITQ) says nothing of the views' scales. Each X^i W^i is scaled to a mean square of 1, the size of B's
  entries, so that alpha_i alone decides how much a view counts; with one view the scale changes nothing but E.
- B is -1 or +1, as in ITQ; the second paper's 0 or 1 needs an offset that Eq. (multiITQ) does not have.
- Labels take no part: as a view they would limit c to their number.

Checked against
---------------
A literal implementation in tests/test_methods_itq.py; E never rises.
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
from ..spectral import principal_directions, procrustes
from ..views import View, ViewTransform

__all__ = ["ITQ", "MultiViewITQ"]


class MultiViewITQ(CrossModalHasher):
    """Iterative quantisation of several views to one common code, without labels.

    Parameters
    ----------
    n_bits : int
        Length of a code; at most the number of directions in which the narrowest view varies.
    view_weights : dict of str to float, optional
        alpha_i, divided by their sum; views not named weigh as 1.
    n_iter : int
        Iterations.
    random_state : int, numpy.random.Generator or None
        For the rotations' start.

    Attributes
    ----------
    train_codes_ : ndarray of uint8, shape (n, ceil(n_bits / 8))
        B, which all views made together.
    objective_ : ndarray of shape (n_iter,)
    n_iter_ : int

    Examples
    --------
    >>> import modalhash as mh
    >>> data = mh.datasets.make_synthetic(n=300, random_state=0)
    >>> hasher = mh.MultiViewITQ(n_bits=16, random_state=0).fit(data.views)
    >>> hasher.train_codes_.shape
    (300, 2)
    """

    database_rules: ClassVar[tuple[str, ...]] = ("encoded", "unified")
    accepts_torch: ClassVar[bool] = True

    train_codes_: Codes
    objective_: NDArray[np.float64]
    n_iter_: int

    def __init__(
        self,
        n_bits: int = 64,
        *,
        view_weights: Mapping[str, float] | None = None,
        n_iter: int = 50,
        random_state: Any = None,
    ) -> None:
        self.n_bits = n_bits
        self.view_weights = view_weights
        self.n_iter = n_iter
        self.random_state = random_state

    def _check_params(self) -> None:
        check_count(self.n_iter, "n_iter")

    def _fit(self, data: TrainingData) -> None:
        rng = check_random_state(self.random_state)
        alpha, c, n = data.shares(self.view_weights), self.n_bits, data.n_rows
        views, transforms = data.centred()
        W, Z, R = {}, {}, {}
        for i, X in views.items():
            W[i], scale = self._principal(i, gram(X), n)
            transforms[i] = ViewTransform(transforms[i].mean, scale)
            Z[i] = CentredMatrix(X.X, transforms[i].mean, scale).apply(W[i]).astype(np.float64)  # X^i W^i
            R[i] = np.linalg.qr(rng.standard_normal((c, c)))[0]
        curve = []
        for _ in range(self.n_iter):
            B = np.where(sum(alpha[i] * (Z[i] @ R[i]) for i in views) > 0, 1.0, -1.0)
            R = {i: procrustes(Z[i], B) for i in views}
            # ‖B - Z R‖^2 = ‖B‖^2 - 2 <B, Z R> + ‖Z‖^2
            curve.append(sum(alpha[i] * (n * c - 2.0 * np.vdot(B, Z[i] @ R[i]) + np.vdot(Z[i], Z[i])) for i in views))
        self.objective_, self.n_iter_ = np.array(curve, dtype=np.float64), len(curve)
        for i in views:
            self._set_linear(i, W[i] @ R[i], np.zeros(c), transforms[i])
        self.view_weights_ = alpha
        self.train_codes_ = self._database_codes("unified", data.views, None)

    def _principal(self, name: str, G: NDArray[np.float64], n: int) -> tuple[NDArray[np.float64], float]:
        """The c leading principal directions, and the scale that makes the projections' mean square 1."""
        c = self.n_bits
        values = np.linalg.eigvalsh(G)
        rank = int((values > 1e-12 * max(values[-1], 0.0)).sum())
        if c > rank:
            raise InputError(
                f"{type(self).__name__} gives at most as many bits as a view has principal components: view {name!r} "
                f"has {rank}, n_bits is {c}. Ask for fewer bits, or use DMH."
            )
        return principal_directions(G, c), float(np.sqrt(n * c / values[-c:].sum()))

    def _database_codes(self, rule: str, views: dict[str, View], labels: Labels | None) -> Codes:
        """B = sgn(sum_i alpha_i X^i W^i R^i) of any rows that have all views."""
        absent = sorted(set(self.weights_) - set(views))
        if absent:
            raise InputError(f"the unified rule joins all views; {', '.join(map(repr, absent))} is not given.")
        return pack_scores(
            sum(
                self.view_weights_[i] * CentredMatrix(views[i].X, self.means_[i], self.scales_[i]).apply(W)
                for i, W in self.weights_.items()
            )
        )


class ITQ(MultiViewITQ):
    """Iterative quantisation of one view: codes for search within it.

    Parameters
    ----------
    n_bits : int
        Length of a code; at most the number of directions in which the view varies.
    n_iter : int
        Iterations.
    random_state : int, numpy.random.Generator or None
        For the rotation's start.

    Examples
    --------
    >>> import modalhash as mh
    >>> X = mh.datasets.make_synthetic(n=300, random_state=0).views["image"]
    >>> mh.ITQ(n_bits=16, random_state=0).fit({"image": X}).encode("image", X).shape
    (300, 2)
    """

    database_rules: ClassVar[tuple[str, ...]] = ("encoded",)
    max_views: ClassVar[int | None] = 1

    view_weights = None

    def __init__(self, n_bits: int = 64, *, n_iter: int = 50, random_state: Any = None) -> None:
        self.n_bits = n_bits
        self.n_iter = n_iter
        self.random_state = random_state
