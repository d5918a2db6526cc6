"""Stochastic descent for DMH on data of any size: batches of rows, and a running estimate of the Gram matrices.

The regulariser (gamma / 2n) ‖C'C‖^2 is not a sum over rows, so a batch's own C'C would be a biased and noisy stand-in
for the whole: its c^2 entries come from few rows. C'C of all rows is estimated by a running mean over batches instead
(Robbins-Monro weights that stop falling at 1/20), and the gradient of a batch's rows is taken with that. B is computed
on the batch: it is a function of a row's own scores. Steps are those of :mod:`modalhash.solvers.momentum`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..codes import Codes, n_bytes, pack_scores
from ..linalg import CentredMatrix
from .momentum import Momentum
from .objective import Part, ReferenceEngine, regularise, unified_codes
from .shuffle import Batch, blocks, feeds_of

__all__ = ["Minibatch", "codes_by_blocks"]

_FRESH = 0.05
"""Least weight of a batch in the running Gram matrices: they follow the last twenty batches or so."""


class Minibatch:
    """Takes a step per batch; holds all that is carried from batch to batch (Gram matrices per row).

    Parameters
    ----------
    parts : list of Part
        Their W and v are changed in place; their matrices are not looked at.
    kind : str or None
        The regulariser, one of :data:`~modalhash.solvers.objective.KINDS`.
    normalize : bool
        Divide the gradient by W by its norm.

    Attributes
    ----------
    k : int
        Batches seen.
    """

    def __init__(self, parts: list[Part], kind: str | None, normalize: bool) -> None:
        self.parts, self.kind, self.normalize = parts, kind, normalize
        self.moving = [Momentum(part.W, part.v) for part in parts]
        c = parts[0].W.shape[1]
        self.grams = [np.zeros((c, c), dtype=part.W.dtype) for part in parts]
        self.k = 0

    def step(self, batch: Batch, dt: float) -> list[float]:
        """One step of length `dt`.

        Parameters
        ----------
        batch : Batch
        dt : float

        Returns
        -------
        list of float
            An estimate, from this batch, of the two parts of the objective of all rows for each view.
        """
        here = on_batch(self.parts, batch)
        engine = ReferenceEngine(here, batch.size, self.kind)
        self._remember(engine.correlations(), here)
        grams = [gram * gram.dtype.type(part.total) for gram, part in zip(self.grams, here, strict=True)]
        grams = grams if self.kind in ("paper", "centered") else []
        sums = engine.sums(grams)
        terms: list[float] = []
        for i, (part, moving) in enumerate(zip(here, self.moving, strict=True)):
            dW, dv, fit = sums[3 * i : 3 * i + 3]
            share = part.total / max(1, part.X.shape[0])
            dW *= part.W.dtype.type(share)
            penalty = regularise(part, self.kind, grams[i] if grams else None, dW)
            moving.step(dW, dv / max(1, part.X.shape[0]), part.W.dtype.type(dt), self.normalize)
            terms += [float(fit) * share, float(penalty)]
        self.k += 1
        return terms

    def _remember(self, fresh: list[Any], here: list[Part]) -> None:
        weight = max(1 / (self.k + 1), _FRESH)
        for gram, new, part in zip(self.grams, fresh, here, strict=False):
            if part.X.shape[0]:
                gram += weight * (new / part.X.shape[0] - gram)

    def arrays(self) -> dict[str, Any]:
        """All that the next batch depends on, by name."""
        out = {}
        for part, moving, gram in zip(self.parts, self.moving, self.grams, strict=True):
            out.update({f"{name}/{part.name}": value for name, value in moving.arrays().items()})
            out[f"gram/{part.name}"] = gram
        return out

    def restore(self, arrays: Mapping[str, Any], k: int) -> None:
        """Go back to what :meth:`arrays` said after `k` batches, in place."""
        for part, moving, gram in zip(self.parts, self.moving, self.grams, strict=True):
            moving.restore({name: arrays[f"{name}/{part.name}"] for name in moving.arrays()})
            gram[...] = arrays[f"gram/{part.name}"]
        self.k = k


def on_batch(parts: list[Part], batch: Batch) -> list[Part]:
    """The parts with a batch's rows as their matrices; W and v are shared."""
    return [
        Part(
            part.name,
            CentredMatrix(X, part.X.exact_mean, part.X.scale),
            part.W,
            part.v,
            part.alpha,
            part.gamma,
            rows,
            total=part.total,
        )
        for part, (X, rows) in zip(parts, batch.inputs, strict=True)
    ]


def codes_by_blocks(parts: list[Part], n: int) -> Codes:
    """Unified codes of all rows, Eq. (updateB), a block of rows in memory at a time.

    Parameters
    ----------
    parts : list of Part
        Their matrices may be row sources.
    n : int

    Returns
    -------
    ndarray of uint8, shape (n, ceil(c / 8))
    """
    out = np.empty((n, n_bytes(parts[0].W.shape[1])), dtype=np.uint8)
    for rows, batch in blocks(feeds_of(parts, n), n):
        here = on_batch(parts, batch)
        out[rows] = pack_scores(unified_codes(here, [part.embed() for part in here], batch.size))
    return out
