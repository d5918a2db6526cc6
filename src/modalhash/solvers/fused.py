"""Compiled passes of the GPU engine (Triton): each reads its rows once and leaves sums in fixed places.

Arrays of codes and scores are (n, P): c bits in P columns, a power of two; the columns past c hold zeros. Sums over
rows are written per program and added by :func:`collapse` in a fixed order, without atomics, so that a run repeats
to the last bit. Row numbers are 64-bit where they are multiplied.

In Triton's interpreter (``TRITON_INTERPRET=1``) the same passes run on a CPU, which is how they are tested there.
"""
# ruff: noqa: D103  (what a pass does stands in its first comment: Triton compiles the body, docstring and all)

from __future__ import annotations

import triton
import triton.language as tl

__all__ = [
    "collapse",
    "cross",
    "embed_dense",
    "embed_rows",
    "embed_sparse",
    "fold",
    "gather",
    "gradient",
    "record",
    "step",
]


@triton.jit
def _halves(x):
    # A float32 as the sum of two bfloat16: 16 bits of its 24.
    high = x.to(tl.bfloat16)
    return high, (x - high.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def _leave(s, T, B, at, mask, real, alpha, FIRST: tl.constexpr, LAST: tl.constexpr):
    # T <- (or +=) alpha (s - 1/2); from the last view B <- [T > 0] instead.
    t = alpha * (s - 0.5)
    if not FIRST:
        t += tl.load(T + at, mask=mask, other=0.0)
    if LAST:
        tl.store(B + at, ((t > 0) & real).to(tl.uint8), mask=mask)
    else:
        tl.store(T + at, t, mask=mask)


@triton.jit
def embed_dense(
    X,
    W,
    shift,
    C,
    T,
    B,
    n,
    c,
    alpha,
    factor,
    D: tl.constexpr,
    P: tl.constexpr,
    BM: tl.constexpr,
    BK: tl.constexpr,
    HALF: tl.constexpr,
    FIRST: tl.constexpr,
    LAST: tl.constexpr,
):
    # C <- sigmoid(factor X W' + shift) for X (n, D) and W (P, D), and its share of T or B.
    rows = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    columns = tl.arange(0, P)
    there = (rows < n)[:, None]
    total = tl.zeros((BM, P), dtype=tl.float32)
    for k in range(0, D, BK):
        inner = k + tl.arange(0, BK)
        x = tl.load(X + rows[:, None] * D + inner[None, :], mask=there, other=0.0)
        w = tl.load(W + columns[None, :] * D + inner[:, None])
        if HALF:
            high, low = _halves(w)
            total = tl.dot(x, high, total)
            total = tl.dot(x, low, total)
        else:
            total = tl.dot(x, w, total, input_precision="tf32")
    real = (columns < c)[None, :]
    s = tl.sigmoid(total * factor + tl.load(shift + columns)[None, :])
    s = tl.where(real, s, 0.0)
    at = rows[:, None] * P + columns[None, :]
    tl.store(C + at, s, mask=there)
    _leave(s, T, B, at, there, real, alpha, FIRST, LAST)


@triton.jit
def embed_sparse(
    indptr,
    indices,
    data,
    W,
    shift,
    C,
    T,
    B,
    n,
    c,
    alpha,
    P: tl.constexpr,
    BM: tl.constexpr,
    FIRST: tl.constexpr,
    LAST: tl.constexpr,
):
    # The same for a CSR matrix and W (d, P).
    rows = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    columns = tl.arange(0, P)
    present = rows < n
    begin = tl.load(indptr + rows, mask=present, other=0)
    length = tl.load(indptr + rows + 1, mask=present, other=0) - begin
    total = tl.zeros((BM, P), dtype=tl.float32)
    for j in range(0, tl.max(length)):
        here = j < length
        index = tl.load(indices + begin + j, mask=here, other=0)
        x = tl.load(data + begin + j, mask=here, other=0.0)
        w = tl.load(W + index[:, None] * P + columns[None, :], mask=here[:, None], other=0.0)
        total += x[:, None] * w
    real = (columns < c)[None, :]
    s = tl.sigmoid(total + tl.load(shift + columns)[None, :])
    s = tl.where(real, s, 0.0)
    at, there = rows[:, None] * P + columns[None, :], present[:, None]
    tl.store(C + at, s, mask=there)
    _leave(s, T, B, at, there, real, alpha, FIRST, LAST)


@triton.jit
def embed_rows(
    table, group, T, B, n, c, alpha, P: tl.constexpr, BM: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr
):
    # The share of a view whose rows repeat: C is table[group].
    rows = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    columns = tl.arange(0, P)
    present = rows < n
    which = tl.load(group + rows, mask=present, other=0)
    s = tl.load(table + which[:, None] * P + columns[None, :], mask=present[:, None], other=0.0)
    at = rows[:, None] * P + columns[None, :]
    _leave(s, T, B, at, present[:, None], (columns < c)[None, :], alpha, FIRST, LAST)


@triton.jit
def cross(
    A,
    G,
    out,
    n,
    chunk,
    D: tl.constexpr,
    P: tl.constexpr,
    BD: tl.constexpr,
    BN: tl.constexpr,
    HALF: tl.constexpr,
):
    # out[part] <- G' A over the rows of one part: A (n, D), G (n, P), out (parts, P, D).
    tile, part = tl.program_id(0), tl.program_id(1)
    inner = tile * BD + tl.arange(0, BD)
    columns = tl.arange(0, P)
    start = part * chunk
    stop = tl.minimum(n, start + chunk)
    total = tl.zeros((P, BD), dtype=tl.float32)
    for r in range(start, stop, BN):
        rows = (r + tl.arange(0, BN)).to(tl.int64)
        there = rows < stop
        a = tl.load(A + rows[:, None] * D + inner[None, :], mask=there[:, None], other=0.0)
        g = tl.load(G + rows[None, :] * P + columns[:, None], mask=there[None, :], other=0.0)
        if HALF:
            high, low = _halves(g)
            total = tl.dot(high, a, total)
            total = tl.dot(low, a, total)
        else:
            total = tl.dot(g, a, total, input_precision="tf32")
    at = part.to(tl.int64) * P * D + columns[:, None] * D + inner[None, :]
    tl.store(out + at, total)


@triton.jit
def collapse(
    partial,
    out,
    squares,
    offset,
    sums,
    parts,
    size,
    factor,
    D: tl.constexpr,
    BS: tl.constexpr,
    BE: tl.constexpr,
    CENTRE: tl.constexpr,
):
    # out[e] <- factor * sum over parts of partial[part, e] [- sums[e / D] offset[e % D]]; squares[program] <- its |.|^2
    at = tl.program_id(0) * BE + tl.arange(0, BE)
    real = at < size
    total = tl.zeros((BS, BE), dtype=tl.float32)
    for s in range(0, parts, BS):
        which = s + tl.arange(0, BS)
        here = (which < parts)[:, None] & real[None, :]
        total += tl.load(partial + which[:, None] * size + at[None, :], mask=here, other=0.0)
    found = tl.sum(total, axis=0) * factor
    if CENTRE:
        found -= tl.load(sums + at // D, mask=real, other=0.0) * tl.load(offset + at % D, mask=real, other=0.0)
    tl.store(out + at, found, mask=real)
    tl.store(squares + tl.program_id(0), tl.sum(found * found, axis=0))


@triton.jit
def gradient(
    C,
    B,
    gram,
    sums,
    fits,
    n,
    weight,
    scale,
    P: tl.constexpr,
    BM: tl.constexpr,
    PROGRAMS: tl.constexpr,
    MCR: tl.constexpr,
):
    # C <- scale (C - B + weight C gram) C (1 - C); sums[program] <- its column sums, fits[program] <- |C - B|^2
    program = tl.program_id(0)
    columns = tl.arange(0, P)
    added = tl.zeros((P,), dtype=tl.float32)
    fit = tl.zeros((BM,), dtype=tl.float32)
    if MCR:
        K = tl.load(gram + columns[:, None] * P + columns[None, :]) * weight
    for block in range(program, tl.cdiv(n, BM), PROGRAMS):
        rows = (block * BM + tl.arange(0, BM)).to(tl.int64)
        there = (rows < n)[:, None]
        at = rows[:, None] * P + columns[None, :]
        s = tl.load(C + at, mask=there, other=0.0)
        d = s - tl.load(B + at, mask=there, other=0).to(tl.float32)
        fit += tl.sum(d * d, axis=1)
        if MCR:
            d = tl.dot(s, K, d, input_precision="tf32")
        g = d * s * (1.0 - s) * scale
        added += tl.sum(g, axis=0)
        tl.store(C + at, g, mask=there)
    tl.store(sums + program * P + columns, added)
    tl.store(fits + program, tl.sum(fit, axis=0))


@triton.jit
def gather(begins, ends, rows, values, G, out, P: tl.constexpr, BE: tl.constexpr, ONES: tl.constexpr):
    # out[s] <- sum over e in [begins[s], ends[s]) of values[e] G[rows[e]]: one piece of a column of a sparse matrix.
    s = tl.program_id(0).to(tl.int64)
    begin, end = tl.load(begins + s), tl.load(ends + s)
    columns = tl.arange(0, P)
    total = tl.zeros((BE, P), dtype=tl.float32)
    for e in range(begin, end, BE):
        at = e + tl.arange(0, BE)
        here = at < end
        row = tl.load(rows + at, mask=here, other=0).to(tl.int64)
        g = tl.load(G + row[:, None] * P + columns[None, :], mask=here[:, None], other=0).to(tl.float32)
        if not ONES:
            g *= tl.load(values + at, mask=here, other=0.0)[:, None]
        total += g
    tl.store(out + s * P + columns, tl.sum(total, axis=0))


@triton.jit
def fold(pieces, starts, out, squares, offset, sums, P: tl.constexpr, BE: tl.constexpr, CENTRE: tl.constexpr):
    # out[j] <- sum of the pieces of column j [- offset[j] sums]; squares[j] <- its |.|^2
    j = tl.program_id(0).to(tl.int64)
    begin, end = tl.load(starts + j), tl.load(starts + j + 1)
    columns = tl.arange(0, P)
    total = tl.zeros((BE, P), dtype=tl.float32)
    for e in range(begin, end, BE):
        at = e + tl.arange(0, BE)
        total += tl.load(pieces + at.to(tl.int64)[:, None] * P + columns[None, :], mask=(at < end)[:, None], other=0.0)
    found = tl.sum(total, axis=0)
    if CENTRE:
        found -= tl.load(sums + columns) * tl.load(offset + j)
    tl.store(out + j * P + columns, found)
    tl.store(squares + j, tl.sum(found * found, axis=0))


@triton.jit
def step(
    W,
    dW,
    squares,
    n_squares,
    v,
    dv,
    steps,
    k,
    size,
    rows,
    P: tl.constexpr,
    BE: tl.constexpr,
    BQ: tl.constexpr,
    NORMALIZE: tl.constexpr,
):
    # W -= dt dW / |dW| (or dt dW), v -= dt dv / rows, with dt = steps[k]; Eqs. (updateW) and (updatab)
    dt = tl.load(steps + tl.load(k))
    at = tl.program_id(0) * BE + tl.arange(0, BE)
    real = at < size
    d = tl.load(dW + at, mask=real, other=0.0)
    if NORMALIZE:
        total = tl.zeros((BQ,), dtype=tl.float32)
        for q in range(0, n_squares, BQ):
            which = q + tl.arange(0, BQ)
            total += tl.load(squares + which, mask=which < n_squares, other=0.0)
        norm = tl.sqrt(tl.sum(total, axis=0))
        d = d / tl.where(norm == 0.0, 1.0, norm)
    tl.store(W + at, tl.load(W + at, mask=real, other=0.0) - dt * d, mask=real)
    if tl.program_id(0) == 0:
        columns = tl.arange(0, P)
        tl.store(v + columns, tl.load(v + columns) - dt * tl.load(dv + columns) / rows)


@triton.jit
def record(
    curve, k, width, place, fits, n_fits, alpha, squares, n_squares, weight, BQ: tl.constexpr, MCR: tl.constexpr
):
    # curve[k, place] <- alpha sum(fits), curve[k, place + 1] <- weight sum(squares): a view's part of the objective.
    total = tl.zeros((BQ,), dtype=tl.float32)
    for q in range(0, n_fits, BQ):
        which = q + tl.arange(0, BQ)
        total += tl.load(fits + which, mask=which < n_fits, other=0.0)
    at = curve + tl.load(k) * width + place
    tl.store(at, alpha * tl.sum(total, axis=0))
    total = tl.zeros((BQ,), dtype=tl.float32)
    if MCR:
        for q in range(0, n_squares, BQ):
            which = q + tl.arange(0, BQ)
            total += tl.load(squares + which, mask=which < n_squares, other=0.0)
    tl.store(at + 1, weight * tl.sum(total, axis=0))
