"""Codes of many items as a folder: Parquet files of ids and packed codes, and a manifest that is written last.

A file ``part-00042.parquet`` has the columns ``id`` (int64 or string) and ``code`` (a packed code, fixed-size binary).
Its footer says which model, view and rows it was made of, and a checksum of its content; it is written under another
name and moved into place, so that a part that is there is whole. ``manifest.json`` lists the parts in order. A folder
without it is unfinished and is not read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..bundle import atomic_write, write_whole
from ..codes import Codes, check_codes, n_bytes
from ..exceptions import InputError, MissingExtraError, ModelFormatError

__all__ = ["MANIFEST", "checked_part", "read_codes", "read_manifest", "write_manifest", "write_part"]

MANIFEST = "manifest.json"
FORMAT = "modalhash codes"
VERSION = 1
_FOOTER = b"modalhash_codes"
_BATCH = 262_144


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "dask") from error
    return pyarrow


class _Digest:
    """SHA-256 of ids and codes, whatever batches they come in."""

    def __init__(self) -> None:
        self._ids, self._codes, self.rows = hashlib.sha256(), hashlib.sha256(), 0

    def update(self, ids: Any, codes: Codes) -> None:
        if ids.dtype.kind == "i":
            self._ids.update(np.ascontiguousarray(ids, dtype="<i8").data)
        else:
            self._ids.update("".join(f"{text}\n" for text in ids.tolist()).encode())
        self._codes.update(np.ascontiguousarray(codes).data)
        self.rows += len(ids)

    def hexdigest(self) -> str:
        return hashlib.sha256(self._ids.digest() + self._codes.digest()).hexdigest()


def write_part(
    path: Path, batches: Iterable[tuple[Any, Codes]], n_bits: int, identity: Mapping[str, Any]
) -> dict[str, Any]:
    """Write one part, whole or not at all.

    Parameters
    ----------
    path : Path
    batches : iterable of (ids, codes)
        Ids of whole numbers or strings, shape (m,), and packed codes (m, n_bytes); written as they come.
    n_bits : int
    identity : dict of str to JSON value
        What it is made of, kept in the footer.

    Returns
    -------
    dict
        ``file``, ``rows`` and ``sha256`` of its content.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     batch = np.arange(2), np.array([[1], [2]], dtype=np.uint8)
    ...     part = write_part(Path(folder, "part-00000.parquet"), [batch], 8, {})
    >>> part["file"], part["rows"]
    ('part-00000.parquet', 2)
    """
    pa = _arrow()
    digest = _Digest()

    def write(temporary: Path) -> None:
        writer = None
        try:
            for ids, codes in batches:
                codes = check_codes(codes, n_bits)
                ids = np.asarray(ids)
                ids = ids.astype(np.int64) if ids.dtype.kind in "iu" else ids.astype(np.str_)
                digest.update(ids, codes)
                table = _table(pa, ids, codes)
                if writer is None:
                    whole = ids.dtype.kind == "i"
                    writer = pa.parquet.ParquetWriter(
                        temporary,
                        table.schema,
                        compression="zstd",
                        use_dictionary=False,
                        column_encoding={"id": "DELTA_BINARY_PACKED"} if whole else None,
                    )
                writer.write_table(table)
            if writer is None:
                raise InputError(f"there are no rows to write to {path}.")
            seal = {"format": FORMAT, "version": VERSION, "n_bits": n_bits, **_summary(path, digest)}
            writer.add_key_value_metadata({_FOOTER: json.dumps({**seal, "identity": dict(identity)})})
        finally:
            if writer is not None:
                writer.close()

    write_whole(path, write)
    return _summary(path, digest)


def _table(pa: Any, ids: Any, codes: Codes) -> Any:
    kind = pa.binary(codes.shape[1])
    column = pa.FixedSizeBinaryArray.from_buffers(kind, len(codes), [None, pa.py_buffer(codes)])
    return pa.table({"id": pa.array(ids), "code": column})


def _summary(path: Path, digest: _Digest) -> dict[str, Any]:
    return {"file": path.name, "rows": digest.rows, "sha256": digest.hexdigest()}


def _batches(file: Any, width: int) -> Iterator[tuple[Any, Codes]]:
    for batch in file.iter_batches(batch_size=_BATCH, columns=["id", "code"]):
        ids = batch.column(0)
        column = batch.column(1)
        if column.type.byte_width != width or column.null_count or ids.null_count:
            raise ModelFormatError(f"its codes are not {width} bytes each")
        raw = np.frombuffer(column.buffers()[1], dtype=np.uint8)
        codes = raw[column.offset * width : (column.offset + len(column)) * width].reshape(-1, width)
        yield ids.to_numpy(zero_copy_only=False), codes


def _read_part(path: Path) -> Iterator[Any]:
    """The footer first, then (ids, codes) batch by batch; at the end the checksum is compared."""
    pa = _arrow()
    try:
        with pa.parquet.ParquetFile(path) as file:
            seal = json.loads((file.metadata.metadata or {})[_FOOTER])
            if seal["format"] != FORMAT or seal["version"] != VERSION:
                raise ModelFormatError(f"it is version {seal['version']!r}; this modalhash reads {VERSION}")
            yield seal
            digest = _Digest()
            for ids, codes in _batches(file, n_bytes(int(seal["n_bits"]))):
                ids = ids if ids.dtype.kind == "i" else ids.astype(np.str_)
                digest.update(ids, codes)
                yield ids, codes
            if digest.rows != seal["rows"] or digest.hexdigest() != seal["sha256"]:
                raise ModelFormatError("its content differs from its checksum")
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise ModelFormatError(f"{path} is not a whole file of codes ({error}). Encode it again.") from error


def checked_part(path: Path, n_bits: int, identity: Mapping[str, Any]) -> dict[str, Any] | None:
    """What :func:`write_part` returned for this file, if it is there, whole, and made of `identity`; else None.

    Parameters
    ----------
    path : Path
    n_bits : int
    identity : dict of str to JSON value

    Returns
    -------
    dict or None
    """
    if not path.is_file():
        return None
    content = _read_part(path)
    try:
        seal = next(content)
        if seal["n_bits"] != n_bits or seal.get("identity") != json.loads(json.dumps(dict(identity))):
            return None
        for _ in content:
            pass
    except ModelFormatError:
        return None
    finally:
        content.close()  # type: ignore[attr-defined]
    return {"file": path.name, "rows": seal["rows"], "sha256": seal["sha256"]}


def write_manifest(folder: Path, parts: Sequence[Mapping[str, Any]], n_bits: int, about: Mapping[str, Any]) -> Path:
    """Declare the folder whole; the last thing to be written.

    Parameters
    ----------
    folder : Path
    parts : sequence of dict
        What :func:`write_part` returned, in order.
    n_bits : int
    about : dict of str to JSON value
        Model, view and source, for people and for a later run.

    Returns
    -------
    Path
    """
    content = {
        "format": FORMAT,
        "version": VERSION,
        "n_bits": int(n_bits),
        "rows": sum(int(part["rows"]) for part in parts),
        **about,
        "parts": [dict(part) for part in parts],
    }
    atomic_write(folder / MANIFEST, (json.dumps(content, indent=2) + "\n").encode())
    return folder / MANIFEST


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """The manifest of a finished folder.

    Parameters
    ----------
    folder : path

    Returns
    -------
    dict
        ``n_bits``, ``rows``, ``view``, ``model`` and ``parts``, among others.
    """
    file = Path(folder) / MANIFEST
    if not file.is_file():
        raise ModelFormatError(
            f"{folder} has no {MANIFEST}: no codes were written there, or not all. Run the same encode again to finish."
        )
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if content["format"] != FORMAT or content["version"] != VERSION:
            raise ModelFormatError(f"version {content['version']!r}; this modalhash reads {VERSION}")
        n_bytes(content["n_bits"])
        for part in content["parts"]:
            if Path(part["file"]).name != part["file"] or part["rows"] < 0:
                raise ModelFormatError(f"{part['file']} lies outside the folder")
        return dict(content)
    except (ValueError, KeyError, TypeError) as error:
        raise ModelFormatError(f"{file} is damaged ({error}). Encode again.") from error


def read_codes(folder: str | Path) -> Iterator[tuple[Any, Codes]]:
    """Ids and codes of a finished folder, batch by batch, every checksum compared.

    Parameters
    ----------
    folder : path

    Yields
    ------
    tuple of (ndarray of int64 or str, shape (m,), ndarray of uint8, shape (m, n_bytes))
        At most 262,144 rows at a time, in the order of the rows encoded.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     codes = np.array([[1], [2]], np.uint8)
    ...     part = write_part(Path(folder, "part-00000.parquet"), [(np.array([7, 9]), codes)], 8, {})
    ...     _ = write_manifest(Path(folder), [part], 8, {"view": "image"})
    ...     [(ids.tolist(), codes.ravel().tolist()) for ids, codes in read_codes(folder)]
    [([7, 9], [1, 2])]
    """
    manifest = read_manifest(folder)
    for part in manifest["parts"]:
        path = Path(folder) / part["file"]
        content = _read_part(path)
        seal = next(content)
        if seal["sha256"] != part["sha256"] or seal["n_bits"] != manifest["n_bits"]:
            raise ModelFormatError(f"{path} is not the part that {MANIFEST} lists. Encode it again.")
        yield from content
