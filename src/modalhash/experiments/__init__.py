"""The paper's tables and figures, rebuilt: plan, run, score, report. The steps share only files.

``modalhash reproduce`` is the command line over it; :mod:`modalhash.experiments.files` says what lies where. Names are
loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_names

_HOMES = {
    "METHODS": "plan",
    "STUDIES": "plan",
    "Paper": "published",
    "Run": "plan",
    "execute": "run",
    "load_papers": "published",
    "make_plan": "plan",
    "read_source": "sources",
    "score_runs": "score",
}

__all__ = [
    "METHODS",
    "STUDIES",
    "Paper",
    "Run",
    "execute",
    "load_papers",
    "make_plan",
    "read_source",
    "score_runs",
]

__getattr__, __dir__ = lazy_names(__name__, _HOMES)

if TYPE_CHECKING:
    from .plan import METHODS as METHODS
    from .plan import STUDIES as STUDIES
    from .plan import Run as Run
    from .plan import make_plan as make_plan
    from .published import Paper as Paper
    from .published import load_papers as load_papers
    from .run import execute as execute
    from .score import score_runs as score_runs
    from .sources import read_source as read_source
