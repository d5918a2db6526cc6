"""fit and encode on files that are larger than memory: views stay on disk and are read by blocks of rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..exceptions import InputError
from .console import emit, parse_assignments, progress, say

if TYPE_CHECKING:
    from ..datasets.rowsource import RowSource

__all__ = ["encode_by_blocks", "sources", "streamed_data"]

_ENDINGS = (".npy", ".parquet", ".pq", ".zarr")


def sources(data: Path | None, view: list[str], names: list[str] | None = None) -> dict[str, RowSource] | None:
    """The views as row sources, where each has a file that can be read by rows; None where one has not.

    Parameters
    ----------
    data : Path or None
        One file that is a view.
    view : list of str
        ``NAME=FILE[:KEY]``.
    names : list of str, optional
        What the view of `data` may be called, the first unless a column has one of these names.
    """
    from ..datasets.arrays import is_saved, parse_reference
    from ..datasets.rowsource import open_rows

    if data is None:
        chosen = {name: parse_reference(reference) for name, reference in parse_assignments(view, "--view").items()}
        if not chosen or any(path.suffix.lower() not in _ENDINGS for path, _ in chosen.values()):
            return None
        return {name: open_rows(path, key) for name, (path, key) in chosen.items()}
    suffix = data.suffix.lower()
    if view or not names or suffix not in _ENDINGS or not data.exists():
        return None
    if suffix in (".npy", ".zarr"):
        return {names[0]: open_rows(data)} if len(names) == 1 else None
    if is_saved(data):
        return None
    from ..datasets import list_arrays

    held = list_arrays(data)
    return {name: open_rows(data, name if name in held else None) for name in names if name in held or "" in held}


def streamed_data(view: list[str], labels: str | None) -> tuple[dict[str, RowSource], Any] | None:
    """Views on disk and labels in memory for a method that streams; None where the files cannot be streamed."""
    from ..datasets.arrays import parse_reference
    from ..datasets.files import read_array

    found = sources(None, view)
    if found is None:
        return None
    array = None if labels is None else read_array(*parse_reference(labels))
    if array is not None and array.ndim == 2 and 1 in array.shape and max(array.shape) > 1:
        array = array.ravel()
    return found, array


def encode_by_blocks(model: Path, name: str, source: RowSource, output: Path, *, as_json: bool, quiet: bool) -> None:
    """Encode a view on disk into a ``.npy`` file, resuming a run that was killed."""
    import hashlib

    from ..base import load
    from ..bundle import TENSORS
    from ..codes import n_bytes
    from ..datasets.codefile import CodeFile

    hasher = load(model)
    seal = hashlib.sha256((model / TENSORS).read_bytes()).hexdigest()
    identity = {"model": seal, "view": name, "source": source.identity()}
    n = source.shape[0]
    with (
        CodeFile(output, (n, n_bytes(hasher.n_bits)), identity) as file,
        progress(f"encoding {name}", quiet=quiet) as update,
    ):
        if file.done and not quiet:
            say(f"modalhash: {file.done} of {n} rows were encoded already; going on from there.")
        resumed = file.done
        blocks = hasher.encode_blocks(name, source, start=file.done)
        next(blocks)
        for _, codes in blocks:
            file.write(codes)
            update(file.done, n)
        file.finish()
    summary = {
        "codes": str(output),
        "view": name,
        "rows": n,
        "n_bits": hasher.n_bits,
        "which_rows": "all rows",
        "resumed_at": resumed,
    }
    if not quiet or as_json:
        emit(summary, as_json=as_json, text=f"{n} codes of {hasher.n_bits} bits ({name}, all rows) in {output}")


def choose(found: dict[str, RowSource], use: str | None, views: list[str]) -> str:
    """Which of the views found to encode."""
    if use is None:
        shared = [name for name in views if name in found]
        if len(shared) != 1:
            raise InputError(f"say which view to encode with --use; the model has {', '.join(views)}.")
        return shared[0]
    if use not in found:
        raise InputError(f"the data has no view {use!r}; it has {', '.join(found)}.")
    return use
