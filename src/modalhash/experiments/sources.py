"""The data of the studies: read once, split by the seed, features fitted on the training rows alone."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..datasets import Dataset
from ..exceptions import InputError, MissingExtraError

__all__ = ["VIEWS", "data_hash", "demo_source", "protocol_of", "read_source", "split_data"]

VIEWS = ("image", "text")
_COMPONENTS = 500  # the paper's PCA of MIRFlickr's tags
_RARE, _WORDS = 3, 200  # the demo's words: used how often at least, and the components kept of them
_KEYS = {"image": ("image", "gist"), "text": ("text", "tags")}


def protocol_of(name: str) -> str:
    """Name of the split: 1 % queries for NUS-WIDE, 5 % for anything else.

    Examples
    --------
    >>> protocol_of("nuswide"), protocol_of("mirflickr")
    ('nuswide', 'mirflickr')
    """
    return "nuswide" if name == "nuswide" else "mirflickr"


def read_source(name: str, path: str | Path, *, complete: bool = True) -> Dataset:
    """Read a data set whole, before any split.

    Parameters
    ----------
    name : str
        "mirflickr", "nuswide", or a name of your own for a file of matrices.
    path : path
        A file of matrices (``.npz`` and the others of :func:`modalhash.datasets.load_arrays`) with the views ``image``
        (or ``gist``) and ``text`` (or ``tags``) and ``labels``; or the folder of MIRFlickr's or NUS-WIDE's official
        files, or of the MATLAB files that circulate.
    complete : bool
        Whether a folder must hold all of the data set.

    Returns
    -------
    Dataset
        Views ``image`` and ``text``, labels, no splits; nothing in it was fitted.
    """
    from ..datasets import list_arrays, load_arrays, prepare

    path = Path(path).expanduser()
    if not path.exists():
        raise InputError(
            f"{path} does not exist; --data {name}=PATH takes a file of matrices or the data set's folder."
        )
    if path.is_dir() or (path.suffix.lower() == ".mat" and name in ("mirflickr", "nuswide")):
        if name not in ("mirflickr", "nuswide"):
            raise InputError(f"{path} is a folder, which only mirflickr and nuswide have; pass a file for {name!r}.")
        data = prepare(name, path, complete=complete, **({"pca": None} if name == "mirflickr" else {}))
    else:
        held = list_arrays(path)
        keys = {view: next((key for key in known if key in held), None) for view, known in _KEYS.items()}
        chosen = {view: key for view, key in keys.items() if key} if len(set(keys.values()) - {None}) == 2 else None
        data = load_arrays(path, views=chosen)
    return _checked(replace(data, name=name), str(path))


def demo_source() -> tuple[Dataset, str]:
    """The data of the quick version: icons, or made-up ones where the extra ``demo`` is not installed.

    Returns
    -------
    tuple of (Dataset, str)
        The string says what had to be done without, and is empty otherwise.
    """
    from ..datasets import make_synthetic, prepare

    try:
        data = prepare("icons")
    except MissingExtraError as error:
        return _checked(make_synthetic(n=1500, sparse_text=True, random_state=0), "synthetic"), str(error)
    # The words were chosen on the training rows of one split; every seed chooses its own.
    left = {key: value for key, value in data.provenance.items() if key != "fitted"}
    columns = {"text": data.columns["text"]}
    bare = replace(data, views={"image": data.views["image"]}, feature_names={}, columns=columns, provenance=left)
    return _checked(bare, "icons"), ""


def _checked(data: Dataset, where: str) -> Dataset:
    have = {*data.views, *(["text"] if "text" in data.columns else [])}
    missing = [view for view in VIEWS if view not in have]
    if missing or data.labels is None:
        lacks = ", ".join([*missing, *(["labels"] if data.labels is None else [])])
        raise InputError(f"{where} lacks {lacks}; the studies need the views image and text, and labels.")
    if data.provenance.get("fitted"):
        views = ", ".join(data.provenance["fitted"])
        raise InputError(
            f"the features of {where} ({views}) were fitted on the training rows of one split, which are queries of "
            "others. Pass the raw tags."
        )
    chosen = {view: data.views[view] for view in VIEWS if view in data.views}
    names = {view: listed for view, listed in data.feature_names.items() if view in chosen}
    return replace(data, views=chosen, splits={}, feature_names=names)


def split_data(data: Dataset, seed: int) -> Dataset:
    """Split by the seed, and make the features that are fitted, on its training rows.

    MIRFlickr's tags become 500 principal components, the words of the demo 200.

    Parameters
    ----------
    data : Dataset
        From :func:`read_source` or :func:`demo_source`.
    seed : int

    Returns
    -------
    Dataset

    Examples
    --------
    >>> from modalhash.datasets import make_synthetic
    >>> data = split_data(make_synthetic(n=100, random_state=0), seed=1)
    >>> {name: len(rows) for name, rows in data.splits.items()}
    {'query': 5, 'train': 95, 'database': 95}
    """
    from ..features import PCA, FeaturePipeline, TagVectorizer

    out = data.split(protocol_of(data.name), seed=seed)
    step: Any = None
    if "text" not in data.views:
        step = [TagVectorizer(min_count=_RARE), PCA(_WORDS)]
    elif data.name == "mirflickr" and data.views["text"].shape[1] > _COMPONENTS:
        step = PCA(_COMPONENTS)
    return out if step is None else FeaturePipeline({"text": step}).fit_transform(out)


def data_hash(data: Dataset) -> str:
    """Twelve hex digits of everything that runs see: views, words and labels.

    Examples
    --------
    >>> from modalhash.datasets import make_synthetic
    >>> len(data_hash(make_synthetic(n=50, random_state=0)))
    12
    """
    digest = hashlib.sha256()
    for name, found in sorted(data.checksums().items()):
        digest.update(f"{name}={found};".encode())
    for text in data.columns.get("text", ()) if "text" not in data.views else ():
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()[:12]
