"""Read big matrices of numbers written as text, block by block, naming the file and line of whatever is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..exceptions import InputError, ModelFormatError

__all__ = ["read_lines", "read_text_matrix"]

_BLOCK = 8 * 2**20
_DIGITS = 9  # the longest whole number read by the fast path
_BOM = b"\xef\xbb\xbf"

Progress = Callable[[int, int], object]


def read_lines(path: str | Path) -> list[str]:
    r"""Read the non-blank lines of a small text file, stripped; UTF-8 with or without a BOM, any line ends.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    list of str
        Bytes that are not UTF-8 are read as Latin-1, so that nothing is lost.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(f"{folder}/a.txt").write_bytes(_BOM + "sky\r\n\r\n北京\r\n".encode())
    ...     read_lines(f"{folder}/a.txt")
    ['sky', '北京']
    """
    raw = Path(path).read_bytes().removeprefix(_BOM)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    return [line for line in (part.strip() for part in text.splitlines()) if line]


def read_text_matrix(
    path: str | Path,
    *,
    n_columns: int | None = None,
    n_rows: int | None = None,
    as_sparse: bool = False,
    dtype: Any = np.float32,
    progress: Progress | None = None,
) -> Any:
    r"""Read a matrix of numbers separated by spaces, tabs or commas, one row a line.

    Parameters
    ----------
    path : str or Path
    n_columns : int, optional
        Numbers that each line must have; by default as many as the first.
    n_rows : int, optional
        Rows that the file must have.
    as_sparse : bool
        Keep only what is not zero (CSR); memory then grows with the non-zeros alone.
    dtype : numpy dtype
        Of the result. A number that it cannot hold is an error.
    progress : callable, optional
        ``progress(done, total)`` in bytes.

    Returns
    -------
    ndarray or CSR matrix of shape (n, n_columns)
        Blank lines, a BOM, and any line ends are passed over.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(f"{folder}/a.txt").write_text("0 12\n\n7 0\n")
    ...     read_text_matrix(f"{folder}/a.txt").tolist()
    [[0.0, 12.0], [7.0, 0.0]]
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} does not exist; a matrix of numbers as text is needed.")
    kind = np.dtype(dtype)
    blocks: list[Any] = []
    total = path.stat().st_size
    width, found, line = n_columns, 0, 1
    for raw, done in _whole_lines(path):
        values, lines, width = _parse(raw, path, line, width)
        line += raw.count(b"\n")
        found += values.shape[0]
        if n_rows is not None and found > n_rows:
            raise ModelFormatError(
                f"{path}, line {lines[len(lines) - (found - n_rows)]}: more than the {n_rows} rows it should have."
            )
        if values.shape[0]:
            _check_range(values, kind, path, lines)
            blocks.append(sparse.csr_array(values.astype(kind)) if as_sparse else values.astype(kind))
        if progress is not None:
            progress(done, total)
    if not blocks:
        raise ModelFormatError(f"{path} is empty; a matrix of numbers as text is needed.")
    if n_rows is not None and found != n_rows:
        raise ModelFormatError(
            f"{path}, line {line}: the file ends after {found} rows; it should have {n_rows}. "
            "It is truncated; get it again."
        )
    if as_sparse:
        return blocks[0] if len(blocks) == 1 else sparse.vstack(blocks, format="csr")
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)


def _whole_lines(path: Path) -> Iterator[tuple[bytes, int]]:
    """Blocks of whole lines, and how many bytes of the file were read so far."""
    rest = b""
    with path.open("rb") as stream:
        if stream.read(len(_BOM)) != _BOM:
            stream.seek(0)
        while block := stream.read(_BLOCK):
            cut = block.rfind(b"\n") + 1
            if cut:
                yield rest + block[:cut], stream.tell()
                rest = block[cut:]
            else:
                rest += block
    if rest:
        yield rest + b"\n", path.stat().st_size


def _parse(raw: bytes, path: Path, first_line: int, width: int | None) -> tuple[Any, Any, int | None]:
    """Values (rows, width), the line number of each row, and the width."""
    data = np.frombuffer(raw, dtype=np.uint8)
    token = data > 32
    if b"," in raw:
        token &= data != 44
    starts = token.copy()
    starts[1:] &= ~token[:-1]
    at = np.flatnonzero(starts)
    ends_of_lines = np.flatnonzero(data == 10)
    # tokens before the end of each line, hence tokens on each line
    per_line = np.diff(np.searchsorted(at, ends_of_lines), prepend=0)
    filled = np.flatnonzero(per_line)
    lines = first_line + filled
    if filled.size == 0:
        return np.zeros((0, width or 0)), lines, width
    counts = per_line[filled]
    if width is None:
        width = int(counts[0])
    wrong = np.flatnonzero(counts != width)
    if wrong.size:
        raise ModelFormatError(
            f"{path}, line {lines[wrong[0]]}: {counts[wrong[0]]} numbers where {width} are needed. "
            "The file is truncated or damaged; get it again."
        )
    digits = data[token]
    if digits.min() >= 48 and digits.max() <= 57:
        if len(digits) == len(at):  # nothing but single digits
            return (digits - 48).reshape(-1, width), lines, width
        values = _whole_numbers(data, token, at)
        if values is not None:
            return values.reshape(-1, width), lines, width
    return _any_numbers(raw, path, lines, width), lines, width


def _whole_numbers(data: NDArray[np.uint8], token: NDArray[np.bool_], at: NDArray[np.intp]) -> Any:
    """Numbers of several digits each; None when one is too long for this."""
    stops = token.copy()
    stops[:-1] &= ~token[1:]
    length = np.flatnonzero(stops) - at + 1
    longest = int(length.max())
    if longest > _DIGITS:
        return None
    values = data[at].astype(np.int32) - 48
    for k in range(1, longest):
        more = np.flatnonzero(length > k)
        values[more] = values[more] * 10 + (data[at[more] + k].astype(np.int32) - 48)
    return values


def _any_numbers(raw: bytes, path: Path, lines: Any, width: int) -> NDArray[np.float64]:
    tokens = raw.replace(b",", b" ").split()
    try:
        values = np.array(tokens, dtype="S").astype(np.float64)
    except ValueError:
        for i, word in enumerate(tokens):
            try:
                float(word)
            except ValueError:
                shown = word[:20].decode("latin-1")
                raise ModelFormatError(
                    f"{path}, line {lines[i // width]}: {shown!r} is not a number. The file is damaged or mislabelled."
                ) from None
        raise
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise ModelFormatError(f"{path}, line {lines[bad[0] // width]}: a number is not finite.")
    return values.reshape(-1, width)


def _check_range(values: Any, kind: np.dtype[Any], path: Path, lines: Any) -> None:
    if kind.kind == "f":
        return
    limits = np.iinfo(kind) if kind.kind in "iu" else None
    low, high = (0, 1) if limits is None else (limits.min, limits.max)
    bad = (values < low) | (values > high)
    if values.dtype.kind == "f":
        bad |= values != np.floor(values)
    if bad.any():
        row, column = (int(i[0]) for i in np.nonzero(bad))
        raise ModelFormatError(
            f"{path}, line {lines[row]}: {values[row, column]} where whole numbers from {low} to {high} are needed."
        )
