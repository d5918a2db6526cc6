"""Data sets as the field passes them around: MATLAB files with a matrix per view, told apart by what is in them.

The same variables travel under many names (``IAll``, ``YAll``, ``LAll``; ``images``, ``tags``, ``labels``; ``I_tr``,
``T_te``), in one file or several, in v5 or v7.3, sometimes transposed. What each is follows from its shape and
values: labels are 0/1 with the right number of columns, tags are 0/1 and wider, pictures have four axes.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ..exceptions import InputError
from . import matfiles
from .arrays import parse_reference
from .dataset import Dataset
from .files import list_arrays, read_array
from .sources import Progress

__all__ = ["load_community", "mat_files"]

_PART = re.compile(r"^(?P<base>.*?)[_-]?(?P<part>tr|te|train|test|trn|tst|query|database|retrieval|db)$", re.IGNORECASE)
_SPARSE = 1 / 3  # share of ones up to which 0/1 tags are kept as CSR
_QUERY = {"te", "test", "tst", "query"}
_IMAGE_NAMES = re.compile(
    r"(i|x|v|[ix]_?all|ima?ge?s?.*|gist.*|cnn.*|vgg.*|bow.*|bovw.*|sift.*|visual.*|pic.*)", re.IGNORECASE
)
_TEXT_NAMES = re.compile(r"(t|y|[ty]_?all|te?xt.*|tags?.*|words?.*|lda.*|w2v.*|doc.*|caption.*)", re.IGNORECASE)
_LABEL_NAMES = re.compile(r"(l|c|l_?all|labs?|labels?.*|gnd.*|cat.*|class.*|ground.*)", re.IGNORECASE)


@dataclass(frozen=True)
class _Variable:
    path: Path
    key: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.path.name}:{self.key} {self.shape}"

    @cached_property
    def numbers(self) -> Any:
        X = read_array(self.path, self.key)
        if X.dtype.kind not in "biuf":
            raise InputError(f"{self} holds {X.dtype}; a matrix of numbers is needed.")
        return X

    @cached_property
    def is_binary(self) -> bool:
        values = self.numbers.data if sparse.issparse(self.numbers) else self.numbers
        return bool(((values == 0) | (values == 1)).all())


def mat_files(source: str | Path) -> list[Path]:
    """The MATLAB files of a folder and the folders in it, or the one file that is given.

    Parameters
    ----------
    source : str or Path

    Returns
    -------
    list of Path
    """
    source = Path(source)
    if source.is_file():
        if source.suffix.lower() not in (".mat", ".h5", ".hdf5", ".npz"):
            raise InputError(f"{source} is not a .mat, .h5 or .npz file. Unpack archives and pass their folder.")
        return [source]
    return sorted({*source.glob("*.mat"), *source.glob("*/*.mat")})


def load_community(
    paths: Sequence[Path],
    *,
    name: str,
    n_labels: Sequence[int],
    label_names: Sequence[str] | None = None,
    views: Mapping[str, str] | None = None,
    size: int = 128,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Make a data set of MATLAB (or .npz) files, whatever their variables are called.

    Parameters
    ----------
    paths : sequence of Path
    name : str
        Of the data set.
    n_labels : sequence of int
        How many label columns there can be.
    label_names : sequence of str, optional
        Used when there are as many columns.
    views : dict of str to str, optional
        What is what, where that cannot be told: ``{"image": "VARIABLE", "text": "FILE:VARIABLE"}``; ``labels`` may be
        among them.
    size, n_jobs, progress
        For pictures, whose GIST is computed (see :class:`modalhash.features.GIST`).

    Returns
    -------
    Dataset
        With the splits of the files, where they have training and test parts.
    """
    variables = [
        _Variable(path, key, shape)
        for path in paths
        for key, shape in list_arrays(path).items()
        if len(shape) in (2, 4) and 0 not in shape
    ]
    if not variables:
        listed = ", ".join(str(path) for path in paths) or "no file"
        raise InputError(f"{name}: no matrix found in {listed}.")
    pairs = _pairs(variables)
    if pairs:
        return _from_pairs(pairs, name, n_labels, label_names, views)
    n = _rows(variables)
    roles = _given(views, variables) if views else _roles(variables, n, n_labels)
    if "image" not in roles or "labels" not in roles:
        lacking = [role for role in ("image", "labels") if role not in roles]
        raise InputError(
            f"{name}: cannot tell which variable holds the {' and the '.join(lacking)} among "
            f"{'; '.join(map(str, variables))}. Say so, for example views={{'image': 'VARIABLE'}}."
        )
    matrices: dict[str, Any] = {}
    failed: list[tuple[int, str, str]] = []
    for role, variable in roles.items():
        if len(variable.shape) == 4:
            matrices[role], failed = _gist(variable, n, size, n_jobs, progress)
        else:
            matrices[role] = _rows_first(variable.numbers, n, variable)
    labels = _as_labels(matrices.pop("labels"), n_labels, str(roles["labels"]))
    data = Dataset(
        {role: _compact(X) for role, X in matrices.items()},
        labels=labels,
        label_names=_names(labels, label_names),
        name=name,
        provenance={
            "source": "community files",
            "files": {role: str(variable) for role, variable in roles.items()},
            "skipped": [list(row) for row in failed],
        },
    )
    return data.drop([row for row, _, _ in failed])


def _rows(variables: Sequence[_Variable]) -> int:
    """The number of items: the length that most of the variables share."""
    count = Counter(s for v in variables for s in set(v.shape) if s > 1)
    most = max(count.values())
    return max(s for s, c in count.items() if c == most)


def _roles(variables: Sequence[_Variable], n: int, n_labels: Sequence[int]) -> dict[str, _Variable]:
    roles: dict[str, _Variable] = {}
    real: list[_Variable] = []
    for variable in sorted(variables, key=lambda v: -len(v.shape)):
        if n not in variable.shape:
            continue
        if len(variable.shape) == 4:
            roles.setdefault("image", variable)
            continue
        width = variable.shape[1] if variable.shape[0] == n else variable.shape[0]
        if width in n_labels and variable.is_binary:
            _claim(roles, "labels", variable)
        elif width == 1:
            continue
        elif width > max(n_labels) and variable.is_binary:
            _claim(roles, "text", variable)
        else:
            real.append(variable)
    if len(real) == 1:
        role = "image" if "image" not in roles else "text"
        if role not in roles:
            roles[role] = real[0]
    else:
        for variable in real:
            named_image = bool(_IMAGE_NAMES.fullmatch(variable.key))
            named_text = bool(_TEXT_NAMES.fullmatch(variable.key))
            if named_image and not named_text and "image" not in roles:
                roles["image"] = variable
            elif named_text and not named_image and "text" not in roles:
                roles["text"] = variable
    return roles


def _claim(roles: dict[str, _Variable], role: str, variable: _Variable) -> None:
    if role in roles:
        raise InputError(
            f"two variables look like the {role}: {roles[role]} and {variable}. "
            f"Say which one, as in views={{{role!r}: {variable.key!r}}}."
        )
    roles[role] = variable


def _given(views: Mapping[str, str], variables: Sequence[_Variable]) -> dict[str, _Variable]:
    roles = {}
    for role, reference in views.items():
        path, key = parse_reference(reference)
        wanted = key if key is not None else str(path)
        fits = [v for v in variables if v.key == wanted and (key is None or v.path.name == path.name)]
        if len(fits) != 1:
            raise InputError(
                f"views[{role!r}] is {reference!r}, which fits {len(fits)} variables among "
                f"{'; '.join(map(str, variables))}."
            )
        roles[role] = fits[0]
    return roles


def _rows_first(X: Any, n: int, variable: _Variable) -> Any:
    if X.shape[0] == n:
        return X
    if X.shape[1] == n:
        return X.T.tocsr() if sparse.issparse(X) else np.ascontiguousarray(X.T)
    raise InputError(f"{variable} has no side of {n}, the number of items in the other variables.")


def _compact(X: Any) -> Any:
    """0/1 tags as CSR float32; other matrices in single precision."""
    if sparse.issparse(X):
        return X.astype(np.float32)
    if ((X == 0) | (X == 1)).all() and X.mean() < _SPARSE:
        return sparse.csr_array(X.astype(np.float32))
    return np.ascontiguousarray(X, dtype=np.float32)


def _as_labels(L: Any, n_labels: Sequence[int], where: str) -> Any:
    dense = L.toarray() if sparse.issparse(L) else np.asarray(L)
    if 1 in dense.shape:  # class ids
        ids = dense.ravel()
        if (ids != np.floor(ids)).any() or ids.min() < 0:
            raise InputError(f"{where}: class ids must be whole numbers; got {ids[:5].tolist()}.")
        classes = np.unique(ids)
        return (ids[:, None] == classes[None, :]).astype(np.uint8)
    if not ((dense == 0) | (dense == 1)).all():
        raise InputError(f"{where}: labels must be 0 and 1.")
    if dense.shape[1] not in n_labels:
        raise InputError(f"{where}: {dense.shape[1]} label columns; {' or '.join(map(str, n_labels))} are expected.")
    return dense.astype(np.uint8)


def _names(labels: Any, names: Sequence[str] | None) -> list[str | int]:
    return list(names) if names is not None and len(names) == labels.shape[1] else list(range(labels.shape[1]))


def _pairs(variables: Sequence[_Variable]) -> dict[str, tuple[_Variable, _Variable]]:
    """Base name -> (training part, query part), for variables that come in such pairs."""
    train: dict[str, _Variable] = {}
    query: dict[str, _Variable] = {}
    for variable in variables:
        match = _PART.match(variable.key)
        if match and len(variable.shape) == 2:
            side = query if match["part"].lower() in _QUERY else train
            side.setdefault(match["base"], variable)
    return {base: (train[base], query[base]) for base in train if base in query}


def _from_pairs(
    pairs: Mapping[str, tuple[_Variable, _Variable]],
    name: str,
    n_labels: Sequence[int],
    label_names: Sequence[str] | None,
    views: Mapping[str, str] | None,
) -> Dataset:
    roles: dict[str, tuple[_Variable, _Variable]] = {}
    if views:
        roles = {role: pairs[base] for role, base in views.items() if base in pairs}
    else:
        for role, pattern in (("labels", _LABEL_NAMES), ("image", _IMAGE_NAMES), ("text", _TEXT_NAMES)):
            fits = [b for b in pairs if pattern.fullmatch(b) and pairs[b] not in roles.values()]
            if len(fits) == 1:
                roles[role] = pairs[fits[0]]
    if "image" not in roles or "labels" not in roles:
        listed = ", ".join(f"{base!r} {a.shape} + {b.shape}" for base, (a, b) in pairs.items())
        raise InputError(
            f"{name}: cannot tell images and labels among the training and test pairs {listed}. "
            "Say so, for example views={'image': 'I', 'text': 'T', 'labels': 'L'}."
        )
    matrices, sizes = {}, set()
    for role, (train, query) in roles.items():
        A, B = train.numbers, query.numbers
        if A.shape[1] != B.shape[1] and 1 not in (A.shape[0], B.shape[0]):
            raise InputError(f"{train} and {query} must have the same number of columns.")
        if role == "labels" and A.shape[0] == 1 and B.shape[0] == 1:
            A, B = A.T, B.T
        sizes.add((A.shape[0], B.shape[0]))
        stack = sparse.vstack([A, B], format="csr") if sparse.issparse(A) else np.concatenate([A, B])
        matrices[role] = stack
    if len(sizes) != 1:
        raise InputError(f"{name}: the views have different numbers of rows: {sorted(sizes)} (training, test).")
    n_train, n_query = sizes.pop()
    labels = _as_labels(matrices.pop("labels"), n_labels, str(roles["labels"][0]))
    train_rows = np.arange(n_train)
    return Dataset(
        {role: _compact(X) for role, X in matrices.items()},
        labels=labels,
        label_names=_names(labels, label_names),
        splits={"query": n_train + np.arange(n_query), "train": train_rows, "database": train_rows},
        name=name,
        provenance={
            "source": "community files",
            "files": {role: f"{a} + {b}" for role, (a, b) in roles.items()},
            "split": {"protocol": "as in the files", "n_query": n_query, "n_train": n_train},
        },
    )


class _Pictures(Sequence[Any]):
    """Pictures of one four-axis variable, read one at a time."""

    def __init__(self, variable: _Variable, n: int) -> None:
        self.n = n
        self._lock = threading.Lock()
        self._file: Any = None
        if matfiles.is_hdf5(variable.path):
            self._file = matfiles.open_hdf5(variable.path)
            self._stack: Any = self._file[variable.key]
            # MATLAB's own files hold the axes in reverse, so a picture comes turned as well
            self._turned = "MATLAB_class" in self._stack.attrs
        else:
            self._stack = variable.numbers
            self._turned = False
        self._last = self._stack.shape[-1] == n and self._stack.shape[0] != n
        if n not in (self._stack.shape[0], self._stack.shape[-1]):
            raise InputError(f"{variable}: pictures must be counted by the first or the last axis.")

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: Any) -> Any:
        with self._lock:
            picture = np.asarray(self._stack[..., i] if self._last else self._stack[i])
        channels = int(np.argmin(picture.shape))
        picture = np.moveaxis(picture, channels, 2)
        return picture.transpose(1, 0, 2) if self._turned else picture

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def _gist(
    variable: _Variable, n: int, size: int, n_jobs: int | None, progress: Progress | None
) -> tuple[Any, list[tuple[int, str, str]]]:
    from ..features import GIST

    pictures = _Pictures(variable, n)
    try:
        step = GIST(size=size, n_jobs=n_jobs, progress=progress)
        return step.fit_transform(pictures), step.failed_
    finally:
        pictures.close()
