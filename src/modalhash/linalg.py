"""Shared mathematics: named, pure, tested, over an array namespace (NumPy or torch)."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
from scipy import sparse

from .exceptions import InputError, MissingExtraError

__all__ = ["CentredMatrix", "is_torch", "sigmoid", "to_device", "to_numpy", "torch_device"]


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
        self._transposed = None
        if mean is not None:
            self.mean = _like(mean, X)
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


def _like(x: Any, X: Any) -> Any:
    """`x` in the dtype and place of the matrix `X`."""
    if is_torch(X):
        return to_device(np.asarray(x), X.device).to(X.dtype)
    return np.asarray(x, dtype=X.dtype)


def _strided() -> Any:
    return sys.modules["torch"].strided


def _sparse_csr() -> Any:
    return sys.modules["torch"].sparse_csr
