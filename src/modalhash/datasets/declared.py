"""What a file declares about its arrays, checked before anything of that size is allocated."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
from scipy import sparse

from ..exceptions import InputError, ModelFormatError

__all__ = ["PICKLE", "check_dtype", "check_held", "check_size", "csr_from_parts", "human_bytes"]

PICKLE = "A pickle can run any program when it is read, so modalhash never reads one."


def check_size(nbytes: int, where: str) -> None:
    """Refuse to allocate more than the machine has.

    Parameters
    ----------
    nbytes : int
    where : str
        The array, for the message.
    """
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not every system says
        total = 2**46
    if nbytes > total:
        raise InputError(
            f"{where} declares {human_bytes(nbytes)}, more than this machine's memory of {human_bytes(total)}. "
            "Use a .npy file, which is read from disk piece by piece, or fewer rows."
        )


def human_bytes(n: float) -> str:
    """Write a number of bytes for people.

    Examples
    --------
    >>> human_bytes(3.6 * 2**40)
    '3.6 TiB'
    """
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if unit == "bytes" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} TiB"


def check_dtype(dtype: np.dtype[Any], where: str) -> None:
    """Refuse arrays of Python objects and of records.

    Parameters
    ----------
    dtype : numpy dtype
    where : str
    """
    if dtype.hasobject:
        raise InputError(
            f"{where} is an array of Python objects, which is stored as a pickle. {PICKLE} "
            "Save numbers (numpy.asarray(x, dtype=float)), strings, or the three arrays of a CSR matrix."
        )
    if dtype.kind not in "biufUS":
        raise InputError(f"{where} has dtype {dtype}; modalhash reads real numbers and strings.")


def check_held(shape: tuple[int, ...], dtype: np.dtype[Any], held: int, where: str) -> None:
    """Compare the bytes that a shape and a type need with the bytes that are there.

    Parameters
    ----------
    shape : tuple of int
    dtype : numpy dtype
    held : int
    where : str
    """
    declared = math.prod(shape) * dtype.itemsize
    if any(s < 0 for s in shape) or declared != held:
        raise ModelFormatError(
            f"{where} declares shape {shape} of {dtype} ({human_bytes(declared)}) but holds {human_bytes(held)}. "
            "The file is truncated or damaged; get it again."
        )


def csr_from_parts(data: Any, indices: Any, indptr: Any, shape: Any, *, kind: str = "csr", where: str = "") -> Any:
    """Build a CSR matrix from its stored parts, after checking that they fit together.

    Parameters
    ----------
    data, indices, indptr : ndarray
    shape : sequence of two int
    kind : {"csr", "csc"}
        What the parts mean.
    where : str
        The source, for messages.

    Returns
    -------
    CSR matrix

    Examples
    --------
    >>> csr_from_parts(np.ones(2), np.array([0, 2]), np.array([0, 1, 2]), (2, 3)).toarray().tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    size = tuple(int(s) for s in np.ravel(shape))
    major = 0 if kind == "csr" else 1
    if len(size) != 2 or min(size) < 0 or np.ravel(indptr).shape[0] != size[major] + 1:
        raise ModelFormatError(
            f"{where} declares shape {size}, which needs {size[major] + 1 if len(size) == 2 else '?'} row pointers; "
            f"it has {np.ravel(indptr).shape[0]}. The file is truncated or damaged."
        )
    check_size(16 * (size[0] + 1), where)
    make = sparse.csr_array if kind == "csr" else sparse.csc_array
    try:
        matrix = make((np.ravel(data), np.ravel(indices), np.ravel(indptr)), shape=size)
        matrix.check_format(full_check=True)
    except (ValueError, TypeError) as error:
        raise ModelFormatError(f"{where} is not a whole sparse matrix: {error}.") from error
    check_dtype(matrix.dtype, where)
    csr = matrix.tocsr()
    csr.sum_duplicates()
    return csr
