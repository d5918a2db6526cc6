"""DMH: decorrelated multimodal hashing.

Paper
-----
D. Tian, "Learning Decorrelated Hashing Codes for Multimodal Retrieval" (Algorithms 1 and 2).

Objective
---------
E = sum_i alpha_i ( ‖B - C^i‖_F^2 + R_i ),  C^i = sigmoid(X^i W^i + 1 v^i),  B in {0, 1}^(n x c).
R_i is the minimum correlation regulariser (MCR), by ``decorrelation_kind``:
"paper"    (gamma_i / 2n) ‖C'C‖_F^2;
"centered" (gamma_i / 2n) ‖S'S‖_F^2 with S = 2C - 1;
"weights"  (gamma_i n / 2) ‖W'W - I‖_F^2, Eq. (mcrtmp) on the scale of MCR;
None       no regulariser, Eq. (preModel2).

Symbols
-------
n rows, d_i columns, c ``n_bits``, g views; labels are one more view.
X^i  view, centred and multiplied by beta_i (``center``, ``scale``), (n, d_i)
W^i  ``weights_``, (d_i, c); v^i ``biases_``, (c,)
B    ``train_codes_``, (n, c) before packing
alpha_i ``view_weights``, ``label_weight``; gamma_i ``decorrelation``
K    ``n_iter``; k_s ``step_start``; k_e ``step_end``

Steps
-----
Eq. (updateB)  :func:`modalhash.solvers.unified_codes`
Eq. (updatab), Eq. (updateW)  :func:`modalhash.solvers.gradient`
Algorithm 2    :meth:`DMH._fit`; with ``normalize_gradient=False`` Algorithm 1

Departures from the paper
-------------------------
- Eq. (model) prints the regulariser without its square and without 1/n; the form above is the one whose gradient
  is the printed Eq. (updateW). Eq. (updatab) is summed over rows.
- Image and text are centred on the training rows and scaled to a root-mean-square row norm of 400 (the paper says
  "[0, 255]" and does not centre); labels are 0/255 and not centred. ``DMH.paper`` multiplies by 255;
  ``DMH.paper_literal`` does not centre either.
- W and v start from N(0, init_scale^2); the paper gives no scale, and it decides the result.
- Rows may lack a view or a label: B averages, and the gradients run over, what is there.
- ``train_codes_`` follows from the final W and v, so that it is a function of the model and the rows.

Checked against
---------------
The paper's Table "MAP results" on MIRFlickr (benchmarks/mirflickr_dmh.py); gradients against finite differences for
every regulariser (tests/test_dmh.py). The authors published no program.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..base import CrossModalHasher, TrainingData
from ..codes import Codes, pack_scores
from ..exceptions import ConvergenceWarning, InputError
from ..labels import Labels
from ..linalg import CentredMatrix, is_torch, to_device, to_numpy, torch_device
from ..parameters import check_random_state
from ..solvers.objective import KINDS, Part, choose_engine, unified_codes
from ..views import LABELS, View, ViewTransform

__all__ = ["DMH"]

LABEL_SCALE = 255.0

_log = logging.getLogger(__name__)


class DMH(CrossModalHasher):
    """Decorrelated multimodal hashing, any number of views, with or without labels.

    Parameters
    ----------
    n_bits : int
        Length of a code.
    view_weights : dict of str to float, optional
        alpha_i; views not named weigh 1.
    label_weight : float
        alpha of the label view.
    decorrelation : float or dict of str to float
        gamma_i, the weight of the regulariser; a dict gives it by view ("labels" too), 0.001 where not named.
    decorrelation_kind : "paper", "centered", "weights" or None
        Which regulariser; see the module's docstring.
    scale : "auto", number, None or dict by view
        "auto": root-mean-square row norm 400 over the training rows; a number multiplies (the paper's beta).
        Labels are multiplied by 255 unless the dict names "labels".
    center : bool or dict by view
        Subtract the training mean (never from labels).
    init_scale : float
        Standard deviation of the random start.
    n_iter : int
        Iterations at most.
    step_start, step_end : float
        The step falls linearly from the first to the second.
    normalize_gradient : bool
        Divide each step of W by the gradient's norm (Algorithm 2); False is Algorithm 1.
    tol : float or None
        Stop when the objective's relative change falls below it; None runs all iterations.
    random_state : int, numpy.random.Generator or None
    dtype : "float32" or "float64"
    device : str or None
        None computes where the data is (NumPy; torch tensors stay in torch); "cuda" or another torch device
        moves them there; "cpu" is NumPy.
    verbose : int
        Log the objective every so many iterations (logger ``modalhash``); 0 is silent.
    callback : callable(iteration, n_iter, objective) or None
        Called after every iteration, for progress bars; the objective is a float.

    Attributes
    ----------
    train_codes_ : ndarray of uint8, shape (n, ceil(n_bits / 8))
        The learned codes B of the training rows.
    objective_ : ndarray of shape (n_iter_,)
        The corrected objective at each iteration.
    objective_parts_ : dict of str to ndarray
        Its parts: ``quantization.VIEW`` and ``decorrelation.VIEW``.
    n_iter_ : int
    weights_, biases_ : dict of str to ndarray
        By view, and "labels" if labels were given.

    Examples
    --------
    >>> import modalhash as mh
    >>> data = mh.datasets.make_synthetic(n=300, random_state=0)
    >>> hasher = mh.DMH(n_bits=16, n_iter=50, random_state=1).fit(data.views, labels=data.labels)
    >>> hasher.encode("image", data.views["image"]).shape
    (300, 2)
    >>> bool(hasher.objective_[-1] < hasher.objective_[0])
    True
    """

    database_rules: ClassVar[tuple[str, ...]] = ("encoded", "learned", "fused")
    accepts_missing: ClassVar[bool] = True
    accepts_torch: ClassVar[bool] = True

    train_codes_: Codes
    objective_: NDArray[np.float64]
    objective_parts_: dict[str, NDArray[np.float64]]
    n_iter_: int

    def __init__(
        self,
        n_bits: int = 64,
        *,
        view_weights: Mapping[str, float] | None = None,
        label_weight: float = 10.0,
        decorrelation: float | Mapping[str, float] = 0.001,
        decorrelation_kind: str | None = "paper",
        scale: float | str | Mapping[str, float | str | None] | None = "auto",
        center: bool | Mapping[str, bool] = True,
        init_scale: float = 0.002,
        n_iter: int = 400,
        step_start: float = 0.003,
        step_end: float = 0.0015,
        normalize_gradient: bool = True,
        tol: float | None = None,
        random_state: Any = None,
        dtype: str = "float32",
        device: str | None = None,
        verbose: int = 0,
        callback: Callable[[int, int, float], object] | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.view_weights = view_weights
        self.label_weight = label_weight
        self.decorrelation = decorrelation
        self.decorrelation_kind = decorrelation_kind
        self.scale = scale
        self.center = center
        self.init_scale = init_scale
        self.n_iter = n_iter
        self.step_start = step_start
        self.step_end = step_end
        self.normalize_gradient = normalize_gradient
        self.tol = tol
        self.random_state = random_state
        self.dtype = dtype
        self.device = device
        self.verbose = verbose
        self.callback = callback

    @classmethod
    def paper(cls, n_bits: int, *, random_state: Any = None) -> Self:
        """The setting that reproduces the paper's table: as the default, with views multiplied by 255.

        Examples
        --------
        >>> DMH.paper(32).scale
        255.0
        """
        return cls(n_bits, scale=255.0, random_state=random_state)

    @classmethod
    def paper_literal(cls, n_bits: int, *, random_state: Any = None) -> Self:
        """The nearest literal reading of the paper: views multiplied by 255, not centred, start N(0, 0.01^2).

        Examples
        --------
        >>> DMH.paper_literal(32).center
        False
        """
        return cls(n_bits, scale=255.0, center=False, init_scale=0.01, random_state=random_state)

    def _check_params(self) -> None:
        if self.decorrelation_kind not in KINDS:
            raise InputError(f"decorrelation_kind must be one of {KINDS}; got {self.decorrelation_kind!r}.")
        if isinstance(self.n_iter, bool) or not isinstance(self.n_iter, (int, np.integer)) or self.n_iter < 1:
            raise InputError(f"n_iter must be a whole number of at least 1; got {self.n_iter!r}.")
        if str(np.dtype(self.dtype)) not in ("float32", "float64"):
            raise InputError(f'dtype must be "float32" or "float64"; got {self.dtype!r}.')
        for name in ("label_weight", "init_scale", "step_start"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be positive; got {getattr(self, name)!r}.")
        if not self.step_end >= 0 or (self.tol is not None and not self.tol >= 0):
            raise InputError("step_end and tol must not be negative.")

    def _fit(self, data: TrainingData) -> None:
        rng = check_random_state(self.random_state)
        self._check_names(data)
        parts, transforms = self._start(data, rng)
        K = int(self.n_iter)
        steps = [self.step_start - (self.step_start - self.step_end) * k / K for k in range(K)]  # line 2
        watched = self.tol is not None or self.callback is not None or self.verbose > 0
        curve: list[list[Any]] = []
        with choose_engine(parts, data.n_rows, self.decorrelation_kind) as engine:
            stride = engine.stride if watched else K
            while len(curve) < K:
                curve += engine.advance(steps[len(curve) : len(curve) + stride], self.normalize_gradient)  # lines 3-5
                if watched and self._look(curve, stride):
                    break
        self._finish(parts, transforms, curve, data.n_rows)
        if self.tol is not None and not self._settled(self.objective_[-1 - stride :]):
            warnings.warn(
                f"DMH did not reach tol={self.tol} in {K} iterations. Raise n_iter or tol, or leave tol=None.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _look(self, curve: list[list[Any]], stride: int) -> bool:
        """Tell the log and the callback how it goes; True when the tolerance is reached."""
        k, K = len(curve), int(self.n_iter)
        recent = [float(sum(float(term) for term in terms)) for terms in curve[-1 - stride :: stride]]
        if self.verbose and (k % self.verbose < stride or k == K):
            _log.info("DMH iteration %d of %d: objective %.6g", k, K, recent[-1])
        if self.callback is not None:
            self.callback(k, K, recent[-1])
        return self._settled(recent)

    def _settled(self, recent: Any) -> bool:
        """Whether the relative change of the objective between the first and the last of `recent` is within tol."""
        if self.tol is None or len(recent) < 2:
            return False
        return bool(abs(recent[0] - recent[-1]) <= self.tol * abs(recent[0]))

    def _check_names(self, data: TrainingData) -> None:
        known = {*data.views, LABELS}
        for parameter in ("view_weights", "decorrelation", "scale", "center"):
            value = getattr(self, parameter)
            for name in value if isinstance(value, Mapping) else ():
                if name not in known:
                    raise InputError(f"{parameter} names view {name!r}; the views are {', '.join(data.views)}.")

    def _start(self, data: TrainingData, rng: np.random.Generator) -> tuple[list[Part], dict[str, ViewTransform]]:
        """Random W and v for each view in order of name, labels last; everything on its device."""
        dtype = np.dtype(self.dtype)
        device = self._device(data)
        inputs: list[tuple[str, Any, Any, float]] = []
        for name, view in data.views.items():
            inputs.append((name, view.X, view.rows, float(_by_view(self.view_weights or {}, name, 1.0))))
        if data.labels is not None:
            known = data.labels.known
            L, rows = data.labels.matrix, None
            if not known.all():
                rows = np.flatnonzero(known)
                L = L[rows]
            inputs.append((LABELS, L.astype(dtype), rows, float(self.label_weight)))
        parts, transforms = [], {}
        for name, X, rows, alpha in inputs:
            is_label = name == LABELS
            default_scale = LABEL_SCALE if is_label else "auto"
            scale = default_scale if is_label and not isinstance(self.scale, Mapping) else self.scale
            transform = ViewTransform.fit(
                X,
                center=not is_label and bool(_by_view(self.center, name, True)),
                scale=_by_view(scale, name, default_scale),
                name=name,
            )
            transforms[name] = transform
            gamma = float(_by_view(self.decorrelation, name, 0.001))
            if not alpha > 0 or not gamma >= 0:
                raise InputError(f"view {name!r}: its weight must be positive and its decorrelation not negative.")
            W = rng.normal(0.0, self.init_scale, size=(X.shape[1], self.n_bits)).astype(dtype)
            v = rng.normal(0.0, self.init_scale, size=self.n_bits).astype(dtype)
            X = CentredMatrix(to_device(X, device, dtype), transform.mean, transform.scale)
            if device is not None and rows is not None:
                rows = to_device(rows, device)
            parts.append(Part(name, X, to_device(W, device), to_device(v, device), alpha, gamma, rows))
        return parts, transforms

    def _device(self, data: TrainingData) -> Any:
        """The torch device to compute on, or None for NumPy."""
        if self.device == "cpu":
            return None if not any(is_torch(view.X) for view in data.views.values()) else "cpu"
        if self.device is not None:
            return torch_device(self.device)
        devices = {view.X.device for view in data.views.values() if is_torch(view.X)}
        if len(devices) > 1:
            raise InputError(f"views are on several devices ({', '.join(map(str, devices))}); pass device=.")
        return devices.pop() if devices else None

    def _finish(self, parts: list[Part], transforms: dict[str, ViewTransform], curve: list[list[Any]], n: int) -> None:
        values = np.array([[float(term) for term in terms] for terms in curve], dtype=np.float64)
        self.objective_ = values.sum(axis=1)
        names = [f"{what}.{part.name}" for part in parts for what in ("quantization", "decorrelation")]
        self.objective_parts_ = {name: values[:, j].copy() for j, name in enumerate(names)}
        self.n_iter_ = len(curve)
        self.train_codes_ = pack_scores(to_numpy(unified_codes(parts, [part.embed() for part in parts], n)))
        for part in parts:
            self._set_linear(part.name, to_numpy(part.W), to_numpy(part.v), transforms[part.name])

    def _database_codes(self, rule: str, views: dict[str, View], labels: Labels | None) -> Codes:
        """Eq. (updateB) on any rows: with labels ("learned") or without ("fused")."""
        inputs: list[tuple[str, Any, Any]] = [(view.name, view.X, view.rows) for view in views.values()]
        n = next(iter(views.values())).n_rows
        if labels is not None:
            if labels.matrix.shape[0] != n:
                raise InputError(f"labels have {labels.matrix.shape[0]} rows; the views have {n}.")
            if LABELS not in self.weights_:
                raise InputError("the model was fitted without labels; use the fused rule.")
            rows = None if labels.known.all() else np.flatnonzero(labels.known)
            L = labels.matrix if rows is None else labels.matrix[rows]
            inputs.append((LABELS, L.astype(self.dtype), rows))
        parts = []
        for name, X, rows in inputs:
            alpha = float(self.label_weight if name == LABELS else _by_view(self.view_weights or {}, name, 1.0))
            matrix = CentredMatrix(X.astype(self.dtype, copy=False), self.means_.get(name), self.scales_[name])
            parts.append(Part(name, matrix, self.weights_[name], self.biases_[name], alpha, 0.0, rows))
        return pack_scores(unified_codes(parts, [part.embed() for part in parts], n))


def _by_view(value: Any, name: str, default: Any) -> Any:
    """A parameter that may be one value for all views or a dict by view."""
    return value.get(name, default) if isinstance(value, Mapping) else value
