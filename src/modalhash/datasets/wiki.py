"""Wiki: 2,866 image-text pairs from Wikipedia's featured articles, ten classes (Rasiwasia et al. 2010)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..exceptions import InputError, ModelFormatError
from .community import load_community, mat_files
from .dataset import Dataset
from .files import list_arrays, read_matrix
from .sources import SourceFile, find, missing_files
from .textmatrix import read_lines

__all__ = ["CATEGORIES", "FILES", "load_wiki"]

CATEGORIES = (
    "art",
    "biology",
    "geography",
    "history",
    "literature",
    "media",
    "music",
    "royalty",
    "sport",
    "warfare",
)
_SITE = "http://www.svcl.ucsd.edu/projects/crossmodal/"
FILES = (
    SourceFile("wikiData.mat", "I_tr, T_tr, L_tr, I_te, T_te, L_te in one file, as hashing papers pass it on", "3 MB"),
    SourceFile("raw_features.mat", "or the original: I_tr, T_tr, I_te, T_te", "3 MB", _SITE),
    SourceFile("trainset_txt_img_cat.list", "with it: text, image and class of each training pair", "60 kB", _SITE),
    SourceFile("testset_txt_img_cat.list", "and of each test pair", "20 kB", _SITE),
)


def load_wiki(source: str | Path, *, views: Mapping[str, str] | None = None) -> Dataset:
    """Load Wiki, with its own split of 2,173 training and 693 test pairs.

    Parameters
    ----------
    source : str or Path
        A MATLAB file that holds features and labels (``wikiData.mat`` and its kin, whatever it is called), or a
        folder with such a file, or with the original ``raw_features.mat`` and its two lists.
    views : dict of str to str, optional
        Which pair of variables is what, where that cannot be told: ``{"image": "I", "text": "T", "labels": "L"}``.

    Returns
    -------
    Dataset
        Views ``image`` (128 columns: SIFT words) and ``text`` (10: topics). Splits ``query``, ``train`` and
        ``database`` (the training pairs).
    """
    path = Path(source).expanduser()
    if not path.exists():
        raise missing_files(path, "Wiki", ["wikiData.mat", "raw_features.mat"], FILES)
    found = mat_files(path)
    if not found:
        raise missing_files(path, "Wiki", ["a .mat file"], FILES)
    train = find(path, "trainset_txt_img_cat.list") if path.is_dir() else None
    test = find(path, "testset_txt_img_cat.list") if path.is_dir() else None
    raw = [file for file in found if {"I_tr", "T_tr", "I_te", "T_te"} <= set(list_arrays(file))]
    labelled = [file for file in raw if {"L_tr", "L_te"} <= set(list_arrays(file))]
    if raw and not labelled and not views:
        if train is None or test is None:
            missing = [f"{part}set_txt_img_cat.list" for part, p in (("train", train), ("test", test)) if p is None]
            raise missing_files(path, "Wiki", missing, FILES)
        return _from_original(raw[0], train, test)
    return load_community(labelled or found, name="wiki", n_labels=(10,), label_names=CATEGORIES, views=views)


def _from_original(features: Path, train: Path, test: Path) -> Dataset:
    views = {}
    sizes = {}
    for view, letter in (("image", "I"), ("text", "T")):
        parts = [read_matrix(features, f"{letter}_{part}") for part in ("tr", "te")]
        sizes[view] = tuple(part.shape[0] for part in parts)
        views[view] = np.concatenate(parts).astype(np.float32)
    if sizes["image"] != sizes["text"]:
        raise InputError(f"{features}: image and text have different numbers of rows: {sizes}.")
    n_train, n_query = sizes["image"]
    classes, names = [], []
    for path, n in ((train, n_train), (test, n_query)):
        ids, texts = _read_list(path, n)
        classes.append(ids)
        names += texts
    ids = np.concatenate(classes)
    rows = np.arange(n_train)
    return Dataset(
        views,
        labels=(ids[:, None] == np.arange(1, 11)[None, :]).astype(np.uint8),
        label_names=list(CATEGORIES),
        ids=np.array(names),
        splits={"query": n_train + np.arange(n_query), "train": rows, "database": rows},
        name="wiki",
        provenance={
            "source": "Wiki, original files",
            "split": {"protocol": "as in the files", "n_query": n_query, "n_train": n_train},
        },
    )


def _read_list(path: Path, n: int) -> tuple[NDArray[np.int64], list[str]]:
    classes, names = [], []
    lines = read_lines(path)
    for number, line in enumerate(lines, start=1):
        fields = line.split()
        if len(fields) != 3 or not fields[2].isdigit() or not 1 <= int(fields[2]) <= 10:
            raise ModelFormatError(f"{path}, line {number}: 'text image class' with a class from 1 to 10 is needed.")
        names.append(fields[1])
        classes.append(int(fields[2]))
    if len(lines) != n:
        raise ModelFormatError(f"{path}, line {len(lines)}: {len(lines)} pairs; the features have {n} rows.")
    return np.array(classes, dtype=np.int64), names
