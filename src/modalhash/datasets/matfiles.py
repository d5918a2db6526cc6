"""Read matrices from MATLAB files: v5 through SciPy, v7.3 (HDF5, where every matrix lies transposed) through h5py."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ..exceptions import InputError, MissingExtraError, ModelFormatError
from .declared import PICKLE, check_dtype, check_size, csr_from_parts

__all__ = ["is_hdf5", "list_arrays", "open_hdf5", "read"]

_HDF5 = b"\x89HDF\r\n\x1a\n"
_PLAIN = {
    "double", "single", "logical", "char", "sparse",
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
}  # fmt: skip
_UNREADABLE = (ValueError, TypeError, LookupError, OSError, EOFError, NotImplementedError, zlib.error)
# what SciPy raises on files that are damaged in one way or another
_REFUSED = (
    "is a MATLAB {kind}, which has no plain form as numbers. In MATLAB, save a numeric matrix instead "
    "(cell2mat, or one variable per field)."
)


def list_arrays(path: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the plain arrays of a MATLAB or HDF5 file.

    Parameters
    ----------
    path : Path

    Returns
    -------
    dict of str to tuple of int
        Shapes as MATLAB shows them.
    """
    if is_hdf5(path):
        with open_hdf5(path) as file:
            return {name: shape for name, (shape, kind) in _hdf5_contents(file, path).items() if kind in _PLAIN}
    return {name: shape for name, shape, kind in _v5_contents(path) if kind in _PLAIN}


def read(path: Path, key: str) -> Any:
    """Read one variable of a MATLAB or HDF5 file.

    Parameters
    ----------
    path : Path
    key : str

    Returns
    -------
    ndarray or CSR matrix
        Rows as in MATLAB, whatever the version of the file.
    """
    return _read_hdf5(path, key) if is_hdf5(path) else _read_v5(path, key)


def is_hdf5(path: Path) -> bool:
    """Whether a file is HDF5 by its content (MATLAB's v7.3 has a text header of 512 bytes before it)."""
    with path.open("rb") as stream:
        start = stream.read(520)
    return start[:8] == _HDF5 or start[512:520] == _HDF5


def _unknown(path: Path, key: str, names: Any) -> InputError:
    return InputError(f"{path} has no variable {key!r}; it has {', '.join(map(repr, names)) or 'none'}.")


def _v5_contents(path: Path) -> list[tuple[str, tuple[int, ...], str]]:
    from scipy.io import whosmat

    with path.open("rb") as stream:
        if stream.read(1) == b"\x80":
            raise InputError(f"{path} is a pickle, not a MATLAB file. {PICKLE}")
    try:
        return [(name, tuple(int(s) for s in shape), kind) for name, shape, kind in whosmat(str(path))]
    except _UNREADABLE as error:
        raise ModelFormatError(
            f"{path} ({path.stat().st_size} bytes) is not a whole MATLAB file: {error}. Get it again."
        ) from error


def _read_v5(path: Path, key: str) -> Any:
    from scipy.io import loadmat

    contents = {name: (shape, kind) for name, shape, kind in _v5_contents(path)}
    if key not in contents:
        raise _unknown(path, key, contents)
    shape, kind = contents[key]
    where = f"{path}:{key}"
    if kind not in _PLAIN:
        raise InputError(f"{where} {_REFUSED.format(kind=kind)}")
    check_size(8 * (shape[0] + 1) if kind == "sparse" else int(np.prod(shape, dtype=object)), where)
    try:
        value = loadmat(str(path), variable_names=[key])[key]
    except (*_UNREADABLE, MemoryError) as error:
        raise ModelFormatError(f"{where} cannot be read: {error}. The file is truncated or damaged.") from error
    if sparse.issparse(value):
        csr = sparse.csr_array(value.tocsr())
        check_dtype(csr.dtype, where)
        csr.sum_duplicates()
        return csr
    check_dtype(value.dtype, where)
    return value


def open_hdf5(path: Path) -> Any:
    """Open an HDF5 file, or say why it cannot be opened."""
    try:
        import h5py
    except ImportError as error:
        raise MissingExtraError("h5py", "features") from error
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise ModelFormatError(f"{path} is not a whole HDF5 file ({error}). Get it again.") from error


def _is_matlab(item: Any, path: Path) -> bool:
    return path.suffix.lower() == ".mat" or "MATLAB_class" in item.attrs


def _hdf5_contents(file: Any, path: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    """Name -> (shape as MATLAB shows it, MATLAB's class)."""
    out: dict[str, tuple[tuple[int, ...], str]] = {}
    for name, item in file.items():
        if name.startswith("#"):  # where MATLAB keeps what cells refer to
            continue
        if hasattr(item, "keys"):
            if "MATLAB_sparse" in item.attrs and "jc" in item:
                rows = int(item.attrs["MATLAB_sparse"])
                out[name] = ((rows, item["jc"].shape[0] - 1), "sparse")
            else:
                out[name] = ((), "struct")
            continue
        shape = tuple(item.shape[::-1]) if _is_matlab(item, path) else tuple(item.shape)
        kind = item.attrs.get("MATLAB_class", b"double")
        kind = kind.decode() if isinstance(kind, bytes) else str(kind)
        if item.dtype.kind == "O":
            kind = "cell"
        if item.attrs.get("MATLAB_empty", 0):
            shape = (0, 0)
        out[name] = (shape, kind)
    return out


def _read_hdf5(path: Path, key: str) -> Any:
    where = f"{path}:{key}"
    with open_hdf5(path) as file:
        contents = _hdf5_contents(file, path)
        if key not in contents:
            raise _unknown(path, key, contents)
        shape, kind = contents[key]
        if kind not in _PLAIN:
            raise InputError(f"{where} {_REFUSED.format(kind=kind)}")
        item = file[key]
        try:
            if kind == "sparse":
                return _hdf5_sparse(item, shape, where)
            check_dtype(item.dtype, where)
            check_size(int(np.prod(shape, dtype=object)) * item.dtype.itemsize, where)
            value = item[()] if shape != (0, 0) else np.zeros((0, 0))
        except OSError as error:
            raise ModelFormatError(f"{where} cannot be read: {error}. The file is truncated or damaged.") from error
        value = np.ascontiguousarray(value.T) if _is_matlab(item, path) else value
    if kind == "char":
        return np.array(["".join(chr(c) for c in row) for row in np.atleast_2d(value)])
    return value


def _hdf5_sparse(item: Any, shape: tuple[int, ...], where: str) -> Any:
    """MATLAB keeps compressed columns: jc the column pointers, ir the row numbers."""
    empty = "data" not in item
    data = np.zeros(0) if empty else item["data"]
    rows = np.zeros(0, dtype=np.int64) if empty else item["ir"]
    check_size(data.dtype.itemsize * data.shape[0], where)
    pointers = item["jc"][()].astype(np.int64)
    return csr_from_parts(data[()], rows[()].astype(np.int64), pointers, shape, kind="csc", where=where)
