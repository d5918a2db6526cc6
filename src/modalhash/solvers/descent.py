"""Full-batch solvers: what is done with the gradient of an :class:`~modalhash.solvers.objective.Engine`.

A descent changes W and v of the engine's parts in place. What it carries from one iteration to the next besides
them is in :meth:`Descent.arrays`, so that a checkpoint can hold all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..linalg import is_torch, to_device, to_numpy
from .objective import Engine

__all__ = ["Descent"]


class Descent:
    """The paper's Algorithm 2, or Algorithm 1 without `normalize`.

    Parameters
    ----------
    engine : Engine
        Entered already.
    steps : sequence of float
        The step length of every iteration.
    normalize : bool
        Divide the step of W by the gradient's norm.
    """

    def __init__(self, engine: Engine, steps: Sequence[float], normalize: bool) -> None:
        self.engine, self.steps, self.normalize = engine, steps, normalize

    def advance(self, start: int, stop: int) -> list[list[Any]]:
        """Iterations `start` to `stop`; the terms of the objective at each, before its step."""
        return self.engine.advance(self.steps[start:stop], self.normalize)

    def arrays(self) -> dict[str, Any]:
        """All that the next iteration depends on, by name, as NumPy arrays."""
        out = {}
        for part in self.engine.parts:
            out[f"W/{part.name}"], out[f"v/{part.name}"] = to_numpy(part.W), to_numpy(part.v)
        return out

    def restore(self, arrays: Mapping[str, Any]) -> None:
        """Go back to what :meth:`arrays` said, in place."""
        for part in self.engine.parts:
            put(part.W, arrays[f"W/{part.name}"])
            put(part.v, arrays[f"v/{part.name}"])


def put(target: Any, value: Any) -> None:
    """Copy a NumPy array into `target`, wherever it lives."""
    if is_torch(target):
        target.copy_(to_device(value, target.device))
    else:
        target[...] = value
