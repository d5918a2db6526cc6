"""Which rows make which batch, and reading them: blocks of neighbouring rows in random order, shuffled in a buffer.

Data on disk is read in blocks of neighbouring rows, a buffer of randomly chosen blocks at a time, and rows are
shuffled inside the buffer. Data in memory takes the same path without the reading, so that where a view lives does
not change the result. All random choices follow from one number, so that a fit can go on at any batch.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..datasets.rowsource import RowSource
from .objective import Part

__all__ = ["Batch", "Feed", "Plan", "batches", "blocks"]

BUFFER_BYTES = 128 * 2**20
"""Of all views together; a second buffer is read while the first is used."""
_BLOCK_BYTES = 4 * 2**20


class Feed:
    """One view as batches take it: from memory, or from a buffer of rows that were read.

    Parameters
    ----------
    X : ndarray, CSR matrix or RowSource
    rows : ndarray of int or None
        Which of the `n` items are there; None for all.
    n : int
    dtype : numpy dtype
        Of the batches.
    """

    def __init__(self, X: Any, rows: Any, n: int, dtype: Any) -> None:
        self.X, self.dtype = X, np.dtype(dtype)
        self.on_disk = isinstance(X, RowSource)
        self.place: NDArray[np.int64] | None = None
        if rows is not None:
            self.place = np.full(n, -1, dtype=np.int64)
            self.place[rows] = np.arange(len(rows)) if X.shape[0] == len(rows) else rows

    def load(self, ranges: list[tuple[int, int]]) -> Any:
        """The rows of these ranges, one after the other, if they are on disk."""
        if not self.on_disk:
            return None
        first = self.X[slice(*ranges[0])]
        if len(ranges) == 1:
            return first
        out = np.empty((sum(stop - start for start, stop in ranges), self.X.shape[1]), dtype=self.X.dtype)
        out[: len(first)] = first
        at = len(first)
        for start, stop in ranges[1:]:
            out[at : at + stop - start] = self.X[start:stop]
            at += stop - start
        return out

    def take(self, held: Any, ids: Any, places: Any) -> tuple[Any, Any]:
        """The matrix of the items `ids`, which are at `places` of the buffer, and which of them are present."""
        rows = None
        if self.place is not None:
            found = self.place[ids]
            rows = np.flatnonzero(found >= 0)
            ids, places = found[rows], places[rows]
            rows = None if len(rows) == len(found) else rows
        X = self.X[ids] if held is None else held[places]
        return X.astype(self.dtype, copy=False), rows


@dataclass(frozen=True)
class Batch:
    """Rows drawn together.

    Attributes
    ----------
    inputs : list of (matrix, ndarray of int or None)
        Per view, the rows present and which of the batch's items they are.
    size : int
        Items.
    done : float
        Share of all rows of all passes that came before it.
    """

    inputs: list[tuple[Any, Any]]
    size: int
    done: float


class Plan:
    """The batches of all passes; see the module's docstring.

    Parameters
    ----------
    n : int
        Items.
    batch_size : int
        About how many make a batch.
    n_epochs : int
        Passes.
    seed : int
    width : int
        Bytes of an item's row in all views.
    group : int
        Rows that are cheap to read together: blocks are multiples of it.
    """

    def __init__(self, n: int, batch_size: int, n_epochs: int, seed: int, width: int, group: int = 1) -> None:
        self.n, self.batch_size, self.n_epochs, self.seed = n, batch_size, n_epochs, seed
        self.block = max(1, min(n, -(-max(1, _BLOCK_BYTES // width) // group) * group))
        self.per_buffer = max(1, BUFFER_BYTES // (width * self.block))
        self.n_blocks = -(-n // self.block)
        self.total = sum(self._batches_of(blocks) for epoch in range(n_epochs) for blocks in self.buffers(epoch))

    @classmethod
    def of(cls, feeds: list[Feed], n: int, batch_size: int, n_epochs: int, seed: int) -> Plan:
        """The plan for these views; a sparse one counts as its mean row."""
        width = sum(_row_bytes(feed.X) for feed in feeds)
        group = max(feed.X.group if feed.on_disk else 1 for feed in feeds)
        return cls(n, batch_size, n_epochs, seed, max(1, width), group)

    def buffers(self, epoch: int) -> list[NDArray[np.int64]]:
        """Numbers of the blocks of each buffer of a pass."""
        n_buffers = -(-self.n_blocks // self.per_buffer)
        order = np.arange(self.n_blocks)
        if n_buffers > 1:
            order = np.random.default_rng([self.seed, epoch]).permutation(self.n_blocks)
        return [np.sort(blocks) for blocks in np.array_split(order, n_buffers)]

    def _rows_of(self, blocks: NDArray[np.int64]) -> int:
        short = self.n_blocks * self.block - self.n
        return len(blocks) * self.block - (short if self.n_blocks - 1 in blocks else 0)

    def _batches_of(self, blocks: NDArray[np.int64]) -> int:
        return max(1, round(self._rows_of(blocks) / self.batch_size))

    def ranges(self, blocks: NDArray[np.int64]) -> list[tuple[int, int]]:
        """Rows of blocks, neighbours joined."""
        out: list[tuple[int, int]] = []
        for b in blocks.tolist():
            start, stop = b * self.block, min(self.n, (b + 1) * self.block)
            if out and out[-1][1] == start:
                out[-1] = (out[-1][0], stop)
            else:
                out.append((start, stop))
        return out

    def pieces(self, start: int) -> Iterator[tuple[list[tuple[int, int]], list[Any], float]]:
        """From batch `start` on: the ranges of a buffer, the places of its batches, and the share of rows before."""
        skip, before = start, 0
        for epoch in range(self.n_epochs):
            for j, blocks in enumerate(self.buffers(epoch)):
                count, rows = self._batches_of(blocks), self._rows_of(blocks)
                if skip < count:
                    places = np.random.default_rng([self.seed, epoch, j]).permutation(rows)
                    drawn = np.array_split(places, count)
                    done = before + sum(map(len, drawn[:skip]))
                    yield self.ranges(blocks), drawn[skip:], done / (self.n * self.n_epochs)
                skip = max(0, skip - count)
                before += rows


def _row_bytes(X: Any) -> int:
    if isinstance(X, (RowSource, np.ndarray)):
        return int(X.shape[1]) * int(X.dtype.itemsize)
    stored: int = int(X.nnz) * (X.dtype.itemsize + X.indices.dtype.itemsize)
    return -(-stored // max(1, int(X.shape[0])))


def batches(feeds: list[Feed], plan: Plan, start: int = 0) -> Generator[Batch, None, None]:
    """Batches of a plan from batch `start` on; what is on disk is read one buffer ahead.

    Parameters
    ----------
    feeds : list of Feed
    plan : Plan
    start : int

    Yields
    ------
    Batch
    """
    with ThreadPoolExecutor(1) as reader:

        def load(piece: Any) -> Future[list[Any]]:
            return reader.submit(lambda: [feed.load(piece[0]) for feed in feeds])

        pieces = plan.pieces(start)
        piece = next(pieces, None)
        coming = None if piece is None else load(piece)
        while piece is not None and coming is not None:
            held = coming.result()
            ranges, drawn, done = piece
            piece = next(pieces, None)
            coming = None if piece is None else load(piece)
            ids = np.concatenate([np.arange(low, high) for low, high in ranges])
            for places in drawn:
                chosen = ids[places]
                inputs = [feed.take(rows, chosen, places) for feed, rows in zip(feeds, held, strict=True)]
                yield Batch(inputs, len(places), done)
                done += len(places) / (plan.n * plan.n_epochs)
            del held


def blocks(feeds: list[Feed], n: int) -> Iterator[tuple[slice, Batch]]:
    """All rows in order, a block at a time.

    Parameters
    ----------
    feeds : list of Feed
    n : int

    Yields
    ------
    tuple of (slice, Batch)
    """
    width = sum(feed.dtype.itemsize * feed.X.shape[1] for feed in feeds if feed.on_disk)
    size = max(1, min(8192, _BLOCK_BYTES // max(1, width)))
    for start in range(0, n, size):
        stop = min(n, start + size)
        inputs = []
        for feed in feeds:
            ids: Any = slice(start, stop)
            places: Any = slice(None)
            if feed.place is not None:
                ids, places = np.arange(start, stop), np.arange(stop - start)
            inputs.append(feed.take(feed.load([(start, stop)]), ids, places))
        yield slice(start, stop), Batch(inputs, stop - start, start / n)


def feeds_of(parts: list[Part], n: int) -> list[Feed]:
    """A feed per part, in the type of its W."""
    return [Feed(part.X.X, part.rows, n, part.W.dtype) for part in parts]
