"""A query once it is encoded, and what was found for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ..codes import Codes
from ..exceptions import InputError
from .words import ReadText

__all__ = ["Found", "QueryCode", "UnknownItemError"]


class UnknownItemError(InputError):
    """There is no item of that id."""


@dataclass(frozen=True)
class QueryCode:
    """A query, encoded.

    Attributes
    ----------
    by : str
        "text", "item", "vector", "image" or "code".
    view : str or None
        The view whose hash function made the code; None for a code that came as such.
    n_bits : int
    code : ndarray of uint8, shape (1, n_bytes)
    scores : ndarray of shape (1, n_bits), or None
        Before the sign, where known.
    item : int or None
    read : ReadText or None
        What became of a text. Where none of its words is known there is nothing to search by.
    """

    by: str
    view: str | None
    n_bits: int
    code: Codes
    scores: NDArray[Any] | None = None
    item: int | None = None
    read: ReadText | None = None

    @property
    def empty(self) -> bool:
        """A text of which no word is known: its code says nothing."""
        return self.read is not None and not self.read.known


@dataclass(frozen=True)
class Found:
    """What a search found, nearest first.

    Attributes
    ----------
    database : str
    total : int
        Items found; for a lookup perhaps more than are listed.
    ids, distances : list of int
    codes : ndarray of uint8, shape (len(ids), n_bytes)
    scores : list of float or None
        Where they decided the order.
    """

    database: str
    total: int
    ids: list[int]
    distances: list[int]
    codes: Codes
    scores: list[float] | None = None
