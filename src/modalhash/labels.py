"""The gate for labels: multi-hot matrices, class ids or lists of names become one 0/1 matrix with named columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .exceptions import InputError
from .linalg import is_torch

__all__ = ["Labels", "check_label_pair", "check_labels"]

_MANY_LABELS = 256


@dataclass(frozen=True)
class Labels:
    """Checked labels: a 0/1 matrix with named columns.

    Attributes
    ----------
    matrix : ndarray of uint8 or CSR matrix of uint8, shape (n, q)
    names : list of str or int
        What the columns stand for.
    known : ndarray of bool, shape (n,)
        Rows that carry at least one label.
    """

    matrix: Any
    names: list[str | int]
    known: NDArray[np.bool_]


def _is_listlike(item: Any) -> bool:
    return isinstance(item, (list, tuple, set, frozenset)) or (isinstance(item, np.ndarray) and item.ndim == 1)


def check_labels(labels: Any, *, n_rows: int | None = None, names: Sequence[str | int] | None = None) -> Labels:
    """Check labels and turn them into a 0/1 matrix.

    Parameters
    ----------
    labels : one of
        a 0/1 matrix (n, q), dense, sparse or a frame; a vector of n class ids (whole numbers or strings; a
        negative number, None, NaN or "" means "not known"); or a list of n lists of names. A row of the matrix that
        is all zero or all NaN, or an empty list, has no known label.
    n_rows : int, optional
        How many rows there must be.
    names : sequence, optional
        The columns to use, in order (those of a fitted model); without it they are found in the labels.

    Returns
    -------
    Labels

    Examples
    --------
    >>> check_labels([["sky", "sea"], [], ["sky"]]).matrix.tolist()
    [[1, 1], [0, 0], [0, 1]]
    >>> check_labels([2, 0, -1]).names
    [0, 2]
    """
    if is_torch(labels):
        labels = labels.detach().cpu().numpy()
    if sparse.issparse(labels) or _looks_like_matrix(labels):
        out = _labels_from_matrix(labels, names)
    else:
        out = _labels_from_items(labels, names)
    n = out.matrix.shape[0]
    if n_rows is not None and n != n_rows:
        raise InputError(f"labels have {n} rows; the views have {n_rows}. Pass one label row per item.")
    return out


def _looks_like_matrix(labels: Any) -> bool:
    if hasattr(labels, "to_numpy") and hasattr(labels, "columns"):
        return True
    if isinstance(labels, np.ndarray):
        return labels.ndim != 1
    if isinstance(labels, (list, tuple)) and labels and all(_is_listlike(row) for row in labels):
        first = {len(row) for row in labels}
        return (
            len(first) == 1
            and all(isinstance(v, (bool, int, float, np.number, np.bool_)) for row in labels for v in row)
            and next(iter(first)) > 0
        )
    return False


def _labels_from_matrix(labels: Any, names: Sequence[str | int] | None) -> Labels:
    columns = list(labels.columns) if hasattr(labels, "columns") else None
    if sparse.issparse(labels):
        matrix = labels.tocsr().copy()
        matrix.eliminate_zeros()
        if matrix.nnz and not (matrix.data == 1).all():
            raise InputError("a label matrix must hold 0 and 1 only.")
        matrix = matrix.astype(np.uint8)
        known = np.diff(matrix.indptr) > 0
    else:
        raw = np.asarray(labels.to_numpy() if columns is not None else labels)
        if raw.ndim != 2 or raw.dtype.kind not in "biuf":
            raise InputError(
                f"labels must be a 0/1 matrix, class ids or lists of names; got {raw.dtype} of shape {raw.shape}."
            )
        if raw.dtype.kind == "f":
            unknown = np.isnan(raw).all(axis=1)
            raw = np.where(unknown[:, None], 0, raw)
        if not ((raw == 0) | (raw == 1)).all():
            raise InputError("a label matrix must hold 0 and 1 only (a row may be all NaN: not known).")
        matrix = raw.astype(np.uint8)
        known = matrix.any(axis=1)
    q = matrix.shape[1]
    if q == 0:
        raise InputError("labels have no columns.")
    if names is not None and len(names) != q:
        raise InputError(
            f"labels have {q} columns; the model was fitted with {len(names)}. Pass the same label columns."
        )
    found = list(names) if names is not None else list(columns) if columns is not None else list(range(q))
    return Labels(matrix, [c if isinstance(c, int) else str(c) for c in found], np.asarray(known))


def _labels_from_items(labels: Any, names: Sequence[str | int] | None) -> Labels:
    if isinstance(labels, (str, bytes)) or not hasattr(labels, "__iter__"):
        raise InputError(f"labels must be a 0/1 matrix, class ids or lists of names; got {type(labels).__name__}.")
    if isinstance(labels, np.ndarray) and labels.ndim == 1 and labels.dtype.kind in "iu":
        return _labels_from_ids(labels, names)
    items = [_one_row(item) for item in labels]
    kinds = {type(v) for row in items for v in row}
    if len(kinds) > 1:
        raise InputError("labels mix numbers and strings; use one or the other.")
    columns: list[str | int]
    if names is None:
        columns = sorted({v for row in items for v in row})
        if not columns:
            raise InputError("no row has a label. Leave labels out to fit without them.")
    else:
        columns = list(names)
    at = {value: j for j, value in enumerate(columns)}
    rows, cols = [], []
    for i, row in enumerate(items):
        for value in row:
            if value not in at:
                raise InputError(f"label {value!r} at row {i} is not one the model knows: {columns[:8]}.")
            rows.append(i)
            cols.append(at[value])
    shape = (len(items), len(columns))
    csr = sparse.csr_array((np.ones(len(rows), np.uint8), (rows, cols)), shape=shape)
    csr.sum_duplicates()
    csr.data[:] = 1
    matrix = csr if len(columns) > _MANY_LABELS else csr.toarray()
    return Labels(matrix, columns, np.diff(csr.indptr) > 0)


def _labels_from_ids(ids: NDArray[Any], names: Sequence[str | int] | None) -> Labels:
    """A vector of whole numbers, which may be long: no Python object per row."""
    known = np.asarray(ids >= 0)
    found, at = np.unique(ids[known], return_inverse=True)
    if names is None:
        if not found.size:
            raise InputError("no row has a label. Leave labels out to fit without them.")
        columns: list[str | int] = [int(value) for value in found]
    else:
        columns = list(names)
        place = {value: j for j, value in enumerate(columns)}
        for value in found.tolist():
            if value not in place:
                row = int(np.flatnonzero(ids == value)[0])
                raise InputError(f"label {value!r} at row {row} is not one the model knows: {columns[:8]}.")
        at = np.array([place[value] for value in found.tolist()], dtype=np.intp)[at] if found.size else at
    shape = (len(ids), len(columns))
    if len(columns) <= _MANY_LABELS:
        matrix: Any = np.zeros(shape, dtype=np.uint8)
        matrix[known, at] = 1
    else:
        indptr = np.concatenate([[0], np.cumsum(known)])
        matrix = sparse.csr_array((np.ones(len(at), np.uint8), at, indptr), shape=shape)
    return Labels(matrix, columns, known)


def _one_row(item: Any) -> list[str | int]:
    values = list(item) if _is_listlike(item) else [item]
    out: list[str | int] = []
    for value in values:
        if value is None or (isinstance(value, (float, np.floating)) and np.isnan(value)):
            continue
        if isinstance(value, str):
            if value:
                out.append(str(value))
        elif isinstance(value, (bool, int, np.integer, np.bool_)) or float(value).is_integer():
            if int(value) >= 0:
                out.append(int(value))
        else:
            raise InputError(f"a class id must be a whole number or a string; got {value!r}.")
    return out


def check_label_pair(query_labels: Any, database_labels: Any) -> tuple[Labels, Labels]:
    """Check the labels of queries and database together, over the same columns.

    Parameters
    ----------
    query_labels, database_labels
        As in :func:`check_labels`, both in the same form.

    Returns
    -------
    tuple of Labels

    Examples
    --------
    >>> q, d = check_label_pair([3, 1], [1, 2, 3])
    >>> q.matrix.tolist(), d.matrix.tolist()
    ([[0, 0, 1], [1, 0, 0]], [[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    """
    matrices = [
        sparse.issparse(x) or (is_torch(x) and x.ndim == 2) or _looks_like_matrix(x)
        for x in (query_labels, database_labels)
    ]
    if matrices[0] != matrices[1]:
        raise InputError("query labels and database labels must have the same form (both matrices, or both ids).")
    if matrices[0]:
        query, database = check_labels(query_labels), check_labels(database_labels)
        if query.matrix.shape[1] != database.matrix.shape[1]:
            raise InputError(
                f"query labels have {query.matrix.shape[1]} columns and database labels "
                f"{database.matrix.shape[1]}; both must use the same label columns."
            )
        return query, database
    n_queries = len(query_labels)
    both = check_labels([*query_labels, *database_labels])
    first = Labels(both.matrix[:n_queries], both.names, both.known[:n_queries])
    return first, Labels(both.matrix[n_queries:], both.names, both.known[n_queries:])
