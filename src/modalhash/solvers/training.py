"""The training loops of a method that descends: full batch or in batches, watched, and resumable from a checkpoint."""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..base import CrossModalHasher, TrainingData
from ..codes import Codes, n_bytes
from ..exceptions import ConvergenceWarning, InputError
from ..labels import check_labels
from ..linalg import CentredMatrix, to_numpy
from ..parameters import check_random_state
from ..views import ViewTransform
from .checkpoint import Checkpoint, digest
from .descent import Descent
from .minibatch import Minibatch
from .objective import Engine, Part
from .shuffle import Plan, batches, feeds_of

__all__ = ["IterativeHasher"]

_OF_ONE_RUN = ("checkpoint", "checkpoint_every", "callback", "verbose")
_CARRIED = ("direction", "drift", "gram")

_log = logging.getLogger(__name__)


class IterativeHasher(CrossModalHasher):
    """A hasher whose objective is a sum over :class:`~modalhash.solvers.objective.Part`; it says where they start.

    Subclasses have the parameters below and define :meth:`_start`, :meth:`_engine`, :meth:`_descent` and
    :meth:`_schedule`.
    """

    solver: str
    batch_size: int
    n_epochs: int | None
    decorrelation_kind: str | None
    normalize_gradient: bool
    tol: float | None
    random_state: Any
    verbose: int
    callback: Callable[[int, int, float], object] | None
    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: int

    train_codes_: Codes
    objective_: NDArray[np.float64]
    objective_parts_: dict[str, NDArray[np.float64]]
    n_iter_: int
    batch_state_: dict[str, NDArray[Any]]

    # What a method says --------------------------------------------------------------------------------------------

    def _start(self, data: TrainingData, rng: np.random.Generator) -> tuple[list[Part], dict[str, ViewTransform]]:
        """Parts at their random start, and what was done to the views."""
        raise TypeError(f"{type(self).__name__} does not say where it starts.")

    def _parts(self, data: TrainingData) -> list[Part]:
        """Parts of the fitted model over other rows, with copies of its W and v."""
        raise TypeError(f"{type(self).__name__} cannot go on from a fitted model.")

    def _engine(self, parts: list[Part], n: int) -> Engine:
        """What evaluates the gradient."""
        raise TypeError(f"{type(self).__name__} does not name its engine.")

    def _descent(self, engine: Engine) -> Descent:
        """What steps along it."""
        raise TypeError(f"{type(self).__name__} does not name its descent.")

    def _schedule(self) -> tuple[int, float, float]:
        """Iterations, first and last step length."""
        raise TypeError(f"{type(self).__name__} does not say how long its steps are.")

    # Full batch ----------------------------------------------------------------------------------------------------

    def _descend(self, data: TrainingData, parts: list[Part], transforms: dict[str, ViewTransform]) -> None:
        """Run all iterations from where the parts are, or from where a checkpoint was."""
        K = self._schedule()[0]
        checkpoint = self._checkpoint()
        fingerprint = {} if checkpoint is None else self._fingerprint(data, parts, transforms)
        with self._engine(parts, data.n_rows) as engine:
            stride = engine.stride if self._watched() else K
            descent = self._descent(engine)
            curve = self._resume(descent, checkpoint, fingerprint)
            pause = K if checkpoint is None else -(-checkpoint.every // engine.stride) * engine.stride
            while len(curve) < K:
                k = len(curve)
                curve += descent.advance(k, min(K, k + stride, (k // pause + 1) * pause))
                if checkpoint is not None and len(curve) % pause == 0 and len(curve) < K:
                    checkpoint.write(fingerprint, {**descent.arrays(), "curve": _numbers(curve)}, {})
                if self._watched() and self._look(curve, stride):
                    break
        del descent, engine  # and their arrays of n x c
        self._record(parts, curve)
        self._finish(parts, transforms, data.n_rows)
        if checkpoint is not None:
            checkpoint.remove()
        self._warn_unsettled(self.objective_[-1 - stride :])

    def _resume(self, descent: Descent, checkpoint: Checkpoint | None, fingerprint: dict[str, Any]) -> list[list[Any]]:
        """Put back what the checkpoint holds; the curve so far."""
        saved = None if checkpoint is None else checkpoint.read(fingerprint)
        if saved is None:
            return []
        descent.restore(saved[0])
        return [list(terms) for terms in saved[0]["curve"]]

    def _checkpoint(self) -> Checkpoint | None:
        return None if self.checkpoint is None else Checkpoint(self.checkpoint, self.checkpoint_every)

    def _fingerprint(
        self, data: TrainingData, parts: list[Part], transforms: dict[str, ViewTransform]
    ) -> dict[str, Any]:
        """What a checkpoint must agree on: parameters, shapes, a digest of the data's moments, and the start."""
        found = {name: value for name, value in self._plain_params().items() if name not in _OF_ONE_RUN}
        found["rows"] = data.n_rows
        for part in parts:
            transform = transforms[part.name]
            found[f"columns of {part.name}"] = part.X.shape[1]
            moments = [] if transform.mean is None else [transform.mean]
            found[f"moments of {part.name}"] = digest(*moments, np.float64(transform.scale))
        if data.labels is not None:
            found["counts of labels"] = digest(np.asarray(data.labels.matrix.sum(axis=0, dtype=np.int64)).ravel())
        if self.random_state is not None:
            found["start"] = digest(*(to_numpy(array) for part in parts for array in (part.W, part.v)))
        return found

    def _plain_params(self) -> dict[str, Any]:
        """Parameters for saving: the checkpoint of one run is not part of the model."""
        return {**super()._plain_params(), "checkpoint": None}

    def _watched(self) -> bool:
        return self.tol is not None or self.callback is not None or self.verbose > 0

    def _look(self, curve: list[list[Any]], stride: int) -> bool:
        """Tell the log and the callback how it goes; True when the tolerance is reached."""
        recent = [float(sum(float(term) for term in terms)) for terms in curve[-1 - stride :: stride]]
        self._tell(len(curve), self._schedule()[0], recent[-1], stride)
        return self._settled(recent)

    def _tell(self, k: int, K: int, objective: float, stride: int = 1) -> None:
        if self.verbose and (k % self.verbose < stride or k == K):
            _log.info("%s iteration %d of %d: objective %.6g", type(self).__name__, k, K, objective)
        if self.callback is not None:
            self.callback(k, K, objective)

    def _settled(self, recent: Any) -> bool:
        """Whether the relative change of the objective between the first and the last of `recent` is within tol."""
        if self.tol is None or len(recent) < 2:
            return False
        return bool(abs(recent[0] - recent[-1]) <= self.tol * abs(recent[0]))

    def _warn_unsettled(self, recent: Any) -> None:
        if self.tol is not None and not self._settled(recent):
            warnings.warn(
                f"{type(self).__name__} did not reach tol={self.tol} in {self.n_iter_} iterations. Raise n_iter or "
                "tol, or leave tol=None.",
                ConvergenceWarning,
                stacklevel=5,
            )

    def _record(self, parts: list[Part], curve: Sequence[Any]) -> None:
        values = _numbers(curve)
        self.objective_ = values.sum(axis=1)
        names = [f"{what}.{part.name}" for part in parts for what in ("quantization", "decorrelation")]
        self.objective_parts_ = {name: values[:, j].copy() for j, name in enumerate(names)}
        self.n_iter_ = len(curve)

    def _finish(self, parts: list[Part], transforms: dict[str, ViewTransform], n: int) -> None:
        """Keep what the parts have become, and the codes of the training rows."""
        raise TypeError(f"{type(self).__name__} does not say what it keeps.")

    # In batches ----------------------------------------------------------------------------------------------------

    def _streams(self) -> bool:
        return self.solver == "minibatch"

    def _descend_in_batches(
        self, data: TrainingData, parts: list[Part], transforms: dict[str, ViewTransform], rng: np.random.Generator
    ) -> None:
        """Pass over the rows in random batches, from the start or from where a checkpoint was."""
        K, first, last = self._schedule()
        n = data.n_rows
        seed, curve = int(rng.integers(2**63)), []
        solver = Minibatch(parts, self.decorrelation_kind, self.normalize_gradient)
        checkpoint = self._checkpoint()
        fingerprint = {} if checkpoint is None else self._fingerprint(data, parts, transforms)
        saved = None if checkpoint is None else checkpoint.read(fingerprint)
        if saved is not None:
            seed, curve = int(saved[1]["seed"]), saved[0]["curve"].tolist()
            solver.restore(saved[0], len(curve))
        size = min(n, int(self.batch_size))
        epochs = int(self.n_epochs) if self.n_epochs is not None else max(1, -(-K * size // n))
        feeds = feeds_of(parts, n)
        plan = Plan.of(feeds, n, size, epochs, seed)
        epoch = max(1, plan.total // epochs)
        recent: list[float] = []
        with _one_thread(), closing(batches(feeds, plan, solver.k)) as drawn:
            for batch in drawn:
                curve.append(solver.step(batch, first - (first - last) * batch.done))
                k = len(curve)
                if checkpoint is not None and k % checkpoint.every == 0 and k < plan.total:
                    checkpoint.write(fingerprint, {**solver.arrays(), "curve": _numbers(curve)}, {"seed": seed})
                self._tell(k, plan.total, sum(curve[-1]))
                if k % epoch == 0:  # a batch's own objective says little; those of whole passes are compared
                    recent = [float(_numbers(curve[k - (i + 1) * epoch : k - i * epoch]).sum()) for i in (1, 0)]
                    if k >= 2 * epoch and self._settled(recent):
                        break
            self._record(parts, curve)
            self._finish(parts, transforms, n)
        self._carry(solver)
        if checkpoint is not None:
            checkpoint.remove()
        self._warn_unsettled(recent)

    def _carry(self, solver: Minibatch) -> None:
        """Keep what the next :meth:`partial_fit` starts from."""
        arrays = solver.arrays()
        self.batch_state_ = {
            f"{name}.{part.name}": arrays[f"{name}/{part.name}"] for part in solver.parts for name in _CARRIED
        }

    def partial_fit(
        self,
        views: Mapping[str, Any],
        labels: Any = None,
        *,
        present: Mapping[str, Any] | None = None,
        classes: Sequence[str | int] | None = None,
        transforms: Mapping[str, ViewTransform] | None = None,
    ) -> Self:
        """Go on learning from more rows, which need not be kept: one pass over them in batches.

        The first call (on a hasher that is not fitted) fixes the views, the label columns, and the means and scales,
        all from its own rows unless given: make it a large and representative one, or give them. A call after ``fit``
        goes on with what that found. Steps fall over the first ``n_iter`` batches and then stay at ``step_end``.
        There is no ``train_codes_`` afterwards: encode what you want to search.

        Parameters
        ----------
        views : dict of str to matrix (m, d)
            The views of the first call; rows may lack some, as in ``fit``.
        labels : optional
            As in ``fit``; may be left out where these rows have none.
        present : dict of str to boolean mask (m,), optional
        classes : sequence, optional
            In the first call: the label columns, where its rows do not show all.
        transforms : dict of str to ViewTransform, optional
            In the first call: what to do to the views named in it, instead of what its rows suggest.

        Returns
        -------
        self

        Examples
        --------
        >>> import modalhash as mh
        >>> data = mh.datasets.make_synthetic(n=600, random_state=0)
        >>> hasher = mh.DMH(n_bits=16, solver="minibatch", batch_size=50, random_state=0)
        >>> for rows in (slice(0, 300), slice(300, 600)):
        ...     views = {name: X[rows] for name, X in data.views.items()}
        ...     hasher = hasher.partial_fit(views, data.labels[rows])
        >>> hasher.n_iter_
        12
        """
        started = time.perf_counter()
        n_bytes(self.n_bits)
        self._check_params()
        if not self._streams():
            raise InputError(f'partial_fit needs solver="minibatch"; this is solver={self.solver!r}.')
        first = not hasattr(self, "view_names_")
        if not first and (classes is not None or transforms is not None):
            raise InputError("classes and transforms are for the first call; the model has its own already.")
        data = self._check_data(views, None, present)
        names = list(classes or ()) or None if first else self.label_names_
        if labels is not None and not first and names is None:
            raise InputError("the model was fitted without labels. Leave them out, or fit it with labels.")
        checked = None if labels is None else check_labels(labels, n_rows=data.n_rows, names=names)
        if first and checked is not None and not checked.known.any():
            raise InputError("no row of the first call has a label. Leave labels out to fit without them.")
        data = TrainingData(data.views, checked, data.n_rows)
        rng = check_random_state(self.random_state)
        if first:
            parts, found = self._first_parts(data, rng, dict(transforms or {}))
        else:
            self._check_same_views(data)
            parts = self._parts(data)
            found = {name: ViewTransform(self.means_.get(name), self.scales_[name]) for name in self.weights_}
        solver = Minibatch(parts, self.decorrelation_kind, self.normalize_gradient)
        curve = [] if first else np.column_stack(list(self.objective_parts_.values())).tolist()
        k = len(curve)
        if not first and hasattr(self, "batch_state_"):
            kept = {key.replace(".", "/", 1): value for key, value in self.batch_state_.items()}
            own = {f"{name}/{part.name}": getattr(part, name) for part in parts for name in ("W", "v")}
            solver.restore({**kept, **own}, k)
        K, start, end = self._schedule()
        feeds = feeds_of(parts, data.n_rows)
        seed = int(np.random.default_rng([int(rng.integers(2**63)), k]).integers(2**63))
        plan = Plan.of(feeds, data.n_rows, min(data.n_rows, int(self.batch_size)), 1, seed)
        with _one_thread(), closing(batches(feeds, plan)) as drawn:
            for batch in drawn:
                dt = start - (start - end) * min(1.0, len(curve) / K)
                curve.append(solver.step(batch, dt))
                self._tell(len(curve) - k, plan.total, sum(curve[-1]))
        if first:
            self._describe(data)
        self._record(parts, curve)
        for part in parts:
            self._set_linear(part.name, part.W, part.v, found[part.name])
        self._carry(solver)
        vars(self).pop("train_codes_", None)
        past = getattr(self, "training_", {"n_rows": 0, "seconds": 0.0})
        seconds = round(past["seconds"] + time.perf_counter() - started, 3)
        self.training_: dict[str, Any] = {"n_rows": past["n_rows"] + data.n_rows, "seconds": seconds}
        return self

    def _first_parts(
        self, data: TrainingData, rng: np.random.Generator, given: dict[str, ViewTransform]
    ) -> tuple[list[Part], dict[str, ViewTransform]]:
        for name in given:
            if name not in data.views:
                raise InputError(f"transforms names view {name!r}; the views are {', '.join(data.views)}.")
        parts, found = self._start(data, rng)
        for part in parts:
            if part.name in given:
                mean, scale = given[part.name].mean, given[part.name].scale
                if mean is not None and np.shape(mean) != (part.X.shape[1],):
                    raise InputError(f"the mean of view {part.name!r} must have {part.X.shape[1]} entries.")
                part.X = CentredMatrix(part.X.X, mean, scale)
        return parts, {**found, **given}

    def _check_same_views(self, data: TrainingData) -> None:
        if list(data.views) != self.view_names_:
            raise InputError(
                f"the model has the views {', '.join(self.view_names_)}; got {', '.join(data.views)}. Pass all of "
                "them; rows that lack one are marked by present= or NaN."
            )
        for name, view in data.views.items():
            if view.n_columns != self.n_features_in_[name]:
                raise InputError(
                    f"view {name!r} has {view.n_columns} columns; the model was fitted with "
                    f"{self.n_features_in_[name]}. Pass the same features as at fit."
                )


def _one_thread() -> Any:
    """Products of a batch are too small to share: one BLAS thread, and the same result on any machine's cores."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=1, user_api="blas")


def _numbers(curve: Sequence[Any]) -> NDArray[np.float64]:
    return np.array([[float(term) for term in terms] for terms in curve], dtype=np.float64)
