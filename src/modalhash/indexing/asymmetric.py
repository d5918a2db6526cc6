"""Ranking stored bits by the real-valued scores of a query.

A query's bit j says only on which side of zero its score s_j lies; tanh(s_j) says also how surely. An item with bits
b_j in {-1, +1} gets sum_j tanh(s_j) b_j: for large scores the order is that of the Hamming distance, and bits that
the query is unsure about count less.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..codes import Codes, n_bytes
from ..exceptions import InputError

__all__ = ["asymmetric_scores", "check_scores", "score_tables"]

_SIGNS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").astype(np.float32) * 2 - 1
"""Row x: the eight bits of the byte x as -1 or +1."""


def check_scores(scores: Any, n: int, n_bits: int) -> NDArray[np.float32]:
    """Check the scores of `n` queries, shape (n, n_bits)."""
    array = np.asarray(scores)
    if array.dtype.kind not in "fiu" or array.shape != (n, n_bits):
        raise InputError(
            f"scores must be numbers of shape {(n, n_bits)}, one row per query code; got {array.dtype} of shape "
            f"{array.shape}. Pass hasher.project(view, X) of the rows that the codes came from."
        )
    if not np.isfinite(array).all():
        raise InputError("scores must be finite; some are NaN or infinite. Check the features they came from.")
    return array.astype(np.float32)


def score_tables(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """What each possible byte at each place of a code adds to the score.

    Parameters
    ----------
    scores : ndarray of float32, shape (n, n_bits)

    Returns
    -------
    ndarray of float32, shape (n, n_bytes, 256)
    """
    n, n_bits = scores.shape
    padded = np.zeros((n, n_bytes(n_bits) * 8), np.float32)
    padded[:, :n_bits] = np.tanh(scores)
    tables: NDArray[np.float32] = padded.reshape(n, -1, 8) @ _SIGNS.T
    return tables


def asymmetric_scores(scores: Any, codes: Codes) -> NDArray[np.float32]:
    """Score of every code for every query; larger is nearer.

    Parameters
    ----------
    scores : array of shape (n, n_bits)
        Real-valued scores of the queries, ``hasher.project(view, X)``.
    codes : ndarray of uint8, shape (m, n_bytes)

    Returns
    -------
    ndarray of float32, shape (n, m)
        ``tanh(scores) @ B.T`` with B the bits of the codes as -1 and +1.

    Examples
    --------
    >>> asymmetric_scores(np.array([[9.0, -0.1]]), np.array([[0], [3]], dtype=np.uint8)).round(1)
    array([[-0.9,  0.9]], dtype=float32)
    """
    array = np.asarray(scores, dtype=np.float32)
    tables = score_tables(array)
    out = np.zeros((len(array), len(codes)), np.float32)
    for byte in range(codes.shape[1]):
        out += tables[:, byte][:, codes[:, byte]]
    return out
