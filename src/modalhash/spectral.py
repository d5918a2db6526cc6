"""Closed forms on small dense matrices: whitening, CCA, eigenproblems, ridge regression, Procrustes, PCA.

What goes in are second moments (:func:`modalhash.linalg.gram`, :func:`modalhash.linalg.cross`), so that nothing here
depends on the number of rows. Directions that a view does not have (a constant column, a sum that never changes)
are left out when it is whitened: no solution can put weight on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .exceptions import InputError

__all__ = [
    "cca",
    "fix_signs",
    "principal_directions",
    "procrustes",
    "ridge_solver",
    "smallest_eigenvectors",
    "top_singular_pair",
    "whitener",
]

Floats = NDArray[np.float64]

_NULL = 1e-12  # an eigenvalue below this share of the largest counts as zero


def whitener(G: Any, ridge: float = 0.0) -> Floats:
    """Columns T with T'(G + ridge I)T = I, spanning the directions in which G is not zero.

    Parameters
    ----------
    G : array of shape (d, d)
        Second moments of a view.
    ridge : float

    Returns
    -------
    ndarray of shape (d, r)
        r is the rank of G: the number of eigenvalues over 1e-12 of the largest.

    Examples
    --------
    >>> whitener(np.diag([4.0, 0.0])).tolist()
    [[0.5], [0.0]]
    """
    w, V = np.linalg.eigh(np.asarray(G, dtype=np.float64))
    keep = w > _NULL * max(float(w[-1]), 0.0)
    T: Floats = V[:, keep] / np.sqrt(w[keep] + ridge)
    return T


def cca(Tx: Floats, Ty: Floats, Cxy: Any, k: int | None = None) -> tuple[Floats, Floats, Floats]:
    """Canonical pairs: the singular pairs of the whitened cross moments.

    Parameters
    ----------
    Tx : array of shape (d, r)
        :func:`whitener` of the first view.
    Ty : array of shape (e, s)
        That of the second.
    Cxy : array of shape (d, e)
        Cross moments.
    k : int, optional
        How many pairs, largest first; all min(r, s) without it.

    Returns
    -------
    tuple of Wx (d, k), Wy (e, k) and the k singular values
        Wx'(Gx + ridge I)Wx = I, the same for Wy, and Wx'Cxy Wy diagonal.

    Examples
    --------
    >>> T = whitener(np.eye(2))
    >>> cca(T, T, np.diag([0.5, 0.9]))[2].round(6).tolist()
    [0.9, 0.5]
    """
    U, s, Vt = np.linalg.svd(Tx.T @ Cxy @ Ty, full_matrices=False)
    k = s.size if k is None else k
    Wx, Wy = Tx @ U[:, :k], Ty @ Vt[:k].T
    signs = fix_signs(Wx)
    return Wx * signs, Wy * signs, s[:k]


def top_singular_pair(M: Any) -> tuple[Floats, Floats, float]:
    """The left and right singular vectors of the largest singular value, and that value.

    One eigenvector of the smaller of MM' and M'M: several times faster than all of them.

    Examples
    --------
    >>> u, v, s = top_singular_pair(np.array([[0.0, 2.0], [1.0, 0.0]]))
    >>> abs(u).round(6).tolist(), abs(v).round(6).tolist(), round(s, 6)
    ([1.0, 0.0], [0.0, 1.0], 2.0)
    """
    from scipy.linalg import eigh

    wide = M.shape[0] <= M.shape[1]
    S = M @ M.T if wide else M.T @ M
    last = S.shape[0] - 1
    a = eigh(S, subset_by_index=[last, last])[1][:, 0]
    b = (M.T if wide else M) @ a
    s = float(np.linalg.norm(b))
    b = b / s if s > 0 else b
    return (a, b, s) if wide else (b, a, s)


def smallest_eigenvectors(A: Any, T: Any, k: int) -> tuple[Floats, Floats]:
    """Minimise tr(W'AW) subject to W'BW = I, where T whitens B: the k smallest generalised eigenvectors.

    Parameters
    ----------
    A : symmetric array of shape (d, d)
    T : array of shape (d, r)
        T'BT = I; see :func:`whitener`. Block diagonal for several views.
    k : int
        At most r.

    Returns
    -------
    tuple of W (d, k) and the k eigenvalues, smallest first

    Examples
    --------
    >>> smallest_eigenvectors(np.diag([3.0, 1.0, 2.0]), np.eye(3), 2)[0].round(6).tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    """
    from scipy.linalg import eigh

    M = T.T @ A @ T
    w, V = eigh((M + M.T) / 2, subset_by_index=[0, k - 1])
    W = T @ V
    return W * fix_signs(W) + 0.0, w


def fix_signs(W: Any) -> Floats:
    """Signs (k,) that make the entry of largest magnitude of every column of W positive.

    An eigenvector's sign is arbitrary; fixing it makes codes the same on every machine.

    Examples
    --------
    >>> fix_signs(np.array([[1.0, 2.0], [-3.0, 1.0]])).tolist()
    [-1.0, 1.0]
    """
    largest = np.take_along_axis(W, np.abs(W).argmax(axis=0)[None, :], axis=0)[0]
    return np.where(largest < 0, -1.0, 1.0)


def principal_directions(G: Any, k: int) -> Floats:
    """PCA: the k leading eigenvectors of second moments G (d, d), as columns (d, k).

    Examples
    --------
    >>> principal_directions(np.diag([1.0, 3.0, 2.0]), 2).round(6).tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    """
    from scipy.linalg import eigh

    d = G.shape[0]
    V = eigh(G, subset_by_index=[d - k, d - 1])[1][:, ::-1]
    W: Floats = V * fix_signs(V) + 0.0
    return W


def procrustes(A: Any, B: Any) -> Floats:
    """The orthogonal R (k, k) that minimises ‖B - A R‖_F for A, B of shape (n, k).

    Examples
    --------
    >>> A = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> procrustes(A, A[:, ::-1]).round(6).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    U, _, Vt = np.linalg.svd(A.T @ B)
    R: Floats = U @ Vt
    return R


def ridge_solver(G: Any, ridge: float, what: str = "the view") -> Callable[[Any], Floats]:
    """Factor G + ridge I once; the function returned solves (G + ridge I) Z = R for any R (d, k).

    Parameters
    ----------
    G : array of shape (d, d)
        Second moments.
    ridge : float
    what : str
        What G belongs to, for the error.

    Raises
    ------
    InputError
        If G + ridge I is singular.

    Examples
    --------
    >>> ridge_solver(np.diag([1.0, 3.0]), 1.0)(np.array([[4.0], [4.0]])).round(6).tolist()
    [[2.0], [1.0]]
    """
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    d = G.shape[0]
    try:
        factor = cho_factor(G + ridge * np.eye(d), lower=True)
    except LinAlgError as error:
        raise InputError(
            f"the second moments of {what} are singular: some columns are constant or depend on the others. "
            "Leave those out, or use a larger ridge."
        ) from error

    def solve(R: Any) -> Floats:
        Z: Floats = cho_solve(factor, R)
        return Z

    return solve
