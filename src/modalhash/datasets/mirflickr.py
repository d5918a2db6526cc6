"""MIRFlickr-25K: 25,000 Flickr photographs with tags and 24 annotated concepts (Huiskes & Lew 2008).

As in the paper: tags that at least 20 photographs carry, photographs without such a tag or without a concept left out
(20,015 remain), GIST of the photographs, a PCA of the tags, fitted on the training rows.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..exceptions import InputError, ModelFormatError
from .community import load_community, mat_files
from .dataset import Dataset
from .sources import Progress, SourceFile, find, missing_files, require_folder
from .textmatrix import read_lines

__all__ = ["CONCEPTS", "FILES", "N_IMAGES", "load_mirflickr"]

_log = logging.getLogger(__name__)

N_IMAGES = 25_000
CONCEPTS = (
    *("animals", "baby", "bird", "car", "clouds", "dog", "female", "flower", "food", "indoor", "lake", "male"),
    *("night", "people", "plant_life", "portrait", "river", "sea", "sky", "structures", "sunset", "transport"),
    *("tree", "water"),
)
_SITE = "https://press.liacs.nl/mirflickr/mirflickr25k.v3b"
FILES = (
    SourceFile("mirflickr/im1.jpg .. im25000.jpg", "the photographs", "2.9 GB", f"{_SITE}/mirflickr25k.zip"),
    SourceFile("mirflickr/meta/tags/tags1.txt .. tags25000.txt", "their tags, one a line", "in the same archive"),
    SourceFile(
        "mirflickr25k_annotations_v080/animals.txt .. water.txt",
        "24 concepts, one image number a line",
        "under 1 MB",
        f"{_SITE}/mirflickr25k_annotations_v080.zip",
    ),
)
_IMAGE = re.compile(r"im(\d+)\.jpe?g$", re.IGNORECASE)


def load_mirflickr(
    source: str | Path,
    *,
    min_count: int = 20,
    pca: int | None = 500,
    protocol: str = "mirflickr",
    seed: int = 0,
    complete: bool = True,
    size: int = 128,
    views: Mapping[str, str] | None = None,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Load MIRFlickr-25K from its official files, or from the MATLAB files that circulate.

    Parameters
    ----------
    source : str or Path
        A folder with the unpacked archives (see :data:`FILES`); or a MATLAB file or a folder of them, such as
        ``FLICKR-25K.mat`` or ``mirflickr25k-{i,y,l}all.mat``, whatever they are called.
    min_count : int
        Keep tags that at least this many photographs carry.
    pca : int or None
        Components of the text view, fitted on the training rows of the split; None keeps the sparse 0/1 tags.
    protocol, seed
        The split, as in :meth:`Dataset.split`.
    complete : bool
        Insist on all 25,000 photographs.
    size : int
        Side in pixels of the squares that GIST is computed on.
    views : dict of str to str, optional
        For MATLAB files, which variable is what, where that cannot be told.
    n_jobs, progress
        As in :class:`modalhash.features.GIST`.

    Returns
    -------
    Dataset
        Views ``image`` (512 columns) and ``text``; ids are the numbers of the photographs.
    """
    path = Path(source).expanduser()
    if path.is_file() or (path.is_dir() and find(path, "meta/tags", "im1.jpg") is None and mat_files(path)):
        data = load_community(
            mat_files(path),
            name="mirflickr",
            n_labels=(24,),
            label_names=CONCEPTS,
            views=views,
            size=size,
            n_jobs=n_jobs,
            progress=progress,
        )
    else:
        folder = require_folder(source, "MIRFlickr-25K", FILES)
        data = _from_official(folder, min_count, complete, size, n_jobs, progress)
    if not data.splits:
        data = data.split(protocol, seed=seed)
    return reduce_text(data, pca)


def reduce_text(data: Dataset, pca: int | None) -> Dataset:
    """Replace a sparse text view by its principal components, fitted on the training rows.

    Parameters
    ----------
    data : Dataset
        With a split.
    pca : int or None
        None, or a text view that is not sparse, leaves it as it is.

    Returns
    -------
    Dataset
    """
    if pca is None or not sparse.issparse(data.views.get("text")):
        return data
    from ..features import PCA, FeaturePipeline

    return FeaturePipeline({"text": PCA(pca)}).fit_transform(data)


def _from_official(
    folder: Path, min_count: int, complete: bool, size: int, n_jobs: int | None, progress: Progress | None
) -> Dataset:
    first, tag_folder = find(folder, "im1.jpg", "im1.jpeg"), find(folder, "meta/tags", "tags")
    concept = find(folder, "plant_life.txt")
    looked_for = {"im1.jpg": first, "meta/tags": tag_folder, "plant_life.txt": concept}
    missing = [name for name, found in looked_for.items() if found is None]
    if first is None or tag_folder is None or concept is None:
        raise missing_files(folder, "MIRFlickr-25K", missing, FILES)
    images = _numbered_images(first.parent, complete)
    numbers = sorted(images)
    labels = read_concepts(concept.parent, max(numbers))[np.array(numbers) - 1]
    tags, no_file = _read_tags(tag_folder, numbers)
    count = Counter(tag for row in tags for tag in row)
    vocabulary = sorted(tag for tag, c in count.items() if c >= min_count)
    if not vocabulary:
        raise InputError(f"no tag in {tag_folder} is carried by {min_count} photographs. Lower min_count.")
    column = {tag: j for j, tag in enumerate(vocabulary)}
    kept_tags = [[tag for tag in row if tag in column] for row in tags]
    labelled = labels.any(axis=1)
    tagged = np.array([bool(row) for row in kept_tags])
    keep = np.flatnonzero(labelled & tagged)
    if keep.size == 0:
        raise InputError(f"no photograph in {folder} has both a concept and a tag used {min_count} times.")
    _log.info("MIRFlickr: %d of %d photographs have a concept and a frequent tag", keep.size, len(numbers))

    from ..features import GIST

    paths = [images[numbers[i]] for i in keep]
    step = GIST(size=size, n_jobs=n_jobs, progress=progress)
    gist = step.fit_transform(paths)
    rows = [sorted(column[tag] for tag in kept_tags[i]) for i in keep]
    indptr = np.cumsum([0, *(len(row) for row in rows)])
    indices = np.array([j for row in rows for j in row], dtype=np.int32)
    text = sparse.csr_array(
        (np.ones(len(indices), np.float32), indices, indptr.astype(np.int32)), shape=(len(rows), len(vocabulary))
    )
    data = Dataset(
        {"image": gist, "text": text},
        labels=labels[keep],
        label_names=list(CONCEPTS),
        ids=np.array(numbers)[keep],
        feature_names={"text": vocabulary},
        columns={"file": [path.name for path in paths], "tags": [" ".join(kept_tags[i]) for i in keep]},
        name="mirflickr",
        provenance={
            "source": "MIRFlickr-25K, official files",
            "images": len(numbers),
            "without_label": int((~labelled).sum()),
            "without_frequent_tag": int((~tagged).sum()),
            "without_tag_file": no_file,
            "min_count": int(min_count),
            "gist": {"size": size},
            "skipped": [list(row) for row in step.failed_],
        },
    )
    return data.drop([row for row, _, _ in step.failed_])


def _numbered_images(folder: Path, complete: bool) -> dict[int, Path]:
    images: dict[int, Path] = {}
    for path in folder.iterdir():
        match = _IMAGE.match(path.name)
        if match:
            images[int(match[1])] = path
    last = max(images)
    gaps = [n for n in range(1, last + 1) if n not in images]
    if gaps:
        shown = ", ".join(f"im{n}.jpg" for n in gaps[:5])
        raise InputError(
            f"{folder} has im{last}.jpg but lacks {len(gaps)} before it: {shown}. Unpack the archive again."
        )
    if complete and last != N_IMAGES:
        raise InputError(
            f"{folder} has {last} photographs; MIRFlickr-25K has {N_IMAGES}. "
            "Unpack the archive again, or pass complete=False to use what is there."
        )
    return images


def read_concepts(folder: Path, n: int) -> NDArray[np.uint8]:
    """Read the 24 annotation files: each names the photographs that show a concept.

    Parameters
    ----------
    folder : Path
    n : int
        Photographs; a number beyond is an error.

    Returns
    -------
    ndarray of uint8, shape (n, 24)
    """
    missing = [f"{name}.txt" for name in CONCEPTS if not (folder / f"{name}.txt").is_file()]
    if missing:
        raise missing_files(folder, "MIRFlickr-25K", missing, FILES)
    labels = np.zeros((n, len(CONCEPTS)), dtype=np.uint8)
    for j, name in enumerate(CONCEPTS):
        path = folder / f"{name}.txt"
        lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").splitlines()
        for number, raw in enumerate(lines, start=1):
            line = raw.strip()
            if not line:
                continue
            if not line.isdigit() or not 1 <= int(line) <= n:
                raise ModelFormatError(
                    f"{path}, line {number}: {line[:20].decode('latin-1')!r} where an image number from 1 to {n} is "
                    "needed. The file is damaged or not an annotation file."
                )
            labels[int(line) - 1, j] = 1
    return labels


def _read_tags(folder: Path, numbers: list[int]) -> tuple[list[list[str]], int]:
    """The different tags of each photograph, and how many have no file."""
    out: list[list[str]] = []
    no_file = 0
    for n in numbers:
        path = folder / f"tags{n}.txt"
        if not path.is_file():
            no_file += 1
            out.append([])
            continue
        out.append(sorted({tag.lower() for tag in read_lines(path)}))
    if no_file == len(numbers):
        raise InputError(f"{folder} has none of tags1.txt .. tags{numbers[-1]}.txt. Unpack the archive again.")
    if no_file:
        _log.warning("%s: %d photographs have no tags file and count as untagged", folder, no_file)
    return out, no_file
