"""Approximate nearest codes through FAISS: an inverted file or a graph, over a fixed set of codes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..codes import Codes
from ..exceptions import MissingExtraError, ModelFormatError
from .parallel import in_parallel, spans

__all__ = ["EFFORT", "KINDS", "ApproximateNeighbors"]

KINDS = ("ivf", "hnsw")
EFFORT = {"ivf": 32, "hnsw": 128}
"""Lists visited by the inverted file; width of the graph's search front."""
_LINKS = 16
_TRAINED_PER_LIST = 39  # the fewest training points per list that FAISS does not warn about


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError("faiss", "ann") from error
    return faiss


@contextmanager
def _threads(faiss: Any, threads: int) -> Iterator[None]:
    # OpenMP's number of threads belongs to the calling thread: set it for this call and put it back.
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(threads)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


class ApproximateNeighbors:
    """A FAISS structure over some codes, built when first needed.

    Parameters
    ----------
    kind : "ivf" or "hnsw"
    effort : int
        Larger finds more and takes longer.
    threads : int
    """

    def __init__(self, kind: str, effort: int, threads: int) -> None:
        self.kind, self.effort, self.threads = kind, effort, threads
        self._index: Any = None
        self._lock = threading.Lock()

    @property
    def built(self) -> bool:
        """Whether it can answer."""
        return self._index is not None

    def build(self, codes: Codes) -> None:
        """Build over these codes, shape (n, n_bytes); rows are numbered from 0."""
        faiss = _faiss()
        with self._lock, _threads(faiss, self.threads):
            n, bits = len(codes), codes.shape[1] * 8
            if self.kind == "ivf":
                lists = int(max(1, min(np.sqrt(n), n // _TRAINED_PER_LIST)))
                quantizer = faiss.IndexBinaryFlat(bits)
                index = faiss.IndexBinaryIVF(quantizer, bits, lists)
                index.own_fields = True
                quantizer.this.disown()
                index.train(codes)
            else:
                index = faiss.IndexBinaryHNSW(bits, _LINKS)
            index.add(codes)
            self._index = index
            self._set_effort(faiss)

    def _set_effort(self, faiss: Any) -> None:
        if self.kind == "ivf":
            self._index.nprobe = min(self.effort, self._index.nlist)
        else:
            self._index.hnsw.efSearch = self.effort

    def search(self, codes: Codes, k: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Rows (-1 where fewer were found) and distances, shape (n_queries, k), in no promised order among ties."""
        faiss = _faiss()

        def task(start: int, stop: int) -> Any:
            with _threads(faiss, 1):
                return self._index.search(codes[start:stop], k)

        # Threads of our own: OpenMP's wait for each other in a loop, which costs much where other work runs beside.
        found = in_parallel(task, spans(len(codes), max(1, -(-len(codes) // self.threads))), self.threads)
        distances, rows = (np.concatenate([one[x] for one in found]) for x in (0, 1))
        return rows.astype(np.int64, copy=False), distances.astype(np.int32, copy=False)

    def to_bytes(self) -> NDArray[np.uint8]:
        """The built structure in FAISS's own format."""
        data: NDArray[np.uint8] = _faiss().serialize_index_binary(self._index)
        return data

    def from_bytes(self, data: NDArray[np.uint8], n: int, n_bytes: int) -> None:
        """Read what :meth:`to_bytes` gave, for `n` codes of `n_bytes` bytes."""
        faiss = _faiss()
        try:
            index = faiss.deserialize_index_binary(np.ascontiguousarray(data))
        except RuntimeError as error:
            raise ModelFormatError(f"the FAISS part of the index cannot be read ({error}). Build it again.") from error
        kind = {"IndexBinaryIVF": "ivf", "IndexBinaryHNSW": "hnsw"}.get(type(index).__name__)
        if kind != self.kind or index.ntotal != n or index.code_size != n_bytes:
            raise ModelFormatError("the FAISS part of the index does not belong to its codes. Build it again.")
        self._index = index
        self._set_effort(faiss)
