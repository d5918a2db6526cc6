"""Read arrays and sparse matrices from ``.npz`` archives, header first, never a pickle."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..exceptions import InputError, ModelFormatError
from .declared import PICKLE, check_held, check_size, csr_from_parts
from .npyfiles import read_header

__all__ = ["list_arrays", "read"]

_CSR_PARTS = ("data", "indices", "indptr", "shape")
_SCIPY_PARTS = (*_CSR_PARTS, "format", "row", "col", "coords", "offsets", "_is_array")


def list_arrays(path: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the plain arrays; the parts of a sparse matrix count as one.

    Parameters
    ----------
    path : Path

    Returns
    -------
    dict of str to tuple of int
        What :func:`scipy.sparse.save_npz` wrote is named "".
    """
    members = _members(path)
    out = {}
    for name, shape in members.items():
        matrix = _matrix_of(name, members)
        if matrix is None:
            out[name] = shape
        elif matrix not in out:
            declared = _read_member(path, f"{matrix}_shape" if matrix else "shape")
            out[matrix] = tuple(int(s) for s in declared.ravel())
    return out


def read(path: Path, key: str) -> Any:
    """Read one array or sparse matrix.

    Parameters
    ----------
    path : Path
    key : str

    Returns
    -------
    ndarray or CSR matrix
    """
    members = _members(path)
    prefix = f"{key}_" if key else ""
    kind = "csr"
    if not key and "format" in members:
        raw = _read_member(path, "format").item()
        kind = raw.decode() if isinstance(raw, bytes) else str(raw)
    elif key in members or not all(prefix + part in members for part in _CSR_PARTS):
        return _read_member(path, key)
    if kind not in ("csr", "csc"):
        raise InputError(f"{path} is a sparse matrix in {kind!r} form; save it as CSR (matrix.tocsr()).")
    data, indices, indptr, shape = (_read_member(path, prefix + part) for part in _CSR_PARTS)
    return csr_from_parts(data, indices, indptr, shape, kind=kind, where=f"{path}:{key}" if key else str(path))


def _members(path: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of the plain members; those of objects are left out."""
    out: dict[str, tuple[int, ...]] = {}
    with _open(path) as archive:
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if name == info.filename:
                continue
            with _open_member(archive, info, path) as stream:
                try:
                    out[name] = read_header(stream, f"{path}:{name}")[0]
                except InputError:
                    continue
    return out


def _matrix_of(member: str, members: dict[str, tuple[int, ...]]) -> str | None:
    """Name of the sparse matrix that `member` is a part of ("" for SciPy's own form), or None."""
    if {"data", "shape", "format"} <= set(members) and member in _SCIPY_PARTS:
        return ""
    name, _, part = member.rpartition("_")
    if name and part in _CSR_PARTS and all(f"{name}_{p}" in members for p in _CSR_PARTS):
        return name
    return None


def _read_member(path: Path, key: str) -> Any:
    where = f"{path}:{key}"
    with _open(path) as archive:
        try:
            info = archive.getinfo(f"{key}.npy")
        except KeyError:
            names = ", ".join(repr(name) for name in list_arrays(path))
            raise InputError(f"{path} has no array {key!r}; it has {names or 'none'}.") from None
        with _open_member(archive, info, path) as stream:
            shape, dtype, length = read_header(stream, where)
        check_held(shape, dtype, info.file_size - length, where)
        check_size(info.file_size, where)
        try:
            with archive.open(info) as stream:
                return np.lib.format.read_array(stream, allow_pickle=False)
        except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise ModelFormatError(f"{where} cannot be read: {error}. The file is damaged; get it again.") from error


def _open(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        with path.open("rb") as stream:
            if stream.read(1) == b"\x80":
                raise InputError(f"{path} is a pickle, not a .npz archive. {PICKLE}") from error
        raise ModelFormatError(f"{path} is not a whole .npz archive ({error}). Get or write it again.") from error


def _open_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> IO[bytes]:
    try:
        return archive.open(info)
    except (zipfile.BadZipFile, RuntimeError) as error:  # damaged, encrypted, or an unknown compression
        raise ModelFormatError(f"{path}:{info.filename} cannot be read: {error}.") from error
