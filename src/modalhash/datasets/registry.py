"""The data sets by name: what each is, which files it needs, where they come from, and how to load it."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..exceptions import InputError
from .dataset import Dataset
from .sources import Progress, SourceFile

__all__ = ["DatasetInfo", "info", "list_datasets", "prepare"]


@dataclass(frozen=True)
class DatasetInfo:
    """What is known about a data set before it is loaded.

    Attributes
    ----------
    name : str
    summary : str
        One line.
    size : str
        Items and labels of a whole copy.
    views : dict of str to str
    protocol : str
        The usual split.
    reference : str
        Who made it.
    licence : str
    loader : str
        ``module:function`` below :mod:`modalhash.datasets`.
    needs_source : bool
        Whether a folder or file must be given.
    """

    name: str
    summary: str
    size: str
    views: dict[str, str]
    protocol: str
    reference: str
    licence: str
    loader: str
    needs_source: bool = True

    @property
    def files(self) -> tuple[SourceFile, ...]:
        """The files that it is made from, with where to get them and their sizes.

        Examples
        --------
        >>> print(info("wiki").files[0].path)
        wikiData.mat
        """
        return tuple(getattr(self._module, "FILES", ()))

    @property
    def _module(self) -> Any:
        return importlib.import_module(f".{self.loader.split(':')[0]}", __package__)

    @property
    def load(self) -> Any:
        """The function that loads it."""
        return getattr(self._module, self.loader.split(":")[1])

    @property
    def options(self) -> dict[str, Any]:
        """The options of :func:`prepare` for this data set, with their defaults.

        Examples
        --------
        >>> info("nuswide").options["n_concepts"]
        10
        """
        parameters = inspect.signature(self.load).parameters.values()
        return {p.name: p.default for p in parameters if p.name != "source"}


_ALL = (
    DatasetInfo(
        name="mirflickr",
        summary="MIRFlickr-25K: photographs from Flickr with tags",
        size="25,000 photographs, of which 20,015 have a concept and a frequent tag; 24 concepts",
        views={"image": "GIST, 512", "text": "PCA of 1,386 tags, 500 (or the sparse tags)"},
        protocol="mirflickr",
        reference="Huiskes & Lew, The MIR Flickr retrieval evaluation, MIR 2008",
        licence="Creative Commons works of their Flickr authors; get the files from the makers",
        loader="mirflickr:load_mirflickr",
    ),
    DatasetInfo(
        name="nuswide",
        summary="NUS-WIDE: images from Flickr with tags",
        size="269,648 images, of which 186,577 show one of the 10 most frequent of 81 concepts",
        views={"image": "bag of visual words, 500", "text": "tags, 1,000, sparse"},
        protocol="nuswide",
        reference="Chua et al., NUS-WIDE: a real-world web image database, CIVR 2009",
        licence="for research, on the makers' terms",
        loader="nuswide:load_nuswide",
    ),
    DatasetInfo(
        name="wiki",
        summary="Wiki: sections of Wikipedia's featured articles, each with a picture",
        size="2,173 training and 693 test pairs; 10 classes",
        views={"image": "SIFT words, 128", "text": "topics, 10"},
        protocol="the files' own",
        reference="Rasiwasia et al., A new approach to cross-modal multimedia retrieval, ACM MM 2010",
        licence="Wikipedia texts and pictures; get the files from the makers",
        loader="wiki:load_wiki",
    ),
    DatasetInfo(
        name="icons",
        summary="Font Awesome Free: icons with search terms, from the PyPI package fontawesomefree",
        size="about 1,400 solid icons; 68 categories",
        views={"image": "GIST of the rendered icon, 512", "text": "words of title and terms, sparse"},
        protocol="mirflickr",
        reference="Fonticons, Inc., Font Awesome Free",
        licence="icons CC BY 4.0",
        loader="icons:load_icons",
        needs_source=False,
    ),
    DatasetInfo(
        name="openclipart",
        summary="Open Clip Art: drawings with keywords, from Debian's package openclipart-svg",
        size="8,121 drawings; folders as labels",
        views={"image": "GIST of the rendered drawing, 512", "text": "keywords, sparse"},
        protocol="mirflickr",
        reference="The Open Clip Art Library",
        licence="public domain",
        loader="openclipart:load_openclipart",
        needs_source=False,
    ),
    DatasetInfo(
        name="folder",
        summary="your own folder of images, with a table of captions and labels",
        size="whatever is there",
        views={"image": "GIST, 512 (or any transformer)", "text": "words, sparse (or any transformer)"},
        protocol="mirflickr",
        reference="yourself",
        licence="yours",
        loader="folder:load_folder",
    ),
    DatasetInfo(
        name="arrays",
        summary="matrices in .npz, .npy, .mat, .h5 or Parquet files",
        size="whatever is there",
        views={"any": "any matrix, dense or sparse"},
        protocol="none",
        reference="yourself",
        licence="yours",
        loader="arrays:load_arrays",
    ),
    DatasetInfo(
        name="synthetic",
        summary="made-up classes seen through two noisy non-linear views; the right answer is known",
        size="2,000 items (n=...); 10 classes",
        views={"image": "128", "text": "100, dense or sparse 0/1"},
        protocol="mirflickr",
        reference="modalhash.datasets.make_synthetic",
        licence="none needed",
        loader="synthetic:make_synthetic",
        needs_source=False,
    ),
)
_BY_NAME = {one.name: one for one in _ALL}


def list_datasets() -> list[DatasetInfo]:
    """Return every data set that modalhash can load.

    Returns
    -------
    list of DatasetInfo

    Examples
    --------
    >>> [one.name for one in list_datasets()]
    ['mirflickr', 'nuswide', 'wiki', 'icons', 'openclipart', 'folder', 'arrays', 'synthetic']
    """
    return list(_ALL)


def info(name: str) -> DatasetInfo:
    """Return what is known about one data set.

    Parameters
    ----------
    name : str

    Returns
    -------
    DatasetInfo

    Examples
    --------
    >>> info("nuswide").protocol
    'nuswide'
    """
    if name not in _BY_NAME:
        raise InputError(f"there is no data set {name!r}; known: {', '.join(_BY_NAME)}.")
    return _BY_NAME[name]


def prepare(
    name: str,
    source: str | Path | None = None,
    *,
    seed: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Dataset:
    """Load a data set by name from files on disk.

    Parameters
    ----------
    name : str
        One of :func:`list_datasets`.
    source : str or Path, optional
        The folder or file that holds it; `icons`, `openclipart` and `synthetic` do without.
    seed : int, optional
        Of the split (of the data, where they are made); 0 when it is left out. Where the files bring their own
        split, or none is made, any other is an error.
    progress : callable, optional
        ``progress(done, total)``, for the loaders that take long enough to have one.
    **options
        The others of its loader (``info(name).options``).

    Returns
    -------
    Dataset

    Examples
    --------
    >>> prepare("synthetic", n=100).views["image"].shape
    (100, 128)
    """
    about = info(name)
    if progress is not None and "progress" in about.options:
        options["progress"] = progress
    if seed is not None:
        own = next((option for option in ("seed", "random_state") if option in about.options), None)
        if own is not None:
            options[own] = seed
        elif seed != 0:
            raise InputError(
                f"{name} does not draw a split; leave the seed out, or call split(seed=...) on the result."
            )
    unknown = [option for option in options if option not in about.options]
    if unknown:
        raise InputError(f"{name} has no option {', '.join(unknown)}; it has {', '.join(about.options)}.")
    if source is None:
        if about.needs_source:
            listed = "".join(f"\n  - {file}" for file in about.files)
            raise InputError(
                f"{name} needs a folder or file to load from.{' It should hold:' + listed if listed else ''}"
            )
        data = about.load(**options)
    elif "source" not in inspect.signature(about.load).parameters:
        raise InputError(f"{name} is made, not read: leave the source out.")
    else:
        data = about.load(source, **options)
    if not isinstance(data, Dataset):
        raise InputError(f"the loader of {name} returned {type(data).__name__}, not a Dataset.")
    return data
