"""The gate for user data: views, missing rows, centring and scaling (labels: :mod:`modalhash.labels`).

A *view* is a matrix with one row per item: a 2-D NumPy array, a SciPy sparse matrix (kept as CSR to the end),
a pandas or polars frame of numbers, a memory-mapped array, or a torch tensor. Views are named. Whatever passes
this gate is finite, two-dimensional, of a floating type, and has as many rows as its neighbours. Nothing is
copied that can be used as it is, and nothing handed in is changed. A view on disk (a memory map, Parquet, Zarr; see
:mod:`modalhash.datasets.rowsource`) stays there where the method can stream it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .datasets.rowsource import RowSource, as_rows
from .exceptions import InputError
from .linalg import is_torch

__all__ = [
    "LABELS",
    "View",
    "ViewTransform",
    "check_shape",
    "check_view",
    "check_views",
    "moments",
    "row_blocks",
]

LABELS = "labels"
"""The reserved name of the label view."""

AUTO_NORM = 400.0
"""Root-mean-square row norm of a view under ``scale="auto"``."""

_BLOCK_BYTES = 32 * 2**20


@dataclass(frozen=True)
class View:
    """A checked view: the rows that are present, and which rows they are.

    Attributes
    ----------
    name : str
    X : ndarray, CSR matrix, torch tensor or RowSource, shape (len(rows) or n_rows, d)
        The rows present, in order. A row source keeps all `n_rows` rows.
    rows : ndarray of int or None
        Which of the `n_rows` items they are; None when all are present.
    n_rows : int
    """

    name: str
    X: Any
    rows: NDArray[np.intp] | None
    n_rows: int

    @property
    def n_columns(self) -> int:
        """Width of the view."""
        return int(self.X.shape[1])

    def require_complete(self, what: str) -> Any:
        """Return the matrix, or raise if some rows are missing."""
        if self.rows is not None:
            raise InputError(
                f"view {self.name!r} is missing for {self.n_rows - len(self.rows)} of {self.n_rows} rows; "
                f"{what} needs every view of every row. Leave those rows out, or use DMH."
            )
        return self.X


def row_blocks(n: int, width: int, itemsize: int = 8) -> Iterator[slice]:
    """Slices over `n` rows of `width` numbers, each block of at most about 32 MB.

    Examples
    --------
    >>> [(s.start, s.stop) for s in row_blocks(5, width=2**21)]
    [(0, 2), (2, 4), (4, 5)]
    """
    step = max(1, _BLOCK_BYTES // max(1, width * itemsize))
    for start in range(0, n, step):
        yield slice(start, min(n, start + step))


def _as_matrix(X: Any, name: str) -> Any:
    """Return a 2-D ndarray, CSR matrix or torch tensor of a floating type; refuse everything else."""
    if sparse.issparse(X):
        return _as_csr(X, name)
    if is_torch(X):
        if X.ndim != 2:
            raise InputError(f"view {name!r} must be a matrix (n, d); got a tensor of shape {tuple(X.shape)}.")
        return X if X.dtype.is_floating_point else X.to(__import__("torch").float32)
    if hasattr(X, "to_numpy") and hasattr(X, "columns"):
        bad = [str(c) for c, t in zip(X.columns, X.dtypes, strict=True) if not _is_number_type(t)]
        if bad:
            raise InputError(
                f"view {name!r} has columns that are not numbers: {', '.join(bad[:5])}. "
                "Drop them or turn them into numbers first."
            )
        X = X.to_numpy()
    if not isinstance(X, np.ndarray):
        try:
            X = np.asarray(X)
        except ValueError as error:
            raise InputError(f"view {name!r} is not a matrix of numbers: {error}.") from error
    X = np.asarray(X)  # a memory map stays on disk: this is a view of it, not a copy
    if X.ndim != 2:
        hint = " Use X.reshape(-1, 1) for a single column." if X.ndim == 1 else ""
        raise InputError(f"view {name!r} must be a matrix (n, d); got shape {X.shape}.{hint}")
    if X.dtype.kind not in "biuf":
        raise InputError(f"view {name!r} must hold real numbers; got dtype {X.dtype}.")
    return X.astype(_float_type(X.dtype), copy=False)


def _is_number_type(dtype: Any) -> bool:
    if hasattr(dtype, "is_numeric"):  # polars
        return bool(dtype.is_numeric()) or str(dtype) == "Boolean"
    return getattr(dtype, "kind", "O") in "biuf"


def _float_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype in (np.float32, np.float64):
        return dtype.newbyteorder("=")
    small = dtype.kind == "b" or dtype.itemsize <= 2
    return np.dtype(np.float32 if small else np.float64)


def _as_csr(X: Any, name: str) -> Any:
    if X.ndim != 2:
        raise InputError(f"view {name!r} must be a matrix (n, d); got a sparse array of shape {X.shape}.")
    if X.dtype.kind not in "biuf":
        raise InputError(f"view {name!r} must hold real numbers; got dtype {X.dtype}.")
    csr = X.tocsr()
    kind = _float_type(csr.dtype)
    if csr.dtype != kind:
        csr = csr.astype(kind)
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    return csr


def _missing_rows(X: Any, name: str, given: NDArray[np.bool_] | None, first_row: int = 0) -> NDArray[np.bool_] | None:
    """Mask of rows present (None: all). Whole rows of NaN are missing; a stray NaN is an error."""
    n = X.shape[0]
    if sparse.issparse(X):
        finite = np.isfinite(X.data)
        if not finite.all():
            at = int(np.flatnonzero(~finite)[0])
            row = int(np.searchsorted(X.indptr, at, side="right") - 1)
            if given is None or given[row]:
                raise _not_finite(name, first_row + row, int(X.indices[at]), X.data[at])
        return given
    present: NDArray[np.bool_] | None = given
    for rows in row_blocks(n, X.shape[1]):
        missing = _missing_in_block(X[rows], name, None if given is None else given[rows], first_row + rows.start)
        if missing is not None:
            if present is given:
                present = np.ones(n, dtype=np.bool_) if given is None else given.copy()
            present[rows] &= ~missing  # type: ignore[index]
    return present


def _missing_in_block(
    block: Any, name: str, given: NDArray[np.bool_] | None, first_row: int
) -> NDArray[np.bool_] | None:
    """Mask of rows that are nothing but NaN, None where all numbers are finite; a stray NaN is an error."""
    if is_torch(block):
        good = block.isfinite()
        if bool(good.all()):
            return None
        block, good = block.cpu().numpy(), good.cpu().numpy()
    else:
        good = np.isfinite(block)
        if good.all():
            return None
    missing: NDArray[np.bool_] = np.isnan(block).all(axis=1)
    bad = ~good.all(axis=1) & ~missing
    if given is not None:
        bad &= given
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        column = int(np.flatnonzero(~good[row])[0])
        raise _not_finite(name, first_row + row, column, block[row, column])
    return missing if missing.any() else None


def _survey(X: RowSource, name: str, given: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    """One pass over a source: the mask of rows present (None: all), and ``X.sums``."""
    total, squares, count = np.zeros(X.shape[1]), 0.0, 0
    present = given
    for rows in row_blocks(*X.shape):
        block = X[rows]
        missing = _missing_in_block(block, name, None if given is None else given[rows], rows.start)
        if missing is not None:
            if present is given:
                present = np.ones(X.shape[0], dtype=np.bool_) if given is None else given.copy()
            present[rows] &= ~missing  # type: ignore[index]
        if present is not None and not present[rows].all():
            block = block[present[rows]]
        sums = moments(block)
        total, squares, count = total + sums[0], squares + sums[1], count + block.shape[0]
    X.sums = total, squares, count
    return present


def _not_finite(name: str, row: int, column: int, value: Any) -> InputError:
    what = "NaN" if np.isnan(value) else "infinity"
    return InputError(
        f"view {name!r} has {what} at row {row}, column {column}. Impute it; if the view is missing for that "
        "item, make the whole row NaN or pass present={name: mask}."
    )


def check_shape(shape: tuple[int, int], name: str, *, n_rows: int | None = None, n_columns: int | None = None) -> None:
    """Refuse a view of the wrong shape, or an empty one.

    Parameters
    ----------
    shape : tuple of two int
    name : str
    n_rows, n_columns : int, optional
        What it must be.

    Examples
    --------
    >>> check_shape((4, 2), "image", n_columns=2)
    """
    n, d = shape
    if n_rows is not None and n != n_rows:
        raise InputError(
            f"view {name!r} has {n} rows; the others have {n_rows}. Row i of every view must be the same item."
        )
    if n_columns is not None and d != n_columns:
        raise InputError(
            f"view {name!r} has {d} columns; the model was fitted with {n_columns}. Pass the same features as at fit."
        )
    if n == 0 or d == 0:
        raise InputError(f"view {name!r} is empty: shape {(n, d)}. It needs at least one row and one column.")


def check_view(
    X: Any,
    name: str,
    *,
    n_rows: int | None = None,
    n_columns: int | None = None,
    dtype: Any = None,
    present: Any = None,
    keep_torch: bool = False,
    stream: bool = False,
    first_row: int = 0,
) -> View:
    """Check one view.

    Parameters
    ----------
    X : matrix of shape (n, d)
        Any of the forms named at the top of this module.
    name : str
        Its name, for messages.
    n_rows, n_columns : int, optional
        The shape it must have.
    dtype : "float32", "float64" or None
        Cast to this type; None keeps float32 and float64 as they are.
    present : array of bool, shape (n,), optional
        False where the view is missing for that item. Rows of nothing but NaN are missing too.
    keep_torch : bool
        Let torch tensors through; otherwise they become NumPy arrays.
    stream : bool
        Leave a view that lives on disk there, as a row source; one pass over it finds its moments too.
    first_row : int
        The number of the first row, for messages about a block of a larger matrix.

    Returns
    -------
    View

    Examples
    --------
    >>> import numpy as np
    >>> view = check_view(np.array([[1.0, 2.0], [np.nan, np.nan], [3.0, 4.0]]), "image")
    >>> view.rows.tolist(), view.X.tolist()
    ([0, 2], [[1.0, 2.0], [3.0, 4.0]])
    """
    if is_torch(X) and not keep_torch:
        X = X.detach().cpu().numpy()
    source = as_rows(X) if stream else None
    if isinstance(X, RowSource) and not stream:
        X = X[:]
    X = _as_matrix(X, name) if source is None else source
    n, d = X.shape
    check_shape((n, d), name, n_rows=n_rows, n_columns=n_columns)
    mask = None
    if present is not None:
        mask = np.asarray(present)
        if mask.shape != (n,) or mask.dtype != np.bool_:
            raise InputError(
                f"present[{name!r}] must be a boolean mask of shape ({n},); got {mask.dtype} of shape {mask.shape}."
            )
    if source is not None:
        X = source if dtype is None else source.astype(dtype)
        mask = _survey(X, name, mask)
    else:
        mask = _missing_rows(X, name, mask, first_row)
    rows = None
    if mask is not None and not mask.all():
        rows = np.flatnonzero(mask)
        if rows.size == 0:
            raise InputError(f"view {name!r} is missing for every row. Leave it out.")
        if source is not None:
            return View(name, X, rows, n)
        X = X[rows] if not is_torch(X) else X[__import__("torch").as_tensor(rows, device=X.device)]
    if dtype is not None:
        X = X.to(getattr(__import__("torch"), np.dtype(dtype).name)) if is_torch(X) else X.astype(dtype, copy=False)
    return View(name, X, rows, n)


def check_views(
    views: Any,
    *,
    present: Mapping[str, Any] | None = None,
    dtype: Any = None,
    keep_torch: bool = False,
    stream: bool = False,
) -> dict[str, View]:
    """Check a dict of named views; the result is ordered by name, so that the caller's order is irrelevant.

    Parameters
    ----------
    views : dict of str to matrix
    present : dict of str to boolean mask, optional
    dtype, keep_torch, stream
        As in :func:`check_view`.

    Returns
    -------
    dict of str to View

    Examples
    --------
    >>> import numpy as np
    >>> list(check_views({"text": np.ones((2, 3)), "image": np.ones((2, 5))}))
    ['image', 'text']
    """
    if not isinstance(views, Mapping):
        raise InputError(
            f'views must be a dict such as {{"image": X, "text": T}}; got {type(views).__name__}. '
            "Views are named, never positional."
        )
    if not views:
        raise InputError("views is empty; pass at least one named view.")
    for name in views:
        if not isinstance(name, str) or not name or "/" in name:
            raise InputError(f"a view's name must be a non-empty string without '/'; got {name!r}.")
        if name == LABELS:
            raise InputError(f"{LABELS!r} is a reserved name; pass labels through labels=, or rename the view.")
    present = dict(present or {})
    for name in present:
        if name not in views:
            raise InputError(f"present names view {name!r}, which is not among the views {sorted(views)}.")
    out: dict[str, View] = {}
    n_rows: int | None = None
    for name in sorted(views):
        view = check_view(
            views[name],
            name,
            n_rows=n_rows,
            dtype=dtype,
            present=present.get(name),
            keep_torch=keep_torch,
            stream=stream,
        )
        n_rows = view.n_rows
        out[name] = view
    return out


@dataclass(frozen=True)
class ViewTransform:
    """What is done to a view before a method sees it: ``(x - mean) * scale``, fitted on training rows.

    It is never applied to a copy of the data: :class:`modalhash.linalg.CentredMatrix` multiplies through it.

    Attributes
    ----------
    mean : ndarray of float64, shape (d,), or None
        None when the view is not centred.
    scale : float
    """

    mean: NDArray[np.float64] | None
    scale: float

    @classmethod
    def fit(cls, X: Any, *, center: bool, scale: float | str | None, name: str = "view") -> ViewTransform:
        """Fit on the training rows `X` (n, d).

        Parameters
        ----------
        X : ndarray, CSR matrix or torch tensor
        center : bool
            Subtract the column means.
        scale : "auto", number or None
            "auto" makes the root-mean-square row norm 400; a number multiplies; None is 1.

        Examples
        --------
        >>> import numpy as np
        >>> ViewTransform.fit(np.array([[0.0, 2.0], [0.0, 4.0]]), center=True, scale="auto").scale
        400.0
        """
        total, squares = moments(X)
        n = X.shape[0] if not isinstance(X, RowSource) or X.sums is None else X.sums[2]
        return cls.from_moments(total, squares, n, center=center, scale=scale, name=name)

    @classmethod
    def from_moments(
        cls,
        total: NDArray[np.float64],
        squares: float,
        n: int,
        *,
        center: bool,
        scale: float | str | None,
        name: str = "view",
    ) -> ViewTransform:
        """As :meth:`fit`, from what :func:`moments` found, summed over all parts of the rows.

        Parameters
        ----------
        total : ndarray of float64, shape (d,)
        squares : float
        n : int
            Rows.
        center, scale
            As in :meth:`fit`.

        Examples
        --------
        >>> import numpy as np
        >>> ViewTransform.from_moments(np.array([0.0, 6.0]), 20.0, 2, center=True, scale="auto").scale
        400.0
        """
        mean = total / n
        if isinstance(scale, str):
            if scale != "auto":
                raise InputError(f'scale must be "auto", a positive number or None; got {scale!r}.')
            power = squares / n - (float(mean @ mean) if center else 0.0)
            floor = 1e-12 * squares / n
            factor = AUTO_NORM / float(np.sqrt(power)) if power > floor else 1.0
        elif scale is None:
            factor = 1.0
        else:
            factor = float(scale)
            if not np.isfinite(factor) or factor <= 0:
                raise InputError(f'scale of view {name!r} must be "auto", a positive number or None; got {scale!r}.')
        return cls(mean if center else None, factor)


def moments(X: Any) -> tuple[NDArray[np.float64], float]:
    """Column sums and the sum of all squares, accumulated in float64 block by block.

    Parameters
    ----------
    X : ndarray, CSR matrix or torch tensor, shape (n, d)

    Returns
    -------
    tuple of (ndarray of float64, shape (d,), float)

    Examples
    --------
    >>> total, squares = moments(np.array([[0.0, 2.0], [0.0, 4.0]]))
    >>> total.tolist(), squares
    ([0.0, 6.0], 20.0)
    """
    if isinstance(X, RowSource) and X.sums is not None:
        return X.sums[:2]
    if sparse.issparse(X):
        data = X.data.astype(np.float64)
        total: NDArray[Any] = np.bincount(X.indices, weights=data, minlength=X.shape[1])
        return total, float(data @ data)
    total = np.zeros(X.shape[1], dtype=np.float64)
    squares = 0.0
    for rows in row_blocks(*X.shape):
        block = X[rows].detach().cpu().double().numpy() if is_torch(X) else X[rows].astype(np.float64)
        total += block.sum(axis=0)
        squares += float(np.vdot(block, block))
    return total, squares
