"""The GPU engine: an iteration as one CUDA graph of fused passes, without a word to the host in between.

A view is read twice per iteration: once for its scores, with sigmoid, rounding and the sum over the views done
before they leave the chip, and once for X'G. Dense views are held in their own copy: centred and scaled in float32
(products in TF32), or in bfloat16, raw where that is exact (0/1 tags, counts to 256), centred otherwise; W and G
then go in as two bfloat16 each. Sparse views stay sparse, with their transpose cut into pieces of equal length.
Views whose rows repeat are computed once per different row.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..linalg import to_device, to_numpy
from .gpuviews import lay_out
from .objective import Engine, Gradient, Part

__all__ = ["GraphEngine", "usable"]


def usable(parts: list[Part], kind: str | None) -> bool:
    """Whether the engine can do it: float32 on a CUDA device, up to 128 bits, every row present, Triton installed."""
    import torch

    return (
        kind in ("paper", None)
        and all(
            isinstance(part.W, torch.Tensor)
            and part.W.device.type == "cuda"
            and part.W.dtype == torch.float32
            and part.rows is None
            for part in parts
        )
        and parts[0].W.shape[1] <= 128  # C'C of more bits does not fit a processor's shared memory
        and importlib.util.find_spec("triton") is not None
    )


class GraphEngine(Engine):
    """DMH's iteration on a GPU; see the module's docstring. Regulariser "paper" or None, every row present.

    Parameters
    ----------
    parts : list of Part
        float32 tensors on one device.
    n : int
    kind : "paper" or None
    storage : "auto", "float32" or "bfloat16"
        How dense views are held: "auto" takes bfloat16 for views that it holds exactly, float32 for the others.
    """

    stride = 50

    def __init__(self, parts: list[Part], n: int, kind: str | None, storage: str = "auto") -> None:
        super().__init__(parts, n, kind)
        import torch

        c = int(parts[0].W.shape[1])
        self.P = max(16, 1 << (c - 1).bit_length())
        self.device = parts[0].W.device
        self.views = [lay_out(part, n, self.P, kind == "paper", storage) for part in parts]
        self.T = torch.zeros((n, self.P), device=self.device)
        self.B = torch.zeros((n, self.P), dtype=torch.uint8, device=self.device)
        self.k = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.steps = torch.zeros(1, device=self.device)
        self.curve = torch.zeros((1, 2 * len(parts)), device=self.device)
        self._graphs: dict[bool, Any] = {}

    def __exit__(self, *exception: object) -> None:
        self._graphs.clear()

    def _differentiate(self) -> None:
        for i, view in enumerate(self.views):
            view.embed(self.T, self.B, i == 0, i == len(self.views) - 1)
        for i, view in enumerate(self.views):
            view.differentiate(self.B)
            view.record(self.curve, self.k, 2 * i)

    def _iterate(self, normalize: bool) -> None:
        self._differentiate()
        for view in self.views:
            view.step(self.steps, self.k, normalize)
        self.k += 1

    def _load(self, steps: Sequence[float]) -> None:
        import torch

        if len(self.steps) < len(steps):
            self.steps = torch.zeros(len(steps), device=self.device)
            self.curve = torch.zeros((len(steps), 2 * len(self.parts)), device=self.device)
            self._graphs.clear()
        self.steps[: len(steps)] = to_device(np.asarray(steps, dtype=np.float32), self.device)
        self.k.zero_()
        for view in self.views:
            view.load()

    def gradients(self) -> list[Gradient]:
        """For each part: dE/dW, dE/dv, alpha ‖B - C‖^2, alpha R, with B updated first."""
        self._load([0.0])
        self._differentiate()
        terms = to_numpy(self.curve[0])
        return [
            (view.unpadded(view.dW).clone(), view.dv[: view.c].clone(), terms[2 * i], terms[2 * i + 1])
            for i, view in enumerate(self.views)
        ]

    def advance(self, steps: Sequence[float], normalize: bool) -> list[list[Any]]:
        """See :meth:`modalhash.solvers.objective.Engine.advance`; the host waits once, at the end."""
        self._load(steps)
        if self.device.type == "cuda":
            graph = self._graph(normalize)
            for _ in steps:
                graph.replay()
        else:
            for _ in steps:
                self._iterate(normalize)
        for view in self.views:
            view.store()
        curve: list[list[float]] = self.curve[: len(steps)].tolist()
        return curve

    def _graph(self, normalize: bool) -> Any:
        """Record the iteration; W, v and k are put back to what they were before the trial run."""
        import torch

        if normalize not in self._graphs:
            side = torch.cuda.Stream(self.device)
            side.wait_stream(torch.cuda.current_stream(self.device))
            with torch.cuda.stream(side):
                self._iterate(normalize)  # compiles, and allocates what the libraries want
            torch.cuda.current_stream(self.device).wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._iterate(normalize)
            self._graphs[normalize] = graph
            self.k.zero_()
            for view in self.views:
                view.load()
        return self._graphs[normalize]
