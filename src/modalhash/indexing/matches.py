"""What an index does, and what a search returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["Matches", "SearchIndex", "merge_nearest", "merge_within"]

Ids = NDArray[np.int64]
Distances = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Matches:
    """Items found for each query, ordered by distance, ties by ascending id.

    From ``search`` the arrays are rectangular, one row per query. From ``lookup`` each query has its own number of
    items: the arrays are flat, and query ``i`` owns ``offsets[i]:offsets[i + 1]``. Indexing and iteration hide
    the difference: ``matches[i]`` is what query ``i`` found.

    Attributes
    ----------
    ids : ndarray of int64, shape (n_queries, k), or (total,) with `offsets`
    distances : ndarray of int32, same shape
        Hamming distances.
    scores : ndarray of float32, same shape, or None
        Where ``search`` ranked by real-valued scores: the score of each item, descending.
    offsets : ndarray of int64, shape (n_queries + 1,), or None

    Examples
    --------
    >>> found = Matches(np.array([7, 9, 4]), np.array([0, 2, 1]), offsets=np.array([0, 2, 2, 3]))
    >>> [one.ids.tolist() for one in found]
    [[7, 9], [], [4]]
    """

    ids: Ids
    distances: Distances
    scores: NDArray[np.float32] | None = None
    offsets: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.ids) if self.offsets is None else len(self.offsets) - 1

    def __getitem__(self, query: int) -> Matches:
        """Matches of one query, as flat arrays."""
        i = range(len(self))[query]
        at: Any = i if self.offsets is None else slice(int(self.offsets[i]), int(self.offsets[i + 1]))
        return Matches(self.ids[at], self.distances[at], None if self.scores is None else self.scores[at])

    def __iter__(self) -> Iterator[Matches]:
        for i in range(len(self)):
            yield self[i]


class SearchIndex(Protocol):
    """What every index can do, in memory, over shards or in a database."""

    n_bits: int

    def __len__(self) -> int: ...

    def add(self, codes: Any, ids: Any = None, *, payload: Mapping[str, Sequence[str]] | None = None) -> Self:
        """Add codes under new ids."""

    def upsert(self, codes: Any, ids: Any, *, payload: Mapping[str, Sequence[str]] | None = None) -> Self:
        """Add codes, replacing those whose id is there."""

    def remove(self, ids: Any) -> Self:
        """Remove codes by id."""

    def search(self, codes: Any, k: int = 10, *, within: Any = None) -> Matches:
        """The k nearest of each query."""

    def lookup(self, codes: Any, radius: int, *, within: Any = None) -> Matches:
        """All within a radius of each query."""


def merge_nearest(parts: list[Matches], k: int) -> Matches:
    """Best `k` of several rectangular results over disjoint sets of items.

    Examples
    --------
    >>> a = Matches(np.array([[5, 1]]), np.array([[0, 3]]))
    >>> b = Matches(np.array([[2, 9]]), np.array([[0, 2]]))
    >>> merge_nearest([a, b], k=3).ids.tolist()
    [[2, 5, 9]]
    """
    ids = np.concatenate([p.ids for p in parts], axis=1)
    distances = np.concatenate([p.distances for p in parts], axis=1)
    order = np.lexsort((ids, distances), axis=1)[:, :k]
    return Matches(np.take_along_axis(ids, order, 1), np.take_along_axis(distances, order, 1))


def merge_within(parts: list[Matches]) -> Matches:
    """All of several ragged results over disjoint sets of items.

    Examples
    --------
    >>> a = Matches(np.array([5]), np.array([1]), offsets=np.array([0, 1, 1]))
    >>> b = Matches(np.array([2, 9]), np.array([1, 0]), offsets=np.array([0, 1, 2]))
    >>> [one.ids.tolist() for one in merge_within([a, b])]
    [[2, 5], [9]]
    """
    counts = [np.diff(_offsets(p)) for p in parts]
    query = np.concatenate([np.repeat(np.arange(len(c)), c) for c in counts])
    ids = np.concatenate([p.ids for p in parts])
    distances = np.concatenate([p.distances for p in parts])
    order = np.lexsort((ids, distances, query))
    offsets = np.concatenate([[0], np.cumsum(np.sum(counts, axis=0))]).astype(np.int64)
    return Matches(ids[order], distances[order], offsets=offsets)


def _offsets(matches: Matches) -> NDArray[np.int64]:
    if matches.offsets is None:
        rows, columns = matches.ids.shape
        regular: NDArray[np.int64] = np.arange(rows + 1, dtype=np.int64) * columns
        return regular
    return matches.offsets
