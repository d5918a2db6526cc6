"""The file format of a saved model: ``config.json`` + ``model.safetensors``, never pickle.

``model.safetensors`` holds the arrays and, sealed in its header, the configuration; ``config.json`` is the
same configuration for people and tools to read. Each file is written beside its place and moved there in one
step, the sealed one first, so that a crash leaves the old model or the new one, never half of each: where the two
disagree, the sealed one is right and loading says so.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .exceptions import InputError, ModelFormatError

__all__ = [
    "FORMAT_VERSION",
    "atomic_write",
    "flatten",
    "read_folder",
    "remove_with_leftovers",
    "unflatten",
    "write_folder",
    "write_whole",
]

FORMAT_VERSION = 1
CONFIG, TENSORS = "config.json", "model.safetensors"
_SEAL = "modalhash"

_log = logging.getLogger(__name__)


def atomic_write(path: str | os.PathLike[str], content: bytes | Iterable[bytes | memoryview]) -> None:
    """Write a file so that it is either the old one or the new one at any moment.

    Parameters
    ----------
    path : path
    content : bytes, or an iterable of them
        Pieces are written as they come, for files too large to hold in memory twice.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     atomic_write(pathlib.Path(folder) / "a.txt", b"whole")
    ...     (pathlib.Path(folder) / "a.txt").read_bytes()
    b'whole'
    """
    pieces = [content] if isinstance(content, bytes) else content

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            file.writelines(pieces)

    write_whole(path, write)


def write_whole(path: str | os.PathLike[str], write: Callable[[Path], None]) -> Path:
    """Let `write` fill a new file beside `path`, then move it there in one step.

    Parameters
    ----------
    path : path
    write : callable
        Gets the path of the new file, which has the same ending. If it raises, nothing is left behind and an old
        file stays as it was.

    Returns
    -------
    Path
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: the folder {path.parent} does not exist. Make it first.")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=f".tmp{path.suffix}")
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)
    return path


def remove_with_leftovers(path: str | os.PathLike[str]) -> None:
    """Remove a file, and what writers of it left beside it when they were killed.

    Parameters
    ----------
    path : path
        Nothing may be writing it now.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     atomic_write(pathlib.Path(folder) / "a.txt", b"whole")
    ...     remove_with_leftovers(pathlib.Path(folder) / "a.txt")
    ...     list(pathlib.Path(folder).iterdir())
    []
    """
    path = Path(path)
    path.unlink(missing_ok=True)
    for file in path.parent.iterdir():
        if file.name.startswith(f".{path.name}.") and file.name.endswith(f".tmp{path.suffix}"):
            file.unlink(missing_ok=True)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not every file system can sync a folder
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def flatten(state: Mapping[str, Any]) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """Split learned attributes into arrays and what JSON can hold.

    Parameters
    ----------
    state : dict
        Values are arrays, dicts of arrays (keys without "/"), or JSON values.

    Returns
    -------
    tuple of (dict of str to ndarray, dict)
        An array inside a dict is called ``attribute/key``.

    Examples
    --------
    >>> arrays, rest = flatten({"weights_": {"text": np.zeros((2, 1))}, "n_iter_": 3})
    >>> list(arrays), rest
    (['weights_/text'], {'n_iter_': 3, 'weights_': {'/': ['text']}})
    """
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    rest: dict[str, Any] = {}
    for name in sorted(state):
        value = state[name]
        if isinstance(value, np.ndarray):
            arrays[name] = value
        elif isinstance(value, dict) and any(isinstance(v, np.ndarray) for v in value.values()):
            for key, array in value.items():
                arrays[f"{name}/{key}"] = np.asarray(array)
            rest[name] = {"/": list(value)}
        else:
            rest[name] = value
    return arrays, rest


def unflatten(arrays: Mapping[str, Any], rest: Mapping[str, Any]) -> dict[str, Any]:
    """Put together again what :func:`flatten` split.

    Examples
    --------
    >>> unflatten(*flatten({"a_": {"x": np.arange(2)}, "b_": [1]}))
    {'a_': {'x': array([0, 1])}, 'b_': [1]}
    """
    state: dict[str, Any] = {}
    for name, value in rest.items():
        if isinstance(value, dict) and set(value) == {"/"}:
            state[name] = {key: arrays[f"{name}/{key}"] for key in value["/"]}
        else:
            state[name] = value
    state.update({name: value for name, value in arrays.items() if "/" not in name})
    return state


def write_folder(path: str | os.PathLike[str], config: Mapping[str, Any], arrays: Mapping[str, Any]) -> Path:
    """Save a configuration and arrays as a folder.

    Parameters
    ----------
    path : path
        The folder; made if it is not there.
    config : dict
        JSON values; the format version and the arrays' shapes are added.
    arrays : dict of str to ndarray

    Returns
    -------
    Path
        The folder.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = write_folder(folder, {"kind": "test"}, {"a": np.arange(3)})
    ...     config, arrays = read_folder(folder, kind="test")
    >>> arrays["a"].tolist()
    [0, 1, 2]
    """
    from safetensors.numpy import save

    plain = {name: np.ascontiguousarray(value) for name, value in arrays.items()}
    full = {
        "format_version": FORMAT_VERSION,
        **config,
        "tensors": {name: {"dtype": str(a.dtype), "shape": list(a.shape)} for name, a in sorted(plain.items())},
    }
    text = json.dumps(full, indent=2, sort_keys=True, allow_nan=False)
    content = save(plain, metadata={_SEAL: text})
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise ModelFormatError(f"{path} is a file; a model is saved as a folder. Choose another name.")
    path.mkdir(parents=True, exist_ok=True)
    atomic_write(path / TENSORS, content)
    atomic_write(path / CONFIG, (text + "\n").encode())
    return path


def read_folder(path: str | os.PathLike[str], *, kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read what :func:`write_folder` wrote, checking version, kind and shapes.

    Parameters
    ----------
    path : path
    kind : str
        What ``config["kind"]`` must be.

    Returns
    -------
    tuple of (dict, dict of str to ndarray)
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    file = path / TENSORS
    if not file.is_file():
        what = "there is no such folder" if not path.exists() else f"it has no {TENSORS}"
        raise ModelFormatError(f"cannot load a model from {path}: {what}. Pass a folder made by save().")
    try:
        with safe_open(str(file), framework="numpy") as handle:
            sealed = (handle.metadata() or {}).get(_SEAL)
            if sealed is None:
                raise ModelFormatError(f"{file} was not written by modalhash: its header carries no configuration.")
            config = json.loads(sealed)
            _check_version(config, file, kind)
            declared = config.get("tensors", {})
            if set(declared) != set(handle.keys()):
                raise ModelFormatError(f"{file} does not hold the arrays that its header declares. Save it again.")
            arrays = {name: handle.get_tensor(name) for name in declared}
    except (SafetensorError, OSError, ValueError) as error:
        if isinstance(error, ModelFormatError):
            raise
        raise ModelFormatError(
            f"{file} is damaged or truncated ({error}). Restore it or save the model again."
        ) from error
    for name, array in arrays.items():
        if list(array.shape) != declared[name].get("shape") or str(array.dtype) != declared[name].get("dtype"):
            raise ModelFormatError(
                f"array {name!r} in {file} is {array.dtype}{list(array.shape)}; its header declares "
                f"{declared[name].get('dtype')}{declared[name].get('shape')}. Save the model again."
            )
    _compare_readable_copy(path / CONFIG, config)
    return config, arrays


def _check_version(config: Any, file: Path, kind: str) -> None:
    version = config.get("format_version") if isinstance(config, dict) else None
    if version != FORMAT_VERSION:
        raise ModelFormatError(
            f"{file} has format version {version!r}; this modalhash reads version {FORMAT_VERSION}. "
            f"It was written by modalhash {config.get('package_version', '(unknown)')}: use that version, or fit again."
        )
    if config.get("kind") != kind:
        raise ModelFormatError(f"{file} holds {config.get('kind')!r}, not a {kind}.")


def _compare_readable_copy(file: Path, config: dict[str, Any]) -> None:
    try:
        same = json.loads(file.read_text(encoding="utf-8")) == config
    except (OSError, ValueError):
        same = False
    if not same:
        _log.warning(
            "%s is missing or differs from the configuration sealed in %s (an interrupted save, or an edit); "
            "the sealed one is used.",
            file,
            TENSORS,
        )
