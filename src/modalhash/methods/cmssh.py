"""CMSSH: cross-modality similarity-sensitive hashing.

Paper
-----
M. M. Bronstein, A. M. Bronstein, F. Michel and N. Paragios, "Data fusion through cross-modality metric learning using
similarity-sensitive hashing", CVPR 2010.

Objective
---------
Boosting of pairs (x, y, s), s = 1 for alike and -1 for unlike: F(x, y) = sum_t alpha_t h_t(x) g_t(y) is to have the
sign of s; each bit greedily lowers the exponential loss E[exp(-s F)], positive and negative pairs weighing the same.
h(x) = sgn(p'x + a), g(y) = sgn(q'y + b).

Symbols
-------
n training rows (of ``train_size``), c ``n_bits``, m pairs.
X, Y   the two views in order of name, centred on the training rows, (n, d), (n, e)
S      signed weights w s of the pairs, a sparse (n, n) matrix with m entries
p, q   columns of ``weights_``, (d, c), (e, c); a, b ``biases_``, (c,)
r      edge of a bit: sum w s h(x) g(y), sum w = 1; alpha ``bit_weights_``, (c,)

Steps
-----
pairs        :func:`sample_pairs`
C = X'S Y    :func:`pair_moments`; p, q one of its leading singular pairs  :func:`leading_pairs`
a, b         :func:`best_threshold`, exact, in turns until r stops growing  :func:`weak_learner`
alpha = 1/2 log((1 + r) / (1 - r)),  w <- w exp(-alpha s h(x) g(y)), both signs' weights scaled to sum 1/2

Departures from the paper
-------------------------
- A re-implementation: the authors' program keeps its inner learner to itself. Here a bit tries ``n_directions``
  leading singular pairs and keeps the one with the largest r.
- The paper takes pairs as given (``pairs=``). From labels, alike means sharing one, and ``n_pairs`` of each sign are
  drawn. Without labels, an item's own two views are alike and those of different items are not.
- A threshold always splits the rows: a bit that is the same for all would be of no use to search, whatever its r.
- Codes are compared by plain Hamming distance; alpha only weighs the pairs while learning.
- ``variant="positive-pairs"`` is a simplified form found in published comparisons: each item's own pair only, no
  thresholds, alpha = 1.

Checked against
---------------
Outputs of that simplified form's program: every bit, up to a column's sign (tests/test_methods_cmssh.py). The boosted
form against a literal version of the steps above; what it gives on MIRFlickr is in docs/methods/cmssh.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..base import CrossModalHasher, TrainingData
from ..exceptions import InputError
from ..kernels import mean_squared_distance
from ..linalg import CentredMatrix, cross
from ..parameters import check_random_state
from ..similarity import relevance
from ..spectral import principal_directions
from ..views import ViewTransform, row_blocks

__all__ = ["CMSSH"]

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

VARIANTS = ("boosted", "positive-pairs")

_log = logging.getLogger(__name__)


class CMSSH(CrossModalHasher):
    """Cross-modality similarity-sensitive hashing: boosting over alike and unlike pairs of two views.

    Parameters
    ----------
    n_bits : int
        Length of a code. Codes of fewer bits are a prefix of codes of more.
    variant : "boosted" or "positive-pairs"
        The method, or its simplified form.
    n_pairs : int
        Pairs drawn of each sign.
    n_directions : int
        Singular pairs tried by bit.
    train_size : int or None
        Rows to learn from, drawn at random if there are more; None takes all.
    pairs : array of int, shape (m, 3), optional
        Pairs to learn from in place of those drawn: row of the first view by name, row of the second, 1 or -1. All
        rows of the views are used then, and labels are not.
    random_state : int, numpy.random.Generator or None
    callback : callable(iteration, n_iter, objective) or None
        Called after every bit.

    Attributes
    ----------
    objective_ : ndarray of shape (n_bits,)
        Exponential loss of the pairs after each bit.
    edges_, bit_weights_ : ndarray of shape (n_bits,)
        r and alpha by bit.
    n_iter_ : int
        The number of bits.

    Examples
    --------
    >>> import modalhash as mh
    >>> data = mh.datasets.make_synthetic(n=300, random_state=0)
    >>> hasher = mh.CMSSH(n_bits=16, n_pairs=5000, random_state=0).fit(data.views, labels=data.labels)
    >>> hasher.encode("text", data.views["text"]).shape
    (300, 2)
    """

    min_views: ClassVar[int] = 2
    max_views: ClassVar[int | None] = 2

    objective_: Floats
    edges_: Floats
    bit_weights_: Floats
    n_iter_: int

    def __init__(
        self,
        n_bits: int = 64,
        *,
        variant: str = "boosted",
        n_pairs: int = 100_000,
        n_directions: int = 1,
        train_size: int | None = 10_000,
        pairs: Any = None,
        random_state: Any = None,
        callback: Callable[[int, int, float], object] | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.variant = variant
        self.n_pairs = n_pairs
        self.n_directions = n_directions
        self.train_size = train_size
        self.pairs = pairs
        self.random_state = random_state
        self.callback = callback

    def _check_params(self) -> None:
        if self.variant not in VARIANTS:
            raise InputError(f"variant must be one of {', '.join(VARIANTS)}; got {self.variant!r}.")
        for name, least in (("n_pairs", 1), ("n_directions", 1), ("train_size", 2)):
            value = getattr(self, name)
            if value is None and name == "train_size":
                continue
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
                raise InputError(f"{name} must be a whole number of at least {least}; got {value!r}.")
        if self.pairs is not None and self.variant != "boosted":
            raise InputError('pairs= goes with variant="boosted"; "positive-pairs" takes each item\'s own.')

    def _fit(self, data: TrainingData) -> None:
        rng = check_random_state(self.random_state)
        n, c, boosted = data.n_rows, self.n_bits, self.variant == "boosted"
        rows: Any = slice(None)
        if self.pairs is None and self.train_size is not None and n > self.train_size:
            rows = np.sort(rng.choice(n, size=int(self.train_size), replace=False))
            _log.info("CMSSH learns from %d of %d rows", self.train_size, n)
            n = int(self.train_size)
        transforms = {
            name: ViewTransform.fit(view.X[rows], center=True, scale=None) for name, view in data.views.items()
        }
        X, Y = (CentredMatrix(data.views[name].X[rows], t.mean) for name, t in transforms.items())
        for name, view in zip(transforms, (X, Y), strict=True):
            if not mean_squared_distance(view.X) > 0:
                raise InputError(f"view {name!r} is constant: every row is the same. Leave it out.")
        i, j, s = self._pairs(data, rows, n, rng)
        signs = (1, -1) if boosted else (1,)
        w = np.zeros(s.size)
        for sign in signs:
            w[s == sign] = 1.0 / (len(signs) * (s == sign).sum())
        P, Q = np.zeros((X.shape[1], c)), np.zeros((Y.shape[1], c))
        a, b, r, alpha, curve = (np.zeros(c) for _ in range(5))
        loss = dict.fromkeys(signs, 1.0)
        for t in range(c):
            S = sparse.csr_array((w * s, (i, j)), shape=(n, n))
            r[t] = -np.inf
            for p, q in leading_pairs(pair_moments(X, S, Y), self.n_directions if boosted else 1):
                x, y = (view.apply(z[:, None])[:, 0].astype(np.float64) for view, z in ((X, p), (Y, q)))
                edge, shift_x, shift_y = weak_learner(x, y, S, thresholds=boosted)
                if edge > r[t]:
                    r[t], a[t], b[t], P[:, t], Q[:, t] = edge, shift_x, shift_y, p, q
                    agreement = np.where((x + shift_x > 0)[i] == (y + shift_y > 0)[j], 1.0, -1.0)  # h(x) g(y)
            edge = min(r[t], 1.0 - 1e-9)
            alpha[t] = 0.5 * np.log((1.0 + edge) / (1.0 - edge)) if boosted else 1.0
            w *= np.exp(-alpha[t] * s * agreement)
            for sign in signs:  # what its weights grow by is what the loss of a sign grows by
                growth = float(w[s == sign].sum()) * len(signs)
                w[s == sign] /= growth
                loss[sign] *= growth
            curve[t] = sum(loss.values()) / len(signs)
            if self.callback is not None:
                self.callback(t + 1, c, float(curve[t]))
        self.edges_, self.bit_weights_, self.objective_, self.n_iter_ = r, alpha, curve, c
        for (name, transform), W, v in zip(transforms.items(), (P, Q), (a, b), strict=True):
            self._set_linear(name, W, v, transform)

    def _pairs(
        self, data: TrainingData, rows: Any, n: int, rng: np.random.Generator
    ) -> tuple[Indices, Indices, Floats]:
        """Rows of the first view, rows of the second, and signs of the pairs to learn from."""
        own = np.arange(n)
        if self.variant == "positive-pairs":
            return own, own, np.ones(n)
        if self.pairs is not None:
            return check_pairs(self.pairs, n)
        if data.labels is not None:
            i, j, s = sample_pairs(data.require_labels_of_all("CMSSH").matrix[rows], self.n_pairs, rng)
        else:  # an item's own two views are alike, those of different items are not
            first = rng.integers(n, size=self.n_pairs if n > 1 else 0)
            second = (first + 1 + rng.integers(max(n - 1, 1), size=first.size)) % n
            i, j = np.concatenate([own, first]), np.concatenate([own, second])
            s = np.repeat([1.0, -1.0], [n, first.size])
        if not (s < 0).any():
            raise InputError(
                "every two rows are alike (they share a label), so there are no unlike pairs to learn from. "
                'Leave out labels that all rows have, or use variant="positive-pairs".'
            )
        return i, j, s


def check_pairs(pairs: Any, n: int) -> tuple[Indices, Indices, Floats]:
    """Check pairs (m, 3) given by a user: rows within n, and both signs."""
    given = np.asarray(pairs)
    if given.ndim != 2 or given.shape[1] != 3 or given.dtype.kind not in "iu":
        raise InputError(f"pairs must be whole numbers of shape (m, 3); got {given.dtype} of shape {given.shape}.")
    if given[:, :2].size and (given[:, :2].min() < 0 or given[:, :2].max() >= n):
        raise InputError(f"pairs must name rows 0 to {n - 1}; got {given[:, :2].min()} to {given[:, :2].max()}.")
    if set(np.unique(given[:, 2]).tolist()) != {-1, 1}:
        raise InputError("the third column of pairs must hold 1 (alike) and -1 (unlike), and both must occur.")
    return given[:, 0].astype(np.int64), given[:, 1].astype(np.int64), given[:, 2].astype(np.float64)


def sample_pairs(L: Any, count: int, rng: np.random.Generator) -> tuple[Indices, Indices, Floats]:
    """Pairs of rows that share a label (sign 1), and pairs that share none (-1), each equally likely.

    Parameters
    ----------
    L : array or CSR matrix of shape (n, q)
        0/1 labels.
    count : int
        How many of each sign; drawn with replacement, or simply all of them if there are no more.
    rng : numpy.random.Generator

    Returns
    -------
    tuple of three ndarrays
        First row, second row and sign. A row and itself are a pair: the two views of one item.

    Examples
    --------
    >>> i, j, s = sample_pairs(np.array([[1, 0], [0, 1]]), 9, np.random.default_rng(0))
    >>> i.tolist(), j.tolist(), s.tolist()
    ([0, 1, 0, 1], [0, 1, 1, 0], [1.0, 1.0, -1.0, -1.0])
    """
    n = L.shape[0]
    blocks = list(row_blocks(n, n, itemsize=16))
    alike = np.concatenate([relevance(L[block], L).sum(axis=1) for block in blocks])
    drawn, first, second = [], [], []
    for counts in (alike, n - alike):
        ends = np.cumsum(counts)
        total = int(ends[-1])
        chosen = np.arange(total) if total <= count else np.sort(rng.integers(total, size=count))
        i = np.searchsorted(ends, chosen, side="right")
        first.append(i)
        second.append(np.empty_like(i))
        drawn.append((i, chosen, ends - counts))
    for block in blocks:  # a row's k-th pair of a sign is the k-th entry of that sign in the row's relevance
        related = relevance(L[block], L)
        for (i, chosen, starts), j, sign in zip(drawn, second, (True, False), strict=True):
            at = slice(*np.searchsorted(i, [block.start, block.stop]))
            if at.start < at.stop:
                j[at] = np.flatnonzero(related == sign)[chosen[at] - starts[block.start]] % n
    return np.concatenate(first), np.concatenate(second), np.repeat([1.0, -1.0], [i.size for i in first])


def pair_moments(X: CentredMatrix, S: Any, Y: CentredMatrix) -> Floats:
    """C = X'S Y (d, e) for a sparse S (n, n); sparse views stay sparse."""
    B = S @ Y.X
    degree = np.asarray(S.sum(axis=1)).reshape(-1, 1)
    if Y.exact_mean is not None and not sparse.issparse(B):
        B -= degree * Y.exact_mean
    C: Floats = cross(X, CentredMatrix(B))
    if Y.exact_mean is not None and sparse.issparse(B):
        C -= cross(X, CentredMatrix(degree)) * Y.exact_mean
    return C


def leading_pairs(C: Floats, k: int) -> list[tuple[Floats, Floats]]:
    """At most k leading singular pairs of C (d, e), those of value zero left out.

    Examples
    --------
    >>> [(p.tolist(), q.tolist()) for p, q in leading_pairs(np.diag([1.0, 2.0, 0.0]), 3)]
    [([0.0, 1.0, 0.0], [0.0, 1.0, 0.0]), ([1.0, 0.0, 0.0], [1.0, 0.0, 0.0])]
    """
    if not np.abs(C).max() > 0:
        raise InputError("the two views have no covariance over the pairs; CMSSH has nothing to learn from them.")
    wide = C.shape[0] <= C.shape[1]
    C = C if wide else C.T
    U = principal_directions(C @ C.T, min(k, C.shape[0]))
    V = C.T @ U
    values = np.linalg.norm(V, axis=0)
    pairs = [(U[:, t], V[:, t] / values[t]) for t in np.flatnonzero(values > 1e-9 * values[0])]
    return pairs if wide else [(q, p) for p, q in pairs]


def weak_learner(x: Floats, y: Floats, S: Any, *, thresholds: bool) -> tuple[float, float, float]:
    """The edge r = sgn(x + a)'S sgn(y + b) and the a, b that give it; 0, 0 without thresholds."""
    g = np.where(y > 0, 1.0, -1.0)
    if not thresholds:
        return float(np.where(x > 0, 1.0, -1.0) @ (S @ g)), 0.0, 0.0
    r, a, b = -np.inf, 0.0, 0.0
    while True:
        shift_x = best_threshold(x, S @ g)[1]
        edge, shift_y = best_threshold(y, S.T @ np.where(x + shift_x > 0, 1.0, -1.0))
        if edge <= r + 1e-12:
            return r, a, b
        r, a, b = edge, shift_x, shift_y
        g = np.where(y + b > 0, 1.0, -1.0)


def best_threshold(z: Floats, v: Floats) -> tuple[float, float]:
    """The a that maximises sum_i v_i sgn(z_i + a) among those that split the z, and that maximum.

    Examples
    --------
    >>> best_threshold(np.array([1.0, 3.0, 2.0]), np.array([-1.0, 1.0, -2.0]))  # z > 2.5
    (4.0, -2.5)
    """
    order = np.argsort(z, kind="stable")
    z = z[order]
    below = np.cumsum(v[order])
    value = below[-1] - 2.0 * below[:-1]  # the first 1, 2, ..., n-1 of them negative
    middle = (z[:-1] + z[1:]) / 2.0
    value[~((z[:-1] <= middle) & (middle < z[1:]))] = -np.inf  # equal scores cannot be told apart
    best = int(np.argmax(value))
    if not np.isfinite(value[best]):
        return float(-below[-1]), float(-z[-1])
    return float(value[best]), float(-middle[best])
