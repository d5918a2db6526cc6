"""How the DMH objective and its gradient are evaluated, and what is done with them.

:mod:`modalhash.solvers.objective` is the definition, over NumPy or torch. :mod:`modalhash.solvers.cpu` computes the
same in cache-sized blocks on all cores, :mod:`modalhash.solvers.gpu` on a CUDA device; :func:`choose_engine` picks.
:mod:`modalhash.solvers.descent` takes the paper's steps with it, :mod:`modalhash.solvers.momentum` longer ones, and
:mod:`modalhash.solvers.minibatch` steps on batches that :mod:`modalhash.solvers.shuffle` draws from memory or disk.
:mod:`modalhash.solvers.training` runs the loops, :mod:`modalhash.solvers.checkpoint` keeps their state.
"""

from __future__ import annotations

from .objective import Part, ReferenceEngine, choose_engine, gradient, unified_codes

__all__ = ["Part", "ReferenceEngine", "choose_engine", "gradient", "unified_codes"]
