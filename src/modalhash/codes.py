"""Binary codes: the only place for the sign rule, the bit order and the padding.

A code of ``n_bits`` bits is a row of ``ceil(n_bits / 8)`` bytes (``uint8``). Bit ``j`` of a code is bit
``j % 8`` (little-endian: 1, 2, 4, ...) of byte ``j // 8``; the unused bits of the last byte are zero. This is
the layout FAISS expects of its binary indexes. A bit is 1 where its score is ``> 0``; a score of exactly
zero gives 0.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .exceptions import InputError

__all__ = ["as_words", "check_codes", "hamming", "n_bytes", "pack", "pack_scores", "unpack"]

Codes = NDArray[np.uint8]


def n_bytes(n_bits: int) -> int:
    """Bytes that a code of `n_bits` bits takes.

    Parameters
    ----------
    n_bits : int
        Length of a code, at least 1.

    Returns
    -------
    int
        ``ceil(n_bits / 8)``.

    Examples
    --------
    >>> n_bytes(12)
    2
    """
    if isinstance(n_bits, bool) or not isinstance(n_bits, (int, np.integer)) or n_bits < 1:
        raise InputError(f"n_bits must be a whole number of at least 1; got {n_bits!r}.")
    return -(-int(n_bits) // 8)


def pack(bits: Any) -> Codes:
    """Pack a matrix of 0/1 (or booleans) into codes.

    Parameters
    ----------
    bits : array of shape (n, n_bits)
        Zeros and ones; anything else is refused. Scores go through :func:`pack_scores`.

    Returns
    -------
    ndarray of uint8, shape (n, ceil(n_bits / 8))

    Examples
    --------
    >>> import numpy as np
    >>> pack(np.array([[1, 0, 0, 0, 0, 0, 0, 1, 1]])).tolist()
    [[129, 1]]
    """
    bits = np.asarray(bits)
    if bits.ndim != 2 or bits.shape[1] < 1:
        raise InputError(f"bits must be a matrix (n, n_bits) with at least one column; got shape {bits.shape}.")
    if bits.dtype != np.bool_:
        if bits.dtype.kind not in "biuf" or not np.isin(bits, (0, 1)).all():
            raise InputError("bits must be 0 or 1. For real scores (or -1/+1) use pack_scores.")
        bits = bits != 0
    return np.packbits(bits, axis=1, bitorder="little")


def pack_scores(scores: Any) -> Codes:
    """Turn real scores into codes: a bit is 1 where its score is greater than zero.

    Parameters
    ----------
    scores : array or torch tensor of shape (n, n_bits)
        A tensor's bits are packed where it lives.

    Returns
    -------
    ndarray of uint8, shape (n, ceil(n_bits / 8))

    Examples
    --------
    >>> import numpy as np
    >>> pack_scores(np.array([[0.5, -1.0, 0.0, 2.0]])).tolist()
    [[9]]
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(scores, torch.Tensor):
        bits = torch.nn.functional.pad((scores > 0).to(torch.uint8), (0, -scores.shape[1] % 8))
        places = 2 ** torch.arange(8, dtype=torch.uint8, device=scores.device)
        packed: Codes = (bits.unflatten(1, (-1, 8)) * places).sum(2, dtype=torch.uint8).cpu().numpy()
        return packed
    return pack(np.asarray(scores) > 0)


def check_codes(codes: Any, n_bits: int | None = None, name: str = "codes") -> Codes:
    """Check that something is a matrix of packed codes and return it C-contiguous.

    Parameters
    ----------
    codes : array of uint8, shape (n, n_bytes)
    n_bits : int, optional
        The width must be ``ceil(n_bits / 8)`` bytes and the padding zero.
    name : str
        How to call it in an error.

    Returns
    -------
    ndarray of uint8

    Examples
    --------
    >>> import numpy as np
    >>> check_codes(np.array([[3]], dtype=np.uint8), n_bits=2).shape
    (1, 1)
    """
    codes = np.asarray(codes)
    if codes.ndim != 2 or codes.dtype != np.uint8:
        raise InputError(
            f"{name} must be packed codes, a uint8 matrix (n, n_bytes); "
            f"got {codes.dtype} of shape {codes.shape}. Pack 0/1 bits with modalhash.codes.pack."
        )
    if codes.shape[1] < 1:
        raise InputError(f"{name} must have at least one byte per code; got shape {codes.shape}.")
    if n_bits is not None:
        width = n_bytes(n_bits)
        if codes.shape[1] != width:
            raise InputError(
                f"{name} have {codes.shape[1]} bytes per code; {n_bits} bits need {width}. "
                "Pass codes of the same n_bits on both sides."
            )
        if n_bits % 8 and codes.shape[0] and int(codes[:, -1].max()) >> (n_bits % 8):
            raise InputError(
                f"{name} have bits set beyond bit {n_bits}; the padding of the last byte must be zero. "
                "Check n_bits, or pack again with modalhash.codes.pack."
            )
    return np.ascontiguousarray(codes)


def unpack(codes: Any, n_bits: int) -> NDArray[np.bool_]:
    """Unpack codes into a matrix of booleans, the inverse of :func:`pack`.

    Parameters
    ----------
    codes : array of uint8, shape (n, ceil(n_bits / 8))
    n_bits : int

    Returns
    -------
    ndarray of bool, shape (n, n_bits)

    Examples
    --------
    >>> import numpy as np
    >>> unpack(np.array([[9]], dtype=np.uint8), 4).astype(int).tolist()
    [[1, 0, 0, 1]]
    """
    codes = check_codes(codes, n_bits)
    return np.unpackbits(codes, axis=1, count=n_bits, bitorder="little").view(np.bool_)


def as_words(codes: Any) -> NDArray[np.uint64]:
    """Zero-pad codes to whole 64-bit words, the form that popcount loops read.

    Parameters
    ----------
    codes : array of uint8, shape (n, n_bytes)

    Returns
    -------
    ndarray of uint64, shape (n, ceil(n_bytes / 8))
        A view of the input where its rows are whole words already.

    Examples
    --------
    >>> import numpy as np
    >>> as_words(np.array([[1, 2]], dtype=np.uint8)).tolist()
    [[513]]
    """
    codes = check_codes(codes)
    width = -(-codes.shape[1] // 8) * 8
    if width != codes.shape[1]:
        padded = np.zeros((codes.shape[0], width), dtype=np.uint8)
        padded[:, : codes.shape[1]] = codes
        codes = padded
    words: NDArray[np.uint64] = codes.view(np.dtype("<u8")).astype(np.uint64, copy=False)
    return words


def hamming(a: Any, b: Any) -> NDArray[np.int32]:
    """Hamming distance between every code of `a` and every code of `b`.

    Parameters
    ----------
    a : array of uint8, shape (n, n_bytes)
    b : array of uint8, shape (m, n_bytes)

    Returns
    -------
    ndarray of int32, shape (n, m)
        Memory grows with n x m; use :class:`modalhash.HammingIndex` or :func:`modalhash.evaluate` on large sets.

    Examples
    --------
    >>> import numpy as np
    >>> hamming(np.array([[0b0111]], dtype=np.uint8), np.array([[0b0001], [0b1111]], dtype=np.uint8)).tolist()
    [[2, 1]]
    """
    a, b = check_codes(a, name="a"), check_codes(b, name="b")
    if a.shape[1] != b.shape[1]:
        raise InputError(f"codes of {a.shape[1]} and of {b.shape[1]} bytes cannot be compared; use one n_bits.")
    aw, bw = as_words(a), as_words(b)
    out = np.zeros((a.shape[0], b.shape[0]), dtype=np.int32)
    for word in range(aw.shape[1]):
        out += np.bitwise_count(aw[:, word, None] ^ bw[None, :, word])
    return out
