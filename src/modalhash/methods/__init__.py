"""One file per paper; ``__all__`` is the registry of hashers (``CCARetriever`` has no codes and is not in it)."""

from __future__ import annotations

from .cca import CCARetriever as CCARetriever
from .cmfh import CMFH
from .cmssh import CMSSH
from .cvh import CVH
from .dmh import DMH
from .itq import ITQ, MultiViewITQ
from .linear import MultiViewLinear
from .linear import ladder as ladder
from .lsh import LSH
from .mdbe import MDBE
from .scm import SCM
from .seph import SePH

__all__ = ["CMFH", "CMSSH", "CVH", "DMH", "ITQ", "LSH", "MDBE", "SCM", "MultiViewITQ", "MultiViewLinear", "SePH"]
