"""One moment of an index, and how it is searched.

Search structures (hash tables, FAISS's) are built over the rows of some moment. A :class:`Cover` remembers which, and
what was added or removed since: what was added is looked at one by one, what was removed is dropped from
the answer. So structures need not follow every change, and answers are right at all times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..codes import Codes
from .matches import Distances, Ids, Matches, merge_within
from .parallel import cores
from .records import Records, words_of_codes

__all__ = ["Cover", "State", "nearest", "nearest_approximately", "ranked_by_scores", "within_radius"]

Rows = NDArray[np.int64]
_ROW_BITS, _FAR = 40, np.iinfo(np.int64).max
_REBUILD_SHARE, _REBUILD_LEAST = 32, 1024


@dataclass(frozen=True)
class Cover:
    """A search structure over the rows of some moment, and what has changed since.

    Attributes
    ----------
    structure : ChunkTables or ApproximateNeighbors
    ids : ndarray of int64
        Of the rows it was built over.
    fresh : ndarray of int64
        Added, or added anew with another code, since; ascending.
    n_gone : int
        How many of `ids` were removed since.
    """

    structure: Any
    ids: Ids
    fresh: Ids = field(default_factory=lambda: np.empty(0, np.int64))
    n_gone: int = 0

    def added(self, ids: Ids) -> Cover:
        """After these ids were added."""
        return replace(self, fresh=np.union1d(self.fresh, ids))

    def removed(self, ids: Ids) -> Cover:
        """After these ids were removed."""
        return replace(
            self,
            fresh=np.setdiff1d(self.fresh, ids),
            n_gone=min(len(self.ids), self.n_gone + int(np.isin(ids, self.ids).sum())),
        )

    @cached_property
    def rows_are_ids(self) -> bool:
        """Whether the ids, which ascend, go from 0 without a gap."""
        return bool(self.ids.size and self.ids[0] == 0 and self.ids[-1] == self.ids.size - 1)

    @cached_property
    def changed(self) -> bool:
        """Whether the structure no longer tells all."""
        return bool(self.fresh.size or self.n_gone)

    @cached_property
    def stale(self) -> bool:
        """Whether so much changed that building anew pays."""
        return self.fresh.size + self.n_gone > max(_REBUILD_LEAST, len(self.ids) // _REBUILD_SHARE)

    def holds(self, ids: Ids, records: Records) -> NDArray[np.bool_]:
        """Which of these ids, found in the structure, are still there with the code they had."""
        there = records.find(ids.ravel())[1].reshape(ids.shape)
        return there & ~np.isin(ids, self.fresh)


@dataclass(frozen=True)
class State:
    """All that a search reads, replaced as a whole: whoever holds one sees one moment.

    Attributes
    ----------
    records : Records
    next_id : int
        The first id that was never used.
    covers : dict of str to Cover
    """

    records: Records
    next_id: int = 0
    covers: Mapping[str, Cover] = field(default_factory=dict)

    def added(self, codes: Codes, ids: Ids, payload: Mapping[str, Sequence[str]]) -> State:
        """With more rows."""
        records = self.records.extended(codes, ids, payload)
        next_id = max(self.next_id, int(ids.max()) + 1) if ids.size else self.next_id
        return State(records, next_id, {name: cover.added(ids) for name, cover in self.covers.items()})

    def removed(self, ids: Ids) -> State:
        """Without the rows of these ids."""
        records = self.records.without(ids)
        return State(records, self.next_id, {name: cover.removed(ids) for name, cover in self.covers.items()})

    def covered(self, name: str, cover: Cover | None) -> State:
        """With a structure put in place of the one of that name; None takes it away."""
        covers = {other: c for other, c in self.covers.items() if other != name}
        return replace(self, covers=covers if cover is None else {**covers, name: cover})

    def some(self, rows: Rows) -> tuple[NDArray[Any], int]:
        """Words of some rows as the kernels take them, and how many."""
        return np.ascontiguousarray(self.records.words.array[:, rows]), len(rows)


def nearest(state: State, codes: Codes, k: int, threads: int, among: Rows | None = None) -> tuple[Rows, Distances]:
    """The `k` nearest rows of each query, exactly; all rows where there are fewer.

    Parameters
    ----------
    state : State
    codes : ndarray of uint8, shape (n_queries, n_bytes)
    k, threads : int
    among : ndarray of int64, optional
        Ascending rows to look among; all by default.

    Returns
    -------
    tuple of ndarray, shape (n_queries, min(k, n))
        Rows and distances.
    """
    from .scan import nearest as scan

    words, n = (state.records.words.data, len(state.records)) if among is None else state.some(among)
    k = min(k, n)
    if k == 0:
        return np.empty((len(codes), 0), np.int64), np.empty((len(codes), 0), np.int32)
    n_bits = state.records.n_bits
    rows, distances = scan(words, n, words_of_codes(codes, n_bits), k, n_bits, threads)
    return rows if among is None else among[rows], distances


def nearest_approximately(state: State, codes: Codes, k: int, threads: int) -> tuple[Rows, Distances]:
    """As :func:`nearest`, through the approximate structure; rows it finds too few for are searched exactly."""
    records, cover = state.records, state.covers["search"]
    k = min(k, len(records))
    if not len(codes):
        return nearest(state, codes, k, threads)
    found, distances = cover.structure.search(codes, min(len(cover.ids), k + min(k, cover.n_gone)))
    rows, good = found, found >= 0
    if cover.changed:
        rows = records.find(cover.ids[found].ravel())[0].reshape(found.shape)
        good &= cover.holds(cover.ids[found], records)
        fresh = nearest(state, codes, k, threads, records.find(cover.fresh)[0])
        rows, distances = np.hstack([rows, fresh[0]]), np.hstack([distances, fresh[1]])
        good = np.hstack([good, np.ones(fresh[0].shape, dtype=bool)])
    # One integer per candidate that sorts by distance, then row; those that are gone come last.
    key = np.where(good, (distances.astype(np.int64) << _ROW_BITS) | rows, _FAR)
    key.sort(axis=1)
    rows, distances = key[:, :k] & ((1 << _ROW_BITS) - 1), (key[:, :k] >> _ROW_BITS).astype(np.int32)
    short = np.flatnonzero(good.sum(axis=1) < k)
    if short.size:
        exact = nearest(state, codes[short], k, threads)
        if rows.shape[1] < k:
            rows, distances = (np.pad(a, ((0, 0), (0, k - a.shape[1]))) for a in (rows, distances))
        rows[short], distances[short] = exact
    return rows, distances


def within_radius(state: State, codes: Codes, radius: int, threads: int | None, among: Rows | None = None) -> Matches:
    """All rows within `radius` of each query, from the tables where they are built and pay, else by a scan.

    Parameters
    ----------
    state : State
    codes : ndarray of uint8, shape (n_queries, n_bytes)
    radius : int
    threads : int, optional
        One per core by default.
    among : ndarray of int64, optional
        As in :func:`nearest`.

    Returns
    -------
    Matches
        Flat, with offsets.
    """
    records, cover = state.records, state.covers.get("lookup")
    queries = words_of_codes(codes, records.n_bits)
    found = None if among is not None or cover is None else cover.structure.within(queries, radius, threads)
    if cover is None or found is None:
        return _scanned(state, queries, radius, threads, among)
    rows, distances, offsets = found
    matches = Matches(rows if cover.rows_are_ids else cover.ids[rows], distances, offsets=offsets)
    if not cover.changed:
        return matches
    good = cover.holds(matches.ids, records)
    kept = np.concatenate([[0], np.cumsum(good)])[offsets]
    matches = Matches(matches.ids[good], distances[good], offsets=kept)
    return merge_within([matches, _scanned(state, queries, radius, threads, records.find(cover.fresh)[0])])


def _scanned(state: State, queries: NDArray[Any], radius: int, threads: int | None, among: Rows | None) -> Matches:
    from .scan import within

    words, n = (state.records.words.data, len(state.records)) if among is None else state.some(among)
    rows, distances, offsets = within(words, n, queries, radius, threads or cores())
    return Matches(state.records.ids[rows if among is None else among[rows]], distances, offsets=offsets)


def ranked_by_scores(
    records: Records, rows: Rows, distances: Distances, tables: NDArray[np.float32], k: int
) -> Matches:
    """The best `k` of each query's candidates by score, ties by distance and id.

    Parameters
    ----------
    records : Records
    rows, distances : ndarray, shape (n_queries, n_candidates)
    tables : ndarray of float32, shape (n_queries, n_bytes, 256)
        From :func:`modalhash.indexing.asymmetric.score_tables`.
    k : int

    Returns
    -------
    Matches
        With scores.
    """
    k = min(k, rows.shape[1])
    best, scores = np.empty((len(rows), k), np.int64), np.empty((len(rows), k), np.float32)
    for i, (candidates, table) in enumerate(zip(rows, tables, strict=True)):
        codes = records.codes(candidates)
        score = np.zeros(len(candidates), np.float32)
        for byte in range(codes.shape[1]):
            score += table[byte, codes[:, byte]]
        # Candidates come by distance and id, so a stable sort leaves ties in that order.
        best[i] = np.argsort(-score, kind="stable")[:k]
        scores[i] = score[best[i]]
    rows, distances = np.take_along_axis(rows, best, 1), np.take_along_axis(distances, best, 1)
    return Matches(records.ids[rows], distances, scores=scores)
