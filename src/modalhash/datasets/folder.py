"""Your own pictures: a folder of images and a table (CSV, JSON, JSON lines or Parquet) of captions and labels."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..exceptions import InputError, ModelFormatError
from .dataset import Dataset
from .parquetfiles import open_parquet
from .sources import Progress, SourceFile

__all__ = ["FILES", "load_folder", "read_table"]

FILES = (
    SourceFile("*.jpg, *.png, ...", "the images, in the folder or below it"),
    SourceFile(
        "captions.csv (or .json, .jsonl, .parquet)",
        "one row per image: its file, its caption or tags, its labels; without it the folder's sub-folders are labels",
        optional=True,
    ),
)
_PICTURES = {".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff"}
_TABLES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet", ".pq")
_NAMES = {
    "image": ("image", "file", "filename", "file_name", "path", "img", "picture", "photo"),
    "text": ("caption", "captions", "text", "tags", "title", "description", "words", "terms"),
    "labels": ("labels", "label", "classes", "class", "categories", "category"),
}
_SEPARATOR = re.compile(r"\s*[;|]\s*")


def load_folder(
    source: str | Path,
    table: str | Path | None = None,
    *,
    image: str | None = None,
    text: str | None = None,
    labels: str | None = None,
    features: Mapping[str, Any] | None = None,
    min_count: int = 2,
    protocol: str = "mirflickr",
    seed: int = 0,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Load a folder of images with captions and labels.

    Parameters
    ----------
    source : str or Path
        The folder.
    table : str or Path, optional
        A CSV, TSV, JSON (a list of records, or a dict of columns), JSON-lines or Parquet file; by default the only one
        in the folder. Without any, each image's sub-folder is its label and there is no text view.
    image, text, labels : str, optional
        The columns of the table; by default found by usual names (``file``, ``caption``, ``labels`` and the like).
        Several labels of an image are a list, or one string with ";" or "|" between them.
    features : dict of str to transformer(s), optional
        For ``image`` and ``text``; by default GIST and 0/1 words. Fitted on the training rows only.
    min_count : int
        Keep words that at least this many training items carry.
    protocol, seed
        The split, as in :meth:`Dataset.split`.
    n_jobs, progress
        As in :class:`modalhash.features.GIST`.

    Returns
    -------
    Dataset
        Views ``image`` and, with a table that has texts, ``text``. Ids are the images' paths below the folder.
    """
    from sklearn.base import clone

    from ..features import GIST, FeaturePipeline, TagVectorizer

    folder = Path(source).expanduser()
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise InputError(f"{folder} {what}; a folder of images is needed.")
    path = Path(table).expanduser() if table is not None else _only_table(folder)
    if path is None:
        names, texts, classes = _by_folder(folder)
    else:
        names, texts, classes = _by_table(folder, path, image, text, labels)
    steps: dict[str, Any] = {"image": GIST(n_jobs=n_jobs, progress=progress)}
    if texts is not None:
        steps["text"] = TagVectorizer(min_count=min_count)
    for view, given in (features or {}).items():
        if view not in steps:
            raise InputError(f"features[{view!r}] is given, but the folder has only {', '.join(steps)}.")
        steps[view] = given
    first, *rest = steps["image"] if isinstance(steps["image"], (list, tuple)) else [steps["image"]]
    data = Dataset(
        {},
        labels=classes,
        ids=np.array(names),
        columns={"file": names} | ({} if texts is None else {"text": texts}),
        name=folder.resolve().name or "folder",
        provenance={"source": "folder", "table": None if path is None else path.name},
    ).split(protocol, seed=seed)
    # The first step reads the files; what it learns, if anything, it learns from the training rows.
    paths = [folder / name for name in names]
    reader = clone(first).fit([paths[i] for i in data.splits["train"]])
    pixels = reader.transform(paths)
    failed = [[int(row), str(name), str(reason)] for row, name, reason in getattr(reader, "failed_", [])]
    data = replace(data, views={"image": pixels}, provenance={**data.provenance, "skipped": failed})
    data = data.drop([row for row, _, _ in failed])
    later = ({"image": rest} if rest else {}) | {view: step for view, step in steps.items() if view != "image"}
    return FeaturePipeline(later).fit_transform(data) if later else data


def _only_table(folder: Path) -> Path | None:
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() in _TABLES)
    if len(found) > 1:
        listed = ", ".join(path.name for path in found)
        raise InputError(f"{folder} has several tables ({listed}); name the one to use with table=.")
    return found[0] if found else None


def _by_folder(folder: Path) -> tuple[list[str], None, Any]:
    pictures = sorted(path for path in folder.rglob("*") if path.suffix.lower() in _PICTURES)
    if not pictures:
        raise InputError(
            f"{folder} holds no image ({', '.join(sorted(_PICTURES))}) and no table ({', '.join(_TABLES)})."
        )
    names = [path.relative_to(folder).as_posix() for path in pictures]
    classes = [path.relative_to(folder).parent.as_posix() for path in pictures]
    return names, None, None if set(classes) == {"."} else [[] if c == "." else [c] for c in classes]


def _by_table(
    folder: Path, path: Path, image: str | None, text: str | None, labels: str | None
) -> tuple[list[str], list[str] | None, Any]:
    rows = read_table(path)
    columns = list(dict.fromkeys(key for _, row in rows for key in row))
    at = {
        role: _column(role, given, columns, path)
        for role, given in (("image", image), ("text", text), ("labels", labels))
    }
    key = at["image"]
    if key is None:
        raise InputError(
            f"{path} has the columns {', '.join(columns)}; none is called {', '.join(_NAMES['image'])}. "
            "Name the column of image files with image=."
        )
    names, texts, classes = [], [], []
    for line, row in rows:
        name = str(row.get(key) or "").strip()
        file = folder / name
        if not name or not file.is_file():
            raise InputError(f"{path}, line {line}: the image {name!r} does not exist in {folder}.")
        names.append(Path(name).as_posix())
        texts.append(_as_text(row.get(at["text"])) if at["text"] else "")
        classes.append(_as_labels(row.get(at["labels"])) if at["labels"] else [])
    twice = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
    if twice:
        raise InputError(f"{path} names {len(twice)} images more than once, such as {sorted(twice)[0]!r}.")
    known: Any = classes if any(classes) else None
    return names, texts if at["text"] else None, known


def _column(role: str, given: str | None, columns: Sequence[str], path: Path) -> str | None:
    if given is not None:
        if given not in columns:
            raise InputError(f"{path} has no column {given!r} for {role}; it has {', '.join(columns)}.")
        return given
    lower = {column.lower(): column for column in columns}
    return next((lower[name] for name in _NAMES[role] if name in lower), None)


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return " ".join(str(v) for v in value) if isinstance(value, (list, tuple)) else str(value)


def _as_labels(value: Any) -> list[str]:
    if value is None:
        return []
    parts = [str(v) for v in value] if isinstance(value, (list, tuple)) else _SEPARATOR.split(str(value))
    return [part.strip() for part in parts if part.strip()]


def read_table(path: str | Path) -> list[tuple[int, dict[str, Any]]]:
    r"""Read a table of records.

    Parameters
    ----------
    path : str or Path
        CSV or TSV (with a header line), JSON, JSON lines or Parquet.

    Returns
    -------
    list of (int, dict)
        Line (or row) number and record.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(f"{folder}/a.csv").write_text("file,caption\na.png,a cat\n")
    ...     read_table(f"{folder}/a.csv")
    [(2, {'file': 'a.png', 'caption': 'a cat'})]
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if not path.is_file():
        raise InputError(f"{path} does not exist; a table ({', '.join(_TABLES)}) is needed.")
    if suffix in (".parquet", ".pq"):
        with open_parquet(path) as file:
            rows = list(enumerate(file.read().to_pylist(), start=1))
    elif suffix in (".csv", ".tsv"):
        rows = _read_csv(path, "\t" if suffix == ".tsv" else ",")
    elif suffix in (".json", ".jsonl", ".ndjson"):
        rows = _read_json(path, lines=suffix != ".json")
    else:
        raise InputError(f"{path} has the ending {suffix!r}; a table is one of {', '.join(_TABLES)}.")
    if not rows:
        raise ModelFormatError(f"{path} has no rows.")
    return rows


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise ModelFormatError(f"{path}, line {line}: not UTF-8. Save the table as UTF-8.") from error


def _read_csv(path: Path, separator: str) -> list[tuple[int, dict[str, Any]]]:
    reader = csv.reader(io.StringIO(_read_text(path), newline=""), delimiter=separator, strict=True)
    header: list[str] | None = None
    out = []
    try:
        for fields in reader:
            if not any(field.strip() for field in fields):
                continue
            if header is None:
                header = [field.strip() for field in fields]
                continue
            if len(fields) != len(header):
                raise ModelFormatError(
                    f"{path}, line {reader.line_num}: {len(fields)} fields where the header has {len(header)}. "
                    "Quote fields that hold the separator."
                )
            out.append((reader.line_num, dict(zip(header, fields, strict=True))))
    except csv.Error as error:
        raise ModelFormatError(f"{path}, line {reader.line_num}: {error}.") from error
    return out


def _read_json(path: Path, *, lines: bool) -> list[tuple[int, dict[str, Any]]]:
    text = _read_text(path)
    try:
        if lines:
            numbered = [(i, json.loads(line)) for i, line in enumerate(text.splitlines(), start=1) if line.strip()]
        else:
            content = json.loads(text)
            if isinstance(content, dict):
                keys = list(content)
                if len({len(content[key]) for key in keys}) > 1:
                    raise ModelFormatError(f"{path}: the columns {', '.join(keys)} have different lengths.")
                content = [dict(zip(keys, values, strict=True)) for values in zip(*content.values(), strict=True)]
            numbered = list(enumerate(content, start=1))
    except json.JSONDecodeError as error:
        raise ModelFormatError(f"{path}, line {error.lineno}: not whole JSON ({error.msg}).") from error
    except TypeError as error:
        raise ModelFormatError(f"{path} must be a list of records or a dict of columns ({error}).") from error
    for i, row in numbered:
        if not isinstance(row, dict):
            raise ModelFormatError(f'{path}, record {i}: a record such as {{"file": ..., "caption": ...}} is needed.')
    return numbered
