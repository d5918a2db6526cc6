"""A view as the GPU engine holds it, and its passes over the rows: scores, G, X'G, and the step.

Three kinds: dense, sparse, and few different rows. The block sizes are those that were fastest on an H200 (132
processors) at NUS-WIDE's shape; see benchmarks/gpu.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..linalg import to_device, to_numpy
from .objective import Part

__all__ = ["DenseView", "DeviceView", "RepeatingView", "SparseView", "lay_out"]

_PIECE = 512  # entries of a column of a sparse matrix that one program adds
_PROGRAMS = 264  # programs of a product, and so how many partial sums it leaves
_SWEEPS = 528  # programs of the pass that makes G
_QUEUE = 1024
_WIDE = 64  # columns from which cuBLAS multiplies tall matrices faster than the passes here


def _tf32_product(A: Any, B: Any, out: Any) -> None:
    """Out <- A B by cuBLAS with TF32 operands, whatever the caller's own setting is."""
    import torch

    settings = torch.backends.cuda.matmul
    before, settings.allow_tf32 = settings.allow_tf32, True
    try:
        torch.mm(A, B, out=out)
    finally:
        settings.allow_tf32 = before


def _grid(size: int, block: int) -> tuple[int]:
    return (-(-size // block),)


class DeviceView:
    """A view on the device: parameters padded to P columns, and what a pass over it leaves."""

    W: Any
    dW: Any  # noqa: N815
    squares: Any

    def __init__(self, part: Part, n: int, P: int, mcr: bool) -> None:
        import torch

        self.part, self.n, self.P, self.mcr = part, n, P, mcr
        self.c = int(part.W.shape[1])
        self.device = part.W.device
        self.v = self.zeros(P)
        self.dv = self.zeros(P)
        self.shift = self.v
        self.offset: Any = None
        self.torch = torch

    def zeros(self, *shape: int, dtype: Any = None) -> Any:
        """Zeros on the device."""
        import torch

        return torch.zeros(shape, dtype=dtype or torch.float32, device=self.device)

    def _rows(self, n: int) -> None:
        """Buffers of a view with C for all rows."""
        P = self.P
        self.C = self.zeros(n, P)
        self.gram, self.gram_squares = self.zeros(P, P), self.zeros(-(-P * P // 64))
        self.gram_parts = self.zeros(_PROGRAMS if P < _WIDE else 1, P, P)
        self.sums, self.fits = self.zeros(_SWEEPS, P), self.zeros(_SWEEPS)
        self.sum_squares = self.zeros(-(-P // 16))

    def load(self) -> None:
        """Take W and v from the part."""
        self.v[: self.c] = self.part.v
        self.unpadded(self.W).copy_(self.part.W)
        self.refold()

    def store(self) -> None:
        """Give W and v back to the part."""
        self.part.v.copy_(self.v[: self.c])
        self.part.W.copy_(self.unpadded(self.W))

    def refold(self) -> None:
        """Put the mean into the shift, once W and v have changed."""

    def decorrelate(self) -> None:
        """C'C, and its squared norm in pieces."""
        from .fused import collapse, cross

        P, parts = self.P, 1
        if P >= _WIDE:
            _tf32_product(self.C.T, self.C, self.gram_parts[0])
        else:
            chunk = -(-self.n // (_PROGRAMS * 64)) * 64
            parts = -(-self.n // chunk)
            cross[(1, parts)](self.C, self.C, self.gram_parts, self.n, chunk, P, P, P, 64, False, num_stages=3)
        collapse[_grid(P * P, 64)](
            self.gram_parts, self.gram, self.gram_squares, self.gram, self.gram, parts, P * P, 1.0, P, 32, 64, False
        )

    def differentiate(self, B: Any) -> None:
        """C becomes G; its column sums are dv."""
        from .fused import collapse, gradient

        part, P = self.part, self.P
        if self.mcr:
            self.decorrelate()
        gradient[(_SWEEPS,)](
            self.C,
            B,
            self.gram,
            self.sums,
            self.fits,
            self.n,
            part.gamma / self.n,
            2 * part.alpha,
            P,
            64 if P <= 64 else 32,
            _SWEEPS,
            self.mcr,
            num_warps=8 if P <= 64 else 4,
            num_stages=2,
        )
        collapse[_grid(P, 16)](
            self.sums, self.dv, self.sum_squares, self.dv, self.dv, _SWEEPS, P, 1.0, P, 64, 16, False
        )

    def record(self, curve: Any, k: Any, place: int) -> None:
        """Write the two parts of the objective."""
        from .fused import record

        part = self.part
        record[(1,)](
            curve,
            k,
            curve.shape[1],
            place,
            self.fits,
            _SWEEPS,
            part.alpha,
            self.gram_squares,
            self.gram_squares.numel(),
            part.alpha * part.gamma / (2 * self.n),
            _QUEUE,
            self.mcr,
        )

    def step(self, steps: Any, k: Any, normalize: bool) -> None:
        """Lines 4 and 5 of Algorithm 2."""
        from .fused import step

        size = self.W.numel()
        step[_grid(size, 256)](
            self.W,
            self.dW,
            self.squares,
            self.squares.numel(),
            self.v,
            self.dv,
            steps,
            k,
            size,
            self.n,
            self.P,
            256,
            _QUEUE,
            normalize,
        )
        self.refold()

    def unpadded(self, W: Any) -> Any:
        """The (d, c) matrix in an array laid out as the view's W."""
        raise TypeError(f"{type(self).__name__} does not say how it holds W.")

    def embed(self, T: Any, B: Any, first: bool, last: bool) -> None:
        """C, and its share of T; of the last view B."""
        raise TypeError(f"{type(self).__name__} does not say how to compute C.")


class DenseView(DeviceView):
    """W is kept transposed, (P, D), so that both operands run along the inner dimension."""

    def __init__(self, part: Part, n: int, P: int, mcr: bool, storage: str) -> None:
        super().__init__(part, n, P, mcr)
        torch = self.torch
        X = part.X.X
        d = int(X.shape[1])
        self.d, self.D = d, -(-d // 64) * 64
        exact = storage == "auto" and bool((X.to(torch.bfloat16) == X).all())
        self.half = exact or storage == "bfloat16"
        kind = torch.bfloat16 if self.half else torch.float32
        self.X = self.zeros(n, self.D, dtype=kind)
        mean, scale = part.X.mean, part.X.scale
        self.factor = scale if self.half else 1.0
        for start in range(0, n, 1 << 16):
            block = X[start : start + (1 << 16)]
            if mean is not None and not exact:
                block = block - mean
            if not self.half:
                block = block * scale
            self.X[start : start + (1 << 16), :d] = block
        if exact and mean is not None:
            self.offset = self.zeros(self.D)
            self.offset[:d] = mean * scale
            self.shift = self.zeros(P)
        self.W, self.dW = self.zeros(P, self.D), self.zeros(P, self.D)
        self._rows(n)
        if P >= _WIDE and not self.half:
            self.BD, self.parts, self.chunk = 0, 1, n
        else:
            widest = 256 if self.half and P <= 32 else 128
            self.BD = next(width for width in (widest, 128, 64) if self.D % width == 0)
            parts = max(1, _PROGRAMS * self.BD // self.D)
            self.chunk = -(-n // (parts * 64)) * 64
            self.parts = -(-n // self.chunk)
        self.partial = self.zeros(self.parts, P, self.D)
        self.squares = self.zeros(-(-P * self.D // 128))

    def unpadded(self, W: Any) -> Any:
        """The (d, c) matrix in an array laid out as the view's W."""
        return W[: self.c, : self.d].T

    def refold(self) -> None:
        """Put the mean into the shift."""
        if self.offset is not None:
            self.torch.addmv(self.v, self.W, self.offset, alpha=-1, out=self.shift)

    def embed(self, T: Any, B: Any, first: bool, last: bool) -> None:
        """C, and its share of T; of the last view B."""
        from .fused import embed_dense

        P = self.P
        if self.half:
            BM, BK, warps, stages = (128, 64, 8, 3) if P <= 64 else (128, 32, 4, 4) if P <= 128 else (64, 32, 4, 3)
        else:
            BM, BK, warps, stages = 64, 64 if P <= 64 else 32, 4, 3
        embed_dense[_grid(self.n, BM)](
            self.X,
            self.W,
            self.shift,
            self.C,
            T,
            B,
            self.n,
            self.c,
            self.part.alpha,
            self.factor,
            self.D,
            P,
            BM,
            BK,
            self.half,
            first,
            last,
            num_warps=warps,
            num_stages=stages,
        )

    def differentiate(self, B: Any) -> None:
        """G, its column sums, and X'G."""
        from .fused import collapse, cross

        super().differentiate(B)
        P, D = self.P, self.D
        if self.BD:
            cross[(D // self.BD, self.parts)](
                self.X,
                self.C,
                self.partial,
                self.n,
                self.chunk,
                D,
                P,
                self.BD,
                32,
                self.half,
                num_warps=4 if P <= 32 else 8,
                num_stages=4 if self.half else 3,
            )
        else:
            _tf32_product(self.C.T, self.X, self.partial[0])
        centre = self.offset is not None
        collapse[_grid(P * D, 128)](
            self.partial,
            self.dW,
            self.squares,
            self.offset if centre else self.dW,
            self.dv,
            self.parts,
            P * D,
            self.factor,
            D,
            16,
            128,
            centre,
        )


class SparseView(DeviceView):
    """W is (d, P): a row of it for every entry of a row of X."""

    def __init__(self, part: Part, n: int, P: int, mcr: bool) -> None:
        super().__init__(part, n, P, mcr)
        torch = self.torch
        X = part.X.X
        d = int(X.shape[1])
        self.d = d
        self.indptr, self.indices = X.crow_indices(), X.col_indices().to(torch.int32)
        self.data = X.values().float() * part.X.scale
        if part.X.mean is not None:
            self.offset = part.X.mean.float() * part.X.scale
            self.shift = self.zeros(P)
        # The transpose: entries sorted by column, rows ascending within it, and cut into pieces.
        rows = torch.repeat_interleave(torch.arange(n, device=self.device), self.indptr.diff())
        order = torch.sort(X.col_indices(), stable=True).indices
        self.rows, self.values = rows[order].to(torch.int32), self.data[order].contiguous()
        counts = torch.bincount(X.col_indices(), minlength=d)
        self.begins, self.ends, self.starts = _pieces(counts)
        self.pieces = self.zeros(max(1, len(self.begins)), P)
        self.W, self.dW = self.zeros(d, P), self.zeros(d, P)
        self.squares = self.zeros(d)
        self._rows(n)

    def unpadded(self, W: Any) -> Any:
        """The (d, c) matrix in an array laid out as the view's W."""
        return W[:, : self.c]

    def refold(self) -> None:
        """Put the mean into the shift."""
        if self.offset is not None:
            self.torch.addmv(self.v, self.W.T, self.offset, alpha=-1, out=self.shift)

    def embed(self, T: Any, B: Any, first: bool, last: bool) -> None:
        """C, and its share of T; of the last view B."""
        from .fused import embed_sparse

        BM = max(2, 256 // self.P)
        embed_sparse[_grid(self.n, BM)](
            self.indptr,
            self.indices,
            self.data,
            self.W,
            self.shift,
            self.C,
            T,
            B,
            self.n,
            self.c,
            self.part.alpha,
            self.P,
            BM,
            first,
            last,
            num_warps=2,
        )

    def differentiate(self, B: Any) -> None:
        """G, its column sums, and X'G."""
        from .fused import fold, gather

        super().differentiate(B)
        if len(self.begins):
            BE = 64 if self.P <= 32 else 16 if self.P <= 64 else 8
            gather[(len(self.begins),)](
                self.begins, self.ends, self.rows, self.values, self.C, self.pieces, self.P, BE, False, num_warps=1
            )
        centre = self.offset is not None
        fold[(self.d,)](
            self.pieces,
            self.starts,
            self.dW,
            self.squares,
            self.offset if centre else self.dW,
            self.dv,
            self.P,
            8,
            centre,
        )


class RepeatingView(DeviceView):
    """A view of few different rows: everything is small but the look-up and the sums of B over the rows alike."""

    def __init__(self, part: Part, n: int, P: int, mcr: bool, unique: Any, group: Any) -> None:
        super().__init__(part, n, P, mcr)
        torch = self.torch
        X = unique.float()
        if part.X.mean is not None:
            X = X - part.X.mean
        self.X = X * part.X.scale
        self.group = group.to(torch.int32)
        counts = torch.bincount(group, minlength=len(unique))
        self.count = counts.float()[:, None]
        self.rows = torch.sort(group, stable=True).indices.to(torch.int32)
        self.begins, self.ends, self.starts = _pieces(counts)
        self.pieces = self.zeros(len(self.begins), P)
        self.table, self.found = self.zeros(len(unique), P), self.zeros(len(unique), P)
        self.squares = self.zeros(len(unique))
        self.W = self.zeros(*part.W.shape)
        self.dW = self.zeros(*part.W.shape)
        self.terms = self.zeros(2)

    def unpadded(self, W: Any) -> Any:
        """The (d, c) matrix in an array laid out as the view's W."""
        return W

    def embed(self, T: Any, B: Any, first: bool, last: bool) -> None:
        """C, and its share of T; of the last view B."""
        from .fused import embed_rows

        C = self.table[:, : self.c]
        C.copy_(self.torch.addmm(self.v[: self.c], self.X, self.W).sigmoid_())
        BM = max(8, min(64, 4096 // self.P))
        embed_rows[_grid(self.n, BM)](
            self.table, self.group, T, B, self.n, self.c, self.part.alpha, self.P, BM, first, last, num_warps=4
        )

    def differentiate(self, B: Any) -> None:
        """From the sum of B over the rows alike; see :class:`modalhash.solvers.cpu._Repeating`."""
        from .fused import fold, gather

        part, c = self.part, self.c
        gather[(len(self.begins),)](
            self.begins, self.ends, self.rows, self.rows, B, self.pieces, self.P, 32, True, num_warps=4
        )
        fold[(len(self.found),)](
            self.pieces, self.starts, self.found, self.squares, self.found, self.found, self.P, 8, False
        )
        C, sums = self.table[:, :c], self.found[:, :c]
        weighted = self.count * C
        self.terms[0] = part.alpha * (weighted * C + sums * (1 - 2 * C)).sum()
        G = weighted - sums
        if self.mcr:
            gram = weighted.T @ C
            self.terms[1] = (part.alpha * part.gamma / (2 * self.n)) * (gram * gram).sum()
            G = self.torch.addmm(G, weighted, gram, alpha=part.gamma / self.n)
        G *= (C * (1 - C)).mul_(2 * part.alpha)
        self.torch.mm(self.X.T, G, out=self.dW)
        self.torch.sum(G, 0, out=self.dv[:c])

    def record(self, curve: Any, k: Any, place: int) -> None:
        """Write the two parts of the objective."""
        curve[:, place : place + 2].index_copy_(0, k, self.terms[None])

    def step(self, steps: Any, k: Any, normalize: bool) -> None:
        """Lines 4 and 5 of Algorithm 2."""
        dt = steps[k]
        change = self.dW
        if normalize:
            norm = self.torch.linalg.vector_norm(change)
            change = change / (norm + (norm == 0))
        self.W -= dt * change
        self.v -= dt * self.dv / self.n


def _pieces(counts: Any) -> tuple[Any, Any, Any]:
    """Cut runs of the given lengths, one after the other, into pieces of at most `_PIECE`.

    Returns where each piece begins and ends, and which pieces belong to which run, as tensors on the device.
    """
    device = counts.device
    lengths = to_numpy(counts).astype(np.int64)
    number = -(-lengths // _PIECE)
    starts = np.concatenate([[0], np.cumsum(number)])
    run = np.repeat(np.arange(len(lengths)), number)
    first = np.concatenate([[0], np.cumsum(lengths)])
    begins = first[run] + (np.arange(len(run)) - starts[run]) * _PIECE
    ends = np.minimum(begins + _PIECE, first[run + 1])
    begins, ends, starts = (to_device(a.astype(np.int32), device) for a in (begins, ends, starts))
    return begins, ends, starts


def lay_out(part: Part, n: int, P: int, mcr: bool, storage: str) -> DeviceView:
    """A view as the device holds it: narrow ones of few different rows, sparse ones, dense ones.

    Parameters
    ----------
    part : Part
    n, P : int
        Rows; columns of the padded codes.
    mcr : bool
        Whether C'C is needed.
    storage : str

    Returns
    -------
    DeviceView
    """
    import torch

    X = part.X.X
    is_sparse = X.layout is torch.sparse_csr
    if X.shape[1] <= 64:
        unique, group = torch.unique(X.to_dense() if is_sparse else X, dim=0, return_inverse=True)
        if len(unique) <= max(1, n // 8):
            return RepeatingView(part, n, P, mcr, unique, group)
    return SparseView(part, n, P, mcr) if is_sparse else DenseView(part, n, P, mcr, storage)
