"""Short binary codes for things seen in several views, so that one view finds the other by Hamming distance.

>>> import modalhash as mh
>>> data = mh.datasets.make_synthetic(n=300, random_state=0)
>>> hasher = mh.DMH(n_bits=16, n_iter=50, random_state=1).fit(data.views, labels=data.labels)
>>> hasher.encode("text", data.views["text"]).shape
(300, 2)

Names are loaded when first used: ``import modalhash`` itself imports next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lazy import lazy_names

__version__ = "0.1.0"

_SUBMODULES = (
    "checks",
    "codes",
    "datasets",
    "engines",
    "exceptions",
    "features",
    "kernels",
    "linalg",
    "methods",
    "similarity",
    "spectral",
)
_HOMES = {
    "CCARetriever": "methods",
    "CMFH": "methods",
    "CMSSH": "methods",
    "CVH": "methods",
    "CrossModalHasher": "base",
    "DMH": "methods",
    "HammingIndex": "index",
    "ITQ": "methods",
    "LSH": "methods",
    "MDBE": "methods",
    "Matches": "index",
    "MultiViewITQ": "methods",
    "MultiViewLinear": "methods",
    "Report": "results",
    "SCM": "methods",
    "SePH": "methods",
    "bit_diagnostics": "diagnostics",
    "cross_modal_report": "report",
    "evaluate": "evaluation",
    "evaluate_asymmetric": "asymmetric",
    "ladder": "methods",
    "load": "base",
}

__all__ = ["__version__", *_SUBMODULES, *_HOMES]


__getattr__, __dir__ = lazy_names(__name__, _HOMES, _SUBMODULES)

if TYPE_CHECKING:
    from .asymmetric import evaluate_asymmetric as evaluate_asymmetric
    from .base import CrossModalHasher as CrossModalHasher
    from .base import load as load
    from .diagnostics import bit_diagnostics as bit_diagnostics
    from .evaluation import evaluate as evaluate
    from .index import HammingIndex as HammingIndex
    from .index import Matches as Matches
    from .methods import CMFH as CMFH
    from .methods import CMSSH as CMSSH
    from .methods import CVH as CVH
    from .methods import DMH as DMH
    from .methods import ITQ as ITQ
    from .methods import LSH as LSH
    from .methods import MDBE as MDBE
    from .methods import SCM as SCM
    from .methods import CCARetriever as CCARetriever
    from .methods import MultiViewITQ as MultiViewITQ
    from .methods import MultiViewLinear as MultiViewLinear
    from .methods import SePH as SePH
    from .methods import ladder as ladder
    from .report import cross_modal_report as cross_modal_report
    from .results import Report as Report
