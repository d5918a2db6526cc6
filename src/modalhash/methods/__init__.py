"""One file per paper; ``__all__`` is the registry of hashers."""

from __future__ import annotations

from .dmh import DMH

__all__ = ["DMH"]
