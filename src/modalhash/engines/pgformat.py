"""Codes in the formats of PostgreSQL: bit strings, and rows for COPY."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ..codes import Codes, pack, unpack

__all__ = ["bit_strings", "copy_rows", "from_bit_strings"]

_ROWS = 20_000
_HEADER = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
_END = b"\xff\xff"


def bit_strings(codes: Codes, n_bits: int) -> list[str]:
    """Codes as strings of 0 and 1, bit j at place j.

    Examples
    --------
    >>> bit_strings(np.array([[1], [6]], dtype=np.uint8), 3)
    ['100', '011']
    """
    text = (unpack(codes, n_bits).view(np.uint8) + ord("0")).tobytes().decode()
    return [text[i : i + n_bits] for i in range(0, len(text), n_bits)]


def from_bit_strings(strings: Sequence[str], n_bits: int) -> Codes:
    """Packed codes of bit strings, the inverse of :func:`bit_strings`.

    Examples
    --------
    >>> from_bit_strings(["100", "011"], 3).tolist()
    [[1], [6]]
    """
    return pack((np.frombuffer("".join(strings).encode(), np.uint8) - ord("0")).reshape(-1, n_bits))


def copy_rows(ids: NDArray[np.int64], codes: Codes, texts: Sequence[Sequence[str]], n_bits: int) -> Iterator[bytes]:
    r"""What COPY ... FROM STDIN (FORMAT BINARY) takes for columns (id bigint, code bit(n_bits), text, ...).

    Per row the number of fields, then each field's length and bytes, big-endian. A bit string is its length in bits
    and its bits, the first on top of the first byte. The parts of fixed size of all rows are one structured array.

    Parameters
    ----------
    ids : ndarray of int64, shape (n,)
    codes : ndarray of uint8, shape (n, n_bytes)
    texts : sequence of columns, each of n strings
    n_bits : int

    Yields
    ------
    bytes

    Examples
    --------
    >>> rows = b"".join(copy_rows(np.array([7]), np.array([[1]], dtype=np.uint8), [["x"]], n_bits=3))
    >>> rows[19:].hex(" ", 2)  # 3 fields; 8 bytes: 7; 5 bytes: 3 bits, 100; 1 byte: x; the end
    '0003 0000 0008 0000 0000 0000 0007 0000 0005 0000 0003 8000 0000 0178 ffff'
    """
    layout = np.dtype(
        [
            ("fields", ">i2"),
            ("id_size", ">i4"),
            ("id", ">i8"),
            ("code_size", ">i4"),
            ("n_bits", ">i4"),
            ("code", "u1", (codes.shape[1],)),
        ]
    )
    yield _HEADER
    for start in range(0, len(ids), _ROWS):
        part = slice(start, start + _ROWS)
        rows = np.empty(len(ids[part]), dtype=layout)
        rows["fields"], rows["id_size"], rows["id"] = 2 + len(texts), 8, ids[part]
        rows["code_size"], rows["n_bits"] = 4 + codes.shape[1], n_bits
        rows["code"] = np.packbits(unpack(codes[part], n_bits), axis=1)
        fixed, size = rows.tobytes(), layout.itemsize
        if not texts:
            yield fixed
            continue
        pieces = []
        for i, values in enumerate(zip(*(text[part] for text in texts), strict=True)):
            pieces.append(fixed[i * size : (i + 1) * size])
            for value in map(str.encode, values):
                pieces += [len(value).to_bytes(4, "big"), value]
        yield b"".join(pieces)
    yield _END
