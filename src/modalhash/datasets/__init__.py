"""Data sets: every loader returns the same :class:`Dataset`. Names are loaded when first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "PROTOCOLS": "dataset",
    "Dataset": "dataset",
    "checksum": "dataset",
    "list_arrays": "files",
    "load_arrays": "arrays",
    "make_synthetic": "synthetic",
    "read_array": "files",
    "read_matrix": "files",
}

__all__ = [
    "PROTOCOLS",
    "Dataset",
    "checksum",
    "list_arrays",
    "load_arrays",
    "make_synthetic",
    "read_array",
    "read_matrix",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if TYPE_CHECKING:
    from .arrays import load_arrays as load_arrays
    from .dataset import PROTOCOLS as PROTOCOLS
    from .dataset import Dataset as Dataset
    from .dataset import checksum as checksum
    from .files import list_arrays as list_arrays
    from .files import read_array as read_array
    from .files import read_matrix as read_matrix
    from .synthetic import make_synthetic as make_synthetic
