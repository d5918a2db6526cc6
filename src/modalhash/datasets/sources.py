"""Where the files of a data set come from, where to look for them, and what to say when they are not there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..exceptions import InputError

__all__ = ["Progress", "SourceFile", "find", "missing_files", "require_folder"]

Progress = Callable[[int, int], object]
"""A hook ``progress(done, total)``."""

_DEPTH = 3


@dataclass(frozen=True)
class SourceFile:
    """One thing that a loader needs on disk.

    Attributes
    ----------
    path : str
        Where it lies in the official layout, below the folder that is passed.
    what : str
    size : str
        How big the original is.
    url : str
        Where to get it.
    optional : bool
    """

    path: str
    what: str
    size: str = ""
    url: str = ""
    optional: bool = field(default=False)

    def __str__(self) -> str:
        about = "; ".join(part for part in (self.what, self.size, self.url, "optional" * self.optional) if part)
        return f"{self.path} ({about})"


def require_folder(source: str | Path | None, name: str, files: Iterable[SourceFile]) -> Path:
    """Check that `source` is a folder, or say which files it should hold.

    Parameters
    ----------
    source : str, Path or None
    name : str
        The data set, for the message.
    files : iterable of SourceFile

    Returns
    -------
    Path
    """
    if source is None:
        raise InputError(f"{name} needs a folder that holds its files:{_listed(files)}")
    folder = Path(source).expanduser()
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise InputError(f"{folder} {what}; {name} needs a folder that holds:{_listed(files)}")
    return folder


def missing_files(folder: Path, name: str, missing: Sequence[str], files: Iterable[SourceFile]) -> InputError:
    """Build the error for files that are not where they should be.

    Parameters
    ----------
    folder : Path
    name : str
    missing : sequence of str
        What was looked for and not found.
    files : iterable of SourceFile

    Returns
    -------
    InputError
    """
    return InputError(
        f"{name}: not found in {folder} or {_DEPTH - 1} folders below it: {', '.join(missing)}. "
        f"The official files are:{_listed(files)}"
    )


def _listed(files: Iterable[SourceFile]) -> str:
    return "".join(f"\n  - {file}" for file in files)


def find(folder: Path, *candidates: str) -> Path | None:
    """Look for a file or folder in `folder` and up to two folders below it.

    Parameters
    ----------
    folder : Path
    *candidates : str
        Relative paths, the best first.

    Returns
    -------
    Path or None

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as root:
    ...     (Path(root) / "a" / "b").mkdir(parents=True)
    ...     find(Path(root), "c", "b").name
    'b'
    """
    for depth in range(_DEPTH):
        for candidate in candidates:
            for found in sorted(folder.glob("*/" * depth + candidate)):
                return found
    return None
