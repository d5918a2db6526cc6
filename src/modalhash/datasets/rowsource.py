"""Matrices that stay on disk and are read by blocks of rows: memory-mapped ``.npy``, Parquet, Zarr and HDF5.

A :class:`RowSource` looks like a matrix as far as ``shape``, ``dtype`` and slices of rows go; a slice is a fresh array
in memory, and nothing else of the source is. ``encode`` takes one for any method, and ``DMH(solver="minibatch")`` fits
on one; other methods read it whole.
"""

from __future__ import annotations

import mmap
import os
from copy import copy as _copy
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..exceptions import InputError, MissingExtraError, ModelFormatError

__all__ = ["ArrayRows", "MappedRows", "ParquetRows", "RowSource", "as_rows", "open_rows"]


class RowSource:
    """A matrix (n, d) read by blocks of rows.

    Parameters
    ----------
    shape : tuple of two int
    dtype : numpy dtype
        Of what is stored.
    where : str
        What to call it in messages.
    group : int
        Rows that are cheap to read together, such as a row group or a chunk; 1 where any are.

    Attributes
    ----------
    sums : tuple or None
        Column sums, sum of squares and number of the rows present, once a pass over the rows has found them.
    """

    ndim = 2

    def __init__(self, shape: tuple[int, int], dtype: Any, where: str, group: int = 1) -> None:
        self.shape = (int(shape[0]), int(shape[1]))
        self.stored = np.dtype(dtype)
        if self.stored.kind not in "biuf":
            raise InputError(f"{where} must hold real numbers; got dtype {self.stored}.")
        small = self.stored.itemsize <= (4 if self.stored.kind == "f" else 2)
        self.dtype = np.dtype(np.float32 if small else np.float64)
        self.where, self.group = where, max(1, int(group))
        self.sums: tuple[NDArray[np.float64], float, int] | None = None

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.where}: {self.shape}, {self.stored}>"

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        """Rows as a new array of ``dtype``; only slices without a step are taken."""
        start, stop, step = rows.indices(self.shape[0])
        if step != 1:
            raise InputError(f"{self.where} is read by consecutive rows; got a step of {step}.")
        return np.ascontiguousarray(self.read(start, max(start, stop)), dtype=self.dtype)

    def astype(self, dtype: Any, copy: bool = True) -> RowSource:
        """The same rows, each block cast to `dtype` as it is read. There is nothing that `copy` could copy."""
        if np.dtype(dtype) == self.dtype:
            return self
        out = _copy(self)
        out.dtype, out.sums = np.dtype(dtype), None
        return out

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows `start` to `stop` as they are stored."""
        raise TypeError(f"{type(self).__name__} does not say how its rows are read.")

    def identity(self) -> dict[str, Any]:
        """What tells this content from another, as JSON values, as far as that is known."""
        return {"where": self.where, "shape": list(self.shape), "dtype": str(self.stored)}


class MappedRows(RowSource):
    """A memory-mapped array. Pages that were read are given back at once, so that they do not pile up as resident.

    Parameters
    ----------
    array : ndarray of shape (n, d)
        A memory map, or a slice of one.
    where : str

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/a.npy", np.arange(6.0).reshape(3, 2))
    ...     rows = MappedRows(np.load(f"{folder}/a.npy", mmap_mode="r"), "a.npy")
    ...     rows[1:3].tolist()
    [[2.0, 3.0], [4.0, 5.0]]
    """

    def __init__(self, array: NDArray[Any], where: str = "a memory-mapped array") -> None:
        if array.ndim != 2:
            raise InputError(f"{where} must be a matrix (n, d); got shape {array.shape}.")
        super().__init__(array.shape, array.dtype, where)
        self.array = array
        self._map = _droppable(array)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows `start` to `stop` as they are stored."""
        block = np.array(self.array[start:stop])
        if self._map is not None and block.size:
            self._drop(self.array[start:stop])
        return block

    def _drop(self, rows: NDArray[Any]) -> None:
        """Tell the system that the pages under `rows` are not needed in memory; they stay in the file."""
        whole, mapped = self._map
        low, high = np.lib.array_utils.byte_bounds(rows)
        base = np.lib.array_utils.byte_bounds(whole)[0] - _offset_in_map(whole)
        page = mmap.PAGESIZE
        first = (low - base) // page * page
        last = min(len(mapped), -(-(high - base) // page) * page)
        if last > first:
            mapped.madvise(mmap.MADV_DONTNEED, first, last - first)

    def identity(self) -> dict[str, Any]:
        """What tells this content from another, as JSON values."""
        owner = _memmap_of(self.array)
        name = getattr(owner, "filename", None)
        stamp = _stamp(Path(name)) if name is not None and Path(name).exists() else {}
        return {**super().identity(), **stamp}


def _memmap_of(array: Any) -> Any:
    """The memory map under an array: the ``np.memmap`` nearest to the map itself, or None."""
    found = None
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            found = array
        array = array.base
    return found if isinstance(array, mmap.mmap) else None


def _droppable(array: NDArray[Any]) -> Any:
    """The root memory map and its ``mmap``, where giving back pages loses nothing: not for private copies on write."""
    root = _memmap_of(array)
    if root is None or not hasattr(mmap, "MADV_DONTNEED") or root.mode not in ("r", "r+"):
        return None
    return root, root.base


def _offset_in_map(root: Any) -> int:
    """Bytes between the start of the map and the array that was made over it."""
    return int(root.offset) % mmap.ALLOCATIONGRANULARITY


class ParquetRows(RowSource):
    """The numbers of a Parquet file, one row group in memory at a time.

    Parameters
    ----------
    path : path
    key : str or None
        A column of fixed-size lists or of numbers; "" or None for all columns of numbers.
    """

    def __init__(self, path: str | os.PathLike[str], key: str | None = None) -> None:
        from . import parquetfiles

        self.path = Path(path)
        self.file = parquetfiles.open_parquet(self.path)
        self.columns, self.widths = parquetfiles.choose_columns(self.file, self.path, key)
        groups = [self.file.metadata.row_group(i).num_rows for i in range(self.file.num_row_groups)]
        self.starts = np.concatenate([[0], np.cumsum(groups)]).astype(np.int64)
        kind = parquetfiles.common_type(self.file, self.columns)
        n, width = int(self.starts[-1]), sum(self.widths.values())
        super().__init__((n, width), kind, f"{self.path}:{key}" if key else str(self.path), max(groups, default=1))
        self._held: tuple[int, Any] = (-1, None)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows `start` to `stop` as they are stored."""
        out = np.empty((stop - start, self.shape[1]), dtype=self.stored)
        at = start
        while at < stop:
            i = int(np.searchsorted(self.starts, at, side="right")) - 1
            low, high = int(self.starts[i]), int(self.starts[i + 1])
            until = min(stop, high)
            out[at - start : until - start] = self._group(i)[at - low : until - low]
            at = until
        return out

    def _group(self, i: int) -> Any:
        from . import parquetfiles

        if self._held[0] != i:
            self._held = (-1, None)  # let the old one go before the new one comes
            table = self.file.read_row_group(i, columns=self.columns)
            self._held = (i, parquetfiles.as_matrix(table, self.columns, self.widths, self.path))
        return self._held[1]

    def identity(self) -> dict[str, Any]:
        """What tells this content from another, as JSON values."""
        return {**super().identity(), **_stamp(self.path)}


class ArrayRows(RowSource):
    """Anything on disk that gives rows when sliced and has ``chunks``: a Zarr array, an HDF5 data set.

    Parameters
    ----------
    array : object with ``shape``, ``dtype``, ``chunks`` and slices of rows
    where : str
    """

    def __init__(self, array: Any, where: str = "a chunked array") -> None:
        if len(array.shape) != 2:
            raise InputError(f"{where} must be a matrix (n, d); got shape {tuple(array.shape)}.")
        chunks = getattr(array, "chunks", None)
        super().__init__(tuple(array.shape), array.dtype, where, chunks[0] if chunks else 1)
        self.array = array

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Rows `start` to `stop` as they are stored."""
        return np.asarray(self.array[start:stop])


def _stamp(path: Path) -> dict[str, Any]:
    found = path.stat()
    return {"file": str(path.resolve()), "bytes": found.st_size, "modified": found.st_mtime_ns}


def as_rows(X: Any) -> RowSource | None:
    """`X` as a row source if it lives on disk: a source, a memory map, a Zarr array or an HDF5 data set; else None.

    Examples
    --------
    >>> as_rows(np.ones((2, 2))) is None
    True
    """
    if isinstance(X, RowSource):
        return X
    if isinstance(X, np.ndarray):
        owner = _memmap_of(X)
        if owner is None or X.ndim != 2:
            return None
        return MappedRows(X, str(getattr(owner, "filename", None) or "a memory-mapped array"))
    if type(X).__module__.split(".")[0] in ("zarr", "h5py") and hasattr(X, "chunks") and len(X.shape) == 2:
        return ArrayRows(X, str(getattr(X, "name", "") or "a chunked array"))
    return None


def open_rows(path: str | os.PathLike[str], key: str | None = None) -> RowSource:
    """Open a matrix on disk without reading it.

    Parameters
    ----------
    path : path
        ``.npy``, ``.parquet`` or a ``.zarr`` folder.
    key : str, optional
        The column (Parquet) or the array inside a group (Zarr).

    Returns
    -------
    RowSource

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/a.npy", np.ones((4, 2), dtype=np.float32))
    ...     open_rows(f"{folder}/a.npy").shape
    (4, 2)
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix == ".npy" and path.is_file():
        from . import npyfiles

        X = npyfiles.read(path, key or "")
        return as_rows(X) or MappedRows(X, str(path))
    if suffix in (".parquet", ".pq") and path.is_file():
        return ParquetRows(path, key)
    if suffix == ".zarr" and path.is_dir():
        return _open_zarr(path, key)
    what = "does not exist" if not path.exists() else "is none of these"
    raise InputError(f"rows are read from a .npy or .parquet file or a .zarr folder; {path} {what}.")


def _open_zarr(path: Path, key: str | None) -> RowSource:
    try:
        import zarr
    except ImportError as error:
        raise MissingExtraError("zarr", "dask") from error
    where = f"{path}:{key}" if key else str(path)
    try:
        found = zarr.open(str(path), mode="r", **({"path": key} if key else {}))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelFormatError(f"{where} is not a whole Zarr array ({error}). Get or write it again.") from error
    if not hasattr(found, "chunks"):
        raise InputError(f"{where} is a group of arrays; name one, as in {path.name}:KEY.")
    return ArrayRows(found, where)
