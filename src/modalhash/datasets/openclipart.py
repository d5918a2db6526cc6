"""Open Clip Art: public-domain drawings with keywords, sorted into folders (Debian's package openclipart-svg)."""

from __future__ import annotations

import logging
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from ..exceptions import InputError, ModelFormatError
from .dataset import Dataset
from .icons import drawings_to_gist, words_of
from .sources import Progress, SourceFile

__all__ = ["DEBIAN", "FILES", "load_openclipart", "read_drawing"]

_log = logging.getLogger(__name__)

DEBIAN = Path("/usr/share/openclipart/svg")
FILES = (
    SourceFile(
        "animals/birds/*.svg and so on",
        f"drawings with keywords inside, in folders by category; by default where Debian's package puts them, {DEBIAN}",
        "8,121 drawings",
        "apt install openclipart-svg",
    ),
)
_DC = "{http://purl.org/dc/elements/1.1/}"
_RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"
_NO_KEYWORD = {"unsorted", "clip_art", "clipart", "svg", "image", "media", "png", "public domain", "public_domain"}


def load_openclipart(
    source: str | Path | None = None,
    *,
    min_count: int = 2,
    min_label: int = 20,
    protocol: str = "mirflickr",
    seed: int = 0,
    size: int = 128,
    limit: int | None = None,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Load the drawings: GIST of what they look like, their keywords, and their folders as labels.

    Parameters
    ----------
    source : str or Path, optional
        The folder of drawings; by default that of Debian's package.
    min_count : int
        Keep words that at least this many training drawings carry.
    min_label : int
        Keep folders (``animals`` and ``animals/birds`` are two labels) with at least this many drawings.
    protocol, seed
        The split, as in :meth:`Dataset.split`; the words are chosen on its training rows.
    size : int
        Side in pixels of the rendered squares.
    limit : int, optional
        Only this many drawings, spread evenly over the folders' order.
    n_jobs, progress
        As in :class:`modalhash.features.GIST`.

    Returns
    -------
    Dataset
        Views ``image`` (512 columns) and ``text`` (0/1 words, CSR). Ids are paths below the folder; the columns
        are ``title`` and ``text``. Drawings without a keyword or a label, or that cannot be read, are left out.
    """
    from ..features import FeaturePipeline, TagVectorizer

    folder = DEBIAN if source is None else Path(source).expanduser()
    if not folder.is_dir():
        raise InputError(f"{folder} does not exist. Open Clip Art needs {FILES[0]}; or pass the folder of drawings.")
    paths = sorted(folder.rglob("*.svg"))
    if not paths:
        raise InputError(f"{folder} holds no .svg file. Open Clip Art needs {FILES[0]}.")
    if limit is not None and limit < len(paths):
        paths = [paths[i] for i in np.linspace(0, len(paths) - 1, limit).astype(int)]
    kept: list[tuple[str, list[str]]] = []
    drawings: list[str] = []
    columns: dict[str, list[str]] = {"title": [], "text": []}
    unreadable: list[list[str]] = []
    no_keyword = 0
    for path in paths:
        name = path.relative_to(folder).as_posix()
        try:
            svg, title, keywords = read_drawing(path)
        except ModelFormatError as error:
            unreadable.append([name, str(error)])
            continue
        words = words_of("", [k for k in keywords if k.lower() not in _NO_KEYWORD])
        folders = Path(name).parent.parts
        if not words or not folders:
            no_keyword += 1
            continue
        kept.append((name, ["/".join(folders[: i + 1]) for i in range(len(folders))]))
        drawings.append(svg)
        columns["title"].append(title or path.stem)
        columns["text"].append(" ".join(words))
    if unreadable:
        _log.warning("%d drawings are not whole XML and are left out: %s", len(unreadable), unreadable[:3])
    if not kept:
        raise InputError(f"no drawing in {folder} has both a keyword and a folder.")
    count: dict[str, int] = {}
    for _, labels in kept:
        for label in labels:
            count[label] = count.get(label, 0) + 1
    classes = [[label for label in labels if count[label] >= min_label] for _, labels in kept]
    if not any(classes):
        raise InputError(f"no folder in {folder} has {min_label} drawings; lower min_label.")
    gist, failed = drawings_to_gist(drawings, size, n_jobs, progress)
    data = Dataset(
        {"image": gist},
        labels=classes,
        ids=np.array([name for name, _ in kept]),
        columns=columns,
        name="openclipart",
        provenance={
            "source": "Open Clip Art",
            "drawings": len(paths),
            "without_keyword_or_folder": no_keyword,
            "without_label": sum(not c for c in classes),
            "skipped": unreadable + [[kept[row][0], reason] for row, _, reason in failed],
        },
    )
    bad = {row for row, _, _ in failed} | {row for row, c in enumerate(classes) if not c}
    data = data.drop(sorted(bad)).split(protocol, seed=seed)
    return FeaturePipeline({"text": TagVectorizer(min_count=min_count)}).fit_transform(data)


def read_drawing(path: str | Path) -> tuple[str, str, list[str]]:
    """Read one drawing.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    tuple of (str, str, list of str)
        The SVG text, its title ("" when it has none) and its keywords.
    """
    path = Path(path)
    raw = path.read_bytes()
    try:
        root = ElementTree.fromstring(raw)
        svg = (
            raw.decode("utf-8-sig") if not raw.lstrip().startswith(b"<?xml") else ElementTree.tostring(root, "unicode")
        )
    except (ElementTree.ParseError, UnicodeDecodeError, LookupError, ValueError) as error:
        raise ModelFormatError(f"{path} is not whole XML: {error}.") from error
    title = next((e.text.strip() for e in root.iter(f"{_DC}title") if e.text and e.text.strip()), "")
    keywords = [
        item.text.strip()
        for subject in root.iter(f"{_DC}subject")
        for item in (*subject.iter(f"{_RDF}li"), subject)
        if item.text and item.text.strip()
    ]
    return svg, title, keywords
