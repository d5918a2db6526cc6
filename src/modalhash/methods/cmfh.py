"""CMFH: collective matrix factorisation hashing.

Paper
-----
G. Ding, Y. Guo and J. Zhou, "Collective matrix factorization hashing for multimodal data", CVPR 2014.

Objective
---------
Form "2013" (the authors' first program):
min sum_i lam_i ‖X_i - U_i V‖_F^2 + mu sum_i ‖V - P_i X_i‖_F^2 + gamma (‖V‖^2 + sum_i ‖U_i‖^2 + ‖P_i‖^2).
Form "2015" (their later one): mu stands inside each view's weight, lam_i (‖X_i - U_i V‖^2 + mu ‖V - P_i X_i‖^2).

Symbols
-------
Columns are items, as in the paper: n items, d_i features, c ``n_bits``, g views.
X_i  view, centred on the training rows, (d_i, n)
V    the factor that the views share, (c, n); its signs are ``train_codes_``
U_i  (d_i, c); P_i ``weights_``, transposed, (c, d_i)
A_i  ``unified_weights_``, transposed: V = sum_i A_i X_i, (c, d_i)
lam_i ``view_weights``; mu ``projection_weight``; gamma ``ridge``

Steps
-----
From the first update on, V is linear in the views, so it is kept as A, and an iteration costs nothing in n:
U_i  X_i V' (V V' + gamma I)^-1
V    (sum_i lam_i U_i'U_i + (g mu + gamma) I)^-1 sum_i (lam_i U_i' + mu P_i) X_i;
     2015: (sum_i lam_i U_i'U_i + (mu + gamma) I)^-1 sum_i lam_i (U_i' + mu P_i) X_i
P_i  V X_i' (X_i X_i' + gamma I)^-1; 2015: gamma V X_i' (mu X_i X_i' + gamma I)^-1

Departures from the paper
-------------------------
- The updates are those of the authors' programs: gamma is not divided by lam_i or mu, and in the 2015 form P_i comes
  out gamma / mu times the regression it should be. Queries keep their signs; but in V's update P_i then counts for
  nothing, and mu only shrinks V.
- 2013 stops when the objective, of norms not squared, falls by less than ``tol``; 2015 runs 25 iterations.
- Codes of new rows under "unified" are sgn(V) with the A learned: no iteration at search time.
- Any number of views; the paper has two.

Checked against
---------------
Outputs of the authors' two programs from their own random starts: every bit (tests/test_methods_cmfh.py).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..base import CrossModalHasher, TrainingData
from ..codes import Codes, pack_scores
from ..exceptions import ConvergenceWarning, InputError
from ..labels import Labels
from ..linalg import CentredMatrix, cross, gram
from ..parameters import check_count, check_random_state, given_or_uniform
from ..spectral import ridge_solver
from ..views import View

__all__ = ["CMFH"]

FORMS = {"2013": 500, "2015": 25}
"""The forms, and how many iterations each runs at most unless told."""


class CMFH(CrossModalHasher):
    """Collective matrix factorisation hashing: any number of views, no labels.

    Parameters
    ----------
    n_bits : int
        Length of a code.
    form : "2013" or "2015"
        Which of the authors' programs.
    view_weights : dict of str to float, optional
        lam_i, divided by their sum; views not named weigh as 1.
    projection_weight : float
        mu.
    ridge : float
        gamma.
    n_iter : int or None
        Iterations at most; None is 500 for the 2013 form, which stops by `tol`, and 25 for the 2015 form.
    tol : float
        The 2013 form stops when its objective falls by less. Both are in the features' units: views with values in
        the hundreds need a larger `tol`, or division by a constant.
    init : dict of str to array (d, n_bits), optional
        The start of P by view; uniform on (0, 1) where not given.
    init_factor : array of shape (n, n_bits), optional
        The start of V, transposed; uniform on (0, 1) where not given.
    random_state : int, numpy.random.Generator or None

    Attributes
    ----------
    train_codes_ : ndarray of uint8, shape (n, ceil(n_bits / 8))
        The unified codes of the training rows.
    unified_weights_ : dict of str to ndarray, shape (d, n_bits)
        Unified scores are the sum over views of the centred view times these.
    objective_ : ndarray of shape (n_iter_,)
    n_iter_ : int

    Examples
    --------
    >>> import modalhash as mh
    >>> data = mh.datasets.make_synthetic(n=300, random_state=0)
    >>> hasher = mh.CMFH(n_bits=16, tol=100, random_state=0).fit(data.views)
    >>> bool((hasher.database_codes(data.views, rule="unified") == hasher.train_codes_).all())
    True
    """

    database_rules: ClassVar[tuple[str, ...]] = ("encoded", "unified")
    accepts_torch: ClassVar[bool] = True

    train_codes_: Codes
    unified_weights_: dict[str, NDArray[np.float64]]
    objective_: NDArray[np.float64]
    n_iter_: int

    def __init__(
        self,
        n_bits: int = 64,
        *,
        form: str = "2013",
        view_weights: Mapping[str, float] | None = None,
        projection_weight: float = 100.0,
        ridge: float = 0.01,
        n_iter: int | None = None,
        tol: float = 0.01,
        init: Mapping[str, Any] | None = None,
        init_factor: Any = None,
        random_state: Any = None,
    ) -> None:
        self.n_bits = n_bits
        self.form = form
        self.view_weights = view_weights
        self.projection_weight = projection_weight
        self.ridge = ridge
        self.n_iter = n_iter
        self.tol = tol
        self.init = init
        self.init_factor = init_factor
        self.random_state = random_state

    def _check_params(self) -> None:
        if self.form not in FORMS:
            raise InputError(f"form must be one of {', '.join(FORMS)}; got {self.form!r}.")
        for name in ("projection_weight", "ridge"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be positive; got {getattr(self, name)!r}.")
        if not self.tol >= 0:
            raise InputError(f"tol must not be negative; got {self.tol!r}.")
        if self.n_iter is not None:
            check_count(self.n_iter, "n_iter")

    def _fit(self, data: TrainingData) -> None:
        rng = check_random_state(self.random_state)
        lam, c, mu, gamma = data.shares(self.view_weights), self.n_bits, self.projection_weight, self.ridge
        later = self.form == "2015"
        K = FORMS[self.form] if self.n_iter is None else int(self.n_iter)
        views, transforms = data.centred()
        X = {i: gram(view) for i, view in views.items()}  # X_i X_i'
        XX = {(i, j): X[i] if i == j else cross(views[i], views[j]) for i in views for j in views if i <= j}
        solve = {i: ridge_solver(X[i], gamma / mu if later else gamma, f"view {i!r}") for i in views}
        V = CentredMatrix(given_or_uniform(self.init_factor, (data.n_rows, c), rng, "init_factor"))
        P = {i: start.T for i, start in data.starts(self.init, c, rng).items()}
        XV, VV = {i: cross(views[i], V) for i in views}, gram(V)
        del V
        A, converged = P, later
        curve: list[float] = []
        pull = {i: lam[i] * mu if later else mu for i in views}
        shrink = (sum(pull.values()) + gamma) * np.eye(c)
        while len(curve) < K:
            solve_V = ridge_solver(VV, gamma, "the factor")
            U = {i: solve_V(XV[i].T).T for i in views}
            solve_M = ridge_solver(sum(lam[i] * U[i].T @ U[i] for i in views) + shrink, 0.0)
            A = {i: solve_M(lam[i] * U[i].T + pull[i] * P[i]) for i in views}
            XV = {i: sum(_moment(XX, i, j) @ A[j].T for j in views) for i in views}
            VV = sum(A[i] @ XV[i] for i in views)
            P = {i: (gamma / mu if later else 1.0) * solve[i](XV[i]).T for i in views}
            curve.append(self._objective(lam, X, XV, VV, U, P))
            if not later and len(curve) > 1 and curve[-2] - curve[-1] < self.tol:
                converged = True
                break
        self.objective_, self.n_iter_ = np.array(curve), len(curve)
        self.unified_weights_ = {i: np.ascontiguousarray(A[i].T) for i in views}
        for i in views:
            self._set_linear(i, np.ascontiguousarray(P[i].T), np.zeros(c), transforms[i])
        self.train_codes_ = pack_scores(sum(views[i].apply(self.unified_weights_[i]) for i in views))
        if not converged:
            warnings.warn(
                f"CMFH did not reach tol={self.tol} in {K} iterations. Raise n_iter or tol, or divide views with large "
                "values by a constant.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _objective(self, lam: dict[str, float], X: Any, XV: Any, VV: Any, U: Any, P: Any) -> float:
        """The objective of norms not squared, as the authors' program stops by it; from second moments."""
        mu, gamma = self.projection_weight, self.ridge
        trace = float(np.trace(VV))
        value = gamma * float(np.sqrt(trace))
        for i in X:
            factor = np.trace(X[i]) - 2 * np.vdot(U[i], XV[i]) + np.vdot(U[i] @ VV, U[i])
            projection = trace - 2 * np.vdot(P[i].T, XV[i]) + np.vdot(P[i] @ X[i], P[i])
            a, b = np.sqrt(np.maximum([factor, projection], 0.0))
            value += lam[i] * a + (lam[i] if self.form == "2015" else 1.0) * mu * b
            value += gamma * (np.linalg.norm(U[i]) + np.linalg.norm(P[i]))
        return float(value)

    def _database_codes(self, rule: str, views: dict[str, View], labels: Labels | None) -> Codes:
        """sgn(V), V = sum_i A_i X_i, of any rows that have all views."""
        absent = sorted(set(self.unified_weights_) - set(views))
        if absent:
            raise InputError(f"the unified rule joins all views; {', '.join(map(repr, absent))} is not given.")
        matrices = {i: CentredMatrix(views[i].X, self.means_[i]) for i in self.unified_weights_}
        return pack_scores(sum(matrices[i].apply(W) for i, W in self.unified_weights_.items()))


def _moment(XX: dict[tuple[str, str], Any], i: str, j: str) -> Any:
    """X_i X_j', of which only i <= j is kept."""
    return XX[i, j] if i <= j else XX[j, i].T
