"""How a :class:`Dataset` lies on disk: one ``.npz`` or Parquet file, written whole or not at all, no pickle."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ..bundle import write_whole
from ..exceptions import InputError, MissingExtraError, ModelFormatError
from ..views import LABELS
from .dataset import Dataset
from .declared import csr_from_parts
from .files import list_arrays, read_array

__all__ = ["load_dataset", "save_dataset"]

FORMAT = "modalhash dataset"
VERSION = 1
META = "modalhash_dataset"


def save_dataset(data: Dataset, path: str | Path, *, compress: bool = False) -> Path:
    """Write a data set; see :meth:`Dataset.save`.

    Parameters
    ----------
    data : Dataset
    path : str or Path
    compress : bool

    Returns
    -------
    Path
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix == ".npz":
        arrays = _to_arrays(data)
        return write_whole(path, lambda target: _write_npz(target, arrays, compress))
    if suffix in (".parquet", ".pq"):
        return _save_parquet(data, path)
    raise InputError(f"a data set is saved as .npz or .parquet; got {path.name!r}.")


def _write_npz(path: Path, arrays: dict[str, Any], compress: bool) -> None:
    """What numpy.savez writes, without its clash of names, and without the time: the same data, the same bytes."""
    kind = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", compression=kind) as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy")
            member.compress_type = kind
            with archive.open(member, "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asanyarray(array), allow_pickle=False)


def load_dataset(path: str | Path) -> Dataset:
    """Read a data set; see :meth:`Dataset.load`.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    Dataset
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix in (".parquet", ".pq"):
        return _load_parquet(path)
    if suffix != ".npz":
        raise InputError(f"a data set is a .npz or .parquet file; got {path.name!r}. For others see load_arrays.")
    found = list_arrays(path)
    if META not in found:
        raise ModelFormatError(f"{path} was not written by Dataset.save; read its arrays with datasets.load_arrays.")
    meta = _parse_meta(read_array(path, META).tobytes(), path)
    try:
        splits = {name: read_array(path, f"split/{name}") for name in meta["splits"]}
        columns = {
            name: _from_blob(read_array(path, f"column/{name}"), read_array(path, f"column_offsets/{name}"), path)
            for name in meta["columns"]
        }
        views = {name: read_array(path, name) for name in meta["views"]}
        labels = read_array(path, LABELS) if meta["labels"] else None
        ids = read_array(path, "ids")
    except InputError as error:
        raise ModelFormatError(f"{path} is not whole: {error}") from error
    return _assemble(meta, path, views=views, labels=labels, ids=ids, splits=splits, columns=columns)


def _meta(data: Dataset) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": data.name,
        "views": list(data.views),
        "labels": data.labels is not None,
        "label_names": data.label_names,
        "splits": list(data.splits),
        "split_hash": data.split_hash,
        "columns": list(data.columns),
        "feature_names": data.feature_names,
        "provenance": _json_ready(data.provenance),
        "sha256": data.checksums(),
    }


def _json_ready(value: Any) -> Any:
    """Turn NumPy numbers and paths inside `value` into plain JSON values."""
    if isinstance(value, Mapping):
        return {str(k): _json_ready(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, np.ndarray)):
        return [_json_ready(v) for v in value]
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, Path) else value


def _parse_meta(raw: bytes, path: Path) -> dict[str, Any]:
    try:
        meta = json.loads(raw.decode("utf-8"))
        known = meta["format"] == FORMAT
        version = meta["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise ModelFormatError(f"{path} has a damaged description ({error}). Write it again.") from error
    if not known or version != VERSION:
        raise ModelFormatError(
            f"{path} is version {version!r} of the data format; this modalhash reads version {VERSION}. "
            "Prepare the data again, or update modalhash."
        )
    missing = {"views", "labels", "label_names", "splits", "columns", "feature_names", "sha256"} - set(meta)
    if missing:
        raise ModelFormatError(f"{path} has a damaged description: {', '.join(sorted(missing))} missing.")
    return dict(meta)


def _assemble(meta: dict[str, Any], path: Path, **parts: Any) -> Dataset:
    try:
        data = Dataset(
            label_names=meta["label_names"] if parts["labels"] is not None else [],
            provenance=meta.get("provenance", {}),
            feature_names=meta["feature_names"],
            name=meta.get("name", "data"),
            **parts,
        )
    except InputError as error:
        raise ModelFormatError(f"{path} is damaged: {error}") from error
    for name, digest in data.checksums().items():
        if digest != meta["sha256"].get(name):
            raise ModelFormatError(f"{path}: {name!r} differs from its recorded checksum. Get or prepare it again.")
    return data


def _to_arrays(data: Dataset) -> dict[str, Any]:
    arrays: dict[str, Any] = {META: np.frombuffer(json.dumps(_meta(data)).encode(), dtype=np.uint8)}
    matrices = dict(data.views)
    if data.labels is not None:
        matrices[LABELS] = data.labels
        arrays["label_names"] = np.array([str(name) for name in data.label_names])
    for name, X in matrices.items():
        parts = {name: X}
        if sparse.issparse(X):
            split = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape)}
            parts = {f"{name}_{part}": value for part, value in split.items()}
        taken = [part for part in parts if part in arrays or part == "ids"]
        if taken:
            raise InputError(
                f"view {name!r} cannot be saved beside the others: two arrays would be called {taken[0]!r}."
            )
        arrays.update(parts)
    arrays["ids"] = data.ids
    arrays.update({f"split/{name}": rows for name, rows in data.splits.items()})
    for name, values in data.columns.items():
        arrays[f"column/{name}"], arrays[f"column_offsets/{name}"] = _to_blob(values)
    return arrays


def _to_blob(values: list[str]) -> tuple[Any, Any]:
    """Strings as one UTF-8 byte array and n + 1 offsets."""
    encoded = [value.encode("utf-8", "surrogatepass") for value in values]
    offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
    np.cumsum([len(e) for e in encoded], out=offsets[1:])
    return np.frombuffer(b"".join(encoded), dtype=np.uint8), offsets


def _from_blob(blob: Any, offsets: Any, path: Path) -> list[str]:
    raw = blob.tobytes()
    try:
        bounds = list(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))
        return [raw[a:b].decode("utf-8", "surrogatepass") for a, b in bounds]
    except (ValueError, TypeError) as error:
        raise ModelFormatError(f"{path} has a damaged column of strings ({error}).") from error


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "features") from error
    return pyarrow


def _save_parquet(data: Dataset, path: Path) -> Path:
    """One row per item: a dense view is a column of lists; a sparse one is two, `.indices` and `.values`."""
    pa = _arrow()
    columns: dict[str, Any] = {"ids": pa.array(data.ids.tolist())}
    matrices = dict(data.views) | ({} if data.labels is None else {LABELS: data.labels})
    for name, X in matrices.items():
        if sparse.issparse(X):
            offsets = pa.array(X.indptr.astype(np.int64))
            columns[f"{name}.indices"] = pa.LargeListArray.from_arrays(offsets, pa.array(X.indices.astype(np.int32)))
            columns[f"{name}.values"] = pa.LargeListArray.from_arrays(offsets, pa.array(X.data))
        else:
            flat = pa.array(np.ascontiguousarray(X).ravel())
            columns[name] = pa.FixedSizeListArray.from_arrays(flat, X.shape[1])
    for name, rows in data.splits.items():
        member = np.zeros(len(data), dtype=np.bool_)
        member[rows] = True
        columns[f"split/{name}"] = pa.array(member)
    columns.update({f"column/{name}": pa.array(values) for name, values in data.columns.items()})
    widths = {name: list(map(int, X.shape)) for name, X in matrices.items() if sparse.issparse(X)}
    meta = {**_meta(data), "sparse": widths}
    table = pa.table(columns).replace_schema_metadata({META: json.dumps(meta)})
    return write_whole(path, lambda target: pa.parquet.write_table(table, target, compression="zstd"))


def _load_parquet(path: Path) -> Dataset:
    pa = _arrow()
    if not path.is_file():
        raise InputError(f"{path} does not exist; a data set written by Dataset.save is needed.")
    try:
        file = pa.parquet.ParquetFile(path)
        raw = (file.schema_arrow.metadata or {}).get(META.encode())
        if raw is None:
            raise ModelFormatError(f"{path} was not written by Dataset.save; read its arrays with load_arrays.")
        meta = _parse_meta(raw, path)
        table = file.read()
    except (pa.ArrowException, OSError) as error:
        raise ModelFormatError(f"{path} is not a whole Parquet file ({error}). Write it again.") from error

    def matrix(name: str) -> Any:
        if name in meta.get("sparse", {}):
            indices = table.column(f"{name}.indices").combine_chunks()
            values = table.column(f"{name}.values").combine_chunks()
            offsets = indices.offsets.to_numpy() - indices.offsets[0].as_py()
            return csr_from_parts(
                values.flatten().to_numpy(zero_copy_only=False),
                indices.flatten().to_numpy(zero_copy_only=False),
                offsets,
                meta["sparse"][name],
                where=f"{path}:{name}",
            )
        column = table.column(name).combine_chunks()
        return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), column.type.list_size)

    try:
        views = {name: matrix(name) for name in meta["views"]}
        labels = matrix(LABELS) if meta["labels"] else None
        ids = np.array(table.column("ids").to_pylist())
        splits = {name: np.flatnonzero(table.column(f"split/{name}").to_numpy()) for name in meta["splits"]}
        columns = {name: table.column(f"column/{name}").to_pylist() for name in meta["columns"]}
    except KeyError as error:
        raise ModelFormatError(f"{path} is not whole: column {error} is missing.") from error
    return _assemble(meta, path, views=views, labels=labels, ids=ids, splits=splits, columns=columns)
