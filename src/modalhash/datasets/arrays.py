"""Any arrays on disk as a :class:`Dataset`: one file that holds them all, or a file (and key) per view."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..exceptions import InputError
from ..views import LABELS
from .dataset import Dataset
from .files import list_arrays, read_array, read_matrix
from .storage import META, load_dataset

__all__ = ["is_saved", "load_arrays", "parse_reference"]

_NOT_VIEWS = ("label_names", "ids", "vocab")


def parse_reference(reference: str | Path) -> tuple[Path, str | None]:
    """Take ``FILE`` or ``FILE:KEY`` apart.

    Parameters
    ----------
    reference : str or Path

    Returns
    -------
    tuple of Path and str or None

    Examples
    --------
    >>> parse_reference("deep/data.mat:XAll")
    (PosixPath('deep/data.mat'), 'XAll')
    """
    text = str(reference)
    if not Path(text).exists():
        head, colon, key = text.rpartition(":")
        if colon and head and not key.startswith(("\\", "/")):
            return Path(head), key or None
    return Path(text), None


def load_arrays(
    source: str | Path | None = None,
    *,
    views: Mapping[str, Any] | None = None,
    labels: Any = None,
    name: str | None = None,
) -> Dataset:
    """Make a data set of arrays that lie in files.

    Parameters
    ----------
    source : str or Path, optional
        A file of several arrays. What :meth:`Dataset.save` wrote is loaded as it was. Otherwise, unless `views`
        says more, every matrix in it but ``labels`` is a view, and ``labels``, ``label_names`` and ``ids`` are
        taken for what they say.
    views : dict of str to str, optional
        View name -> key in `source`, or ``FILE`` or ``FILE:KEY`` without a `source`.
    labels : str, optional
        Key in `source`, or ``FILE`` or ``FILE:KEY``, of a 0/1 matrix or of class ids.
    name : str, optional

    Returns
    -------
    Dataset

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/a.npz", gist=np.ones((4, 2)), tags=np.eye(4), labels=[0, 1, 1, 0])
    ...     load_arrays(f"{folder}/a.npz", views={"image": "gist", "text": "tags"})
    <Dataset 'a': 4 items; image (4, 2), text (4, 4); 2 labels>
    """
    if source is None and not views:
        raise InputError("load_arrays needs a file, or views such as {'image': 'features.mat:X'}; got neither.")
    if source is None:
        found: dict[str, tuple[int, ...]] = {}
        chosen = {view: parse_reference(reference) for view, reference in (views or {}).items()}
    else:
        source = Path(source)
        found = list_arrays(source)
        if META in found or (source.suffix.lower() in (".parquet", ".pq") and is_saved(source)):
            if views or labels is not None:
                data = load_dataset(source)
                return _renamed(data, views, labels, source)
            return load_dataset(source)
        if views is None:
            label_key = LABELS if labels is None else labels
            keys = [k for k, s in found.items() if len(s) == 2 and k not in (label_key, *_NOT_VIEWS)]
            views = {key or "view": key for key in keys}
            if not views:
                raise InputError(f"{source} has no matrix to use as a view; it has {_describe(found)}.")
        for view, key in views.items():
            if key not in found:
                raise InputError(f"{source} has no array {key!r} for view {view!r}; it has {_describe(found)}.")
        chosen = {view: (source, key) for view, key in views.items()}
    matrices = {view: read_matrix(path, key) for view, (path, key) in chosen.items()}
    n = next(iter(matrices.values())).shape[0]
    label_array: Any = None
    if labels is not None:
        inside = source is not None and labels in found
        path, key = (Path(str(source)), str(labels)) if inside else parse_reference(labels)
        label_array = read_array(path, key)
    elif LABELS in found and source is not None:
        label_array = read_array(source, LABELS)
    if label_array is not None and label_array.ndim == 2 and 1 in label_array.shape and n > 1:
        label_array = label_array.ravel()  # MATLAB has no vectors: class ids come as one column or one row
    extra: dict[str, Any] = {}
    if source is not None and label_array is not None and "label_names" in found:
        extra["label_names"] = read_array(source, "label_names").ravel().tolist()
    if source is not None and found.get("ids") == (n,):
        extra["ids"] = read_array(source, "ids")
    return Dataset(
        matrices,
        labels=label_array,
        name=name or (source.stem if isinstance(source, Path) else "data"),
        provenance={
            "source": "arrays",
            "files": {view: f"{path.name}:{key}" if key else path.name for view, (path, key) in chosen.items()},
        },
        **extra,
    )


def _describe(found: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name!r} {shape}" for name, shape in found.items()) or "no plain array"


def is_saved(path: Path) -> bool:
    """Whether a Parquet file was written by :meth:`Dataset.save`."""
    from .parquetfiles import open_parquet

    with open_parquet(path) as file:
        return META.encode() in (file.schema_arrow.metadata or {})


def _renamed(data: Dataset, views: Mapping[str, Any] | None, labels: Any, source: Path) -> Dataset:
    """Views of a saved data set under other names."""
    if labels not in (None, LABELS):
        raise InputError(f"{source} is a saved data set; its labels are under {LABELS!r}, not {labels!r}.")
    for view, key in (views or {}).items():
        if key not in data.views:
            raise InputError(f"{source} has no view {key!r} for {view!r}; it has {', '.join(data.views)}.")
    from dataclasses import replace

    chosen = {view: data.views[key] for view, key in views.items()} if views else data.views
    names = {view: data.feature_names[key] for view, key in (views or {}).items() if key in data.feature_names}
    return replace(data, views=chosen, feature_names=names if views else data.feature_names)
