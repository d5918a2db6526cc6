"""A view on disk as partitions of rows, each of which can be read on its own, in batches of bounded size.

Sources are Parquet (a file, or a folder of files), Zarr (an array) and ``.npy``. In Parquet a view is a column of lists
named like the view; or two columns of lists, ``VIEW.indices`` and ``VIEW.values``, for a sparse one; or all columns of
numbers together. A partition knows its file and rows, so that an error can name them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ..datasets.files import read_array
from ..datasets.parquetfiles import open_parquet
from ..exceptions import InputError, MissingExtraError

__all__ = ["ArrayPart", "ParquetPart", "Part", "plan"]

_BATCH_BYTES = 64 * 2**20


def batch_rows(width: int) -> int:
    """Rows of one batch: about 64 MB of float64.

    Examples
    --------
    >>> batch_rows(512)
    16384
    """
    return max(1, _BATCH_BYTES // (8 * width))


@dataclass(frozen=True)
class Part:
    """Rows `start` to `stop` of a source; the first is row `offset` of all.

    Attributes
    ----------
    file : str
    view : str
    width : int
        Columns that the model expects.
    start, stop : int
        Rows of the file.
    offset : int
        Rows of all files before it, for ids that are row numbers.
    stamp : str
        Tells this content of the file from another.
    """

    file: str
    view: str
    width: int
    start: int
    stop: int
    offset: int
    stamp: str

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return self.stop - self.start

    def identity(self) -> dict[str, Any]:
        """What tells it from others, as JSON values."""
        names = ("file", "start", "stop", "offset", "stamp")
        return {name: getattr(self, name) for name in names} | {"file": Path(self.file).name}

    def where(self, row: int) -> str:
        """Name a row of this partition."""
        return f"{self.file}, row {self.start + row}"

    def batches(self) -> Iterator[tuple[Any, Any]]:
        """Ids and matrix, batch by batch."""
        raise TypeError(f"{type(self).__name__} does not say how it is read.")


@dataclass(frozen=True)
class ArrayPart(Part):
    """Rows of a ``.npy`` file or of a Zarr array; ids are row numbers."""

    key: str | None = None

    def batches(self) -> Iterator[tuple[Any, Any]]:
        """Ids and matrix, batch by batch."""
        array = _open_array(Path(self.file), self.key)
        step = batch_rows(self.width)
        for start in range(self.start, self.stop, step):
            stop = min(self.stop, start + step)
            first = self.offset + start - self.start
            yield np.arange(first, first + stop - start), np.asarray(array[start:stop])


@dataclass(frozen=True)
class ParquetPart(Part):
    """Row groups of a Parquet file.

    Attributes
    ----------
    groups : tuple of int
        First row group, and the one after the last.
    ids : str or None
        The column of ids; None numbers the rows.
    """

    groups: tuple[int, int] = (0, 0)
    ids: str | None = None

    def identity(self) -> dict[str, Any]:
        """What tells it from others, as JSON values."""
        return {**super().identity(), "ids": self.ids}

    def batches(self) -> Iterator[tuple[Any, Any]]:
        """Ids and matrix, batch by batch."""
        with open_parquet(Path(self.file)) as file:
            names = view_columns(file, self.view, self.width, self.ids, self.file)
            columns = names if self.ids is None else [*names, self.ids]
            groups = list(range(*self.groups))
            row = 0
            for batch in file.iter_batches(batch_size=batch_rows(self.width), row_groups=groups, columns=columns):
                X = self._matrix(batch, names, row)
                yield self._ids(batch, row), X
                row += batch.num_rows

    def _ids(self, batch: Any, row: int) -> Any:
        if self.ids is None:
            return np.arange(self.offset + row, self.offset + row + batch.num_rows)
        column = batch.column(self.ids)
        self._no_nulls(column, self.ids, row)
        found = column.to_numpy(zero_copy_only=False)
        return found if found.dtype.kind in "iu" else found.astype(np.str_)

    def _matrix(self, batch: Any, names: Sequence[str], row: int) -> Any:
        for name in names:
            self._no_nulls(batch.column(name), name, row)
        if names == [f"{self.view}.indices", f"{self.view}.values"]:
            return self._csr(batch.column(names[0]), batch.column(names[1]), row)
        if names == [self.view] and hasattr(batch.column(self.view).type, "value_type"):
            return self._lists(batch.column(self.view), row)
        return np.column_stack([batch.column(name).to_numpy(zero_copy_only=False) for name in names])

    def _lists(self, column: Any, row: int) -> Any:
        if not hasattr(column.type, "list_size"):
            sizes = np.diff(column.offsets.to_numpy())
            wrong = np.flatnonzero(sizes != self.width)
            if wrong.size:
                raise InputError(
                    f"{self.where(row + int(wrong[0]))}: view {self.view!r} has {sizes[wrong[0]]} numbers; the model "
                    f"was fitted with {self.width}. Pass the same features as at fit."
                )
        values = column.flatten()
        self._no_nulls(values, self.view, row, self.width)
        return values.to_numpy(zero_copy_only=False).reshape(len(column), self.width)

    def _csr(self, indices: Any, values: Any, row: int) -> Any:
        offsets = indices.offsets.to_numpy().astype(np.int64)
        if not np.array_equal(np.diff(offsets), np.diff(values.offsets.to_numpy())):
            raise InputError(f"{self.where(row)} or later: as many indices as values are needed in every row.")
        at = indices.flatten().to_numpy(zero_copy_only=False)
        if at.size and not (at.dtype.kind in "iu" and at.min() >= 0 and at.max() < self.width):
            raise InputError(f"{self.where(row)} or later: indices of view {self.view!r} must lie below {self.width}.")
        data = values.flatten().to_numpy(zero_copy_only=False)
        return sparse.csr_array((data, at, offsets - offsets[0]), shape=(len(indices), self.width))

    def _no_nulls(self, column: Any, name: str, row: int, each: int = 1) -> None:
        if column.null_count:
            at = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0]) // each
            raise InputError(f"{self.where(row + at)}: {name!r} is empty. Fill it, or drop the row.")


def view_columns(file: Any, view: str, width: int, ids: str | None, where: str) -> list[str]:
    """The columns of an open Parquet file that make up a view.

    Parameters
    ----------
    file : pyarrow.parquet.ParquetFile
    view : str
    width : int
    ids : str or None
        The column that is none of them.
    where : str
        The file's name, for messages.

    Returns
    -------
    list of str
    """
    import pyarrow.types as kinds

    schema = file.schema_arrow
    there = schema.names
    if ids is not None and ids not in there:
        raise InputError(f"{where} has no column {ids!r} for ids; it has {', '.join(there[:20])}.")
    lists = [n for n in there if any(f(schema.field(n).type) for f in (kinds.is_list, kinds.is_large_list))]
    pair = [f"{view}.indices", f"{view}.values"]
    if all(name in lists for name in pair):
        return pair
    if view in there:
        kind = schema.field(view).type
        size = kind.list_size if kinds.is_fixed_size_list(kind) else width if view in lists else 1
        if size != width:
            raise InputError(
                f"{where}: view {view!r} has {size} columns; the model was fitted with {width}. "
                "Pass the same features as at fit."
            )
        return [view]
    numeric = [
        n
        for n in there
        if n != ids and any(f(schema.field(n).type) for f in (kinds.is_integer, kinds.is_floating, kinds.is_boolean))
    ]
    if len(numeric) != width:
        raise InputError(
            f"{where} has no column {view!r}, no {pair[0]!r} with {pair[1]!r}, and {len(numeric)} columns of numbers "
            f"where the model was fitted with {width}. Name the columns after the view."
        )
    return numeric


def plan(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    view: str,
    width: int,
    *,
    ids: str | None = None,
    rows: int = 1_000_000,
) -> list[Part]:
    """Cut a source into partitions; only headers and footers are read.

    Parameters
    ----------
    source : path, or sequence of paths
        Parquet files, a folder of them (in order of name), a ``.npy`` file, or a Zarr array (``STORE`` or
        ``STORE:KEY`` for one in a group).
    view : str
    width : int
        Columns that the model expects.
    ids : str, optional
        Parquet: the column of ids. Row numbers over all files by default.
    rows : int
        Rows of a partition at most, as far as row groups and chunks allow.

    Returns
    -------
    list of Part

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/image.npy", np.ones((5, 2)))
    ...     [(part.start, part.stop) for part in plan(f"{folder}/image.npy", "image", 2, rows=2)]
    [(0, 2), (2, 4), (4, 5)]
    """
    if isinstance(rows, bool) or not isinstance(rows, (int, np.integer)) or rows < 1:
        raise InputError(f"the rows of a partition must be a whole number of at least 1; got {rows!r}.")
    parts: list[Part] = []
    for path, key in _files([source] if isinstance(source, (str, os.PathLike)) else source):
        offset = parts[-1].offset + parts[-1].rows if parts else 0
        if path.suffix.lower() in (".parquet", ".pq"):
            parts += _parquet_parts(path, view, width, ids, rows, offset)
        else:
            if ids is not None:
                raise InputError(f"{path} has no column {ids!r}; ids by column are for Parquet.")
            parts += _array_parts(path, key, view, width, rows, offset)
    if not parts:
        raise InputError("there are no rows to encode.")
    return parts


def _files(sources: Sequence[str | os.PathLike[str]]) -> Iterator[tuple[Path, str | None]]:
    for source in sources:
        path, key = Path(source), None
        if not path.exists() and ":" in path.name:
            head, _, key = str(source).rpartition(":")
            path = Path(head)
        if path.is_dir() and not _is_zarr(path):
            found = sorted(p for p in path.iterdir() if p.suffix.lower() in (".parquet", ".pq") and p.name[0] != ".")
            if not found:
                raise InputError(f"{path} is a folder without .parquet files, and no Zarr array.")
            yield from ((file, None) for file in found)
        elif path.exists():
            yield path, key
        else:
            raise InputError(f"{source} does not exist; Parquet, Zarr or .npy is needed.")


def _is_zarr(path: Path) -> bool:
    return any((path / name).is_file() for name in ("zarr.json", ".zarray", ".zgroup"))


def _stamp(path: Path) -> str:
    """Size and time of a file, or of all files of a folder."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    found = hashlib.sha256()
    for file in files:
        about = file.stat()
        found.update(f"{file.relative_to(path.parent)} {about.st_size} {about.st_mtime_ns}\n".encode())
    return found.hexdigest()[:16]


def _parquet_parts(path: Path, view: str, width: int, ids: str | None, rows: int, offset: int) -> list[Part]:
    parts: list[Part] = []
    with open_parquet(path) as file:
        view_columns(file, view, width, ids, str(path))
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
    stamp, start, first, stop = _stamp(path), 0, 0, 0
    for group, size in enumerate(sizes):
        stop += size
        last = group + 1 == len(sizes)
        if stop > start and (last or stop - start + sizes[group + 1] > rows):
            place = (start, stop, offset + start, stamp)
            parts.append(ParquetPart(str(path), view, width, *place, groups=(first, group + 1), ids=ids))
            start, first = stop, group + 1
    return parts


def _open_array(path: Path, key: str | None) -> Any:
    if path.suffix.lower() == ".npy":
        return read_array(path)
    try:
        import zarr
    except ImportError as error:
        raise MissingExtraError("zarr", "dask") from error
    try:
        return zarr.open_array(str(path), path=key, mode="r") if key else zarr.open_array(str(path), mode="r")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}{f':{key}' if key else ''} is not a Zarr array ({error}). Pass STORE:KEY for one in a group."
        ) from error


def _array_parts(path: Path, key: str | None, view: str, width: int, rows: int, offset: int) -> list[Part]:
    if path.is_file() and path.suffix.lower() != ".npy":
        raise InputError(f"{path} is neither Parquet, .npy nor a Zarr array.")
    array = _open_array(path, key)
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise InputError(f"{path} must be a matrix (n, d) of numbers; it is {array.dtype} of shape {array.shape}.")
    if array.shape[1] != width:
        raise InputError(
            f"{path}: view {view!r} has {array.shape[1]} columns; the model was fitted with {width}. "
            "Pass the same features as at fit."
        )
    chunk = int(array.chunks[0]) if hasattr(array, "chunks") else 1
    step = max(chunk, rows // chunk * chunk)
    stamp = _stamp(path)
    n = int(array.shape[0])
    return [
        ArrayPart(str(path), view, width, start, min(n, start + step), offset + start, stamp, key=key)
        for start in range(0, n, step)
    ]
