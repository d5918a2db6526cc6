"""Shared mathematics: named, pure, tested, over an array namespace (NumPy or torch)."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
from scipy import sparse

from .exceptions import InputError, MissingExtraError

__all__ = [
    "CentredMatrix",
    "cross",
    "gram",
    "is_torch",
    "sigmoid",
    "to_device",
    "to_numpy",
    "torch_device",
    "unit_rows",
]

_BLOCK_NUMBERS = 2**22  # numbers of one block of rows: 32 MB of float64


def is_torch(x: Any) -> bool:
    """Whether `x` is a torch tensor, without importing torch.

    Examples
    --------
    >>> is_torch([1.0])
    False
    """
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def torch_device(device: Any) -> Any:
    """Return the torch device called `device`, or say why there is none.

    Parameters
    ----------
    device : str
        Such as "cuda", "cuda:1" or "cpu".

    Returns
    -------
    torch.device
    """
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("torch", "torch") from error
    try:
        found = torch.device(device)
        torch.empty(1, device=found)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"device {device!r} cannot be used here: {reason}. Use device=None for NumPy.") from error
    return found


def to_numpy(x: Any) -> Any:
    """Return `x` as a NumPy array, from wherever it lives.

    Examples
    --------
    >>> to_numpy([1.0, 2.0])
    array([1., 2.])
    """
    return x.detach().cpu().numpy() if is_torch(x) else np.asarray(x)


def to_device(x: Any, device: Any, dtype: Any = None) -> Any:
    """Move a NumPy array or CSR matrix to a torch device; with ``device=None`` leave it in NumPy.

    Parameters
    ----------
    x : ndarray, CSR matrix or torch tensor
    device : torch device, str or None
    dtype : NumPy dtype, optional
        Cast to it on the way.

    Returns
    -------
    ndarray, CSR matrix or torch tensor (sparse CSR for a CSR matrix)

    Examples
    --------
    >>> to_device(np.ones(2), None, np.float32).dtype
    dtype('float32')
    """
    if device is None:
        return x if dtype is None else x.astype(dtype, copy=False)
    import torch

    kind = None if dtype is None else getattr(torch, np.dtype(dtype).name)
    if is_torch(x):
        return x.to(device=device, dtype=kind)
    if sparse.issparse(x):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
            warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")
            return torch.sparse_csr_tensor(
                torch.from_numpy(x.indptr.astype(np.int64)),
                torch.from_numpy(x.indices.astype(np.int64)),
                torch.from_numpy(np.ascontiguousarray(x.data)),
                size=x.shape,
                check_invariants=False,
            ).to(device=device, dtype=kind)
    x = np.ascontiguousarray(x)
    return torch.from_numpy(x if x.flags.writeable else x.copy()).to(device=device, dtype=kind)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)) without overflow, in the type and place of `x`.

    Examples
    --------
    >>> sigmoid(np.array([-1000.0, 0.0, 1000.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    if is_torch(x):
        return x.sigmoid()
    from scipy.special import expit

    return expit(x)


class CentredMatrix:
    """The matrix ``(X - 1 mean') * scale``, multiplied from either side without ever being formed.

    Parameters
    ----------
    X : ndarray, SciPy CSR matrix or torch tensor, shape (n, d)
    mean : array of shape (d,), optional
    scale : float

    Examples
    --------
    >>> X = np.array([[1.0, 2.0], [3.0, 6.0]])
    >>> (CentredMatrix(X, X.mean(axis=0), 2.0) @ np.eye(2)).tolist()
    [[-2.0, -4.0], [2.0, 4.0]]
    """

    def __init__(self, X: Any, mean: Any = None, scale: float = 1.0) -> None:
        self.X = X
        self.scale = float(scale)
        self.mean = None
        self.exact_mean = None
        self._transposed = None
        if mean is not None:
            self.mean = _like(mean, X)
            self.exact_mean = np.asarray(mean, dtype=np.float64)
        if is_torch(X) and X.layout is not _strided():
            # torch multiplies CSR from the left only: the transpose is stored once, as CSR too.
            self._transposed = X.to_sparse_csc().transpose(0, 1) if X.layout is _sparse_csr() else None

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return int(self.X.shape[0]), int(self.X.shape[1])

    def __matmul__(self, W: Any) -> Any:
        """Product with W (d, c): an (n, c) array."""
        W = W * self.scale
        Z = self.X @ W
        if self.mean is not None:
            Z -= self.mean @ W
        return Z

    def tdot(self, G: Any) -> Any:
        """Product of the transpose with G (n, c): a (d, c) array."""
        out = (self.X.T if self._transposed is None else self._transposed) @ G
        if self.mean is not None:
            out -= self.mean[:, None] * G.sum(0)[None, :]
        out *= self.scale
        return out

    def apply(self, W: Any) -> Any:
        """Product with a NumPy W (d, c), in the matrix's own precision, as a NumPy array (n, c)."""
        return to_numpy(self @ _like(W, self.X))

    def apply_transposed(self, G: Any) -> Any:
        """Product of the transpose with a NumPy G (n, c), in the matrix's own precision, as NumPy (d, c)."""
        return to_numpy(self.tdot(_like(G, self.X)))


def cross(X: CentredMatrix, Y: CentredMatrix, weights: Any = None) -> Any:
    """X' diag(weights) Y of two matrices with the same rows, in float64, without forming either.

    Dense parts are centred block by block, so that a large mean costs no digits; sparse parts stay sparse and are
    corrected by their means afterwards. Torch tensors are multiplied where they are.

    Parameters
    ----------
    X : CentredMatrix of shape (n, d)
    Y : CentredMatrix of shape (n, c)
    weights : array of shape (n,), optional
        Weights of the rows; 1 each without it.

    Returns
    -------
    ndarray of float64, shape (d, c)

    Examples
    --------
    >>> X = np.array([[1.0, 2.0], [3.0, 6.0]])
    >>> cross(CentredMatrix(X, X.mean(axis=0)), CentredMatrix(np.eye(2))).tolist()
    [[-1.0, 1.0], [-2.0, 2.0]]
    """
    n = X.shape[0]
    dense = [Z.shape[1] for Z in (X, Y) if not sparse.issparse(Z.X)]
    step = max(1, _BLOCK_NUMBERS // max(dense)) if dense else n
    total: Any = 0.0
    x_sum, y_sum, weight = np.zeros(X.shape[1]), np.zeros(Y.shape[1]), 0.0
    for start in range(0, n, step):
        rows = slice(start, min(n, start + step))
        x = _block(X, rows)
        y = x if Y is X and weights is None else _block(Y, rows)
        if is_torch(x) != is_torch(y):
            x, y = _in_one_place(x, y)
        w = np.ones(rows.stop - rows.start) if weights is None else np.asarray(weights[rows], dtype=np.float64)
        x_sum, y_sum = x_sum + _column_sums(x, w), y_sum + _column_sums(y, w)
        weight += float(w.sum())
        if weights is not None:
            y = y.multiply(w[:, None]).tocsr() if sparse.issparse(y) else y * _like(w[:, None], y)
        part = x.T @ y
        total = total + (part.toarray() if sparse.issparse(part) else part)
    out = to_numpy(total)
    # What a sparse block left undone: its mean. Dense blocks came centred, and their sums are those of centred rows.
    x_mean, y_mean = (None if not sparse.issparse(Z.X) else Z.exact_mean for Z in (X, Y))
    if x_mean is not None:
        out = out - np.outer(x_mean, y_sum)
    if y_mean is not None:
        out = out - np.outer(x_sum if x_mean is None else x_sum - weight * x_mean, y_mean)
    return out * (X.scale * Y.scale)


def gram(X: CentredMatrix, weights: Any = None) -> Any:
    """X' diag(weights) X in float64, symmetric to the last digit; see :func:`cross`.

    Parameters
    ----------
    X : CentredMatrix of shape (n, d)
    weights : array of shape (n,), optional

    Returns
    -------
    ndarray of float64, shape (d, d)

    Examples
    --------
    >>> X = np.array([[1.0, 2.0], [3.0, 6.0]])
    >>> gram(CentredMatrix(X, X.mean(axis=0))).tolist()
    [[2.0, 4.0], [4.0, 8.0]]
    """
    G = cross(X, X, weights)
    return (G + G.T) / 2


def unit_rows(L: Any) -> Any:
    """Rows scaled to Euclidean length 1, zero rows left as they are; sparse stays sparse.

    Parameters
    ----------
    L : ndarray or CSR matrix of shape (n, q)

    Returns
    -------
    ndarray or CSR matrix of float64

    Examples
    --------
    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    L = L.astype(np.float64)
    squares = L.multiply(L).sum(axis=1) if sparse.issparse(L) else (L * L).sum(axis=1)
    length = np.sqrt(np.asarray(squares).ravel())
    length[length == 0] = 1.0
    return sparse.diags_array(1.0 / length).tocsr() @ L if sparse.issparse(L) else L / length[:, None]


def _block(X: CentredMatrix, rows: slice) -> Any:
    """Rows of a matrix in float64: dense ones centred, sparse ones as they are; the scale is left out."""
    if sparse.issparse(X.X):
        return X.X[rows].astype(np.float64)
    block = X.X[rows].double() if is_torch(X.X) else X.X[rows].astype(np.float64)
    return block if X.exact_mean is None else block - _like(X.exact_mean, block)


def _in_one_place(x: Any, y: Any) -> tuple[Any, Any]:
    """Two blocks, one of them in torch: the dense other one joins it; beside a sparse one, torch comes to NumPy."""
    if sparse.issparse(x) or sparse.issparse(y):
        return (to_numpy(x), y) if is_torch(x) else (x, to_numpy(y))
    return (x, _like(y, x)) if is_torch(x) else (_like(x, y), y)


def _column_sums(x: Any, w: Any) -> Any:
    return to_numpy(x.T @ _like(w, x))


def _like(x: Any, X: Any) -> Any:
    """`x` in the dtype and place of the matrix `X`."""
    if is_torch(X):
        return to_device(np.asarray(x), X.device).to(X.dtype)
    return np.asarray(x, dtype=X.dtype)


def _strided() -> Any:
    return sys.modules["torch"].strided


def _sparse_csr() -> Any:
    return sys.modules["torch"].sparse_csr
