"""How the DMH objective and its gradient are evaluated: one definition, and faster engines checked against it.

:mod:`modalhash.solvers.objective` is the definition, over NumPy or torch. :mod:`modalhash.solvers.cpu` computes the
same in cache-sized blocks on all cores. :func:`choose_engine` picks.
"""

from __future__ import annotations

from .objective import Part, ReferenceEngine, choose_engine, gradient, unified_codes

__all__ = ["Part", "ReferenceEngine", "choose_engine", "gradient", "unified_codes"]
