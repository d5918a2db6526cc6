"""What an index holds: codes, ids and text columns, as snapshots that readers may keep.

A :class:`Records` is never changed. Adding makes a new one that shares memory with the old: arrays have spare room
at the end, the new rows are written there, and the old snapshot does not reach that far. So one thread may add while
others read, each reader sees one state and never half of an addition, and adding costs no copy of what was there.
Rows are kept in ascending order of id, so that order of rows is order of ids; adding ids out of order, or removing,
copies once.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..codes import Codes, as_words, n_bytes
from ..exceptions import InputError
from .arguments import Ids, ids_asked

__all__ = ["Growing", "Records", "TextColumn", "codes_of_words", "words_of_codes"]

_SPARE = 0.5


class Growing:
    """An array that grows along its last axis; earlier snapshots of it stay as they are.

    Parameters
    ----------
    data : ndarray
        The first `used` entries along the last axis count; the rest is room to grow.
    used : int, optional
        All of it by default.

    Examples
    --------
    >>> old = Growing(np.array([1, 2]))
    >>> new = old.extended(np.array([3]))
    >>> old.array.tolist(), new.array.tolist()
    ([1, 2], [1, 2, 3])
    """

    def __init__(self, data: NDArray[Any], used: int | None = None, _taken: list[int] | None = None) -> None:
        self.data = data
        self.used = data.shape[-1] if used is None else used
        # How much of `data` any snapshot uses: only the longest may write behind itself.
        self._taken = [self.used] if _taken is None else _taken

    @property
    def array(self) -> NDArray[Any]:
        """What counts, as a view."""
        return self.data[..., : self.used]

    def extended(self, new: NDArray[Any]) -> Growing:
        """A longer snapshot; copies only where there is no room."""
        total = self.used + new.shape[-1]
        data, taken = self.data, self._taken
        if total > data.shape[-1] or taken[0] != self.used:
            data = np.empty((*data.shape[:-1], int(total * (1 + _SPARE)) + 16), dtype=data.dtype)
            data[..., : self.used] = self.array
            taken = [self.used]
        data[..., self.used : total] = new
        taken[0] = total
        return Growing(data, total, taken)


class TextColumn:
    """Strings as one block of UTF-8 and the place where each ends.

    Parameters
    ----------
    block : Growing of uint8
    ends : Growing of int64

    Examples
    --------
    >>> column = TextColumn.of(["cat", "", "Käfer"]).extended(["dog"])
    >>> column.take(np.array([3, 2, 1]))
    ['dog', 'Käfer', '']
    """

    def __init__(self, block: Growing, ends: Growing) -> None:
        self.block, self.ends = block, ends

    @classmethod
    def of(cls, values: Sequence[str]) -> Self:
        """A column of these strings."""
        return cls(Growing(np.empty(0, np.uint8)), Growing(np.empty(0, np.int64))).extended(values)

    def extended(self, values: Sequence[str]) -> Self:
        """With more strings at the end."""
        encoded = [value.encode() for value in values]
        last = int(self.ends.array[-1]) if self.ends.used else 0
        ends = last + np.cumsum([len(value) for value in encoded], dtype=np.int64)
        block = self.block.extended(np.frombuffer(b"".join(encoded), dtype=np.uint8))
        return type(self)(block, self.ends.extended(ends))

    def _span(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        ends = self.ends.array
        return np.where(rows > 0, ends[rows - 1], 0), ends[rows]

    def take(self, rows: NDArray[np.int64]) -> list[str]:
        """The strings at `rows`."""
        block = self.block.array
        return [bytes(block[start:end]).decode() for start, end in zip(*self._span(rows), strict=True)]

    def selected(self, rows: NDArray[np.int64]) -> Self:
        """A new column of the strings at `rows`."""
        start, end = self._span(rows)
        ends = np.cumsum(end - start, dtype=np.int64)
        # Source of every byte: where its string starts, plus how far into the string it lies.
        source = np.repeat(start - (ends - (end - start)), end - start) + np.arange(int(ends[-1]) if len(ends) else 0)
        return type(self)(Growing(self.block.array[source]), Growing(ends))


def words_of_codes(codes: Codes, n_bits: int) -> NDArray[Any]:
    """Packed codes as words for the kernels: one 32-bit word up to 32 bits, 64-bit words above.

    Parameters
    ----------
    codes : ndarray of uint8, shape (n, n_bytes)
    n_bits : int

    Returns
    -------
    ndarray of uint32 or uint64, shape (n, n_words)

    Examples
    --------
    >>> words_of_codes(np.array([[1, 2]], dtype=np.uint8), 12)
    array([[513]], dtype=uint32)
    """
    width = codes.shape[1]
    if sys.byteorder == "little" and (width % 8 == 0 or width == 4):
        return codes.view(np.uint64 if width > 4 else np.uint32)
    words = as_words(codes)
    return words.astype(np.uint32) if n_bits <= 32 else words


def codes_of_words(words: NDArray[Any], n_bits: int) -> Codes:
    """Packed codes of words, the inverse of :func:`words_of_codes`.

    Examples
    --------
    >>> codes_of_words(np.array([[513]], dtype=np.uint32), 12)
    array([[1, 2]], dtype=uint8)
    """
    little = np.ascontiguousarray(words, dtype=words.dtype.newbyteorder("<"))
    return np.ascontiguousarray(little.view(np.uint8)[:, : n_bytes(n_bits)])


@dataclass(frozen=True)
class Records:
    """Rows of an index, in ascending order of id.

    Attributes
    ----------
    n_bits : int
    words : Growing, shape (n_words, n)
    id_array : Growing of int64, shape (n,)
    columns : dict of str to TextColumn
    """

    n_bits: int
    words: Growing
    id_array: Growing
    columns: Mapping[str, TextColumn] = field(default_factory=dict)

    @classmethod
    def empty(cls, n_bits: int) -> Self:
        """No rows yet."""
        width = words_of_codes(np.zeros((1, n_bytes(n_bits)), np.uint8), n_bits)
        return cls(n_bits, Growing(np.empty((width.shape[1], 0), width.dtype)), Growing(np.empty(0, np.int64)))

    def __len__(self) -> int:
        return self.id_array.used

    @property
    def ids(self) -> Ids:
        """Ids, ascending."""
        return self.id_array.array

    def codes(self, rows: Any = slice(None)) -> Codes:
        """Packed codes of some rows, shape (rows, n_bytes)."""
        return codes_of_words(self.words.array[:, rows].T, self.n_bits)

    def find(self, ids: Ids) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Row of each id, and whether it is there at all."""
        rows = np.searchsorted(self.ids, ids)
        there = rows < len(self)
        there[there] = self.ids[rows[there]] == ids[there]
        return rows, there

    def rows_within(self, ids: Any) -> NDArray[np.int64]:
        """Rows of those of some ids that are there, ascending."""
        rows, there = self.find(np.unique(ids_asked(ids)))
        return rows[there]

    def rows_of(self, ids: Ids) -> NDArray[np.int64]:
        """Row of each id; an unknown id is an error."""
        rows, there = self.find(ids)
        if not there.all():
            missing = ids[~there]
            raise InputError(
                f"the index does not hold id {int(missing[0])}"
                + (f" and {missing.size - 1} more of those asked for" if missing.size > 1 else "")
                + f"; it holds {len(self)} ids. Pass ids that were added."
            )
        return rows

    def selected(self, rows: NDArray[np.int64]) -> Self:
        """Some rows as records of their own; `rows` so that ids ascend."""
        columns = {name: column.selected(rows) for name, column in self.columns.items()}
        words, ids = np.ascontiguousarray(self.words.array[:, rows]), self.ids[rows]
        return type(self)(self.n_bits, Growing(words), Growing(ids), columns)

    def extended(self, codes: Codes, ids: Ids, payload: Mapping[str, Sequence[str]]) -> Self:
        """With more rows; ids must be new and payload must have the columns there are."""
        if len(self) and set(payload) != set(self.columns):
            raise InputError(
                f"payload must have the columns {sorted(self.columns)}, as the rows before; got {sorted(payload)}. "
                "Pass the same columns with every addition."
            )
        order = np.argsort(ids, kind="stable")
        if not np.array_equal(order, np.arange(len(ids))):
            codes, ids = codes[order], ids[order]
            payload = {name: [values[i] for i in order] for name, values in payload.items()}
        there = self.find(ids)[1]
        if there.any():
            raise InputError(f"id {int(ids[there][0])} is in the index already. Use upsert to replace it.")
        words = words_of_codes(codes, self.n_bits).T
        columns = {
            name: self.columns[name].extended(values) if len(self) else TextColumn.of(values)
            for name, values in payload.items()
        }
        merged = type(self)(self.n_bits, self.words.extended(words), self.id_array.extended(ids), columns)
        if len(self) and len(ids) and ids[0] < self.ids[-1]:
            return merged.selected(np.argsort(merged.ids, kind="stable"))
        return merged

    def without(self, ids: Ids) -> Self:
        """Without the rows of these ids, all of which must be there."""
        keep = np.ones(len(self), dtype=bool)
        keep[self.rows_of(ids)] = False
        return self.selected(np.flatnonzero(keep))
