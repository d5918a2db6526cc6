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
Algorithm 2    :class:`modalhash.solvers.descent.Descent`; with ``normalize_gradient=False`` Algorithm 1

Departures from the paper
-------------------------
- Eq. (model) prints the regulariser without its square and without 1/n; the form above is the one whose gradient
  is the printed Eq. (updateW). Eq. (updatab) is summed over rows.
- Image and text are centred on the training rows and scaled to a root-mean-square row norm of 400 (the paper says
  "[0, 255]" and does not centre); labels are 0/255 and not centred. ``DMH.paper`` multiplies by 255;
  ``DMH.paper_literal`` does not centre either.
- W and v start from N(0, init_scale^2); the paper gives no scale, and it decides the result.
- Rows may lack a view or a label: B averages, and the gradients run over, what is there.
- ``solver="momentum"`` and ``"minibatch"`` minimise the same objective from the same start by other steps
  (:mod:`modalhash.solvers.momentum`, :mod:`modalhash.solvers.minibatch`); the paper leaves better optimisation to
  future work.
- ``train_codes_`` follows from the final W and v, so that it is a function of the model and the rows.

Checked against
---------------
The paper's Table "MAP results" on MIRFlickr (benchmarks/mirflickr_dmh.py); gradients against finite differences for
every regulariser (tests/test_dmh.py). The authors published no program.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np

from ..base import TrainingData
from ..codes import Codes, pack_scores
from ..exceptions import InputError
from ..labels import Labels
from ..linalg import CentredMatrix, is_torch, to_device, to_numpy, torch_device
from ..parameters import check_count, check_random_state
from ..solvers.descent import Descent
from ..solvers.minibatch import codes_by_blocks
from ..solvers.momentum import MomentumDescent
from ..solvers.objective import KINDS, STORAGES, Engine, Part, choose_engine, unified_codes
from ..solvers.training import IterativeHasher
from ..views import LABELS, View, ViewTransform

__all__ = ["DMH"]

LABEL_SCALE = 255.0
SOLVERS = ("paper", "momentum", "minibatch")
_SCHEDULES = {  # iterations (batches), first and last step, where they are not given
    "paper": (400, 0.003, 0.0015),
    "momentum": (133, 0.02, 0.001),
    "minibatch": (100, 0.05, 0.001),
}


class DMH(IterativeHasher):
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
    solver : "paper", "momentum" or "minibatch"
        "paper": Algorithm 2 (or 1). "momentum": longer steps along a running mean of the gradients, which reach the
        objective of "paper" in a fifth of the iterations. "minibatch": steps on batches of rows, for data of any size,
        also on disk (:mod:`modalhash.datasets.rowsource`); NumPy only.
    n_iter : int or None
        Iterations at most; None: 400 ("paper") or 133 ("momentum"). For "minibatch", batches, rounded up to whole
        passes over the rows; None: 100.
    step_start, step_end : float or None
        The step falls linearly from the first to the second. None: 0.003 to 0.0015 ("paper"),
        0.02 to 0.001 ("momentum"), 0.05 to 0.001 ("minibatch").
    batch_size : int
        Rows of a batch ("minibatch").
    n_epochs : int or None
        Passes over the rows ("minibatch"), instead of `n_iter`.
    normalize_gradient : bool
        Divide each step of W by the gradient's norm (Algorithm 2); False is Algorithm 1.
    tol : float or None
        Stop when the objective's relative change falls below it; None runs all iterations. "minibatch" compares passes.
    random_state : int, numpy.random.Generator or None
    dtype : "float32" or "float64"
    device : str or None
        None computes where the data is (NumPy; torch tensors stay in torch); "cuda" or another torch device
        moves them there; "cpu" is NumPy.
    storage : "auto", "float32" or "bfloat16"
        How a CUDA device holds dense views. "auto" takes half the room and time for views that bfloat16 holds exactly
        (0/1, counts up to 256), "bfloat16" for all, at a loss of precision. Elsewhere "bfloat16" is an error.
    verbose : int
        Log the objective every so many iterations (logger ``modalhash``); 0 is silent.
    callback : callable(iteration, n_iter, objective) or None
        Called after every iteration, for progress bars; the objective is a float.
    checkpoint : path or None
        A file to save the state of the fit in. A fit that finds one of its own there continues from it, to the result
        of an unbroken fit, bit for bit; one that finds another's says what differs. A finished fit removes it.
    checkpoint_every : int
        Iterations between saves.

    Attributes
    ----------
    train_codes_ : ndarray of uint8, shape (n, ceil(n_bits / 8))
        The learned codes B of the training rows.
    objective_ : ndarray of shape (n_iter_,)
        The corrected objective at each iteration; for "minibatch", estimated from each batch.
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
        solver: str = "paper",
        n_iter: int | None = None,
        step_start: float | None = None,
        step_end: float | None = None,
        batch_size: int = 4096,
        n_epochs: int | None = None,
        normalize_gradient: bool = True,
        tol: float | None = None,
        random_state: Any = None,
        dtype: str = "float32",
        device: str | None = None,
        storage: str = "auto",
        verbose: int = 0,
        callback: Callable[[int, int, float], object] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 50,
    ) -> None:
        self.n_bits = n_bits
        self.view_weights = view_weights
        self.label_weight = label_weight
        self.decorrelation = decorrelation
        self.decorrelation_kind = decorrelation_kind
        self.scale = scale
        self.center = center
        self.init_scale = init_scale
        self.solver = solver
        self.n_iter = n_iter
        self.step_start = step_start
        self.step_end = step_end
        self.batch_size = batch_size
        self.n_epochs = n_epochs
        self.normalize_gradient = normalize_gradient
        self.tol = tol
        self.random_state = random_state
        self.dtype = dtype
        self.device = device
        self.storage = storage
        self.verbose = verbose
        self.callback = callback
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every

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
        if self.solver not in SOLVERS:
            raise InputError(f"solver must be one of {', '.join(SOLVERS)}; got {self.solver!r}.")
        for name in ("n_iter", "n_epochs", "batch_size"):
            if getattr(self, name) is not None or name == "batch_size":
                check_count(getattr(self, name), name)
        if self.n_epochs is not None and (self.solver != "minibatch" or self.n_iter is not None):
            raise InputError('n_epochs goes with solver="minibatch", instead of n_iter. Leave one of them out.')
        if self.solver == "minibatch" and self.device not in (None, "cpu"):
            raise InputError(f'solver="minibatch" computes in NumPy; leave device={self.device!r} out.')
        if str(np.dtype(self.dtype)) not in ("float32", "float64"):
            raise InputError(f'dtype must be "float32" or "float64"; got {self.dtype!r}.')
        if self.storage not in STORAGES:
            raise InputError(f"storage must be one of {STORAGES}; got {self.storage!r}.")
        _, start, end = self._schedule()
        for name, value in (
            ("label_weight", self.label_weight),
            ("init_scale", self.init_scale),
            ("step_start", start),
        ):
            if not value > 0:
                raise InputError(f"{name} must be positive; got {value!r}.")
        if not end >= 0 or (self.tol is not None and not self.tol >= 0):
            raise InputError("step_end and tol must not be negative.")

    def _fit(self, data: TrainingData) -> None:
        rng = check_random_state(self.random_state)
        self._check_names(data)
        parts, transforms = self._start(data, rng)
        if self.solver == "minibatch":
            self._descend_in_batches(data, parts, transforms, rng)
        else:
            self._descend(data, parts, transforms)  # Algorithm 2

    def _engine(self, parts: list[Part], n: int) -> Engine:
        """What evaluates the gradient."""
        return choose_engine(parts, n, self.decorrelation_kind, self.storage)

    def _descent(self, engine: Engine) -> Descent:
        K, start, end = self._schedule()
        steps = [start - (start - end) * k / K for k in range(K)]  # Algorithm 2, line 2
        kind = Descent if self.solver == "paper" else MomentumDescent
        return kind(engine, steps, self.normalize_gradient)

    def _schedule(self) -> tuple[int, float, float]:
        K, start, end = _SCHEDULES[self.solver]
        return (
            K if self.n_iter is None else int(self.n_iter),
            start if self.step_start is None else float(self.step_start),
            end if self.step_end is None else float(self.step_end),
        )

    def _transform(self, name: str, X: Any, center: bool, scale: Any) -> ViewTransform:
        """Centring and scaling of a view, fitted on its training rows."""
        return ViewTransform.fit(X, center=center, scale=scale, name=name)

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
        parts, transforms = [], {}
        for name, X, rows, alpha in self._inputs(data):
            is_label = name == LABELS
            default_scale = LABEL_SCALE if is_label else "auto"
            scale = default_scale if is_label and not isinstance(self.scale, Mapping) else self.scale
            center = not is_label and bool(_by_view(self.center, name, True))
            transform = self._transform(name, X, center, _by_view(scale, name, default_scale))
            transforms[name] = transform
            gamma = float(_by_view(self.decorrelation, name, 0.001))
            if not alpha > 0 or not gamma >= 0:
                raise InputError(f"view {name!r}: its weight must be positive and its decorrelation not negative.")
            W = rng.normal(0.0, self.init_scale, size=(X.shape[1], self.n_bits)).astype(dtype)
            v = rng.normal(0.0, self.init_scale, size=self.n_bits).astype(dtype)
            total = X.shape[0] if rows is None else len(rows)
            if self.solver != "minibatch":  # which casts a batch at a time
                X = to_device(X, device, dtype)
            X = CentredMatrix(X, transform.mean, transform.scale)
            if device is not None and rows is not None:
                rows = to_device(rows, device)
            parts.append(Part(name, X, to_device(W, device), to_device(v, device), alpha, gamma, rows, total=total))
        return parts, transforms

    def _inputs(self, data: TrainingData) -> list[tuple[str, Any, Any, float]]:
        """Name, matrix, rows present and weight of each view in order of name, labels last."""
        inputs: list[tuple[str, Any, Any, float]] = []
        for name, view in data.views.items():
            inputs.append((name, view.X, view.rows, float(_by_view(self.view_weights or {}, name, 1.0))))
        if data.labels is not None:
            known = data.labels.known
            L, rows = data.labels.matrix, None
            if not known.all():
                rows = np.flatnonzero(known)
                L = L[rows]
            inputs.append((LABELS, L, rows, float(self.label_weight)))
        elif LABELS in getattr(self, "weights_", {}):  # more rows for a model that knows labels, without any
            nothing = np.zeros((0, len(self.weights_[LABELS])), dtype=self.dtype)
            inputs.append((LABELS, nothing, np.zeros(0, dtype=np.intp), float(self.label_weight)))
        return inputs

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

    def _finish(self, parts: list[Part], transforms: dict[str, ViewTransform], n: int) -> None:
        self.train_codes_ = _codes(parts, n)
        for part in parts:
            self._set_linear(part.name, to_numpy(part.W), to_numpy(part.v), transforms[part.name])

    def _parts(self, data: TrainingData) -> list[Part]:
        parts = []
        for name, X, rows, alpha in self._inputs(data):
            matrix = CentredMatrix(X, self.means_.get(name), self.scales_[name])
            W, v = self.weights_[name].copy(), self.biases_[name].copy()
            gamma = float(_by_view(self.decorrelation, name, 0.001))
            total = max(1, X.shape[0] if rows is None else len(rows))
            parts.append(Part(name, matrix, W, v, alpha, gamma, rows, total=total))
        return parts

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
        return _codes(parts, n)


def _codes(parts: list[Part], n: int) -> Codes:
    """Eq. (updateB) at the parts' W and v, packed."""
    if is_torch(parts[0].W):
        return pack_scores(unified_codes(parts, [part.embed() for part in parts], n))
    return codes_by_blocks(parts, n)


def _by_view(value: Any, name: str, default: Any) -> Any:
    """A parameter that may be one value for all views or a dict by view."""
    return value.get(name, default) if isinstance(value, Mapping) else value
