"""What "relevant" means: the only definition in the package.

Two items are relevant to each other when they share at least one label. Class ids are the special case of
one label each. Graded relevance is the number of labels shared. Labels come as a 0/1 matrix (dense or CSR),
as made by :func:`modalhash.labels.check_labels`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .exceptions import InputError

__all__ = ["label_words", "relevance", "shared_labels"]


def label_words(labels: Any) -> NDArray[np.uint64]:
    """Bit-pack a 0/1 label matrix into 64-bit words, so that sharing a label is one AND.

    Parameters
    ----------
    labels : array or SciPy sparse matrix of shape (n, q)

    Returns
    -------
    ndarray of uint64, shape (n, ceil(q / 64))

    Examples
    --------
    >>> label_words([[1, 0, 1], [0, 0, 0]]).tolist()
    [[5], [0]]
    """
    if sparse.issparse(labels):
        csr = labels.tocsr()
        n, q = csr.shape
        words = np.zeros((n, max(1, -(-q // 64))), dtype=np.uint64)
        rows = np.repeat(np.arange(n), np.diff(csr.indptr))
        keep = csr.data != 0
        columns = csr.indices[keep].astype(np.int64)
        bit = np.left_shift(np.uint64(1), (columns % 64).astype(np.uint64))
        np.bitwise_or.at(words, (rows[keep], columns // 64), bit)
        return words
    dense = np.asarray(labels)
    if dense.ndim != 2:
        raise InputError(f"labels must be a 0/1 matrix (n, n_labels) here; got shape {dense.shape}.")
    n, q = dense.shape
    width = max(1, -(-q // 64)) * 8
    packed = np.zeros((n, width), dtype=np.uint8)
    if q:
        bits = np.packbits(dense != 0, axis=1, bitorder="little")
        packed[:, : bits.shape[1]] = bits
    return packed.view(np.dtype("<u8")).astype(np.uint64, copy=False)


def _both(a: Any, b: Any) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    if a.shape[1] != b.shape[1]:
        raise InputError(
            f"query labels have {a.shape[1]} columns and database labels {b.shape[1]}; "
            "both must use the same label columns."
        )
    return label_words(a), label_words(b)


def relevance(query_labels: Any, database_labels: Any) -> NDArray[np.bool_]:
    """Whether each query shares at least one label with each database item.

    Parameters
    ----------
    query_labels : array or sparse matrix of shape (n_queries, q)
    database_labels : array or sparse matrix of shape (n, q)

    Returns
    -------
    ndarray of bool, shape (n_queries, n)

    Examples
    --------
    >>> import numpy as np
    >>> relevance(np.array([[1, 1, 0]]), np.array([[0, 1, 1], [0, 0, 1]])).tolist()
    [[True, False]]
    """
    q, d = _both(query_labels, database_labels)
    out = np.zeros((q.shape[0], d.shape[0]), dtype=np.bool_)
    for word in range(q.shape[1]):
        out |= (q[:, word, None] & d[None, :, word]) != 0
    return out


def shared_labels(query_labels: Any, database_labels: Any) -> NDArray[np.int32]:
    """Count the labels that each query shares with each database item (graded relevance).

    Parameters
    ----------
    query_labels : array or sparse matrix of shape (n_queries, q)
    database_labels : array or sparse matrix of shape (n, q)

    Returns
    -------
    ndarray of int32, shape (n_queries, n)

    Examples
    --------
    >>> import numpy as np
    >>> shared_labels(np.array([[1, 1, 0]]), np.array([[1, 1, 1], [0, 0, 1]])).tolist()
    [[2, 0]]
    """
    q, d = _both(query_labels, database_labels)
    out = np.zeros((q.shape[0], d.shape[0]), dtype=np.int32)
    for word in range(q.shape[1]):
        out += np.bitwise_count(q[:, word, None] & d[None, :, word])
    return out
