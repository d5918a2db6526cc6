"""Checksums of matrices, so that a derived matrix can be told from another."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..views import row_blocks

__all__ = ["checksum"]


def checksum(matrix: Any) -> str:
    """SHA-256 of a matrix's type, shape and numbers, whatever its order in memory.

    Parameters
    ----------
    matrix : ndarray or SciPy sparse matrix

    Returns
    -------
    str
        64 hex digits. A sparse matrix is hashed by its sorted CSR parts.

    Examples
    --------
    >>> import numpy as np
    >>> checksum(np.eye(2)) == checksum(np.asfortranarray(np.eye(2)))
    True
    """
    if sparse.issparse(matrix):
        csr = matrix.tocsr()
        if not csr.has_canonical_format:
            csr = csr.copy()
            csr.sum_duplicates()
        parts: Sequence[Any] = (csr.data, csr.indices.astype(np.int64), csr.indptr.astype(np.int64))
        head = f"csr {csr.dtype.str} {csr.shape}"
    else:
        matrix = np.asarray(matrix)
        parts, head = (matrix,), f"dense {matrix.dtype.str} {matrix.shape}"
    digest = hashlib.sha256(head.encode())
    for part in parts:
        for block in _blocks(part):
            digest.update(np.ascontiguousarray(block).view(np.uint8).data)
    return digest.hexdigest()


def _blocks(part: NDArray[Any]) -> Iterator[NDArray[Any]]:
    width = int(np.prod(part.shape[1:], dtype=np.int64))
    if part.size:
        for rows in row_blocks(part.shape[0], width, part.itemsize):
            yield part[rows]
