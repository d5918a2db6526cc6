"""Compiled loops of the block engine (numba): sigmoid, gradient and sparse products on one block of rows.

All release the GIL, so that blocks run side by side in threads, and write into buffers they are given.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

__all__ = ["accumulate_rows", "csr_dot", "csr_tdot", "embed_block", "gather_block", "gradient_block", "round_block"]

F = np.float32
_LOG2E = F(np.log2(np.e))
# 2^f on [-1/2, 1/2] as a polynomial of degree 6 through Chebyshev nodes: its error is that of float32, 1e-7
_NODES = 0.5 * np.cos((2 * np.arange(400) + 1) * np.pi / 800)
_C = (
    np.polynomial.Chebyshev.fit(_NODES, np.exp2(_NODES), 6, domain=[-0.5, 0.5])
    .convert(kind=np.polynomial.Polynomial)
    .coef
)
_C0, _C1, _C2, _C3, _C4, _C5, _C6 = (F(x) for x in _C)
_LIMIT = F(86.0)  # beyond it 2^-x leaves float32; the sigmoid is 0 or 1 to every digit long before

_fast: dict[str, Any] = {"nogil": True, "fastmath": True, "cache": True, "error_model": "numpy"}


@njit(**_fast)
def embed_block(Z: Any, shift: Any, alpha: Any, T: Any, first: bool, bits: Any, powers: Any) -> None:
    """Z <- sigmoid(Z + shift); T <- (or +=) alpha (Z - 1/2). `powers` is `bits` seen as float32; both (c,)."""
    c = Z.shape[1]
    for i in range(Z.shape[0]):
        z = Z[i]
        t = T[i]
        for j in range(c):
            x = min(max(-(z[j] + shift[j]) * _LOG2E, -_LIMIT), _LIMIT)
            k = np.int32(np.floor(x + F(0.5)))
            f = x - F(k)
            bits[j] = (k + np.int32(127)) << np.int32(23)  # the exponent of 2^k
            z[j] = _C0 + f * (_C1 + f * (_C2 + f * (_C3 + f * (_C4 + f * (_C5 + f * _C6)))))
        if first:
            for j in range(c):
                s = F(1) / (F(1) + z[j] * powers[j])
                z[j] = s
                t[j] = alpha * (s - F(0.5))
        else:
            for j in range(c):
                s = F(1) / (F(1) + z[j] * powers[j])
                z[j] = s
                t[j] += alpha * (s - F(0.5))


@njit(**_fast)
def gather_block(table: Any, rows: Any, T: Any, first: bool) -> None:
    """T <- (or +=) table[rows]: the share of a view whose rows repeat."""
    c = T.shape[1]
    for i in range(T.shape[0]):
        t = T[i]
        s = table[rows[i]]
        if first:
            for j in range(c):
                t[j] = s[j]
        else:
            for j in range(c):
                t[j] += s[j]


@njit(**_fast)
def round_block(T: Any, B: Any) -> None:
    """B <- [T > 0]."""
    for i in range(T.shape[0]):
        for j in range(T.shape[1]):
            B[i, j] = np.uint8(T[i, j] > F(0))


@njit(**_fast)
def gradient_block(C: Any, M: Any, B: Any, columns: Any) -> Any:
    """M <- (C - B + M) C (1 - C); adds its column sums to `columns` and returns the sum of (C - B)^2."""
    total = F(0)
    c = C.shape[1]
    for i in range(C.shape[0]):
        for j in range(c):
            s = C[i, j]
            d = s - F(B[i, j])
            total += d * d
            g = (d + M[i, j]) * s * (F(1) - s)
            M[i, j] = g
            columns[j] += g
    return total


@njit(**_fast)
def accumulate_rows(B: Any, rows: Any, sums: Any) -> None:
    """sums[rows[i]] += B[i]."""
    for i in range(B.shape[0]):
        s = sums[rows[i]]
        for j in range(B.shape[1]):
            s[j] += F(B[i, j])


@njit(**_fast)
def csr_dot(indptr: Any, indices: Any, data: Any, start: int, stop: int, W: Any, out: Any) -> None:
    """Out <- S[start:stop] @ W for a CSR matrix S."""
    c = W.shape[1]
    for i in range(start, stop):
        o = out[i - start]
        for j in range(c):
            o[j] = F(0)
        for p in range(indptr[i], indptr[i + 1]):
            value = data[p]
            w = W[indices[p]]
            for j in range(c):
                o[j] += value * w[j]


@njit(**_fast)
def csr_tdot(indptr: Any, indices: Any, data: Any, start: int, stop: int, G: Any, out: Any) -> None:
    """Out += S[start:stop]' @ G for a CSR matrix S."""
    c = G.shape[1]
    for i in range(start, stop):
        g = G[i - start]
        for p in range(indptr[i], indptr[i + 1]):
            value = data[p]
            o = out[indices[p]]
            for j in range(c):
                o[j] += value * g[j]
