"""NUS-WIDE: 269,648 Flickr images with 1,000 tags and 81 annotated concepts (Chua et al. 2009).

As in the paper: the ten most frequent concepts (or 21), images without any of them left out (186,577 remain), the
500-word bag of visual words that comes with the data, and the tags as a sparse 0/1 matrix.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..exceptions import InputError, ModelFormatError
from .community import load_community, mat_files
from .dataset import Dataset
from .sources import Progress, SourceFile, find, missing_files, require_folder
from .textmatrix import read_lines, read_text_matrix

__all__ = ["FILES", "N_IMAGES", "load_nuswide"]

_log = logging.getLogger(__name__)

N_IMAGES = 269_648
_SITE = "https://lms.comp.nus.edu.sg/wp-content/uploads/2019/research/nuswide/NUS-WIDE.html"
FILES = (
    SourceFile(
        "NUS_WID_Low_Level_Features/Low_Level_Features/BoW_int.dat",
        "500 visual words per image; or BoW_Train_int.dat and BoW_Test_int.dat, which need all three image lists",
        "about 1 GB, packed with the other features",
        _SITE,
    ),
    SourceFile("NUS_WID_Tags/AllTags1k.txt", "1,000 tags per image, 0/1", "about 540 MB", _SITE),
    SourceFile("Groundtruth/AllLabels/Labels_*.txt", "81 concepts, 0/1 per image", "about 44 MB", _SITE),
    SourceFile("ImageList/Imagelist.txt", "the names of the images", "about 8 MB", _SITE, optional=True),
    SourceFile("NUS_WID_Tags/TagList1k.txt", "the names of the tags", "about 8 kB", _SITE, optional=True),
)


def load_nuswide(
    source: str | Path,
    *,
    n_concepts: int = 10,
    protocol: str = "nuswide",
    seed: int = 0,
    complete: bool = True,
    views: Mapping[str, str] | None = None,
    size: int = 128,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Load NUS-WIDE from its official files, or from the MATLAB files that circulate.

    Parameters
    ----------
    source : str or Path
        A folder with the unpacked archives (see :data:`FILES`), or a MATLAB file or a folder of them.
    n_concepts : int
        Keep this many of the 81 concepts, the most frequent (10 in the paper, 21 in most later work), and the
        images that show at least one.
    protocol, seed
        The split, as in :meth:`Dataset.split`.
    complete : bool
        Insist on all 269,648 images.
    views : dict of str to str, optional
        For MATLAB files, which variable is what, where that cannot be told.
    size, n_jobs
        For MATLAB files that hold pictures: how GIST is computed.
    progress : callable, optional
        ``progress(done, total)`` in bytes of text read (or pictures).

    Returns
    -------
    Dataset
        Views ``image`` (500 counts) and ``text`` (1,000 tags, CSR).
    """
    path = Path(source).expanduser()
    tags_path = find(path, "AllTags1k.txt") if path.is_dir() else None
    if path.is_file() or (path.is_dir() and tags_path is None and mat_files(path)):
        data = load_community(
            mat_files(path),
            name="nuswide",
            n_labels=(10, 21, 24, 81),
            views=views,
            size=size,
            n_jobs=n_jobs,
            progress=progress,
        )
        return data if data.splits else data.split(protocol, seed=seed)
    folder = require_folder(source, "NUS-WIDE", FILES)
    words = _word_files(folder)
    concept = find(folder, "Groundtruth/AllLabels", "AllLabels")
    if not words or tags_path is None or concept is None:
        looked_for = {"BoW_int.dat": words, "AllTags1k.txt": tags_path, "Groundtruth/AllLabels": concept}
        missing = [name for name, found in looked_for.items() if not found]
        raise missing_files(folder, "NUS-WIDE", missing, FILES)
    n = N_IMAGES if complete else None
    labels, names = _read_concepts(concept, n)
    n = labels.shape[0]
    labels, names = _most_frequent(labels, names, n_concepts)
    keep = np.flatnonzero(labels.any(axis=1))
    _log.info("NUS-WIDE: %d of %d images show one of %s", keep.size, n, ", ".join(names))
    hook = _Stages(progress, [file.stat().st_size for file in (tags_path, *words)])
    # the rows are counted against the labels, so that a file of another set cannot slip in
    text = read_text_matrix(
        tags_path, n_columns=1000 if complete else None, n_rows=n, as_sparse=True, dtype=np.uint8, progress=hook
    )
    if text.nnz and text.data.max() > 1:
        raise ModelFormatError(f"{tags_path} holds numbers other than 0 and 1; it is not the file of tags.")
    text = text[keep].astype(np.float32)
    names_of_images = _image_names(folder, n)
    image = _read_words(words, folder, n, names_of_images, 500 if complete else None, hook)[keep].astype(np.float32)
    return Dataset(
        {"image": image, "text": text},
        labels=labels[keep],
        label_names=list(names),
        ids=names_of_images[keep],
        feature_names=_tag_names(folder, text.shape[1]),
        name="nuswide",
        provenance={
            "source": "NUS-WIDE, official files",
            "images": int(n),
            "concepts": list(names),
            "without_label": int(n - keep.size),
            "without_tag": int((np.diff(text.indptr) == 0).sum()),
        },
    ).split(protocol, seed=seed)


def _word_files(folder: Path) -> list[Path]:
    """The file of visual words, or its training and test halves; empty when neither is there."""
    whole = find(folder, "BoW_int.dat")
    if whole is not None:
        return [whole]
    halves = [find(folder, f"BoW_{part}_int.dat") for part in ("Train", "Test")]
    return [half for half in halves if half is not None] if None not in halves else []


def _read_words(
    files: list[Path], folder: Path, n: int, names: NDArray[Any], width: int | None, hook: _Stages
) -> NDArray[np.uint16]:
    """Visual words (n, 500), in the order of the image list."""
    if len(files) == 1:
        hook.next()
        whole: NDArray[np.uint16] = read_text_matrix(
            files[0], n_columns=width, n_rows=n, dtype=np.uint16, progress=hook
        )
        return whole
    row_of = {name: i for i, name in enumerate(names.tolist())}
    out: NDArray[np.uint16] | None = None
    left = np.ones(n, dtype=np.bool_)
    for path, part in zip(files, ("Train", "Test"), strict=True):
        list_path = find(folder, f"ImageList/{part}Imagelist.txt", f"{part}Imagelist.txt")
        if list_path is None or names.dtype.kind != "U":
            raise missing_files(folder, "NUS-WIDE", ["Imagelist.txt", f"{part}Imagelist.txt"], FILES)
        lines = [line.replace("\\", "/") for line in read_lines(list_path)]
        unknown = [number for number, line in enumerate(lines, start=1) if line not in row_of]
        if unknown:
            raise ModelFormatError(
                f"{list_path}, line {unknown[0]}: {lines[unknown[0] - 1]!r} is not in the image list."
            )
        hook.next()
        part_words = read_text_matrix(path, n_columns=width, n_rows=len(lines), dtype=np.uint16, progress=hook)
        if out is None:
            out = np.zeros((n, part_words.shape[1]), dtype=np.uint16)
        rows = np.array([row_of[line] for line in lines])
        out[rows] = part_words
        left[rows] = False
    if out is None or left.any():
        raise ModelFormatError(
            f"{folder}: {int(left.sum())} of {n} images are neither in TrainImagelist.txt nor in TestImagelist.txt."
        )
    return out


class _Stages:
    """One progress hook over several files."""

    def __init__(self, hook: Progress | None, sizes: list[int]) -> None:
        self.hook, self.sizes, self.stage = hook, sizes, 0

    def next(self) -> None:
        self.stage += 1

    def __call__(self, done: int, total: int) -> None:
        if self.hook is not None:
            self.hook(sum(self.sizes[: self.stage]) + done, sum(self.sizes))


def _read_concepts(folder: Path, n: int | None) -> tuple[NDArray[np.uint8], list[str]]:
    files = sorted(folder.glob("Labels_*.txt"))
    if not files:
        raise missing_files(folder, "NUS-WIDE", ["Labels_*.txt"], FILES)
    if n is not None and len(files) != 81:
        raise InputError(
            f"{folder} has {len(files)} files Labels_*.txt; NUS-WIDE has 81 concepts. "
            "Unpack the archive again, or pass complete=False."
        )
    columns: list[Any] = []
    for path in files:
        column = read_text_matrix(path, n_columns=1, n_rows=n, dtype=np.bool_)
        n = column.shape[0]
        columns.append(column[:, 0])
    return np.stack(columns, axis=1).astype(np.uint8), [path.stem.removeprefix("Labels_") for path in files]


def _most_frequent(labels: NDArray[np.uint8], names: list[str], k: int) -> tuple[NDArray[np.uint8], list[str]]:
    """The k most frequent columns, the most frequent first (ties by name)."""
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or not 1 <= k <= len(names):
        raise InputError(f"n_concepts must be a whole number from 1 to {len(names)}; got {k!r}.")
    order = np.argsort(-labels.sum(axis=0, dtype=np.int64), kind="stable")[:k]
    return np.ascontiguousarray(labels[:, order]), [names[j] for j in order]


def _image_names(folder: Path, n: int) -> NDArray[Any]:
    path = find(folder, "ImageList/Imagelist.txt", "ImageList/ImageList.txt", "Imagelist.txt", "ImageList.txt")
    if path is None or not path.is_file():
        return np.arange(n)
    names = [line.replace("\\", "/") for line in read_lines(path)]
    if len(names) != n:
        raise ModelFormatError(f"{path}, line {len(names)}: {len(names)} image names; the labels have {n} rows.")
    return np.array(names)


def _tag_names(folder: Path, width: int) -> dict[str, list[str]]:
    path = find(folder, "NUS_WID_Tags/TagList1k.txt", "TagList1k.txt")
    if path is None:
        return {}
    names = read_lines(path)
    if len(names) != width:
        raise ModelFormatError(f"{path}, line {len(names)}: {len(names)} tags; the tag matrix has {width} columns.")
    return {"text": names}
