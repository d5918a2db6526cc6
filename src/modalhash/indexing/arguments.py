"""Checks of what callers pass to an index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..exceptions import InputError

__all__ = ["at_least", "check_ids", "check_payload", "ids_asked"]

Ids = NDArray[np.int64]


def at_least(least: int, value: Any, name: str) -> int:
    """Check a whole number.

    Examples
    --------
    >>> at_least(1, np.int32(5), "k")
    5
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}; got {value!r}.")
    return int(value)


def check_ids(ids: Any, n: int | None = None) -> Ids:
    """Check that ids are distinct whole numbers of 64 bits, `n` of them if that is known.

    Examples
    --------
    >>> check_ids([4, 2], n=2)
    array([4, 2])
    """
    array = np.asarray(ids)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(f"ids must be a list of whole numbers; got {array.dtype} of shape {array.shape}.")
    if array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise InputError("ids must fit in 64 bits with a sign; one is larger. Use smaller ids.")
    if n is not None and array.size != n:
        raise InputError(f"{array.size} ids came for {n} codes. Pass one id per code.")
    result = array.astype(np.int64)
    unique, counts = np.unique(result, return_counts=True)
    if unique.size != result.size:
        raise InputError(f"ids must differ; {int(unique[counts > 1][0])} comes more than once. Remove the repetition.")
    return result


def check_payload(payload: Mapping[str, Sequence[str]] | None, n: int) -> dict[str, list[str]]:
    """Check text columns: names, and one string per code.

    Examples
    --------
    >>> check_payload({"title": ("cat", "dog")}, 2)
    {'title': ['cat', 'dog']}
    """
    columns: dict[str, list[str]] = {}
    for name, values in (payload or {}).items():
        if not isinstance(name, str) or not name or "/" in name:
            raise InputError(f"a payload column needs a name without '/'; got {name!r}.")
        column = list(values)
        if len(column) != n:
            raise InputError(f"payload column {name!r} has {len(column)} values for {n} codes. Pass one per code.")
        wrong = next((value for value in column if not isinstance(value, str)), None)
        if wrong is not None:
            raise InputError(f"payload column {name!r} must hold strings; it has {wrong!r}. Convert it with str().")
        columns[name] = column
    return columns


def ids_asked(ids: Any) -> Ids:
    """Check ids that are asked about: any order, repetition allowed.

    Examples
    --------
    >>> ids_asked([4, 2, 4])
    array([4, 2, 4])
    """
    array = np.asarray(ids)
    unique, place = np.unique(array, return_inverse=True)
    if array.ndim != 1:
        raise InputError(f"ids must be a list of whole numbers; got an array of shape {array.shape}.")
    return check_ids(unique)[place]
