"""Full-batch descent with momentum: the paper's normalised step, longer, along a running mean of directions.

The paper's Algorithm 2 walks 0.003 to 0.0015 per iteration whatever the gradient's size; its steps are short because
a long one overshoots in the few directions in which the objective is steep. A mean over the last directions cancels
what changes sign from step to step and keeps what does not, so that steps can be an order of magnitude longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..linalg import to_numpy
from .descent import Descent, put
from .objective import Engine

__all__ = ["Momentum", "MomentumDescent"]

DECAY = 0.9
"""Share of the running mean that survives an iteration."""


class Momentum:
    """The running mean of directions of one part, and the step along it.

    Parameters
    ----------
    W : array (d, c); v : array (c,)
        Changed in place.
    """

    def __init__(self, W: Any, v: Any) -> None:
        self.W, self.v = W, v
        self.direction, self.drift = W * 0, v * 0

    def step(self, dW: Any, dv: Any, dt: float, normalize: bool) -> None:
        """One step of length `dt` against the running means of dW (divided by its norm if asked) and of dv."""
        if normalize:
            norm = (dW * dW).sum() ** 0.5
            dW /= norm + (norm == 0)
        for mean, new in ((self.direction, dW), (self.drift, dv)):
            mean *= DECAY
            mean += (1 - DECAY) * new
        self.W -= dt * self.direction
        self.v -= dt * self.drift

    def arrays(self) -> dict[str, Any]:
        """W, v and the means, as NumPy arrays."""
        return {name: to_numpy(getattr(self, name)) for name in ("W", "v", "direction", "drift")}

    def restore(self, arrays: Mapping[str, Any]) -> None:
        """Go back to what :meth:`arrays` said, in place."""
        for name, value in arrays.items():
            put(getattr(self, name), value)


class MomentumDescent(Descent):
    """Descent along the running mean of the last gradients; see the module's docstring.

    Parameters
    ----------
    engine : Engine
        Entered already; needs :meth:`~modalhash.solvers.objective.Engine.gradients`.
    steps : sequence of float
    normalize : bool
    """

    def __init__(self, engine: Engine, steps: Sequence[float], normalize: bool) -> None:
        super().__init__(engine, steps, normalize)
        self.moving = [Momentum(part.W, part.v) for part in engine.parts]

    def advance(self, start: int, stop: int) -> list[list[Any]]:
        """Iterations `start` to `stop`; the terms of the objective at each, before its step."""
        curve = []
        for dt in self.steps[start:stop]:
            terms: list[Any] = []
            found = self.engine.gradients()
            for part, moving, (dW, dv, fit, penalty) in zip(self.engine.parts, self.moving, found, strict=True):
                terms += [fit, penalty]
                moving.step(dW, dv / part.total, dt, self.normalize)
            curve.append(terms)
        return curve

    def arrays(self) -> dict[str, Any]:
        """All that the next iteration depends on, by name, as NumPy arrays."""
        return {
            f"{name}/{part.name}": value
            for part, moving in zip(self.engine.parts, self.moving, strict=True)
            for name, value in moving.arrays().items()
        }

    def restore(self, arrays: Mapping[str, Any]) -> None:
        """Go back to what :meth:`arrays` said, in place."""
        for part, moving in zip(self.engine.parts, self.moving, strict=True):
            moving.restore({name: arrays[f"{name}/{part.name}"] for name in moving.arrays()})
