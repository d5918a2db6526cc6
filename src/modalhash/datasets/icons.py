"""Font Awesome Free: about 1,400 icons with search terms as their text and categories as their labels.

The PyPI package ``fontawesomefree`` carries the drawings (CC BY 4.0), the terms and the categories, so this set
needs no download: it is what the demo shows.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ..exceptions import InputError, MissingExtraError, ModelFormatError
from .dataset import Dataset
from .sources import Progress, SourceFile, find

__all__ = ["FILES", "load_icons"]

FILES = (
    SourceFile(
        "metadata/icons.json and metadata/categories.yml",
        "the icons with their terms, and the categories; found in the installed package",
        "6 MB",
        "https://pypi.org/project/fontawesomefree/ (pip install 'modalhash[demo]')",
    ),
)


def load_icons(
    source: str | Path | None = None,
    *,
    style: str = "solid",
    min_count: int = 1,
    protocol: str = "mirflickr",
    seed: int = 0,
    size: int = 128,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Load the icons of Font Awesome Free: GIST of the drawing, words of the search terms, categories.

    Parameters
    ----------
    source : str or Path, optional
        A folder with ``metadata/icons.json``; by default that of the installed package ``fontawesomefree``.
    style : str
        "solid", "regular" or "brands".
    min_count : int
        Keep words that at least this many training icons carry.
    protocol, seed
        The split, as in :meth:`Dataset.split`; the words are chosen on its training rows.
    size : int
        Side in pixels of the rendered squares.
    n_jobs, progress
        As in :class:`modalhash.features.GIST`.

    Returns
    -------
    Dataset
        Views ``image`` (512 columns) and ``text`` (0/1 words, CSR); icons without a category or a term are left out.
        Columns: ``title``, ``terms`` (separated by "; "), ``text`` (the words, by spaces) and ``svg``, the drawing.
    """
    from ..features import FeaturePipeline, TagVectorizer

    metadata = _metadata(source)
    icons = _read_json(metadata / "icons.json")
    categories = _read_categories(metadata / "categories.yml")
    of_icon: dict[str, list[str]] = {}
    for about in categories.values():
        for icon in about["icons"]:
            of_icon.setdefault(icon, []).append(str(about["label"]))
    ids: list[str] = []
    labels: list[list[str]] = []
    columns: dict[str, list[str]] = {"title": [], "terms": [], "text": [], "svg": []}
    left_out = 0
    for icon in sorted(icons):
        about = icons[icon]
        if style not in about.get("styles", ()):
            continue
        terms = [str(term) for term in about.get("search", {}).get("terms", [])]
        words = words_of(about["label"], terms)
        if icon not in of_icon or not words:
            left_out += 1
            continue
        ids.append(icon)
        labels.append(of_icon[icon])
        columns["title"].append(about["label"])
        columns["terms"].append("; ".join(terms))
        columns["text"].append(" ".join(words))
        columns["svg"].append(about["svg"][style]["raw"])
    if not ids:
        raise InputError(f"{metadata} has no icon of style {style!r}; the free set has solid, regular and brands.")
    gist, failed = drawings_to_gist(columns["svg"], size, n_jobs, progress)
    data = Dataset(
        {"image": gist},
        labels=labels,
        ids=np.array(ids),
        columns=columns,
        name="icons",
        provenance={
            "source": "Font Awesome Free",
            "style": style,
            "left_out": left_out,
            "gist": {"size": size},
            "skipped": [list(row) for row in failed],
        },
    )
    data = data.drop([row for row, _, _ in failed]).split(protocol, seed=seed)
    return FeaturePipeline({"text": TagVectorizer(min_count=min_count)}).fit_transform(data)


def words_of(title: str, terms: list[str]) -> list[str]:
    """Return the different words of a title and its terms, in order, without single letters.

    Examples
    --------
    >>> words_of("Cloud Moon", ["partly cloudy", "sky", "a sky"])
    ['cloud', 'moon', 'partly', 'cloudy', 'sky']
    """
    from ..features import split_words

    words = (word for text in (title, *terms) for word in split_words(text.lower()))
    return list(dict.fromkeys(word for word in words if len(word) > 1))


def drawings_to_gist(
    drawings: list[str], size: int, n_jobs: int | None, progress: Progress | None
) -> tuple[Any, list[tuple[int, str, str]]]:
    """Render SVG drawings and describe them; those that cannot be drawn are listed.

    Parameters
    ----------
    drawings : list of str
    size, n_jobs, progress
        As in :class:`modalhash.features.GIST`.

    Returns
    -------
    tuple of (ndarray of shape (n, 512), list of (row, name, reason))
    """
    from ..features import GIST, LazyImages, render_svg

    step = GIST(size=size, n_jobs=n_jobs, progress=progress)
    return step.fit_transform(LazyImages(drawings, lambda svg: render_svg(svg, size))), step.failed_


def _metadata(source: str | Path | None) -> Path:
    if source is not None:
        folder = Path(source).expanduser()
        found = find(folder, "metadata/icons.json", "icons.json") if folder.is_dir() else None
        if found is None:
            raise InputError(f"{folder} has no metadata/icons.json; it should hold {FILES[0]}.")
        return found.parent
    spec = find_spec("fontawesomefree")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError("fontawesomefree", "demo")
    folder = Path(next(iter(spec.submodule_search_locations)))
    found = folder / "static" / "fontawesomefree" / "metadata"
    if not (found / "icons.json").is_file():
        raise InputError(f"the package fontawesomefree in {folder} lacks {found / 'icons.json'}; install it again.")
    return found


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text("utf-8")))
    except (ValueError, TypeError) as error:
        raise ModelFormatError(f"{path} is not whole JSON ({error}). Get it again.") from error


def _read_categories(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(f"{path} does not exist; it names the categories of the icons.")
    try:
        import yaml
    except ImportError as error:
        raise MissingExtraError("pyyaml", "demo") from error
    try:
        return dict(yaml.safe_load(path.read_text("utf-8")))
    except (yaml.YAMLError, TypeError, ValueError) as error:
        raise ModelFormatError(f"{path} is not whole YAML ({error}). Get it again.") from error
