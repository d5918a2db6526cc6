"""The file of an index: one safetensors file, mapped into memory when read, replaced in one step when written.

The header carries, sealed by a SHA-256 of its own, the format version, the parameters and, for every array, its type,
shape and SHA-256. Arrays begin at multiples of 64 bytes, so that they are used where they lie.
Any safetensors reader can open the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..bundle import atomic_write
from ..exceptions import ModelFormatError

__all__ = ["FILE", "FORMAT_VERSION", "read_index", "write_index"]

FORMAT_VERSION = 1
FILE = "index.safetensors"
_SEAL, _SUM = "modalhash", "sha256"
_TYPES = {"U8": np.uint8, "U32": np.uint32, "U64": np.uint64, "I64": np.int64}
_ALIGN = 64
_PIECE = 1 << 24
_MAX_HEADER = 100 << 20
_STALE_SECONDS = 3600.0


def _pieces(array: NDArray[Any]) -> Iterator[memoryview]:
    # The bytes of an array, in pieces. A part of a wider buffer is copied one row at a time.
    for row in array if array.ndim == 2 else [array]:
        data = np.ascontiguousarray(row, dtype=row.dtype.newbyteorder("<")).view(np.uint8).data
        for start in range(0, len(data), _PIECE):
            yield data[start : start + _PIECE]


def _digest(array: NDArray[Any]) -> str:
    total = hashlib.sha256()
    for piece in _pieces(array):
        total.update(piece)
    return total.hexdigest()


def write_index(path: str | os.PathLike[str], config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Path:
    """Write arrays and parameters as the folder `path`.

    Parameters
    ----------
    path : path
        A folder; made if it is not there. What it holds stays whole until the new file takes its place.
    config : dict
        JSON values.
    arrays : dict of str to ndarray
        Of uint8, uint32, uint64 or int64; one or two axes.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = write_index(folder, {"n_bits": 8}, {"ids": np.arange(3)})
    ...     config, arrays = read_index(folder)
    >>> config["n_bits"], arrays["ids"].tolist()
    (8, [0, 1, 2])
    """
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise ModelFormatError(f"{path} is a file; an index is saved as a folder. Choose another name.")
    path.mkdir(parents=True, exist_ok=True)
    names = {np.dtype(kind): name for name, kind in _TYPES.items()}
    declared = {
        name: {"dtype": names[array.dtype], "shape": list(array.shape), _SUM: _digest(array)}
        for name, array in arrays.items()
    }
    text = json.dumps({**config, "format_version": FORMAT_VERSION, "arrays": declared}, sort_keys=True)
    header: dict[str, Any] = {"__metadata__": {_SEAL: text, _SUM: hashlib.sha256(text.encode()).hexdigest()}}
    position, gaps = 0, 0
    layout: list[NDArray[Any]] = []
    for name, array in arrays.items():
        header[name] = {
            "dtype": declared[name]["dtype"],
            "shape": declared[name]["shape"],
            "data_offsets": [position, position + array.nbytes],
        }
        layout.append(array)
        position += array.nbytes
        gap = -position % _ALIGN
        if gap:  # safetensors allows no holes: name what fills them
            header[f"_gap{gaps}"] = {"dtype": "U8", "shape": [gap], "data_offsets": [position, position + gap]}
            layout.append(np.zeros(gap, np.uint8))
            position, gaps = position + gap, gaps + 1
    encoded = json.dumps(header).encode()
    encoded += b" " * (-(8 + len(encoded)) % _ALIGN)

    def content() -> Iterator[bytes | memoryview]:
        yield len(encoded).to_bytes(8, "little") + encoded
        for array in layout:
            yield from _pieces(array)

    _remove_stale(path)
    atomic_write(path / FILE, content())
    return path / FILE


def _remove_stale(folder: Path) -> None:
    # What a killed save left behind. A save that is still writing keeps its file fresh.
    for left in folder.glob(f".{FILE}.*.tmp*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                left.unlink()


def read_index(path: str | os.PathLike[str], *, verify: bool = True) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Map what :func:`write_index` wrote.

    Parameters
    ----------
    path : path
    verify : bool
        Compare every array with its checksum, which reads the file once. The header is always checked.

    Returns
    -------
    tuple of (dict, dict of str to ndarray)
        The arrays lie in the file; writing to them changes a private copy, never the file.
    """
    file = Path(path) / FILE
    if not file.is_file():
        what = "there is no such folder" if not Path(path).exists() else f"it has no {FILE}"
        raise ModelFormatError(f"cannot load an index from {path}: {what}. Pass a folder made by save().")
    try:
        config, offsets, begin = _read_header(file)
        size = file.stat().st_size
        data = np.memmap(file, dtype=np.uint8, mode="c") if size else np.empty(0, np.uint8)
        arrays = {}
        for name, declared in config["arrays"].items():
            kind, shape = _TYPES[declared["dtype"]], tuple(int(s) for s in declared["shape"])
            start, end = (begin + int(x) for x in offsets[name])
            expected = int(np.prod(shape, dtype=object)) * np.dtype(kind).itemsize
            if min(shape, default=0) < 0 or start < begin or start % _ALIGN or end - start != expected or end > size:
                raise ModelFormatError(f"array {name!r} does not lie where the header says; the file is cut short")
            arrays[name] = np.asarray(data[start:end]).view(np.dtype(kind).newbyteorder("<")).reshape(shape)
            if (verify or name == "structure") and _digest(arrays[name]) != declared[_SUM]:
                raise ModelFormatError(f"the checksum of array {name!r} does not match")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelFormatError(f"{file} cannot be used: {error}. Restore it or build the index again.") from error
    return config, arrays


def _read_header(file: Path) -> tuple[dict[str, Any], dict[str, list[int]], int]:
    # The sealed configuration, where each array lies, and where the data begin.
    with file.open("rb") as handle:
        length = int.from_bytes(handle.read(8), "little")
        if not 2 <= length <= min(_MAX_HEADER, file.stat().st_size - 8):
            raise ModelFormatError("it has no header; it is damaged, cut short or not an index")
        header = json.loads(handle.read(length))
    sealed = header["__metadata__"]
    if hashlib.sha256(sealed[_SEAL].encode()).hexdigest() != sealed[_SUM]:
        raise ModelFormatError("the checksum of the header does not match")
    config = json.loads(sealed[_SEAL])
    if config["format_version"] != FORMAT_VERSION:
        raise ModelFormatError(
            f"it has format version {config['format_version']!r}; this modalhash reads version {FORMAT_VERSION}"
        )
    for name, declared in config["arrays"].items():
        if any(header[name][key] != declared[key] for key in ("dtype", "shape")):
            raise ModelFormatError(f"its header contradicts itself about array {name!r}")
    return config, {name: header[name]["data_offsets"] for name in config["arrays"]}, 8 + length
