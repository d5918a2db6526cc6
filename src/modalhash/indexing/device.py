"""Exact search on a torch device: distances read off a matrix product of ±1 bits, the nearest kept block by block.

A GPU compares a block of queries with a block of codes in one product; both distance and row of a pair go into one
number, so that the k smallest numbers are the k nearest with ties by ascending row, as everywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..linalg import torch_device

__all__ = ["DeviceScan"]

_BLOCK = 1 << 18
"""Codes that are compared at a time; with a distance below 2**13 their keys fit 32 bits."""
_PAIRS = 1 << 28
"""Pairs of a query and a code that are held at a time: a gigabyte of keys."""


class DeviceScan:
    """Packed codes on a device, searched by looking at all of them.

    Parameters
    ----------
    codes : ndarray of uint8, shape (n, n_bytes)
    n_bits : int
    device : str
        Such as "cuda".

    Examples
    --------
    >>> import pytest
    >>> _ = pytest.importorskip("torch")
    >>> codes = np.array([[0b00], [0b11], [0b01]], dtype=np.uint8)
    >>> rows, distances = DeviceScan(codes, 2, "cpu").nearest(codes[:1], k=2)
    >>> rows.tolist(), distances.tolist()
    ([[0, 2]], [[0, 1]])
    """

    def __init__(self, codes: NDArray[np.uint8], n_bits: int, device: str) -> None:
        import torch

        self._torch, self.device, self.n_bits = torch, torch_device(device), n_bits
        self._codes = torch.from_numpy(np.array(codes)).to(self.device)
        # Half precision holds whole numbers up to 2,048 exactly; a CPU multiplies float32 faster.
        half = self.device.type == "cuda" and 8 * codes.shape[1] <= 2048
        self._dtype = torch.float16 if half else torch.float32

    def __len__(self) -> int:
        return len(self._codes)

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return int(self._codes.numel())

    def _signs(self, packed: Any) -> Any:
        """Bits as -1 and +1, shape (m, 8 n_bytes)."""
        torch = self._torch
        places = torch.arange(8, device=self.device, dtype=torch.uint8)
        bits = (packed[:, :, None] >> places) & 1
        return bits.flatten(1).to(self._dtype) * 2 - 1

    def nearest(self, codes: NDArray[np.uint8], k: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Rows and distances of the `k` nearest, by distance and row.

        Parameters
        ----------
        codes : ndarray of uint8, shape (n_queries, n_bytes)
        k : int

        Returns
        -------
        tuple of ndarray
            Rows (int64) and distances (int32), each of shape (n_queries, min(k, n)).
        """
        torch, n, width = self._torch, len(self), 8 * codes.shape[1]
        k = min(k, n)
        m = max(1, _PAIRS // min(n, _BLOCK)) if n else max(1, len(codes))
        found = []
        for start in range(0, len(codes), m):
            asked = self._signs(torch.from_numpy(np.array(codes[start : start + m])).to(self.device))
            best = torch.empty((len(asked), 0), dtype=torch.int64, device=self.device)
            for first in range(0, n, _BLOCK):
                block = self._signs(self._codes[first : first + _BLOCK])
                # Padding bits agree, so that distance = (width - product) / 2 counts the real ones.
                keys = ((width - asked @ block.T) * 0.5).to(torch.int32)
                keys *= _BLOCK
                keys += torch.arange(len(block), dtype=torch.int32, device=self.device)
                keys = torch.topk(keys, min(k, len(block)), dim=1, largest=False, sorted=False).values.long()
                keys = (keys // _BLOCK << 40) | (keys % _BLOCK + first)
                best = torch.cat([best, keys], dim=1)
                if best.shape[1] > k:
                    best = torch.topk(best, k, dim=1, largest=False, sorted=False).values
            found.append(torch.sort(best, dim=1).values.cpu().numpy())
        keys = np.concatenate(found) if found else np.empty((0, k), np.int64)
        return keys & ((1 << 40) - 1), (keys >> 40).astype(np.int32)
