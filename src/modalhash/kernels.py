"""Gaussian kernels against anchors, kernel logistic regression over all bits, and affinities of rows by tiles.

Nothing here holds a matrix with as many columns as there are rows of data: kernels are taken against a few hundred
anchors, and the pairwise affinities of :class:`LabelAffinity` are made and used up tile by tile. Sparse input stays
sparse.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .exceptions import InputError
from .linalg import sigmoid, unit_rows
from .spectral import whitener

__all__ = [
    "LabelAffinity",
    "choose_anchors",
    "kernel_logistic_regression",
    "mean_squared_distance",
    "rbf_kernel",
    "squared_distances",
]

Floats = NDArray[np.float64]

ANCHOR_KINDS = ("kmeans", "random")
_BLOCK_NUMBERS = 2**22
_SMALL = 2**24  # multiplications not worth a second thread
_TILE = 256  # rows of a tile of pairs: three tiles of doubles fit a core's cache
_LANES = 8  # partial sums of tiles; fixed, so that a result does not depend on the number of cores


# ------------------------------------------------------------------------------------------- Gaussian kernels


def _blocks(n: int, width: int) -> Iterator[slice]:
    step = max(1, _BLOCK_NUMBERS // max(1, width))
    for start in range(0, n, step):
        yield slice(start, min(n, start + step))


def mean_squared_distance(X: Any) -> float:
    """Mean of ‖x_i - x_j‖^2 over all n^2 pairs of rows: twice the sum of the columns' variances.

    Parameters
    ----------
    X : ndarray or SciPy sparse matrix of shape (n, d)

    Returns
    -------
    float
        Computed about the mean, so that a large mean costs no digits; 0 where rows differ by rounding only.

    Examples
    --------
    >>> mean_squared_distance(np.array([[0.0], [2.0]]))  # (0 + 4 + 4 + 0) / 4
    2.0
    """
    n = X.shape[0]
    if sparse.issparse(X):
        csc = X.tocsc().astype(np.float64)
        stored = np.diff(csc.indptr)
        mean = np.asarray(csc.sum(axis=0)).ravel() / n
        around = csc.data - np.repeat(mean, stored)
        # what is stored, about the mean; what is not stored is a zero at that distance from the mean
        total = float(around @ around + (n - stored) @ (mean * mean))
    else:
        mean = np.mean(X, axis=0, dtype=np.float64)
        total = 0.0
        for rows in _blocks(n, X.shape[1]):
            around = X[rows] - mean
            total += float(np.vdot(around, around))
    rounding = n * np.finfo(np.float64).eps
    return 2.0 * total / n if total > n * rounding**2 * float(mean @ mean) else 0.0


def squared_distances(X: Any, anchors: Any) -> Floats:
    """Squared Euclidean distance of every row of `X` to every anchor, in float64, never negative.

    Parameters
    ----------
    X : ndarray or SciPy sparse matrix of shape (n, d)
    anchors : ndarray of shape (m, d)

    Returns
    -------
    ndarray of float64, shape (n, m)

    Examples
    --------
    >>> squared_distances(np.array([[0.0, 0.0], [3.0, 0.0]]), np.array([[3.0, 4.0]])).tolist()
    [[25.0], [16.0]]
    """
    A = np.asarray(anchors, dtype=np.float64)
    n, d = X.shape
    out = np.empty((n, A.shape[0]))
    if sparse.issparse(X):
        X = X.tocsr()
        shift = np.zeros(d)
    else:  # distances do not change when both sides move: near the origin fewer digits cancel
        shift = A.mean(axis=0)
    A = A - shift
    squares = np.einsum("ij,ij->i", A, A)
    for rows in _blocks(n, max(d, A.shape[0])):
        if sparse.issparse(X):
            x = X[rows].astype(np.float64)
            norms = np.asarray(x.multiply(x).sum(axis=1)).ravel()
        else:
            x = X[rows] - shift
            norms = np.einsum("ij,ij->i", x, x)
        block = np.asarray(x @ A.T)
        block *= -2.0
        block += norms[:, None]
        block += squares
        np.maximum(block, 0.0, out=out[rows])
    return out


def rbf_kernel(X: Any, anchors: Any, width: float) -> Floats:
    """Gaussian kernel ``exp(-‖x - a‖^2 / width)`` of every row of `X` with every anchor.

    Parameters
    ----------
    X : ndarray or SciPy sparse matrix of shape (n, d)
    anchors : ndarray of shape (m, d)
    width : float
        Such as :func:`mean_squared_distance` of the training rows.

    Returns
    -------
    ndarray of float64, shape (n, m)

    Examples
    --------
    >>> rbf_kernel(np.array([[0.0], [1.0]]), np.array([[0.0]]), width=1.0).round(4).tolist()
    [[1.0], [0.3679]]
    """
    if not 0 < width < np.inf:
        raise InputError(f"the width of a Gaussian kernel must be positive and finite; got {width!r}.")
    K = squared_distances(X, anchors)
    K *= -1.0 / width
    return np.exp(K, out=K)


def choose_anchors(X: Any, n_anchors: int, kind: str, rng: np.random.Generator) -> Floats:
    """Anchors for a kernel: the centres of k-means, or random rows.

    Parameters
    ----------
    X : ndarray or SciPy sparse matrix of shape (n, d)
    n_anchors : int
        With as many rows or fewer, every row is an anchor (in their order), and the kernel is exact.
    kind : "kmeans" or "random"
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of float64, shape (min(n_anchors, n), d)

    Examples
    --------
    >>> X = np.arange(6.0).reshape(3, 2)
    >>> choose_anchors(X, 2, "random", np.random.default_rng(0)).shape
    (2, 2)
    """
    if kind not in ANCHOR_KINDS:
        raise InputError(f"anchors must be chosen by one of {', '.join(ANCHOR_KINDS)}; got {kind!r}.")
    if isinstance(n_anchors, bool) or not isinstance(n_anchors, (int, np.integer)) or n_anchors < 1:
        raise InputError(f"n_anchors must be a whole number of at least 1; got {n_anchors!r}.")
    n = X.shape[0]
    if kind == "random" or n <= n_anchors:
        rows = np.arange(n) if n <= n_anchors else np.sort(rng.choice(n, size=n_anchors, replace=False))
        chosen = X.tocsr()[rows].toarray() if sparse.issparse(X) else X[rows]
        return np.asarray(chosen, dtype=np.float64)
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    model = KMeans(int(n_anchors), n_init=1, max_iter=100, random_state=int(rng.integers(2**31)))
    with warnings.catch_warnings():  # fewer distinct rows than centres: some centres coincide, which does no harm
        warnings.simplefilter("ignore", ConvergenceWarning)
        centres = model.fit(X.astype(np.float64, copy=False)).cluster_centers_
    return np.asarray(centres, dtype=np.float64)


def kernel_logistic_regression(
    K: Any, H: Any, K0: Any, *, ridge: float = 0.01, max_iter: int = 100, tol: float = 1e-6
) -> tuple[Floats, Floats]:
    """Kernel logistic regression of many bits at once: one L-BFGS over the matrix of all bits' weights.

    Minimises ``sum_ib log(1 + exp(-H_ib (K W)_ib)) + ridge tr(W' K0 W)`` from W = 0. The search runs in the kernel's
    own coordinates V = K0^(1/2) W, in which the penalty is ridge ‖V‖^2; there it needs tens of steps where the search
    in W needs thousands.

    Parameters
    ----------
    K : array of shape (n, m)
        Kernel of the training rows with the anchors.
    H : array of shape (n, k)
        The bits to be predicted, -1 or +1.
    K0 : array of shape (m, m)
        Kernel of the anchors with each other. Directions in which it is zero get no weight.
    ridge : float
    max_iter : int
        Iterations at most. Stopping early regularises; the objective is convex, and a few hundred reach its minimum.
    tol : float
        Stop when no entry of the gradient by V exceeds `tol` times n.

    Returns
    -------
    tuple of W (m, k) and the objective's curve, one value before the first step and one after each

    Examples
    --------
    >>> K = np.array([[1.0, 0.1], [0.1, 1.0]])
    >>> W, curve = kernel_logistic_regression(K, np.array([[1.0], [-1.0]]), K)
    >>> (K @ W > 0).ravel().tolist(), round(float(curve[0]), 4)
    ([True, False], 1.3863)
    """
    from scipy.optimize import minimize

    K, H = np.asarray(K, dtype=np.float64), np.asarray(H, dtype=np.float64)
    n, k = H.shape
    curve = [n * k * float(np.log(2.0))]
    with _lanes(_blas()) as run:
        T = whitener(K0)  # T'K0 T = I
        Phi, r = K @ T, T.shape[1]
        step = -(-n // _LANES) if n * k * r > _SMALL else n
        strips = [slice(start, start + step) for start in range(0, n, step)]

        def strip(rows: slice, V: Floats) -> tuple[float, Floats]:
            M = Phi[rows] @ V
            M *= H[rows]  # margins
            return float(np.logaddexp(0.0, -M).sum()), Phi[rows].T @ (H[rows] * sigmoid(-M))

        def objective(v: Floats) -> tuple[float, Floats]:
            V = v.reshape(r, k)
            values, G = zip(*run(lambda rows: strip(rows, V), strips), strict=True)
            return sum(values) + ridge * float(v @ v), (2.0 * ridge * V - sum(G)).ravel()

        found = minimize(
            objective,
            np.zeros(r * k),
            jac=True,
            method="L-BFGS-B",
            callback=lambda intermediate_result: curve.append(float(intermediate_result.fun)),
            options={"maxiter": int(max_iter), "maxfun": 4 * int(max_iter) + 20, "gtol": tol * n, "ftol": 0.0},
        )
    return T @ found.x.reshape(r, k), np.array(curve)


def _blas() -> Any:
    """What limits the threads of the BLAS libraries loaded by now; finding them takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def _lanes(blas: Any) -> Iterator[Callable[[Callable[[Any], Any], list[Any]], list[Any]]]:
    """A ``map`` over threads in which BLAS has one thread each; results in order, whoever ends first."""

    def run(work: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        return [work(items[0])] if len(items) == 1 else list(pool.map(work, items))

    with blas.limit(limits=1, user_api="blas"), ThreadPoolExecutor(min(_LANES, os.cpu_count() or 1)) as pool:
        yield run


# ------------------------------------------------------------------------- affinities of rows, tile by tile


class LabelAffinity:
    """Affinities P of rows by the cosine of their labels, to be met by affinities Q of points.

    P_ij is proportional to the cosine of the labels of rows i and j, P_ii = 0, sum P = 1. Q_ij is proportional to
    1 / (1 + ‖y_i - y_j‖^2 / 4), likewise. Neither is ever held whole: tiles of both are made from the labels and the
    points, by several threads, wherever they are needed. The result does not depend on the number of threads.

    Parameters
    ----------
    L : ndarray or SciPy sparse matrix of shape (n, q)
        0/1 labels.

    Attributes
    ----------
    n : int
    entropy : float
        sum P log P.

    Examples
    --------
    >>> P = LabelAffinity(np.array([[1, 0], [1, 0], [0, 1]]))
    >>> round(P.entropy, 4)  # two entries of 1/2
    -0.6931
    >>> value, gradient = P.divergence(np.zeros((3, 1)))  # Q is 1/6 everywhere: KL = log(6 / 2)
    >>> round(value, 4), gradient.ravel().tolist()
    (1.0986, [0.0, 0.0, 0.0])
    """

    def __init__(self, L: Any) -> None:
        Ln = unit_rows(L)
        self.n = int(Ln.shape[0])
        sums = np.asarray(Ln.sum(axis=0)).ravel()
        entries = Ln.data if sparse.issparse(Ln) else Ln
        total = float(sums @ sums - np.vdot(entries, entries))
        if not total > 1e-9 * self.n:
            raise InputError("no two rows share a label; there is no affinity to learn. Pass labels that rows share.")
        self._A = Ln * (1.0 / np.sqrt(total))
        self._strips = [slice(s, min(self.n, s + _TILE)) for s in range(0, self.n, _TILE)]
        self._blas = _blas()
        self.entropy = sum(self._each_lane(self._lane_entropy))

    def divergence(self, Y: Any, *, exaggeration: float = 1.0) -> tuple[float, Floats]:
        """KL(P‖Q) of points, and the gradient of KL(exaggeration P‖Q) by them.

        With N_ij = 1 / (1 + ‖y_i - y_j‖^2 / 4), Z = sum N and M = (P - Q) ∘ N = P ∘ N - N ∘ N / Z, one pass over the
        tiles gathers Z, sum P log(1/N), and row sums and products with Y of both terms of M.

        Parameters
        ----------
        Y : array of shape (n, k)
        exaggeration : float
            Multiplies P in the gradient.

        Returns
        -------
        tuple of float and ndarray of shape (n, k)
            KL(P‖Q) and (diag(M 1) - M) Y.

        Examples
        --------
        >>> P = LabelAffinity(np.array([[1, 0], [1, 0], [0, 1]]))
        >>> value, gradient = P.divergence(np.array([[0.0], [0.0], [2.0]]))  # Q of the alike pair: 1/4, twice
        >>> round(value, 4), gradient.round(4).ravel().tolist()  # KL = log 2; Q of the others 1/8, N = 1/2
        (0.6931, [0.125, 0.125, -0.25])
        """
        Y = np.ascontiguousarray(Y, dtype=np.float64)
        squares = np.einsum("ij,ij->i", Y, Y) / 4.0
        lanes = self._each_lane(lambda lane: self._lane_divergence(lane, Y, squares))
        attract, repel, Z, cross_entropy = (sum(parts[1:], start=parts[0]) for parts in zip(*lanes, strict=True))
        return self.entropy + cross_entropy + float(np.log(Z)), exaggeration * attract - repel / Z

    def _each_lane(self, work: Any) -> list[Any]:
        """Run `work` on every lane's tiles; results in order of lane."""
        pairs = [(i, j) for i in range(len(self._strips)) for j in range(i, len(self._strips))]
        lanes = [pairs[lane::_LANES] for lane in range(min(_LANES, len(pairs)))]
        with _lanes(self._blas) as run:
            return run(work, lanes)

    def _tile(self, i: int, j: int) -> tuple[slice, slice, Floats]:
        """Rows, columns and P of a tile, its diagonal zero."""
        rows, columns = self._strips[i], self._strips[j]
        P = self._A[rows] @ self._A[columns].T
        P = P.toarray() if sparse.issparse(P) else P
        if i == j:
            np.fill_diagonal(P, 0.0)
        return rows, columns, P

    def _lane_entropy(self, pairs: list[tuple[int, int]]) -> float:
        total = 0.0
        for i, j in pairs:
            P = self._tile(i, j)[2]
            P = P[P > 0]
            total += (1.0 if i == j else 2.0) * float(P @ np.log(P))
        return total

    def _lane_divergence(self, pairs: list[tuple[int, int]], Y: Floats, squares: Floats) -> tuple[Any, ...]:
        attract, repel = np.zeros_like(Y), np.zeros_like(Y)
        Z = cross_entropy = 0.0
        for i, j in pairs:
            rows, columns, P = self._tile(i, j)
            D = Y[rows] @ Y[columns].T
            D *= -0.5
            D += squares[rows, None] + 1.0
            D += squares[columns]
            N = 1.0 / D
            if i == j:
                np.fill_diagonal(D, 1.0)
                np.fill_diagonal(N, 0.0)
            twice = 1.0 if i == j else 2.0
            cross_entropy += twice * float(np.vdot(P, np.log(D, out=D)))
            Z += twice * float(N.sum())
            P *= N
            np.multiply(N, N, out=N)
            for M, out in ((P, attract), (N, repel)):
                out[rows] += M.sum(axis=1)[:, None] * Y[rows] - M @ Y[columns]
                if i != j:
                    out[columns] += M.sum(axis=0)[:, None] * Y[columns] - M.T @ Y[rows]
        return attract, repel, Z, cross_entropy
