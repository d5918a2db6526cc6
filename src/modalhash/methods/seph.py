"""SePH: semantics-preserving hashing.

Paper
-----
Z. Lin, G. Ding, M. Hu and J. Wang, "Semantics-preserving hashing for cross-view retrieval", CVPR 2015 (SePH-km, and
SePH-rnd with ``anchors="random"``).

Objective
---------
Codes:      min over Y  KL(P‖Q) + a ‖|Y| - 1‖_F^2,  H = sgn(Y);
            P_ij ~ cosine of the labels of i and j, Q_ij ~ 1 / (1 + ‖y_i - y_j‖^2 / 4), both zero for i = j, sum 1.
Functions:  per view and bit, min over w  sum_i log(1 + exp(-h_i K_i w)) + lam w'K0 w.

Symbols
-------
n training rows (of ``train_size``), k ``n_bits``, m ``n_anchors``.
Y    relaxed codes, (n, k); starts from 1e-4 N(0, 1), or ``init``
H    ``train_codes_``, (n, k) before packing, of the rows ``train_rows_``
a    ``quantization_weight`` / (k n); lam ``ridge``
K    Gaussian kernel of the rows with the anchors, (n, m); K0 of the anchors with each other, (m, m)
W    ``kernel_weights_``, (m, k); anchors ``anchors_``, (m, d); kernel width s ``kernel_widths_``

Steps
-----
KL(P‖Q) and its gradient    :class:`modalhash.kernels.LabelAffinity`
delta-bar-delta             :meth:`SePH._learn_codes`
s, anchors, K               :func:`modalhash.kernels.mean_squared_distance`, ``choose_anchors``, ``rbf_kernel``
W                           :func:`modalhash.kernels.kernel_logistic_regression`
query  sgn(K_q W); database ("fused")  sgn(prod_v p_v - prod_v (1 - p_v)), p_v = sigmoid(K_v W_v)

Departures from the paper
-------------------------
- The fused rule is computed as sgn(sum_v K_v W_v), which is the same: the odds multiply. Any number of views.
- ``objective_`` is that of the authors' program: the divergence before an iteration's step plus the penalty after it.
  Their second version (``version="b"``) is the default; ``"a"`` takes ten times as many iterations.
- P and Q are made tile by tile and never held; the smallest normal number that the program puts where P is zero is
  left out (it adds less than 1e-290).
- The logistic regressions of all bits are one L-BFGS, stopped after ``n_logistic_iter`` steps. The authors' own runs
  stop before the minimum too; going on to it (1,000) changes MAP in the third digit, docs/methods/seph.md.

Checked against
---------------
Outputs of the authors' program from its own start and anchors: every bit of H, the objective to 6 digits, MAP within
.005 (tests/test_methods_seph.py); the paper's row on MIRFlickr (docs/methods/seph.md).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..base import CrossModalHasher, TrainingData
from ..codes import Codes, pack_scores, unpack
from ..exceptions import InputError, ModelFormatError
from ..kernels import (
    ANCHOR_KINDS,
    LabelAffinity,
    choose_anchors,
    kernel_logistic_regression,
    mean_squared_distance,
    rbf_kernel,
)
from ..labels import Labels
from ..parameters import check_random_state
from ..views import View, row_blocks

__all__ = ["SePH"]

_log = logging.getLogger(__name__)

# iterations, step, iterations at momentum 0.5 (0.8 after), iterations at exaggeration 4 (1 after)
VERSIONS = {"a": (1000, 100.0, 250.0, 100), "b": (100, 500.0, np.inf, 0)}


class SePH(CrossModalHasher):
    """Semantics-preserving hashing: codes from labels alone, then a kernel classifier per bit and view.

    Parameters
    ----------
    n_bits : int
        Length of a code.
    version : "b" or "a"
        The authors' schedule of steps: 100 iterations, or 1,000 with early exaggeration.
    n_iter : int, optional
        Iterations, if not as the version says.
    anchors : "kmeans", "random" or dict of str to array (m, d)
        How each view's kernel anchors are chosen; a dict gives them.
    n_anchors : int
        Anchors by view; with no more training rows than that, every row is one.
    train_size : int or None
        Rows to learn from, drawn at random if there are more; None takes all. Time grows with its square.
    quantization_weight, ridge : float
        Weights of the penalties on Y and on W.
    n_logistic_iter : int
        L-BFGS steps of the classifiers at most.
    init : array of shape (rows learned from, n_bits), optional
        The start of Y.
    random_state : int, numpy.random.Generator or None
    callback : callable(iteration, n_iter, objective) or None
        Called after every iteration of Y.

    Attributes
    ----------
    train_codes_ : ndarray of uint8, shape (len(train_rows_), ceil(n_bits / 8))
        H, the codes learned.
    train_rows_ : ndarray of int
        The rows that were learned from.
    objective_ : ndarray of shape (n_iter_,)
    n_iter_ : int
    anchors_, kernel_weights_ : dict of str to ndarray, shapes (m, d) and (m, n_bits)
    kernel_widths_ : dict of str to float

    Examples
    --------
    >>> import modalhash as mh
    >>> data = mh.datasets.make_synthetic(n=300, random_state=0)
    >>> hasher = mh.SePH(n_bits=16, random_state=0).fit(data.views, labels=data.labels)
    >>> hasher.database_codes(data.views, rule="fused").shape
    (300, 2)
    """

    database_rules: ClassVar[tuple[str, ...]] = ("encoded", "fused")
    requires_labels: ClassVar[bool] = True

    train_codes_: Codes
    train_rows_: NDArray[np.int64]
    objective_: NDArray[np.float64]
    n_iter_: int
    anchors_: dict[str, NDArray[np.float64]]
    kernel_weights_: dict[str, NDArray[np.float64]]
    kernel_widths_: dict[str, float]

    def __init__(
        self,
        n_bits: int = 64,
        *,
        version: str = "b",
        n_iter: int | None = None,
        anchors: str | Mapping[str, Any] = "kmeans",
        n_anchors: int = 500,
        train_size: int | None = 10_000,
        quantization_weight: float = 0.01,
        ridge: float = 0.01,
        n_logistic_iter: int = 100,
        init: Any = None,
        random_state: Any = None,
        callback: Callable[[int, int, float], object] | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.version = version
        self.n_iter = n_iter
        self.anchors = anchors
        self.n_anchors = n_anchors
        self.train_size = train_size
        self.quantization_weight = quantization_weight
        self.ridge = ridge
        self.n_logistic_iter = n_logistic_iter
        self.init = init
        self.random_state = random_state
        self.callback = callback

    def _check_params(self) -> None:
        if self.version not in VERSIONS:
            raise InputError(f"version must be one of {', '.join(VERSIONS)}; got {self.version!r}.")
        if not isinstance(self.anchors, Mapping) and self.anchors not in ANCHOR_KINDS:
            raise InputError(f"anchors must be one of {', '.join(ANCHOR_KINDS)} or a dict; got {self.anchors!r}.")
        for name, least in (("n_iter", 1), ("n_anchors", 1), ("train_size", 2), ("n_logistic_iter", 1)):
            value = getattr(self, name)
            if value is None and name in ("n_iter", "train_size"):
                continue
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
                raise InputError(f"{name} must be a whole number of at least {least}; got {value!r}.")
        if not self.quantization_weight >= 0 or not self.ridge > 0:
            raise InputError("quantization_weight must not be negative, and ridge must be positive.")

    def _fit(self, data: TrainingData) -> None:
        rng = check_random_state(self.random_state)
        labels = data.require_labels_of_all("SePH")
        rows = np.arange(data.n_rows)
        if self.train_size is not None and data.n_rows > self.train_size:
            rows = np.sort(rng.choice(data.n_rows, size=int(self.train_size), replace=False))
            _log.info("SePH learns from %d of %d rows", rows.size, data.n_rows)
        views = {name: view.X if rows.size == data.n_rows else view.X[rows] for name, view in data.views.items()}
        widths = {name: mean_squared_distance(X) for name, X in views.items()}
        for name, width in widths.items():
            if not width > 0:
                raise InputError(f"view {name!r} is constant: every row is the same. Leave it out.")
        anchors = {name: self._anchors(name, X, rng) for name, X in views.items()}
        self.train_rows_ = rows.astype(np.int64)
        self.train_codes_ = self._learn_codes(LabelAffinity(labels.matrix[rows]), self._start(rows.size, rng))
        H = 2.0 * unpack(self.train_codes_, self.n_bits) - 1.0
        self.anchors_, self.kernel_widths_, self.kernel_weights_ = anchors, widths, {}
        for name, X in views.items():
            A, s = anchors[name], widths[name]
            K, K0 = rbf_kernel(X, A, s), rbf_kernel(A, A, s)
            self.kernel_weights_[name], curve = kernel_logistic_regression(
                K, H, K0, ridge=self.ridge, max_iter=self.n_logistic_iter
            )
            _log.info("SePH view %s: logistic objective %.6g after %d steps", name, curve[-1], curve.size - 1)

    def _anchors(self, name: str, X: Any, rng: np.random.Generator) -> NDArray[np.float64]:
        if not isinstance(self.anchors, Mapping):
            return choose_anchors(X, self.n_anchors, self.anchors, rng)
        if name not in self.anchors:
            raise InputError(f"anchors has none for view {name!r}; it has {', '.join(map(repr, self.anchors))}.")
        given = np.array(self.anchors[name], dtype=np.float64)
        if given.ndim != 2 or given.shape[1] != X.shape[1] or not given.size or not np.isfinite(given).all():
            raise InputError(f"anchors[{name!r}] must be finite, (m, {X.shape[1]}); got shape {given.shape}.")
        return given

    def _start(self, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
        if self.init is None:
            return 1e-4 * rng.standard_normal((n, self.n_bits))
        Y = np.array(self.init, dtype=np.float64)
        if Y.shape != (n, self.n_bits) or not np.isfinite(Y).all():
            raise InputError(f"init must be finite, of shape {(n, self.n_bits)}; got shape {Y.shape}.")
        return Y

    def _learn_codes(self, P: LabelAffinity, Y: NDArray[np.float64]) -> Codes:
        """Minimise KL(P‖Q) + a ‖|Y| - 1‖^2 by delta-bar-delta; the best Y by cost gives H."""
        n_iter, step, slow, exaggerated = VERSIONS[self.version]
        n_iter = n_iter if self.n_iter is None else int(self.n_iter)
        a = self.quantization_weight / Y.size
        increment, gain = np.zeros_like(Y), np.ones_like(Y)
        curve = np.empty(n_iter)
        best, H = np.inf, Y
        for t in range(n_iter):
            divergence, gradient = P.divergence(Y, exaggeration=4.0 if t < exaggerated else 1.0)
            gradient += 2.0 * a * (np.abs(Y) - 1.0) * np.sign(Y)
            gain = np.where(np.sign(gradient) != np.sign(increment), gain + 0.2, gain * 0.8)
            np.maximum(gain, 0.01, out=gain)
            increment *= 0.5 if t < slow else 0.8
            increment -= step * gain * gradient
            Y = Y + increment
            Y -= Y.mean(axis=0)
            curve[t] = divergence + a * float(((np.abs(Y) - 1.0) ** 2).sum())
            if curve[t] < best:
                best, H = curve[t], Y
            if self.callback is not None:
                self.callback(t + 1, n_iter, float(curve[t]))
        if not np.isfinite(curve).all():
            raise InputError("SePH diverged: the objective is not finite. Use fewer bits, or more rows.")
        self.objective_, self.n_iter_ = curve, n_iter
        return pack_scores(H)

    def _project(self, view: str, X: Any) -> NDArray[Any]:
        A, s, W = self.anchors_[view], self.kernel_widths_[view], self.kernel_weights_[view]
        Z = np.empty((X.shape[0], self.n_bits))
        for rows in row_blocks(X.shape[0], max(A.shape)):
            Z[rows] = rbf_kernel(X[rows], A, s) @ W
        return Z

    def _database_codes(self, rule: str, views: dict[str, View], labels: Labels | None) -> Codes:
        """sgn(prod_v p_v - prod_v (1 - p_v)): the views' log odds add up."""
        scores = [self._project(name, view.X) for name, view in views.items()]
        return pack_scores(np.sum(scores, axis=0))

    def _check_state(self) -> None:
        super()._check_state()
        for name in self.view_names_:
            A, W, s = self.anchors_[name], self.kernel_weights_[name], self.kernel_widths_[name]
            if A.ndim != 2 or A.shape[1] != self.n_features_in_[name] or W.shape != (A.shape[0], self.n_bits):
                raise ModelFormatError(
                    f"view {name!r} has anchors of shape {A.shape} and weights of shape {W.shape}; the model says "
                    f"{self.n_features_in_[name]} columns and {self.n_bits} bits."
                )
            if not s > 0:
                raise ModelFormatError(f"the kernel width of view {name!r} is {s!r}; it must be positive.")
