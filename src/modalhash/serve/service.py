"""What a server answers from, and the answers; nothing here knows of HTTP.

A service holds one or more models of different code lengths, and for each length a number of databases: indexes by
name. The codes of a view, made by that view's own hash function, are a database called like the view ("image",
"text"); those made of all views together, without labels, where the method can, are called "fused"; a saved index may
have any other name. An item's id is its row in the data set.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base import CrossModalHasher, load
from ..codes import check_codes, n_bytes, pack_scores
from ..exceptions import InputError
from ..index import HammingIndex
from .answers import Found, QueryCode, UnknownItemError
from .catalogue import Catalogue
from .queries import first_step, kind_of, view_of_kind
from .words import TextView

if TYPE_CHECKING:
    from ..datasets import Dataset

__all__ = ["SearchService"]

_log = logging.getLogger(__name__)
FUSED = "fused"


@dataclass
class _Collection:
    """Codes of one length."""

    hasher: CrossModalHasher
    indexes: dict[str, HammingIndex] = field(default_factory=dict)


class SearchService:
    """Models, databases and items, and the questions they answer. Threads may ask at the same time.

    Parameters
    ----------
    models : hasher or sequence of hashers
        Fitted, each with another ``n_bits``.
    indexes : sequence of (name, HammingIndex)
        Databases that exist already; each goes with the model of its length.
    data : Dataset, optional
        The items. Each view that it shares with a model, and that no index was given for, is encoded now; so are all
        views together where the method has the database rule "fused".
    pictures : path, optional
        The folder that the data set's column ``file`` is relative to.
    split : str, optional
        Encode only these rows of `data`.

    Examples
    --------
    >>> import modalhash as mh
    >>> data = mh.datasets.make_synthetic(n=200, random_state=0)
    >>> hasher = mh.DMH(n_bits=8, n_iter=20, random_state=1).fit(data.views, labels=data.labels)
    >>> service = SearchService(hasher, data=data)
    >>> service.databases(8)
    ['image', 'text', 'fused']
    >>> found = service.search(service.of_item(3, view="text"), "image", k=5)
    >>> len(found.ids), found.distances == sorted(found.distances)
    (5, True)
    """

    def __init__(
        self,
        models: CrossModalHasher | Sequence[CrossModalHasher],
        *,
        indexes: Sequence[tuple[str, HammingIndex]] = (),
        data: Dataset | None = None,
        pictures: str | Path | None = None,
        split: str | None = None,
    ) -> None:
        self.data = data
        self._collections: dict[int, _Collection] = {}
        for hasher in [models] if isinstance(models, CrossModalHasher) else models:
            if hasher.n_bits in self._collections:
                raise InputError(f"two models have {hasher.n_bits} bits; a server takes one of each length.")
            self._collections[hasher.n_bits] = _Collection(_one_thread(hasher))
        if not self._collections:
            raise InputError("a server needs a model; none was given.")
        for name, index in indexes:
            self._add_index(name, index)
        if data is not None:
            self._encode(data, split)
        if not any(collection.indexes for collection in self._collections.values()):
            raise InputError("there is nothing to search: pass an index, or a data set with the model's views.")
        self.catalogue = Catalogue(data, self._indexes(), pictures)
        self._text_views = {
            (bits, view): TextView(c.hasher.features_.steps_[view], None if data is None else data.views.get(view))
            for bits, c in self._collections.items()
            for view in c.hasher.view_names_
            if self.kind(view, bits) == "text"
        }

    @classmethod
    def open(
        cls,
        models: Sequence[str | Path],
        *,
        indexes: Sequence[tuple[str, str | Path]] = (),
        data: str | Path | None = None,
        pictures: str | Path | None = None,
        split: str | None = None,
    ) -> SearchService:
        """Load everything from disk; parameters as for the class, with paths.

        Returns
        -------
        SearchService
        """
        from ..datasets import load_arrays

        return cls(
            [load(path) for path in models],
            indexes=[(name, HammingIndex.load(path, threads=1)) for name, path in indexes],
            data=None if data is None else load_arrays(data),
            pictures=pictures,
            split=split,
        )

    def _add_index(self, name: str, index: HammingIndex) -> None:
        if index.n_bits not in self._collections:
            raise InputError(
                f"the index {name!r} has codes of {index.n_bits} bits; the models have "
                f"{', '.join(map(str, sorted(self._collections)))}. Encode it with one of them."
            )
        indexes = self._collections[index.n_bits].indexes
        if name in indexes:
            raise InputError(f"two indexes of {index.n_bits} bits are called {name!r}. Give them different names.")
        ids = index.ids
        if self.data is not None and ids.size and (ids[0] < 0 or ids[-1] >= len(self.data)):
            wrong = int(ids[0] if ids[0] < 0 else ids[-1])
            raise InputError(
                f"the index {name!r} holds id {wrong}; the data set has {len(self.data)} rows. "
                "With a data set, ids must be its row numbers."
            )
        indexes[name] = index

    def _encode(self, data: Dataset, split: str | None) -> None:
        rows = data if split is None else data.rows(split)
        ids = None if split is None else data.splits[split]
        for bits, collection in self._collections.items():
            hasher, indexes = collection.hasher, collection.indexes
            views = {view: rows.views[view] for view in hasher.view_names_ if view in rows.views}
            for view, X in views.items():
                if view not in indexes:
                    indexes[view] = HammingIndex(bits, threads=1).add(hasher.encode(view, X), ids)
            whole = len(views) == len(hasher.view_names_) > 1
            if whole and FUSED in hasher.database_rules and FUSED not in indexes:
                codes = hasher.database_codes(views, rule=FUSED)
                indexes[FUSED] = HammingIndex(bits, threads=1).add(codes, ids)
            _log.info("encoded %d items with %d bits: %s", len(rows), bits, ", ".join(indexes))

    def _indexes(self) -> list[HammingIndex]:
        return [index for c in self._collections.values() for index in c.indexes.values()]

    def warm_up(self) -> None:
        """Do once what the first requests would wait for: compile kernels, build hash tables, sort words by item."""
        for index in self._indexes():
            if len(index):
                code = index.codes(index.ids[:1])
                index.search(code, 1)
                index.lookup(code, 2)
        for view in self._text_views.values():
            if view.vocabulary:
                view.read(view.vocabulary[0], expand=1)

    # What there is -------------------------------------------------------------------------------------------------

    @property
    def lengths(self) -> list[int]:
        """Code lengths, ascending."""
        return sorted(self._collections)

    def databases(self, bits: int) -> list[str]:
        """Names of the databases of one length."""
        return list(self._collections[bits].indexes)

    def sizes(self) -> dict[tuple[str, int], int]:
        """Codes by database and length."""
        return {(name, bits): len(i) for bits, c in self._collections.items() for name, i in c.indexes.items()}

    def views(self, bits: int) -> Mapping[str, int]:
        """Views that a vector may be of, and their columns."""
        hasher = self._collections[bits].hasher
        return {view: hasher.n_features_in_[view] for view in hasher.view_names_}

    def kind(self, view: str, bits: int) -> str:
        """What a query of a view can be made of: "text", "image" or only a "vector"."""
        return kind_of(self._collections[bits].hasher, view)

    def picture_size(self, view: str, bits: int) -> int | None:
        """Side of the square that pictures of a view are scaled to, where its features do that."""
        step = first_step(self._collections[bits].hasher, view)
        return getattr(step, "size", None) if self.kind(view, bits) == "image" else None

    def method(self, bits: int) -> str:
        """Name of the method whose model makes the codes of one length."""
        return type(self._collections[bits].hasher).__name__

    @property
    def name(self) -> str:
        """What the items are called together."""
        return "codes" if self.data is None else self.data.name

    @property
    def credit(self) -> str:
        """Where the items came from, and under which licence, as far as is known."""
        if self.data is None:
            return ""
        from ..datasets import info, list_datasets

        known = self.data.name in {about.name for about in list_datasets()}
        parts = [str(self.data.provenance.get("source", "")), info(self.data.name).licence if known else ""]
        return "; ".join(part for part in parts if part)

    def can_expand(self, bits: int) -> bool:
        """Whether short texts can be filled up with the words of matching items."""
        return any(view.can_expand for (n, _), view in self._text_views.items() if n == bits)

    # Queries -------------------------------------------------------------------------------------------------------

    def of_text(
        self, text: str, *, view: str | None = None, bits: int | None = None, complete: bool = False, expand: int = 0
    ) -> QueryCode:
        """Encode a text; see :meth:`TextView.read` for `complete` and `expand`."""
        bits = self._length(bits)
        view = view_of_kind(self._collections[bits].hasher, "text", view)
        read = self._text_views[bits, view].read(text, complete=complete, expand=expand)
        return self._encoded("text", view, bits, read.features, read=read)

    def of_image(self, image: Any, *, view: str | None = None, bits: int | None = None) -> QueryCode:
        """Encode a picture: anything that :func:`modalhash.features.open_image` takes."""
        bits = self._length(bits)
        view = view_of_kind(self._collections[bits].hasher, "image", view)
        return self._encoded("image", view, bits, self._collections[bits].hasher.raw_features(view, [image]))

    def of_vector(self, vector: Sequence[float], *, view: str | None = None, bits: int | None = None) -> QueryCode:
        """Encode a row of features."""
        bits = self._length(bits)
        X = np.asarray(vector, dtype=np.float64)[None, :]
        return self._encoded("vector", self._some_view(view, bits), bits, X)

    def of_item(self, item: int, *, view: str | None = None, bits: int | None = None) -> QueryCode:
        """The code of an item, by one of its views (or in a database that is no view)."""
        bits = self._length(bits)
        if item not in self.catalogue:
            raise UnknownItemError(f"there is no item {item}.")
        collection = self._collections[bits]
        if view not in collection.indexes or view in collection.hasher.view_names_:
            view = self._some_view(view, bits)
        if self.data is not None and view in self.data.views:
            return self._encoded("item", view, bits, self.data.views[view][[item]], item=item)
        index = collection.indexes.get(view)
        if index is None or item not in index:
            raise UnknownItemError(f"there is no code of item {item} for {view!r}.")
        return QueryCode("item", view, bits, index.codes([item]), item=item)

    def of_code(self, code: str, *, bits: int | None = None) -> QueryCode:
        """A code in hexadecimal digits, as the answers have it."""
        bits = self._length(bits)
        try:
            raw = np.frombuffer(bytes.fromhex(code), dtype=np.uint8)
        except ValueError as error:
            raise InputError(f"a code is written in hexadecimal digits; got {code[:40]!r}.") from error
        if raw.size != n_bytes(bits):
            raise InputError(f"a code of {bits} bits has {2 * n_bytes(bits)} hexadecimal digits; got {len(code)}.")
        return QueryCode("code", None, bits, check_codes(raw[None, :], bits, "the code"))

    def _encoded(self, by: str, view: str, bits: int, X: Any, **more: Any) -> QueryCode:
        with np.errstate(over="ignore", invalid="ignore"):
            scores = self._collections[bits].hasher.project(view, X)
        if not np.isfinite(scores).all():
            raise InputError("the numbers are too large: their scores overflow. Scale them as at fit.")
        return QueryCode(by, view, bits, pack_scores(scores), scores, **more)

    # Answers -------------------------------------------------------------------------------------------------------

    def search(self, query: QueryCode, database: str | None = None, k: int = 10, *, by_scores: bool = False) -> Found:
        """The `k` nearest items in a database.

        Parameters
        ----------
        query : QueryCode
        database : str, optional
            By default the first that is not of the query's own view: the other direction.
        k : int
        by_scores : bool
            Order by the query's real-valued scores; see :meth:`modalhash.HammingIndex.search`.

        Returns
        -------
        Found
            A query by item does not find that item among codes of the same view.
        """
        database, index = self._database(database, query)
        if by_scores and query.scores is None:
            raise InputError("a code alone has no scores to order by. Search by distance, or by text, item or vector.")
        if query.empty or not len(index):
            return self._found(database, index, [], [], 0)
        itself = query.item if query.item is not None and query.view == database and query.item in index else None
        wanted = k + (itself is not None)
        one = index.search(query.code, wanted, scores=query.scores if by_scores else None)[0]
        keep = np.flatnonzero(one.ids != itself)[:k] if itself is not None else slice(None)
        scores = None if one.scores is None else [round(float(s), 4) for s in one.scores[keep]]
        return self._found(database, index, one.ids[keep].tolist(), one.distances[keep].tolist(), None, scores)

    def lookup(self, query: QueryCode, database: str | None, radius: int, limit: int = 100) -> Found:
        """All items within a radius; the nearest `limit` are listed, all are counted.

        Parameters
        ----------
        query : QueryCode
        database : str, optional
        radius : int
            Bits that may differ.
        limit : int

        Returns
        -------
        Found
        """
        database, index = self._database(database, query)
        if query.empty or not len(index):
            return self._found(database, index, [], [], 0)
        one = index.lookup(query.code, radius)[0]
        return self._found(database, index, one.ids[:limit].tolist(), one.distances[:limit].tolist(), len(one.ids))

    def _found(
        self,
        database: str,
        index: HammingIndex,
        ids: list[int],
        distances: list[int],
        total: int | None,
        scores: list[float] | None = None,
    ) -> Found:
        codes = index.codes(ids) if ids else np.zeros((0, n_bytes(index.n_bits)), np.uint8)
        return Found(database, len(ids) if total is None else total, ids, distances, codes, scores)

    # Choosing ------------------------------------------------------------------------------------------------------

    def _length(self, bits: int | None) -> int:
        if bits is None:
            return max(self._collections)
        if bits not in self._collections:
            raise InputError(f"there are no codes of {bits} bits; there are {', '.join(map(str, self.lengths))}.")
        return bits

    def _database(self, name: str | None, query: QueryCode) -> tuple[str, HammingIndex]:
        indexes = self._collections[query.n_bits].indexes
        if not indexes:
            raise InputError(f"there is no database of {query.n_bits} bits.")
        if name is None:
            name = next((other for other in indexes if other != query.view), next(iter(indexes)))
        if name not in indexes:
            raise InputError(f"there is no database {name!r}; there are {', '.join(map(repr, indexes))}.")
        return name, indexes[name]

    def _some_view(self, view: str | None, bits: int) -> str:
        views = list(self.views(bits))
        if view is None and len(views) == 1:
            return views[0]
        if view is None:
            raise InputError(f"say which view: {', '.join(map(repr, views))}.")
        if view not in views:
            raise InputError(f"there is no view {view!r}; there are {', '.join(map(repr, views))}.")
        return view


def _one_thread(hasher: CrossModalHasher) -> CrossModalHasher:
    """Let feature steps use the thread of the request and no more."""
    features = getattr(hasher, "features_", None)
    for steps in () if features is None else features.steps_.values():
        for step in steps:
            if hasattr(step, "n_jobs"):
                step.n_jobs = 1
    return hasher
