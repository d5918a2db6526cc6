"""Names that are imported when first used, so that importing the package stays cheap."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(
    package: str, homes: Mapping[str, str], submodules: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the ``__getattr__`` and ``__dir__`` of a package (PEP 562).

    Parameters
    ----------
    package : str
        Its ``__name__``.
    homes : dict of str to str
        Name -> the submodule that defines it.
    submodules : sequence of str
        Submodules that are names of the package themselves.

    Returns
    -------
    tuple of callables

    Examples
    --------
    >>> get, names = lazy_names("modalhash", {"pack": "codes"})
    >>> get("pack").__module__
    'modalhash.codes'
    """

    def get(name: str) -> Any:
        if name in submodules:
            return importlib.import_module(f".{name}", package)
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f".{homes[name]}", package), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes, *submodules})

    return get, names
