"""Read ``.npy`` files, header first, memory-mapped, never a pickle."""

from __future__ import annotations

import math
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..exceptions import InputError, ModelFormatError
from .declared import PICKLE, check_dtype, check_held

__all__ = ["list_arrays", "read", "read_header"]


def read_header(stream: IO[bytes], where: str) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Shape, dtype and length of the header of one ``.npy`` stream; objects are refused.

    Parameters
    ----------
    stream : binary stream, at its start
    where : str
        The array, for messages.

    Returns
    -------
    tuple of shape, dtype and int
    """
    start = stream.read(6)
    if start != b"\x93NUMPY":
        if start[:1] == b"\x80":
            raise InputError(f"{where} is a pickle, not a .npy array. {PICKLE}")
        raise ModelFormatError(f"{where} is not a .npy array: it starts with {start!r}.")
    version = tuple(stream.read(2))
    try:
        if version == (1, 0):
            shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
        elif version == (2, 0):
            shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
        else:
            raise ValueError(f"format version {version}")
        length = stream.tell()
    except (ValueError, EOFError, TypeError) as error:
        raise ModelFormatError(f"{where} has a damaged header ({error}). Write the file again.") from error
    check_dtype(dtype, where)
    return tuple(int(s) for s in shape), dtype, length


def list_arrays(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of the one array, whose name is "".

    Parameters
    ----------
    path : Path

    Returns
    -------
    dict of str to tuple of int
    """
    with path.open("rb") as stream:
        return {"": read_header(stream, str(path))[0]}


def read(path: Path, key: str) -> Any:
    """Map the array into memory, read-only.

    Parameters
    ----------
    path : Path
    key : str
        Must be "".

    Returns
    -------
    ndarray
    """
    if key:
        raise InputError(f"{path} holds one array without a name; leave ':{key}' out.")
    with path.open("rb") as stream:
        shape, dtype, length = read_header(stream, str(path))
    check_held(shape, dtype, path.stat().st_size - length, str(path))
    if math.prod(shape) == 0:  # nothing to map
        return np.load(path, allow_pickle=False)
    return np.load(path, mmap_mode="r", allow_pickle=False)
