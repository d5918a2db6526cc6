"""Data sets: every loader returns the same :class:`Dataset`. Names are loaded when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_names

_HOMES = {
    "PROTOCOLS": "dataset",
    "Dataset": "dataset",
    "DatasetInfo": "registry",
    "checksum": "checksums",
    "info": "registry",
    "list_arrays": "files",
    "list_datasets": "registry",
    "load_arrays": "arrays",
    "load_folder": "folder",
    "load_icons": "icons",
    "load_mirflickr": "mirflickr",
    "load_nuswide": "nuswide",
    "load_openclipart": "openclipart",
    "load_wiki": "wiki",
    "make_synthetic": "synthetic",
    "open_rows": "rowsource",
    "prepare": "registry",
    "read_array": "files",
    "read_matrix": "files",
    "read_text_matrix": "textmatrix",
}

__all__ = [
    "PROTOCOLS",
    "Dataset",
    "DatasetInfo",
    "checksum",
    "info",
    "list_arrays",
    "list_datasets",
    "load_arrays",
    "load_folder",
    "load_icons",
    "load_mirflickr",
    "load_nuswide",
    "load_openclipart",
    "load_wiki",
    "make_synthetic",
    "open_rows",
    "prepare",
    "read_array",
    "read_matrix",
    "read_text_matrix",
]


__getattr__, __dir__ = lazy_names(__name__, _HOMES)

if TYPE_CHECKING:
    from .arrays import load_arrays as load_arrays
    from .checksums import checksum as checksum
    from .dataset import PROTOCOLS as PROTOCOLS
    from .dataset import Dataset as Dataset
    from .files import list_arrays as list_arrays
    from .files import read_array as read_array
    from .files import read_matrix as read_matrix
    from .folder import load_folder as load_folder
    from .icons import load_icons as load_icons
    from .mirflickr import load_mirflickr as load_mirflickr
    from .nuswide import load_nuswide as load_nuswide
    from .openclipart import load_openclipart as load_openclipart
    from .registry import DatasetInfo as DatasetInfo
    from .registry import info as info
    from .registry import list_datasets as list_datasets
    from .registry import prepare as prepare
    from .rowsource import open_rows as open_rows
    from .synthetic import make_synthetic as make_synthetic
    from .textmatrix import read_text_matrix as read_text_matrix
    from .wiki import load_wiki as load_wiki
