"""Training DMH in several processes, each with its own rows (``torch.distributed``; extra ``torch``).

Start them with torchrun; every process runs the same program::

    torchrun --nproc-per-node 2 -m modalhash fit data.npz -o model/ --distributed

Rows are spread over the processes and never leave them, nor do their codes. Per iteration there are two all-reduces:
the c x c Gram matrices of all views, since the gradient of the regulariser needs those of all rows; then gradients,
column sums and terms of the objective in one buffer. Norms are taken afterwards. Means and scales of the views are
summed in float64 at the start, and W and v are drawn from the seed in every process alike, so that the model is that
of one process up to rounding, however the rows are spread. On GPUs (``device="cuda"``) each process takes the GPU of
its local rank.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base import TrainingData
from ..bundle import TENSORS, atomic_write
from ..codes import Codes, check_codes, unpack
from ..exceptions import ConstantBitsWarning, InputError, ModelFormatError
from ..labels import check_labels
from ..linalg import torch_device
from ..methods.dmh import DMH
from ..solvers.checkpoint import Checkpoint, digest
from ..solvers.descent import Descent
from ..solvers.objective import Engine, Part, ReferenceEngine, suits_blocks
from ..views import ViewTransform, moments
from .collective import Processes, join, own_rows

__all__ = ["Processes", "fit", "join", "load_train_codes", "own_rows", "save"]

MANIFEST = "train_codes.json"
_FULL_BATCH = ("paper", "momentum")
_OF_ONE_RANK = ("callback", "verbose", "checkpoint")


def fit(
    hasher: DMH,
    views: Mapping[str, Any],
    labels: Any = None,
    *,
    present: Mapping[str, Any] | None = None,
    processes: Processes,
) -> DMH:
    """Fit in all processes together; each calls this with the rows it holds.

    Parameters
    ----------
    hasher : DMH
        With the same parameters in every process. A random_state of None is drawn once for all. With
        ``checkpoint=``, rank 0 saves the state there and all continue from it.
    views : dict of str to matrix (n, d)
        This process's rows, at least one; see :func:`own_rows`. Columns as in the others.
    labels : optional
        Their labels: a 0/1 matrix with the same columns everywhere, class ids, or lists of names.
    present : dict of str to boolean mask (n,), optional
    processes : Processes
        From :func:`join`.

    Returns
    -------
    DMH
        `hasher`, fitted: the same model in every process, but for ``train_codes_``, which are those of its own rows.

    Examples
    --------
    >>> with join() as processes:                                            # doctest: +SKIP
    ...     rows = own_rows(len(X), processes.rank, processes.size)
    ...     hasher = fit(mh.DMH(64, random_state=0), {"image": X[rows]}, L[rows], processes=processes)
    ...     save(hasher, "model/", processes=processes)
    """
    if type(hasher) is not DMH:
        raise InputError(f"training in several processes is for DMH; got {type(hasher).__name__}.")
    if isinstance(hasher.random_state, np.random.Generator):
        raise InputError("random_state must be a whole number or None, since every process draws the same numbers.")
    if hasher.solver not in _FULL_BATCH:
        raise InputError(f"solver={hasher.solver!r} is for one process; use one of {', '.join(_FULL_BATCH)}.")
    if hasher.storage == "bfloat16":
        raise InputError('storage="bfloat16" is for one process; leave storage="auto".')
    shard = _ShardedDMH(**hasher.get_params())
    shard.processes = processes
    if processes.rank:
        shard.set_params(callback=None, verbose=0)
    with _share_of_cores(processes) as shard.threads:
        shard.fit(views, labels, present=present)
    hasher._forget()
    for name, value in vars(shard).items():
        if name.endswith("_"):
            setattr(hasher, name, value)
    hasher.training_ = {**shard.training_, "n_rows": shard.total_rows, "processes": processes.size}
    return hasher


@contextmanager
def _share_of_cores(processes: Processes) -> Iterator[int]:
    """Yield a process's share of the machine's cores, for as many threads; where all have some, each keeps to its own.

    Left to itself the scheduler puts processes that have just spoken to each other on one core for a while.
    """
    from threadpoolctl import threadpool_limits

    pins = hasattr(os, "sched_setaffinity")
    cores = sorted(os.sched_getaffinity(0)) if pins else list(range(os.cpu_count() or 1))
    share = len(cores) // processes.local_size
    mine = cores[processes.local_rank * share : (processes.local_rank + 1) * share]
    pins = pins and processes.local_size > 1 and len(mine) > 0
    try:
        if pins:
            os.sched_setaffinity(0, mine)
        with threadpool_limits(limits=max(1, share), user_api="blas"):
            yield max(1, share)
    finally:
        if pins:
            os.sched_setaffinity(0, cores)


class _ShardedDMH(DMH):
    """DMH on one process's rows; what depends on all rows is summed over the processes."""

    processes: Processes
    threads: int
    total_rows: int

    def _check_data(self, views: Any, labels: Any, present: Any) -> TrainingData:
        with self.processes.together("reading the rows"):
            data = super()._check_data(views, labels, present)
            about = {
                "views": {name: view.n_columns for name, view in data.views.items()},
                "labels": None if data.labels is None else list(data.labels.names),
                "params": {
                    name: repr(value) for name, value in self._plain_params().items() if name not in _OF_ONE_RANK
                },
            }
        told = self.processes.exchange(about)
        for what in ("params", "views"):
            for rank, other in enumerate(told):
                if other[what] != told[0][what]:
                    raise InputError(
                        f"rank {rank} has {what} {other[what]}, and rank 0 {told[0][what]}; make them alike."
                    )
        if any(other["labels"] != told[0]["labels"] for other in told):
            data = self._with_all_labels(data, labels, [other["labels"] for other in told])
        self.total_rows = int(self.processes.sum([np.array([data.n_rows], dtype=np.float64)])[0][0])
        return data

    def _with_all_labels(self, data: TrainingData, labels: Any, found: list[Any]) -> TrainingData:
        """Class ids and names were found in each process's rows alone: take all that any process found."""
        with self.processes.together("joining the labels"):
            if any(names is None for names in found):
                raise InputError("some processes have labels and others none; pass labels in all or in none.")
            try:
                names = sorted({name for names in found for name in names})
                return TrainingData(data.views, check_labels(labels, names=names), data.n_rows)
            except (InputError, TypeError) as error:
                raise InputError("the processes have different label columns; pass the same in all.") from error

    def _start(self, data: TrainingData, rng: np.random.Generator) -> tuple[list[Part], dict[str, ViewTransform]]:
        if self.random_state is None:
            rng = np.random.default_rng(self.processes.exchange(secrets.randbits(63))[0])
        parts, transforms = super()._start(data, rng)
        rows = self.processes.sum([np.array([part.X.shape[0] for part in parts], dtype=np.float64)])[0]
        for part, total in zip(parts, rows, strict=True):
            part.total = int(total)
        return parts, transforms

    def _transform(self, name: str, X: Any, center: bool, scale: Any) -> ViewTransform:
        total, squares, n = self.processes.sum([*moments(X), float(X.shape[0])])
        return ViewTransform.from_moments(total, float(squares), int(n), center=center, scale=scale, name=name)

    def _device(self, data: TrainingData) -> Any:
        if self.device == "cuda":
            return torch_device(f"cuda:{self.processes.local_rank}")
        return super()._device(data)

    def _engine(self, parts: list[Part], n: int) -> Engine:
        engine: Engine = ReferenceEngine(parts, n, self.decorrelation_kind)
        if suits_blocks(parts, n, self.decorrelation_kind):
            from ..solvers.cpu import BlockEngine

            engine = BlockEngine(parts, n, self.decorrelation_kind, threads=self.threads)
        engine.combine = self.processes.sum
        return engine

    # Checkpoints: rank 0 has the file, and tells the others what is in it. -----------------------------------------

    def _checkpoint(self) -> Checkpoint | None:
        if self.checkpoint is None:
            return None
        with self.processes.together("opening the checkpoint"):
            return super()._checkpoint() if self.processes.rank == 0 else _Elsewhere(self.checkpoint_every)

    def _fingerprint(
        self, data: TrainingData, parts: list[Part], transforms: dict[str, ViewTransform]
    ) -> dict[str, Any]:
        found = {**super()._fingerprint(data, parts, transforms), "rows": self.total_rows}
        if data.labels is not None:
            counts = np.asarray(data.labels.matrix.sum(axis=0, dtype=np.int64), dtype=np.float64).ravel()
            found["counts of labels"] = digest(self.processes.sum([counts])[0].astype(np.int64))
        return found

    def _resume(self, descent: Descent, checkpoint: Checkpoint | None, fingerprint: dict[str, Any]) -> list[list[Any]]:
        if checkpoint is None:
            return []
        curve: list[list[Any]] = []
        with self.processes.together("reading the checkpoint"):
            curve = super()._resume(descent, checkpoint, fingerprint)
        curve = self.processes.exchange([[float(term) for term in terms] for terms in curve])[0]
        if curve:
            arrays = descent.arrays()
            first = self.processes.rank == 0
            told = self.processes.sum([a if first else np.zeros_like(a) for a in arrays.values()])
            descent.restore(dict(zip(arrays, told, strict=True)))
        return curve

    def _warn_constant_bits(self) -> None:
        codes = self.train_codes_
        mine = [np.bitwise_or.reduce(codes, axis=0).tolist(), np.bitwise_and.reduce(codes, axis=0).tolist()]
        told = np.array(self.processes.exchange(mine), dtype=np.uint8)
        varies = np.bitwise_or.reduce(told[:, 0]) ^ np.bitwise_and.reduce(told[:, 1])
        constant = self.n_bits - int(unpack(varies[None, :], self.n_bits).sum())
        if constant and self.total_rows > 1 and self.processes.rank == 0:
            warnings.warn(
                f"{constant} of {self.n_bits} bits have the same value for every training row and carry no "
                "information. Try labels, another scale or a smaller decorrelation.",
                ConstantBitsWarning,
                stacklevel=3,
            )


class _Elsewhere(Checkpoint):
    """The checkpoint of a process other than rank 0, which has the file: nothing is read or written here."""

    def __init__(self, every: int) -> None:
        self.every = every

    def read(self, fingerprint: Mapping[str, Any]) -> None:
        return None

    def write(self, fingerprint: Mapping[str, Any], arrays: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        return None

    def remove(self) -> None:
        return None


def save(hasher: DMH, path: str | os.PathLike[str], *, processes: Processes) -> Path:
    """Save a model that all processes hold: rank 0 the model, each the codes of its own training rows.

    The list ``train_codes.json`` is written last: without it, or with another model, the codes do not count.

    Parameters
    ----------
    hasher : DMH
        Fitted by :func:`fit`.
    path : path
        The folder, on a file system that all processes share. :func:`modalhash.load` reads the model.
    processes : Processes

    Returns
    -------
    Path
    """
    path = Path(path)
    name = f"train_codes-{processes.rank:05d}-of-{processes.size:05d}.npy"
    with processes.together("saving the model"):
        if processes.rank == 0:
            (path / MANIFEST).unlink(missing_ok=True)
            _without_codes(hasher).save(path)
    with processes.together("saving the training codes"):
        buffer = io.BytesIO()
        np.save(buffer, hasher.train_codes_)
        atomic_write(path / name, buffer.getvalue())
    mine = {"file": name, "rows": len(hasher.train_codes_), "sha256": hashlib.sha256(buffer.getvalue()).hexdigest()}
    parts = processes.exchange(mine)
    with processes.together("saving the list of training codes"):
        if processes.rank == 0:
            seal = hashlib.sha256((path / TENSORS).read_bytes()).hexdigest()
            content = {"n_bits": hasher.n_bits, "model": seal, "parts": parts}
            atomic_write(path / MANIFEST, json.dumps(content, indent=2).encode())
            kept = {part["file"] for part in parts}
            for old in path.glob("train_codes-*.npy"):
                if old.name not in kept:
                    old.unlink(missing_ok=True)
    return path


def _without_codes(hasher: DMH) -> DMH:
    light = DMH(**hasher.get_params())
    for name, value in vars(hasher).items():
        if name.endswith("_") and name != "train_codes_":
            setattr(light, name, value)
    return light


def load_train_codes(path: str | os.PathLike[str]) -> Codes:
    """Codes of all training rows that :func:`save` wrote, in the order of the rows; every checksum is verified.

    Parameters
    ----------
    path : path
        The model's folder.

    Returns
    -------
    ndarray of uint8, shape (n, ceil(n_bits / 8))
    """
    path = Path(path)
    try:
        content = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        seal = hashlib.sha256((path / TENSORS).read_bytes()).hexdigest()
        if content["model"] != seal:
            raise ModelFormatError("they belong to another model")
        return np.concatenate([_read_part(path, part, int(content["n_bits"])) for part in content["parts"]])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelFormatError(
            f"{path} has no whole list of training codes ({error}). Fit and save the model again."
        ) from error


def _read_part(path: Path, part: Mapping[str, Any], n_bits: int) -> NDArray[np.uint8]:
    if Path(part["file"]).name != part["file"]:
        raise ModelFormatError(f"{part['file']} lies outside the folder")
    raw = (path / part["file"]).read_bytes()
    if hashlib.sha256(raw).hexdigest() != part["sha256"]:
        raise ModelFormatError(f"{part['file']} differs from its checksum")
    codes = check_codes(np.load(io.BytesIO(raw), allow_pickle=False), n_bits)
    if len(codes) != part["rows"]:
        raise ModelFormatError(f"{part['file']} has {len(codes)} rows, not {part['rows']}")
    return codes
