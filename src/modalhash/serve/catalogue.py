"""What is known about each item: name, title, text, labels and picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from ..exceptions import InputError
from .pictures import Picture, is_flat, picture_file

if TYPE_CHECKING:
    from ..datasets import Dataset
    from ..index import HammingIndex

__all__ = ["Catalogue", "ItemRecord"]

_TEXTS = ("text", "tags", "words", "terms", "caption")


@dataclass(frozen=True)
class ItemRecord:
    """One item, as it is shown.

    Attributes
    ----------
    id : int
        The row of the data set, and the id in the index.
    name : str
        What the source calls it.
    title, text : str
        For people; the text is empty where there is none.
    labels : list of str
    has_picture : bool
    flat : bool
        The picture is a drawing without colours of its own.
    """

    id: int
    name: str
    title: str
    text: str
    labels: list[str]
    has_picture: bool
    flat: bool


class Catalogue:
    """Items by id, from a data set (an id is a row number) or from what an index keeps with its codes.

    Parameters
    ----------
    data : Dataset, optional
        Its columns ``title``, ``svg``, ``file`` and one of ``text``, ``tags``, ``words``, ``terms``, ``caption`` are
        used.
    indexes : sequence of HammingIndex
        Asked for items where there is no data set: payload columns of the same names.
    pictures : path, optional
        The folder that the column ``file`` is relative to.

    Examples
    --------
    >>> from modalhash.datasets import Dataset
    >>> data = Dataset({"image": np.eye(2)}, columns={"title": ["Cat", "Dog"], "svg": ["<svg/>", ""]})
    >>> catalogue = Catalogue(data)
    >>> catalogue[0].title, catalogue[0].has_picture, catalogue[1].has_picture, 2 in catalogue
    ('Cat', True, False, False)
    >>> catalogue.picture(0).media_type
    'image/svg+xml'
    """

    def __init__(
        self, data: Dataset | None, indexes: Sequence[HammingIndex] = (), pictures: str | Path | None = None
    ) -> None:
        self.data = data
        self._indexes = list(indexes)
        self._root = None if pictures is None else Path(pictures).expanduser().resolve()
        if self._root is not None and not self._root.is_dir():
            raise InputError(f"{pictures} is not a folder; pass the one that the data set's files lie in.")
        if self._root is not None and (data is None or "file" not in data.columns):
            raise InputError("pictures come from the data set's column 'file'; there is none.")
        self._flat: dict[int, bool] = {}
        self._ids = np.zeros(0, np.int64)
        if data is None:
            self._ids = np.unique(np.concatenate([self._ids, *(index.ids for index in indexes)]))

    def __len__(self) -> int:
        return len(self._ids if self.data is None else self.data)

    def __contains__(self, item: int) -> bool:
        if self.data is not None:
            return 0 <= item < len(self.data)
        return any(item in index for index in self._indexes)

    def __getitem__(self, item: int) -> ItemRecord:
        if item not in self:
            raise KeyError(item)
        return self.take([item])[0]

    def take(self, items: Sequence[int]) -> list[ItemRecord]:
        """Several items, all of which are there, in the order asked for."""
        if self.data is not None:
            return self._from_data(self.data, items)
        found: dict[int, ItemRecord] = {}
        for index in self._indexes:
            held = [item for item in items if item not in found]
            if len(self._indexes) > 1:
                held = [item for item in held if item in index]
            if held:
                columns = {name: values for name, values in index.payload(held).items() if name != "svg"}
                for i, item in enumerate(held):
                    own = {name: values[i] for name, values in columns.items()}
                    found[item] = _record(item, own.get("name", str(item)), own)
        return [found[item] for item in items]

    def _from_data(self, data: Dataset, items: Sequence[int]) -> list[ItemRecord]:
        on: Any = None if data.labels is None else data.labels[np.asarray(items, dtype=np.int64)]
        on = on.toarray() if sparse.issparse(on) else on
        out = []
        for i, item in enumerate(items):
            columns = {name: values[item] for name, values in data.columns.items()}
            svg = columns.pop("svg", "")
            if svg and item not in self._flat:
                self._flat[item] = is_flat(svg)
            has_picture = bool(svg) or (self._root is not None and bool(columns["file"]))
            named = [] if on is None else [str(data.label_names[j]) for j in np.flatnonzero(on[i])]
            out.append(_record(item, str(data.ids[item]), columns, named, has_picture, self._flat.get(item, False)))
        return out

    def page(self, start: int, limit: int, step: int = 1) -> list[ItemRecord]:
        """Every `step`-th item in order of id, from the `start`-th on, `limit` at most."""
        rows = range(start, len(self), step)[:limit]
        return self.take(rows if self.data is not None else [int(self._ids[row]) for row in rows])

    def picture(self, item: int) -> Picture | None:
        """The picture of an item; None where there is none."""
        if self.data is None or item not in self:
            return None
        svg = self.data.columns.get("svg")
        if svg is not None and svg[item]:
            return Picture(svg[item].encode("utf-8", "replace"), "image/svg+xml")
        if self._root is not None:
            return picture_file(self._root, self.data.columns["file"][item])
        return None


def _record(
    item: int,
    name: str,
    columns: Mapping[str, str],
    labels: Sequence[str] = (),
    has_picture: bool = False,
    flat: bool = False,
) -> ItemRecord:
    text = next((columns[column] for column in _TEXTS if columns.get(column)), "")
    return ItemRecord(item, name, columns.get("title") or name, text, list(labels), has_picture, flat)
