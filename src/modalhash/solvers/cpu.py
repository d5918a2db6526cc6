"""The block engine: the DMH gradient in cache-sized blocks of rows, on all cores, without temporaries of n x d.

An iteration is two sweeps over the rows. The first computes C and B block by block (products by BLAS on the block,
sigmoid in one compiled pass) and C'C; the second adds the regulariser, forms G in the cache and multiplies it by
X' at once. Only C of each view and B (bytes) are kept for all rows. A view whose rows repeat, as labels do, is
computed once per different row. Sums run over a fixed set of chunks in a fixed order, so that the result does not
depend on the number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import numpy as np
from scipy import sparse

from .kernels import accumulate_rows, csr_dot, csr_tdot, embed_block, gather_block, gradient_block, round_block
from .objective import Engine, Part

__all__ = ["BlockEngine"]

F = np.float32
_BLOCK = 1 << 15  # numbers of a block of C: it, M and G stay in the cache
_CHUNKS = 16
_UNPACKED = ("SkylakeX", "Cooperlake", "SapphireRapids")


def _rows_unpacked(d: int, c: int) -> int:
    """Rows that OpenBLAS multiplies with a (d, c) matrix without packing them first; 0 where it always packs.

    Its kernels for AVX-512 do so up to a million products, which makes X W half as fast again for narrow W
    (benchmarks/train.py). The rule looks at the processor and never at a clock, so that a fit repeats to the last bit.
    """
    from threadpoolctl import threadpool_info

    blas = [found for found in threadpool_info() if found.get("user_api") == "blas"]
    good = blas and all(
        found.get("internal_api") == "openblas" and found.get("architecture") in _UNPACKED for found in blas
    )
    rows = min(64, 1_000_000 // (d * c)) // 8 * 8
    return rows if good else 0


class _Repeating:
    """A view whose rows are few different ones, such as labels: everything is done per different row."""

    def __init__(self, part: Part, unique: Any, rows: Any) -> None:
        self.part, self.rows = part, rows
        self.X = unique.astype(F)
        self.count = np.bincount(rows, minlength=len(unique)).astype(F)[:, None]
        if part.X.mean is not None:
            self.X = self.X - part.X.mean
        self.X *= F(part.X.scale)

    def embed(self) -> Any:
        from scipy.special import expit

        self.C = expit(self.X @ self.part.W + self.part.v)
        return F(self.part.alpha) * (self.C - F(0.5))

    def gram(self) -> Any:
        return (self.count * self.C).T @ self.C

    def finish(self, sums: Any, gram: Any) -> tuple[Any, Any, float]:
        """From the sum of B over the rows alike: sum (C - B)^2 = sum C^2 + B (1 - 2C), as B is 0 or 1."""
        part, C = self.part, self.C
        fit = part.alpha * float((self.count * C * C + sums * (1 - 2 * C)).sum(dtype=np.float64))
        G = self.count * C - sums
        if gram is not None:
            G += F(part.gamma / part.total) * (self.count * (C @ gram))
        G *= C * (1 - C) * F(2 * part.alpha)
        return self.X.T @ G, G.sum(0), fit


class _Dense:
    """A view of different rows: its matrix, dense or CSR, and C for all rows."""

    def __init__(self, part: Part, n: int) -> None:
        self.part = part
        self.X = part.X.X
        self.sparse = sparse.issparse(self.X)
        self.C = np.empty((n, part.W.shape[1]), dtype=F)
        self.few = 0 if self.sparse or not self.X.flags.c_contiguous else _rows_unpacked(*part.W.shape)

    def fold(self) -> None:
        """W and v with centring and scaling inside, so that scores are one product and one shift."""
        X, part = self.part.X, self.part
        self.W = np.ascontiguousarray(part.W * F(X.scale))
        self.shift = part.v if X.mean is None else (part.v - X.mean @ self.W).astype(F)

    def product(self, start: int, stop: int, out: Any) -> None:
        if self.sparse:
            csr_dot(self.X.indptr, self.X.indices, self.X.data, start, stop, self.W, out)
        else:
            few = self.few
            m = (stop - start) // few * few if few else 0
            if m:
                rows, parts = self.X[start : start + m], out[:m]
                np.matmul(rows.reshape(-1, few, rows.shape[1]), self.W, out=parts.reshape(-1, few, parts.shape[1]))
            if start + m < stop:
                np.dot(self.X[start + m : stop], self.W, out=out[m:])

    def add_transposed(self, start: int, stop: int, G: Any, out: Any, scratch: Any) -> None:
        if self.sparse:
            csr_tdot(self.X.indptr, self.X.indices, self.X.data, start, stop, G, out)
        else:
            np.dot(G.T, self.X[start:stop], out=scratch)  # G'X: a fifth faster than X'G, whose result is narrow
            out += scratch


class BlockEngine(Engine):
    """Gradients in blocks; see the module's docstring. float32, every row present.

    Parameters
    ----------
    parts : list of Part
    n : int
    kind : "paper", "weights" or None
    threads : int, optional
        As many as there are cores by default.
    """

    def __init__(self, parts: list[Part], n: int, kind: str | None, threads: int | None = None) -> None:
        super().__init__(parts, n, kind)
        self.threads = threads or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else threads or 1
        self.c = parts[0].W.shape[1]
        self.block = max(128, min(2048, 1 << (_BLOCK // self.c).bit_length() - 1))
        self.views: list[_Dense | _Repeating] = [_classify(part, n) for part in parts]
        self.B = np.empty((n, self.c), dtype=np.uint8)
        step = -(-n // (_CHUNKS * self.block)) * self.block
        self.chunks = [(start, min(n, start + step)) for start in range(0, n, step)]

    def __enter__(self) -> Self:
        from threadpoolctl import threadpool_limits

        self._limits = threadpool_limits(limits=1, user_api="blas")  # threads are ours; BLAS gets one each
        self._limits.__enter__()
        self._pool = ThreadPoolExecutor(self.threads)
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown()
        self._limits.__exit__(*exception)

    def _each(self, work: Callable[[int, int], Any]) -> list[Any]:
        if self.threads == 1:  # no second thread to wake: with a process per core it would wake on another's core
            return [work(*chunk) for chunk in self.chunks]
        return list(self._pool.map(lambda chunk: work(*chunk), self.chunks))

    def correlations(self) -> list[Any]:
        """First sweep: C and B; the Gram matrices, or nothing where the regulariser takes none."""
        mcr = self.kind == "paper"
        tables = {}
        for i, view in enumerate(self.views):
            if isinstance(view, _Repeating):
                tables[i] = view.embed()
            else:
                view.fold()
        found = self._each(lambda start, stop: self._embed(start, stop, tables, mcr))
        if not mcr:
            return []
        return [
            view.gram() if isinstance(view, _Repeating) else sum(grams[i] for grams in found)
            for i, view in enumerate(self.views)
        ]

    def sums(self, grams: list[Any]) -> list[Any]:
        """Second sweep: dE/dW, dE/dv and fit of each part in turn, given the Gram matrices of all rows."""
        found = self._each(lambda start, stop: self._gradients(start, stop, grams))
        out: list[Any] = []
        for i, view in enumerate(self.views):
            if isinstance(view, _Repeating):
                out += view.finish(sum(sums[i] for sums in found), grams[i] if grams else None)
            else:
                out += self._collect(view.part, [sums[i] for sums in found])
        return out

    def _embed(self, start: int, stop: int, tables: dict[int, Any], mcr: bool) -> dict[int, Any]:
        """First sweep over a chunk: C of each view, B, and C'C."""
        T = np.empty((self.block, self.c), dtype=F)
        bits = np.empty(self.c, dtype=np.int32)
        gram = np.empty((self.c, self.c), dtype=F)
        grams = {i: np.zeros_like(gram) for i, view in enumerate(self.views) if isinstance(view, _Dense) and mcr}
        for low in range(start, stop, self.block):
            high = min(stop, low + self.block)
            t = T[: high - low]
            for i, view in enumerate(self.views):
                if isinstance(view, _Repeating):
                    gather_block(tables[i], view.rows[low:high], t, i == 0)
                    continue
                C = view.C[low:high]
                view.product(low, high, C)
                embed_block(C, view.shift, F(view.part.alpha), t, i == 0, bits, bits.view(F))
                if mcr:
                    np.dot(C.T, C, out=gram)
                    grams[i] += gram
            round_block(t, self.B[low:high])
        return grams

    def _gradients(self, start: int, stop: int, grams: list[Any]) -> dict[int, Any]:
        """Second sweep over a chunk: G block by block, X'G, column sums and the sum of squares."""
        M = np.zeros((self.block, self.c), dtype=F)
        out: dict[int, Any] = {}
        scaled, scratch = {}, {}
        for i, view in enumerate(self.views):
            if isinstance(view, _Repeating):
                out[i] = np.zeros((len(view.X), self.c), dtype=F)
            else:
                shape = view.W.shape if view.sparse else view.W.shape[::-1]
                out[i] = [np.zeros(shape, dtype=F), np.zeros(self.c, dtype=F), 0.0]
                scratch[i] = None if view.sparse else np.empty(shape, dtype=F)
                if grams:
                    scaled[i] = grams[i] * F(view.part.gamma / view.part.total)
        for low in range(start, stop, self.block):
            high = min(stop, low + self.block)
            B = self.B[low:high]
            for i, view in enumerate(self.views):
                if isinstance(view, _Repeating):
                    accumulate_rows(B, view.rows[low:high], out[i])
                    continue
                G = M[: high - low]
                if grams:
                    np.dot(view.C[low:high], scaled[i], out=G)
                else:
                    G[:] = 0
                found = out[i]
                found[2] += float(gradient_block(view.C[low:high], G, B, found[1]))
                view.add_transposed(low, high, G, found[0], scratch[i])
        return out

    def _collect(self, part: Part, found: list[Any]) -> tuple[Any, Any, float]:
        """Sum a view's chunks; put centring, scaling and 2 alpha on the small result instead of on n rows."""
        dW = sum(f[0] for f in found[1:]) + found[0][0]
        if not sparse.issparse(part.X.X):
            dW = np.ascontiguousarray(dW.T)
        columns = sum(f[1] for f in found[1:]) + found[0][1]
        if part.X.mean is not None:
            dW -= part.X.mean[:, None] * columns
        dW *= F(2 * part.alpha * part.X.scale)
        return dW, columns * F(2 * part.alpha), part.alpha * float(sum(f[2] for f in found))


def _classify(part: Part, n: int) -> _Dense | _Repeating:
    """Look for a narrow view of few different rows; everything else is taken as it is."""
    X = part.X.X
    if X.shape[1] <= 64:
        dense = X.toarray() if sparse.issparse(X) else X
        unique, rows = np.unique(np.ascontiguousarray(dense), axis=0, return_inverse=True)
        if len(unique) <= max(1, n // 8):
            return _Repeating(part, unique, rows.ravel().astype(np.int64))
    return _Dense(part, n)
