"""Search by Hamming distance.

>>> import numpy as np
>>> from modalhash.codes import pack
>>> database = pack(np.eye(4, dtype=int))
>>> index = HammingIndex(n_bits=4).add(database, payload={"title": ["a", "b", "c", "d"]})
>>> found = index.search(database[:1], k=3)
>>> found.ids.tolist(), found.distances.tolist()
([[0, 1, 2]], [[0, 2, 2]])
>>> index.payload(found.ids[0])
{'title': ['a', 'b', 'c']}
>>> [one.ids.tolist() for one in index.lookup(database[:2], radius=1)]
[[0], [1]]
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .codes import Codes, check_codes, n_bytes
from .exceptions import InputError
from .indexing.approximate import EFFORT, KINDS, ApproximateNeighbors
from .indexing.arguments import Ids, at_least, check_ids, check_payload, ids_asked
from .indexing.asymmetric import asymmetric_scores, check_scores, score_tables
from .indexing.device import DeviceScan
from .indexing.matches import Distances, Matches, SearchIndex
from .indexing.parallel import cores
from .indexing.records import Records
from .indexing.saved import load_state, save_state
from .indexing.state import Cover, Rows, State, nearest, nearest_approximately, ranked_by_scores, within_radius
from .linalg import torch_device

__all__ = ["HammingIndex", "Matches", "SearchIndex", "asymmetric_scores"]

_MAX_BITS = 8191
_BYTE = np.dtype(np.uint8)
_SCAN_BELOW = 50_000
"""Rows under which looking at all of them beats any approximate structure."""


class HammingIndex:
    """Codes to be searched by Hamming distance, in memory or mapped from a file.

    Results come ordered by distance, ties by ascending id, whatever the kind. Any number of threads may search while
    another adds or removes: each call sees one state of the index, never half of a change.

    Parameters
    ----------
    n_bits : int
        Length of a code, 1 to 8191.
    kind : {"flat", "ivf", "hnsw"}
        How ``search`` finds the nearest. "flat" looks at every code and is exact. "ivf" (FAISS's inverted file) and
        "hnsw" (its graph) look at some; distances and order of what they return are right, but items may be
        missed: measure how many with :meth:`recall`. They are built at the first search over 50,000 codes or more,
        or by :meth:`build`. Rows added later are looked at one by one until the next :meth:`build`.
        ``lookup``, and a search `within` some ids, are exact in every kind.
    effort : int, optional
        For "ivf" the number of lists visited (default 32), for "hnsw" the width of its search (default 128).
        More finds more and takes longer.
    threads : int, optional
        Threads per call; by default one per core that this process may use.
    device : str, optional
        A torch device such as "cuda" (extra ``torch``) for :meth:`search` of kind "flat"; the codes are copied there
        at the first search and after every change. ``lookup``, and a search `within` some ids, stay on the CPU.

    Examples
    --------
    >>> codes = np.array([[0b0000], [0b0011], [0b1111]], dtype=np.uint8)
    >>> index = HammingIndex(n_bits=4).add(codes, ids=[30, 10, 20])
    >>> found = index.search(np.array([[0b0001]], dtype=np.uint8), k=2)
    >>> found.ids, found.distances
    (array([[10, 30]]), array([[1, 1]], dtype=int32))
    >>> index.search(codes[:1], k=2, within=[20, 30]).ids
    array([[30, 20]])
    >>> len(index.remove([10]))
    2
    """

    def __init__(
        self,
        n_bits: int,
        *,
        kind: str = "flat",
        effort: int | None = None,
        threads: int | None = None,
        device: str | None = None,
    ) -> None:
        n_bytes(n_bits)
        if n_bits > _MAX_BITS:
            raise InputError(f"n_bits must be at most {_MAX_BITS}; got {n_bits}.")
        if kind not in ("flat", *KINDS):
            raise InputError(f"kind must be 'flat', 'ivf' or 'hnsw'; got {kind!r}.")
        if effort is not None and kind == "flat":
            raise InputError("effort is for the kinds 'ivf' and 'hnsw'; the kind 'flat' looks at everything.")
        if device is not None:
            if kind != "flat":
                raise InputError(f"device is for the kind 'flat'; FAISS searches the kind {kind!r} on the CPU.")
            torch_device(device)
        self.n_bits = int(n_bits)
        self.kind = kind
        self.device = device
        self._copied: tuple[Records, DeviceScan] | None = None
        self.effort = None if kind == "flat" else EFFORT[kind] if effort is None else at_least(1, effort, "effort")
        self.threads = None if threads is None else at_least(1, threads, "threads")
        self._state = State(Records.empty(self.n_bits))
        self._writing, self._building = threading.Lock(), threading.Lock()

    # What is in it -------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._state.records)

    def has(self, ids: Any) -> NDArray[np.bool_]:
        """Which of some ids the index holds, shape (len(ids),)."""
        return self._state.records.find(ids_asked(ids))[1]

    def __contains__(self, item: int) -> bool:
        return bool(self.has([item])[0])

    def __repr__(self) -> str:
        return f"HammingIndex(n_bits={self.n_bits}, kind={self.kind!r}): {len(self)} codes"

    @property
    def ids(self) -> Ids:
        """Ids in ascending order, a copy, shape (n,)."""
        return self._state.records.ids.copy()

    @property
    def next_id(self) -> int:
        """The id that the next code added without one gets."""
        return self._state.next_id

    @property
    def columns(self) -> list[str]:
        """Names of the payload columns."""
        return sorted(self._state.records.columns)

    def codes(self, ids: Any) -> Codes:
        """Packed codes of some ids, shape (len(ids), n_bytes); an unknown id is an error."""
        records = self._state.records
        return records.codes(records.rows_of(ids_asked(ids)))

    def payload(self, ids: Any) -> dict[str, list[str]]:
        """Payload of some ids, by column; an unknown id is an error."""
        records = self._state.records
        rows = records.rows_of(ids_asked(ids))
        return {name: column.take(rows) for name, column in records.columns.items()}

    # Changing it ---------------------------------------------------------------------------------------------------

    def add(self, codes: Any, ids: Any = None, *, payload: Mapping[str, Sequence[str]] | None = None) -> Self:
        """Add codes.

        Parameters
        ----------
        codes : array of uint8, shape (n, n_bytes)
            Packed, as ``hasher.encode`` gives them.
        ids : array of int, shape (n,), optional
            New to the index. By default they go on from the largest id ever used, beginning at 0. Ids larger than
            all before are cheapest; others cost a copy of the index per call.
        payload : dict of str to list of str, optional
            Text to keep with each code, such as title and path; the same columns in every addition.

        Returns
        -------
        HammingIndex
            Itself.
        """
        codes = check_codes(codes, self.n_bits)
        columns = check_payload(payload, len(codes))
        with self._writing:
            state = self._state
            if ids is None:
                if state.next_id + len(codes) > np.iinfo(np.int64).max:
                    raise InputError("no id is left above the largest one used. Pass ids.")
                new = np.arange(state.next_id, state.next_id + len(codes), dtype=np.int64)
            else:
                new = check_ids(ids, len(codes))
            self._state = state.added(codes, new, columns)
        return self

    def upsert(self, codes: Any, ids: Any, *, payload: Mapping[str, Sequence[str]] | None = None) -> Self:
        """Add codes, replacing those whose id is there already, in one step that no search sees half of.

        Parameters
        ----------
        codes, ids, payload
            As in :meth:`add`.

        Returns
        -------
        HammingIndex
            Itself.
        """
        codes = check_codes(codes, self.n_bits)
        columns, new = check_payload(payload, len(codes)), check_ids(ids, len(codes))
        with self._writing:
            state = self._state
            old = new[state.records.find(new)[1]]
            if old.size and set(columns) != set(state.records.columns):
                raise InputError(
                    f"payload must have the columns {sorted(state.records.columns)}; got {sorted(columns)}."
                )
            self._state = (state.removed(old) if old.size else state).added(codes, new, columns)
        return self

    def remove(self, ids: Any) -> Self:
        """Remove codes by id; an unknown id is an error and nothing is removed.

        Each call copies what stays, so remove many ids at once.

        Parameters
        ----------
        ids : array of int, shape (n,)

        Returns
        -------
        HammingIndex
            Itself.
        """
        gone = check_ids(ids)
        with self._writing:
            self._state = self._state.removed(gone)
        return self

    def build(self) -> Self:
        """Build the approximate structure over all rows now; searches go on with the old one meanwhile.

        Returns
        -------
        HammingIndex
            Itself. Kind "flat" has nothing to build.
        """
        with self._building:
            if self.kind != "flat":
                self._build()
        return self

    def _build(self) -> None:
        structure = ApproximateNeighbors(self.kind, self.effort or 1, self._n_threads)
        with self._writing:
            records = self._state.records
            self._state = self._state.covered("building", Cover(structure, records.ids))
        try:
            structure.build(records.codes())
        finally:
            with self._writing:  # the cover has followed the changes that came meanwhile
                state = self._state.covered("building", None)
                if structure.built:
                    state = state.covered("search", self._state.covers["building"])
                self._state = state

    @property
    def _n_threads(self) -> int:
        return self.threads or cores()

    # Searching it --------------------------------------------------------------------------------------------------

    def search(
        self, codes: Any, k: int = 10, *, within: Any = None, scores: Any = None, candidates: int | None = None
    ) -> Matches:
        """The `k` nearest codes of each query.

        Parameters
        ----------
        codes : array of uint8, shape (n_queries, n_bytes)
        k : int
            At least 1. Where the index (or `within`) holds fewer, all of them are returned.
        within : array of int, optional
            Look only among these ids; ids that the index does not hold are passed over.
        scores : array of shape (n_queries, n_bits), optional
            Real-valued scores of the queries, ``hasher.project(view, X)``: the nearest codes are ranked by
            ``tanh(scores) @ bits`` (bits as -1 and +1), descending, ties by distance and id.
        candidates : int, optional
            With `scores`: how many of the nearest codes are ranked so; by default ``max(1000, 4 * k)``.

        Returns
        -------
        Matches
            Arrays of shape (n_queries, min(k, n)).

        Examples
        --------
        >>> index = HammingIndex(n_bits=2).add(np.array([[0b01], [0b10]], dtype=np.uint8))
        >>> index.search(np.array([[0b11]], dtype=np.uint8), k=2).ids.tolist()
        [[0, 1]]
        >>> index.search(np.array([[0b11]], dtype=np.uint8), k=2, scores=np.array([[0.1, 2.0]])).ids.tolist()
        [[1, 0]]
        """
        codes, k = check_codes(codes, self.n_bits, "query codes"), at_least(1, k, "k")
        if scores is None:
            if candidates is not None:
                raise InputError("candidates says how many codes `scores` rank; pass scores too.")
            records, rows, distances = self._nearest(codes, k, within)
            return Matches(records.ids[rows], distances)
        tables = score_tables(check_scores(scores, len(codes), self.n_bits))
        depth = max(1000, 4 * k) if candidates is None else max(k, at_least(1, candidates, "candidates"))
        return ranked_by_scores(*self._nearest(codes, depth, within), tables, k)

    def lookup(self, codes: Any, radius: int, *, within: Any = None) -> Matches:
        """All codes within `radius` of each query, exactly.

        Parameters
        ----------
        codes : array of uint8, shape (n_queries, n_bytes)
        radius : int
            Bits that may differ, at least 0.
        within : array of int, optional
            As in :meth:`search`.

        Returns
        -------
        Matches
            Flat, with `offsets`: ``matches[i]`` belongs to query i.

        Notes
        -----
        A small radius is answered from hash tables (:mod:`modalhash.indexing.tables`), built at the first such call;
        a large one by looking at every code.
        """
        if not self._is_whole(codes):
            codes = check_codes(codes, self.n_bits, "query codes")
        radius = min(at_least(0, radius, "radius"), self.n_bits)
        state = self._state
        if within is not None:
            return within_radius(state, codes, radius, self.threads, state.records.rows_within(within))
        cover = state.covers.get("lookup")
        if cover is None or cover.stale:
            state = self._with_tables()
        return within_radius(state, codes, radius, self.threads)

    def _is_whole(self, codes: Any) -> bool:
        # Whether check_codes is sure to pass this as it is: it takes longer than a query does.
        good = type(codes) is np.ndarray and codes.dtype is _BYTE and codes.ndim == 2
        return good and codes.shape[1] * 8 == self.n_bits and codes.flags.c_contiguous

    def _with_tables(self) -> State:
        from .indexing.tables import ChunkTables

        with self._writing:
            cover = self._state.covers.get("lookup")
            if cover is None or cover.stale:  # no other thread was quicker
                records = self._state.records
                cover = Cover(ChunkTables(records.words.array, self.n_bits), records.ids)
                self._state = self._state.covered("lookup", cover)
            return self._state

    def _nearest(self, codes: Codes, k: int, within: Any) -> tuple[Records, Rows, Distances]:
        state = self._state
        if within is not None:
            among = state.records.rows_within(within)
            return state.records, *nearest(state, codes, k, self._n_threads, among)
        if self.device is not None and len(state.records):
            return state.records, *self._on_device(state.records).nearest(codes, k)
        if self.kind == "flat" or len(state.records) < _SCAN_BELOW:
            return state.records, *nearest(state, codes, k, self._n_threads)
        if "search" not in state.covers and self._building.acquire(blocking=False):
            try:
                self._build()
            finally:
                self._building.release()
            state = self._state
        # While another thread builds for the first time, look at everything.
        find = nearest_approximately if "search" in state.covers else nearest
        return state.records, *find(state, codes, k, self._n_threads)

    def _on_device(self, records: Records) -> DeviceScan:
        held = self._copied
        if held is None or held[0] is not records:
            held = self._copied = (records, DeviceScan(records.codes(), self.n_bits, str(self.device)))
        return held[1]

    def recall(self, codes: Any, k: int = 10) -> float:
        """Share of the true `k` nearest that :meth:`search` finds for some queries; 1.0 for kind "flat".

        An item counts as found when it is no farther than the true k-th nearest, so that ties are not held against
        the structure.

        Parameters
        ----------
        codes : array of uint8, shape (n_queries, n_bytes)
        k : int

        Returns
        -------
        float
        """
        codes, k = check_codes(codes, self.n_bits, "query codes"), at_least(1, k, "k")
        if not len(codes) or not len(self):
            raise InputError("recall needs at least one query and one code in the index.")
        exact = nearest(self._state, codes, k, self._n_threads)[1]
        return float((self._nearest(codes, k, None)[2] <= exact[:, -1:]).mean())

    # Keeping it ----------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the index to the folder `path`, as it is at this moment.

        What the folder held stays whole until the new file takes its place in one step; a crash, a kill or a full
        disk leaves the old index.

        Parameters
        ----------
        path : path

        Returns
        -------
        Path
            The folder.

        Examples
        --------
        >>> import tempfile
        >>> index = HammingIndex(n_bits=8).add(np.array([[1], [2]], dtype=np.uint8))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     HammingIndex.load(index.save(folder)).ids
        array([0, 1])
        """
        parameters = {"n_bits": self.n_bits, "kind": self.kind, "effort": self.effort}
        return save_state(path, self._state, parameters)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, verify: bool = True, threads: int | None = None, device: str | None = None
    ) -> Self:
        """Map an index from the folder `path`.

        Codes and ids stay in the file and are read as needed; processes that load the same folder share them.

        Parameters
        ----------
        path : path
        verify : bool
            Check every array against its checksum, which reads the file once. Without it only the header is checked.
        threads, device : optional
            As in the constructor.

        Returns
        -------
        HammingIndex
        """
        state, parameters = load_state(path, verify=verify, threads=threads or cores())
        index = cls(**parameters, threads=threads, device=device)
        index._state = state
        return index
