"""What runs inside a Dask worker: the model, loaded once, and the encoding of one partition."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from distributed import WorkerPlugin
from scipy import sparse

from ..base import CrossModalHasher, load
from ..codes import Codes
from ..exceptions import InputError, ModalHashError
from .codefiles import checked_part, write_part
from .partitions import Part, batch_rows

__all__ = ["Block", "Job", "ModelPlugin", "encode_block", "encode_part"]

_MODELS: dict[str, CrossModalHasher] = {}


class ModelPlugin(WorkerPlugin):  # type: ignore[misc]  # distributed ships no types
    """Loads the model when a worker starts or joins, so that tasks carry its checksum only.

    Parameters
    ----------
    seal : str
        The model's checksum.
    files : dict of str to bytes
        The saved model.
    module : str
        Where its class is defined.
    """

    def __init__(self, seal: str, files: dict[str, bytes], module: str) -> None:
        self.name = f"modalhash-{seal}"
        self.seal, self.files, self.module = seal, files, module

    def setup(self, worker: Any) -> None:
        """Load the model; called by Dask in every worker."""
        if self.seal in _MODELS:
            return
        with suppress(ImportError):
            importlib.import_module(self.module)  # a hasher of the user's own registers itself
        with tempfile.TemporaryDirectory() as folder:
            for name, content in self.files.items():
                Path(folder, name).write_bytes(content)
            _MODELS[self.seal] = load(folder)

    def teardown(self, worker: Any) -> None:
        """Forget the model."""
        _MODELS.pop(self.seal, None)


@dataclass(frozen=True)
class Job:
    """One partition to encode.

    Attributes
    ----------
    seal : str
        The model's checksum.
    view : str
    path : str
        The file to write.
    identity : dict
        What the file will be made of.
    """

    seal: str
    view: str
    path: str
    identity: dict[str, Any]

    def model(self) -> CrossModalHasher:
        """The model that the plugin loaded."""
        if self.seal not in _MODELS:
            raise ModalHashError(f"this worker has no model {self.seal[:12]}; was its plugin removed?")
        return _MODELS[self.seal]


@dataclass(frozen=True)
class Block:
    """Where a block of a Dask collection lies among all rows.

    Attributes
    ----------
    number : int
        Of the block.
    offset : int
        Rows before it.
    rows : int or None
        None where it is not known before.
    width : int
        Columns that the model expects.
    ids : str or None
        A frame's column of ids.
    columns : list of str or None
        A frame's columns that make up the view.
    """

    number: int
    offset: int
    rows: int | None
    width: int
    ids: str | None = None
    columns: list[str] | None = None

    def where(self, row: int) -> str:
        """Name a row of this block."""
        return f"partition {self.number}, row {row}"


def encode_part(job: Job, part: Part) -> dict[str, Any]:
    """Encode a partition that lies on disk; one that was written before and is whole is left as it is.

    Parameters
    ----------
    job : Job
    part : Part

    Returns
    -------
    dict
        What :func:`~modalhash.engines.codefiles.write_part` returns; or ``error``, since what is wrong with the data
        would be wrong at a second try too.
    """
    return _write(job, part, part.batches)


def encode_block(job: Job, block: Block, content: Any) -> dict[str, Any]:
    """Encode a block of a Dask array or a partition of a Dask frame; returns what :func:`encode_part` does."""
    if content.shape[0] == 0:
        return {"file": Path(job.path).name, "rows": 0}
    return _write(job, block, lambda: _batches(block, content))


def _write(job: Job, part: Any, batches: Any) -> dict[str, Any]:
    model, path = job.model(), Path(job.path)
    done = checked_part(path, model.n_bits, job.identity)
    if done is not None:
        return done

    def codes() -> Iterator[tuple[Any, Codes]]:
        row = 0
        for ids, X in batches():
            try:
                yield ids, model.encode(job.view, X)
            except InputError as error:
                bad = _first_bad_row(X)
                where = part.where(row if bad is None else row + bad)
                told = error if bad is None else "it holds NaN or infinity. Impute it, or drop the row."
                raise InputError(f"{where}: view {job.view!r}: {told}") from error
            row += X.shape[0]

    try:
        return write_part(path, codes(), model.n_bits, job.identity)
    except (InputError, ModalHashError) as error:
        return {"error": str(error), "file": path.name}


def _first_bad_row(X: Any) -> int | None:
    if sparse.issparse(X):
        bad = np.flatnonzero(~np.isfinite(X.data))
        return int(np.searchsorted(X.indptr, bad[0], side="right") - 1) if bad.size else None
    if X.dtype.kind != "f":
        return None
    rows = np.flatnonzero(~np.isfinite(X).all(axis=1))
    return int(rows[0]) if rows.size else None


def _batches(block: Block, content: Any) -> Iterator[tuple[Any, Any]]:
    ids = None
    if hasattr(content, "columns"):
        if block.ids is not None:
            ids = content[block.ids].to_numpy()
            ids = ids if ids.dtype.kind in "iu" else ids.astype(np.str_)
        content = _frame_matrix(content[block.columns], block)
    n = content.shape[0]
    if block.rows not in (None, n):
        raise InputError(f"{block.where(0)}: {n} rows came where {block.rows} were announced.")
    if ids is None:
        ids = np.arange(block.offset, block.offset + n)
    step = batch_rows(block.width)
    for start in range(0, n, step):
        yield ids[start : start + step], content[start : start + step]


def _frame_matrix(frame: Any, block: Block) -> Any:
    if frame.shape[1] == 1 and (block.width > 1 or frame.dtypes.iloc[0].kind not in "biuf"):  # a column of lists
        out = np.empty((len(frame), block.width))
        for row, item in enumerate(frame.iloc[:, 0]):
            try:
                values = np.asarray(item, dtype=np.float64)
                if values.shape != (block.width,):
                    raise ValueError(f"got shape {values.shape}")
                out[row] = values
            except (ValueError, TypeError) as error:
                needed = f"view {frame.columns[0]!r} must be lists of {block.width} numbers"
                raise InputError(f"{block.where(row)}: {needed} ({error}).") from error
        return out
    return frame.to_numpy()
