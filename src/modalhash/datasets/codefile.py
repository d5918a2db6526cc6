"""Codes written to a ``.npy`` file by blocks, so that a run that was killed goes on where it stopped.

Until all rows are there, the file has another name (``.NAME.partial``), and beside it ``.NAME.progress`` says how many
rows are safely on disk and of what they were made. What is called ``NAME`` is whole.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..bundle import atomic_write, remove_with_leftovers
from ..exceptions import InputError

__all__ = ["CodeFile"]


class CodeFile:
    """A ``.npy`` file of packed codes in the making.

    Parameters
    ----------
    path : path
        What it will be called.
    shape : tuple of two int
        Rows and bytes per code.
    identity : dict of str to JSON value
        What the codes are made of (model, view, source). An unfinished file of another identity is started anew.
    seconds : float
        Least time between two notes of how far it is; a crash costs as much.

    Attributes
    ----------
    done : int
        Rows that are there already.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with CodeFile(f"{folder}/codes.npy", (3, 1), {"model": "a"}) as file:
    ...         file.write(np.array([[1], [2], [3]], dtype=np.uint8))
    ...         _ = file.finish()
    ...     np.load(f"{folder}/codes.npy").ravel().tolist()
    [1, 2, 3]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        shape: tuple[int, int],
        identity: Mapping[str, Any],
        *,
        seconds: float = 1.0,
    ) -> None:
        self.path, self.shape, self.seconds = Path(path), (int(shape[0]), int(shape[1])), seconds
        if not self.path.parent.is_dir():
            raise InputError(f"cannot write {path}: the folder {self.path.parent} does not exist. Make it first.")
        self.partial = self.path.with_name(f".{self.path.name}.partial")
        self.note = self.path.with_name(f".{self.path.name}.progress")
        self.identity = json.loads(json.dumps({**identity, "shape": list(self.shape)}))
        self.done = self._found()
        if not self.done:
            remove_with_leftovers(self.note)  # first: it must never speak of a file that is no longer there
            array = np.lib.format.open_memmap(self.partial, mode="w+", dtype=np.uint8, shape=self.shape)
            del array  # the file has its header and its full length now
        self._file = self.partial.open("r+b")
        self._start = self.partial.stat().st_size - self.shape[0] * self.shape[1]
        self._noted = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def _found(self) -> int:
        """Rows of an unfinished file of the same identity, or 0."""
        try:
            note = json.loads(self.note.read_text(encoding="utf-8"))
            shape = np.load(self.partial, mmap_mode="r", allow_pickle=False).shape
        except (OSError, ValueError):
            return 0
        same = note.get("identity") == self.identity and shape == self.shape
        done = note.get("done", 0)
        return done if same and isinstance(done, int) and 0 <= done <= self.shape[0] else 0

    def write(self, codes: NDArray[np.uint8]) -> None:
        """Add the next rows.

        Parameters
        ----------
        codes : ndarray of uint8, shape (m, bytes per code)
        """
        if codes.shape[1:] != self.shape[1:] or self.done + len(codes) > self.shape[0]:
            raise InputError(f"{self.path} takes {self.shape} codes and has {self.done}; got {codes.shape} more.")
        self._file.seek(self._start + self.done * self.shape[1])
        self._file.write(np.ascontiguousarray(codes).data)
        self.done += len(codes)
        if time.monotonic() - self._noted >= self.seconds:
            self._sync()

    def _sync(self) -> None:
        """Codes first, then the note that they are there: it never says more than the disk holds."""
        self._file.flush()
        os.fsync(self._file.fileno())
        atomic_write(self.note, json.dumps({"identity": self.identity, "done": self.done}).encode())
        self._noted = time.monotonic()

    def finish(self) -> Path:
        """Give the file its name, once all rows are there.

        Returns
        -------
        Path
        """
        if self.done != self.shape[0]:
            raise InputError(f"{self.path} has {self.done} of {self.shape[0]} codes; it is not finished.")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self.partial, self.path)
        remove_with_leftovers(self.note)
        return self.path
