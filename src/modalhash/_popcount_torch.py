"""The same counts as :mod:`modalhash._popcount`, for codes that live in torch (on a GPU, or on the CPU).

A Hamming distance is read off a matrix product of ±1 bits and a grade off a product of 0/1 labels; both are whole
numbers that the product holds exactly. Queries and database meet in blocks, so memory stays within the stated one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["TorchBackend"]

_BYTES_PER_PAIR = 96
"""Upper bound on what one pair of query and item takes during a block: keys, order, ranks, sums."""


class TorchBackend:
    """Counts for blocks of queries, on the device that holds the codes.

    Parameters
    ----------
    query_codes, database_codes : tensor of uint8, shape (n_queries, n_bytes), (n, n_bytes)
        On one device.
    query_labels, database_labels : tensor of uint8, shape (n_queries, label bytes), (n, label bytes)
        Bit-packed, on the same device.
    n_bits : int
    cap : int
        Grades above it count as `cap`.
    block_bytes : int
        What a block of pairs may take.
    """

    def __init__(
        self,
        query_codes: Any,
        database_codes: Any,
        query_labels: Any,
        database_labels: Any,
        *,
        n_bits: int,
        cap: int,
        block_bytes: int,
    ) -> None:
        import torch

        self.n_bits, self.cap = n_bits, cap
        self._torch = torch
        self._queries, self._database = (query_codes, query_labels), (database_codes, database_labels)
        self._width = 8 * database_codes.shape[1]
        # Half precision holds whole numbers up to 2,048 exactly; a CPU multiplies float32 faster.
        longest = max(self._width, 8 * database_labels.shape[1])
        self._dtype = torch.float16 if database_codes.is_cuda and longest <= 2048 else torch.float32
        self._key = torch.int16 if max(n_bits, cap) < 1 << 15 else torch.int32
        self._pairs = max(1 << 12, block_bytes // _BYTES_PER_PAIR)

    def _bits(self, packed: Any) -> Any:
        shifts = self._torch.arange(8, dtype=self._torch.uint8, device=packed.device)
        return ((packed.unsqueeze(-1) >> shifts) & 1).flatten(1).to(self._dtype)

    def _query_blocks(self, rows: slice) -> Iterator[tuple[int, int, Any, Any]]:
        codes, labels = (x[rows] for x in self._queries)
        size = max(1, min(256, self._pairs // 1024))
        for start in range(0, codes.shape[0], size):
            stop = min(codes.shape[0], start + size)
            yield start, stop, 2 * self._bits(codes[start:stop]) - 1, self._bits(labels[start:stop])

    def _database_blocks(self, query_bits: Any, query_label_bits: Any) -> Iterator[tuple[Any, Any]]:
        # Distance and grade of every pair in a block of the database, as short whole numbers.
        codes, labels = self._database
        size = max(1, self._pairs // query_bits.shape[0])
        for begin in range(0, codes.shape[0], size):
            bits = 2 * self._bits(codes[begin : begin + size]) - 1
            distance = ((self._width - query_bits @ bits.T) / 2).to(self._key)
            grade = query_label_bits @ self._bits(labels[begin : begin + size]).T
            yield distance, grade.clamp_(max=self.cap).to(self._key)

    def count(self, rows: slice) -> NDArray[np.int64]:
        """Histogram of distance and grade for the queries `rows`, shape (rows, n_bits + 1, cap + 1)."""
        parts = []
        width = (self.n_bits + 1) * (self.cap + 1)
        for _, _, bits, label_bits in self._query_blocks(rows):
            m = bits.shape[0]
            base = self._torch.arange(m, device=bits.device).unsqueeze(1) * width
            out = self._torch.zeros(m * width, dtype=self._torch.int64, device=bits.device)
            for distance, grade in self._database_blocks(bits, label_bits):
                key = base + distance.long() * (self.cap + 1) + grade
                out += self._torch.bincount(key.flatten(), minlength=m * width)
            parts.append(out.cpu().numpy().reshape(m, self.n_bits + 1, self.cap + 1))
        return np.concatenate(parts)

    def walk(
        self, rows: slice, counts: NDArray[np.int64], *, k: int, whole: bool, steps: int
    ) -> tuple[NDArray[np.float64], NDArray[np.uint16], NDArray[np.float64]]:
        """Follow the ranking by distance, ties by ascending id; see :meth:`modalhash._popcount.PopcountBackend.walk`.

        Everything is exact whatever `whole` says.
        """
        del whole
        torch, m = self._torch, counts.shape[0]
        total, relevant = counts.sum(axis=2), counts[:, :, 1:].sum(axis=2)
        rank, hits = np.cumsum(total, axis=1) - total, np.cumsum(relevant, axis=1) - relevant
        n_relevant = np.maximum(relevant.sum(axis=1), 1)
        precision_sum, best = np.zeros(m), np.zeros((m, steps + 1))
        top = np.zeros((m, k), dtype=np.uint16)
        for start, stop, bits, label_bits in self._query_blocks(rows):
            device = bits.device
            # How many items (relevant items) are placed before the next one at each distance.
            place = torch.as_tensor(rank[start:stop], device=device).clone()
            hit = torch.as_tensor(hits[start:stop], device=device).clone()
            known = torch.as_tensor(n_relevant[start:stop], device=device).unsqueeze(1)
            block_sum = torch.zeros(stop - start, dtype=torch.float64, device=device)
            block_best = torch.zeros((stop - start, steps + 1), dtype=torch.float64, device=device)
            head = torch.zeros((stop - start, k + 1), dtype=torch.int32, device=device)  # the last column is waste
            for distance, grade in self._database_blocks(bits, label_bits):
                distance, order = torch.sort(distance, dim=1, stable=True)
                grade, distance = grade.gather(1, order), distance.long()
                good = (grade > 0).long()
                seen, seen_good = (
                    self._per_distance(distance, torch.ones_like(good)),
                    self._per_distance(distance, good),
                )
                # Position within the block's own group = position in the block - what lies in nearer groups.
                before, before_good = seen.cumsum(1) - seen, seen_good.cumsum(1) - seen_good
                at = torch.arange(1, distance.shape[1] + 1, device=device) + (place - before).gather(1, distance)
                nth = good.cumsum(1) + (hit - before_good).gather(1, distance)
                precision = torch.where(good > 0, nth.double() / at.double(), 0.0)
                block_sum += precision.sum(1)
                if k:
                    head.scatter_(1, (at - 1).clamp_(max=k), grade.int())
                if steps:
                    level = torch.where(good > 0, steps * nth // known, 0)
                    block_best.scatter_reduce_(1, level, precision, "amax")
                place += seen
                hit += seen_good
            precision_sum[start:stop] = block_sum.cpu().numpy()
            best[start:stop] = block_best.cpu().numpy()
            top[start:stop] = head[:, :k].cpu().numpy()
        return precision_sum, top, best

    def _per_distance(self, distance: Any, weight: Any) -> Any:
        out = self._torch.zeros((distance.shape[0], self.n_bits + 1), dtype=self._torch.int64, device=distance.device)
        return out.scatter_add_(1, distance, weight)
