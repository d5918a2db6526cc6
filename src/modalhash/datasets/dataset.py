"""The one form in which every loader hands out data: named views, labels, ids, splits and where it all came from."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..exceptions import InputError
from ..labels import check_labels
from ..views import LABELS
from .checksums import checksum

__all__ = ["PROTOCOLS", "Dataset"]

PROTOCOLS: dict[str, str] = {
    "mirflickr": "5 % of the rows (rounded up) are queries; all others are training set and database (the paper's)",
    "paper-5%": "the same as mirflickr",
    "nuswide": "1 % of the rows (rounded up) are queries; all others are training set and database (the paper's)",
    "paper-1%": "the same as nuswide",
    "deep": "2,000 queries; all others are the database; n_train of them (5,000 unless given) are the training set",
    "held-out": "5 % queries; half of the others train, the other half is a database that training never saw",
}
"""Names that :meth:`Dataset.split` knows, with what each means."""

_PERCENT = {"mirflickr": 5, "paper-5%": 5, "nuswide": 1, "paper-1%": 1, "held-out": 5}


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Items seen in several views, with labels and splits.

    Row ``i`` of every view, of the labels and of the ids is the same item. Matrices are kept as they come (a
    memory map stays on disk, a sparse matrix stays sparse); nothing is copied.

    Attributes
    ----------
    views : dict of str to array or CSR matrix of shape (n, d)
        Whatever :class:`modalhash.CrossModalHasher` takes; raw 0/1 tags are CSR. It may be empty as long as there are
        only ids and columns, of which features are still to be made.
    labels : ndarray or CSR matrix of uint8, shape (n, q), or None
        0/1. Anything that :func:`modalhash.labels.check_labels` takes may be passed in.
    label_names : list of str or int
        What the columns of `labels` stand for.
    ids : ndarray of int or str, shape (n,)
        What the source calls each item; the row number when it has no name.
    splits : dict of str to ndarray of int
        Row numbers, ascending, such as ``query``, ``train`` and ``database``. They may overlap.
    provenance : dict
        Where the data came from and what was left out; plain JSON values.
    feature_names : dict of str to list of str
        What the columns of a view stand for (the tag vocabulary), where that is known.
    columns : dict of str to list of str
        Strings per item that are not features: a title, a path, the tags as written.
    name : str

    Examples
    --------
    >>> import numpy as np
    >>> data = Dataset({"image": np.eye(40), "text": np.ones((40, 3))}, labels=[i % 2 for i in range(40)])
    >>> data = data.split("mirflickr", seed=0)
    >>> {name: len(rows) for name, rows in data.splits.items()}
    {'query': 2, 'train': 38, 'database': 38}
    >>> data.rows("query").views["text"].shape
    (2, 3)
    """

    views: dict[str, Any]
    labels: Any = None
    label_names: list[str | int] = field(default_factory=list)
    ids: Any = None
    splits: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    feature_names: dict[str, list[str]] = field(default_factory=dict)
    columns: dict[str, list[str]] = field(default_factory=dict)
    name: str = "data"

    def __post_init__(self) -> None:
        views = {str(name): _as_view(X, name) for name, X in dict(self.views).items()}
        if not views and self.ids is None:
            raise InputError('a data set needs a named view, such as {"image": X}, or ids; it has neither.')
        n = next((X.shape[0] for X in views.values()), len(self.ids) if self.ids is not None else 0)
        for name, X in views.items():
            if X.shape[0] != n:
                raise InputError(
                    f"view {name!r} has {X.shape[0]} rows; the others have {n}. "
                    "Row i of every view must be the same item."
                )
        self._set("views", views)
        if self.labels is not None:
            checked = check_labels(self.labels, n_rows=n, names=list(self.label_names) or None)
            self._set("labels", checked.matrix)
            self._set("label_names", checked.names)
        elif self.label_names:
            raise InputError("label_names were given without labels.")
        ids = np.arange(n) if self.ids is None else np.asarray(self.ids)
        if ids.shape != (n,) or ids.dtype.kind not in "iuU":
            raise InputError(
                f"ids must be {n} whole numbers or strings, one per row; got {ids.dtype} of shape {ids.shape}."
            )
        self._set("ids", ids)
        self._set("splits", {str(name): _as_split(rows, name, n) for name, rows in dict(self.splits).items()})
        self._set("feature_names", {k: [str(v) for v in names] for k, names in self.feature_names.items()})
        self._set("columns", {k: [str(v) for v in values] for k, values in self.columns.items()})
        for view, names in self.feature_names.items():
            if view not in views or len(names) != views[view].shape[1]:
                raise InputError(f"feature_names[{view!r}] must name each column of a view of that name.")
        for column, values in self.columns.items():
            if len(values) != n:
                raise InputError(f"columns[{column!r}] has {len(values)} entries; the data set has {n} rows.")

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        views = ", ".join(f"{name} {tuple(X.shape)}{' sparse' * sparse.issparse(X)}" for name, X in self.views.items())
        labels = "no labels" if self.labels is None else f"{self.labels.shape[1]} labels"
        splits = "".join(f", {name} {len(rows)}" for name, rows in self.splits.items())
        return f"<Dataset {self.name!r}: {len(self)} items; {views}; {labels}{splits}>"

    @property
    def split_hash(self) -> str:
        """Sixteen hex digits that two data sets share exactly when their splits hold the same rows.

        Examples
        --------
        >>> import numpy as np
        >>> Dataset({"image": np.eye(3)}, splits={"query": [2], "train": [0, 1]}).split_hash
        '64927cfb92a99de4'
        """
        digest = hashlib.sha256(f"{len(self)}".encode())
        for name in sorted(self.splits):
            rows = self.splits[name]
            digest.update(f"\0{name}\0{len(rows)}\0".encode())
            digest.update(rows.astype("<i8").tobytes())
        return digest.hexdigest()[:16]

    def checksums(self) -> dict[str, str]:
        """SHA-256 of each view and of the labels (see :func:`modalhash.datasets.checksum`).

        Examples
        --------
        >>> import numpy as np
        >>> sorted(Dataset({"image": np.eye(3)}, labels=[0, 1, 0]).checksums())
        ['image', 'labels']
        """
        out = {name: checksum(X) for name, X in self.views.items()}
        if self.labels is not None:
            out[LABELS] = checksum(self.labels)
        return out

    def split(
        self,
        protocol: str = "mirflickr",
        *,
        seed: int = 0,
        n_query: int | None = None,
        n_train: int | None = None,
    ) -> Dataset:
        """Draw queries, training rows and database at random, by a named protocol.

        Parameters
        ----------
        protocol : str
            ``"mirflickr"`` (or ``"paper-5%"``): 5 % queries, rounded up (1,001 of MIRFlickr's 20,015); the rest is
            both training set and database. ``"nuswide"`` (or ``"paper-1%"``): the same with 1 % (1,866 of 186,577).
            ``"deep"``: 2,000 queries, the rest is the database, and 5,000 rows of it train (the usual split of deep
            hashing; NUS-WIDE takes ``n_train=10_000``). ``"held-out"``: 5 % queries, half of the rest trains, and
            the other half is a database that training never saw.
        seed : int
            The same seed gives the same rows, on every machine.
        n_query, n_train : int, optional
            Other sizes than the protocol's. `n_train` is for "deep" and "held-out".

        Returns
        -------
        Dataset
            The same views, with new splits. For settings to be chosen without a look at the queries, split the
            training rows again: ``data.rows("train").split(...)``.

        Examples
        --------
        >>> import numpy as np
        >>> data = Dataset({"image": np.zeros((20015, 1))})
        >>> len(data.split("mirflickr").splits["query"])
        1001
        >>> deep = data.split("deep", n_train=10_000)
        >>> {name: len(rows) for name, rows in deep.splits.items()}
        {'query': 2000, 'train': 10000, 'database': 18015}
        """
        if protocol not in PROTOCOLS:
            raise InputError(f"protocol must be one of {', '.join(PROTOCOLS)}; got {protocol!r}.")
        n = len(self)
        percent = _PERCENT.get(protocol)
        queries = _size(n_query, "n_query", 2000 if percent is None else -(-n * percent // 100))
        rest = n - queries
        if protocol == "deep":
            train = _size(n_train, "n_train", 5000)
        elif protocol == "held-out":
            train = _size(n_train, "n_train", rest // 2)
        else:
            if n_train is not None:
                raise InputError(f"protocol {protocol!r} trains on all rows but the queries; leave n_train out.")
            train = rest
        if rest < 1 or train < 1 or train > rest or (protocol == "held-out" and train == rest):
            raise InputError(
                f"protocol {protocol!r} takes {queries} queries and {train} training rows; the data set has {n} rows. "
                "Pass smaller n_query or n_train."
            )
        if self.provenance.get("fitted"):
            warnings.warn(
                f"{', '.join(map(repr, self.provenance['fitted']))} was fitted on the training rows of another split "
                "and has seen some of these queries. Split the raw data first, then fit the feature steps.",
                UserWarning,
                stacklevel=2,
            )
        order = np.random.default_rng(seed).permutation(n)
        database = order[queries + train :] if protocol == "held-out" else order[queries:]
        splits = {"query": order[:queries], "train": order[queries : queries + train], "database": database}
        about = {"protocol": protocol, "seed": int(seed), "n_query": queries, "n_train": train}
        return replace(self, splits=splits, provenance={**self.provenance, "split": about})

    def rows(self, split: str) -> Dataset:
        """Return the rows of one split, as a data set of their own.

        Parameters
        ----------
        split : str
            A name in `splits`.

        Returns
        -------
        Dataset

        Examples
        --------
        >>> import numpy as np
        >>> data = Dataset({"image": np.eye(3)}, splits={"query": [2], "train": [0, 1]})
        >>> data.rows("query").views["image"].tolist()
        [[0.0, 0.0, 1.0]]
        """
        if split not in self.splits:
            have = f"it has {', '.join(self.splits)}" if self.splits else "it has none: call split(...) first"
            raise InputError(f"the data set has no split {split!r}; {have}.")
        return self.take(self.splits[split])

    def take(self, rows: Any) -> Dataset:
        """Return the given rows, in the given order, as a data set without splits.

        Parameters
        ----------
        rows : array of int, or mask of bool, shape (m,) or (n,)

        Returns
        -------
        Dataset

        Examples
        --------
        >>> import numpy as np
        >>> Dataset({"image": np.eye(3)}).take([2, 0]).ids.tolist()
        [2, 0]
        """
        rows = np.asarray(rows)
        if rows.dtype == np.bool_:
            if rows.shape != (len(self),):
                raise InputError(f"a mask of rows must have shape ({len(self)},); got {rows.shape}.")
            rows = np.flatnonzero(rows)
        return replace(
            self,
            views={name: X[rows] for name, X in self.views.items()},
            labels=None if self.labels is None else self.labels[rows],
            ids=self.ids[rows],
            splits={},
            provenance={k: v for k, v in self.provenance.items() if k not in ("split", "fitted")},
            columns={name: [values[i] for i in rows] for name, values in self.columns.items()},
        )

    def drop(self, rows: Any) -> Dataset:
        """Leave out rows, such as those of pictures that could not be read; the splits keep their other rows.

        Parameters
        ----------
        rows : sequence of int

        Returns
        -------
        Dataset

        Examples
        --------
        >>> import numpy as np
        >>> data = Dataset({"image": np.eye(3)}, splits={"query": [1], "train": [0, 2]}).drop([0])
        >>> data.ids.tolist(), data.splits["query"].tolist(), data.splits["train"].tolist()
        ([1, 2], [0], [1])
        """
        if len(rows) == 0:
            return self
        keep = np.ones(len(self), dtype=np.bool_)
        keep[np.asarray(rows)] = False
        if not keep.any():
            raise InputError(f"{self.name}: no row is left. See the warnings before this for the reasons.")
        place = np.cumsum(keep) - 1
        splits = {name: place[split[keep[split]]] for name, split in self.splits.items()}
        return replace(self.take(keep), splits=splits, provenance=self.provenance)

    def save(self, path: str | Path, *, compress: bool = False) -> Path:
        """Write to one ``.npz`` or ``.parquet`` file, whole or not at all.

        Parameters
        ----------
        path : str or Path
        compress : bool
            Deflate the ``.npz`` (slower; Parquet always compresses).

        Returns
        -------
        Path

        Examples
        --------
        >>> import numpy as np, tempfile
        >>> data = Dataset({"image": np.eye(3)}, labels=[0, 1, 0])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Dataset.load(data.save(f"{folder}/data.npz"))
        <Dataset 'data': 3 items; image (3, 3); 2 labels>
        """
        from .storage import save_dataset

        return save_dataset(self, path, compress=compress)

    @classmethod
    def load(cls, path: str | Path) -> Dataset:
        """Read what :meth:`save` wrote; every checksum is verified. No pickle is ever read.

        Parameters
        ----------
        path : str or Path
            For arrays that something else wrote, see :func:`modalhash.datasets.load_arrays`.

        Returns
        -------
        Dataset
        """
        from .storage import load_dataset

        return load_dataset(path)


def _as_view(X: Any, name: Any) -> Any:
    if not isinstance(name, str) or not name or "/" in name or name == LABELS:
        raise InputError(f"a view's name must be a non-empty string without '/' and not {LABELS!r}; got {name!r}.")
    X = X.tocsr() if sparse.issparse(X) else np.asanyarray(X)
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        raise InputError(f"view {name!r} must be a matrix (n, d) of numbers; got {X.dtype} of shape {X.shape}.")
    return X


def _as_split(rows: Any, name: Any, n: int) -> NDArray[np.int64]:
    rows = np.asarray(rows)
    if rows.dtype == np.bool_ and rows.shape == (n,):
        rows = np.flatnonzero(rows)
    if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
        raise InputError(f"split {name!r} must be a list of row numbers; got {rows.dtype} of shape {rows.shape}.")
    out: NDArray[np.int64] = np.sort(rows).astype(np.int64)
    if out.size and (out[0] < 0 or out[-1] >= n or (np.diff(out) == 0).any()):
        raise InputError(f"split {name!r} must hold different row numbers between 0 and {n - 1}.")
    return out


def _size(given: int | None, name: str, default: int) -> int:
    if given is None:
        return default
    if isinstance(given, bool) or not isinstance(given, (int, np.integer)) or given < 1:
        raise InputError(f"{name} must be a whole number of at least 1; got {given!r}.")
    return int(given)
