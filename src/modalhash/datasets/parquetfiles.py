"""Read matrices from Parquet files: the numeric columns, or one column of lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..exceptions import InputError, MissingExtraError, ModelFormatError
from .declared import check_size

__all__ = ["list_arrays", "open_parquet", "read"]


def open_parquet(path: Path) -> Any:
    """Open a Parquet file, or say why it cannot be opened.

    Parameters
    ----------
    path : Path

    Returns
    -------
    pyarrow.parquet.ParquetFile
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "features") from error
    try:
        return pyarrow.parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise ModelFormatError(f"{path} is not a whole Parquet file ({error}). Get or write it again.") from error


def _columns(file: Any) -> tuple[list[str], dict[str, int]]:
    """The numeric columns, and the columns of fixed-size lists of numbers with their widths."""
    import pyarrow.types as kinds

    def is_number(kind: Any) -> bool:
        return bool(kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind))

    numeric, lists = [], {}
    for column in file.schema_arrow:
        if kinds.is_fixed_size_list(column.type) and is_number(column.type.value_type):
            lists[column.name] = int(column.type.list_size)
        elif is_number(column.type):
            numeric.append(column.name)
    return numeric, lists


def list_arrays(path: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of the matrix of numeric columns, named "", and of each column of lists.

    Parameters
    ----------
    path : Path

    Returns
    -------
    dict of str to tuple of int
    """
    with open_parquet(path) as file:
        numeric, lists = _columns(file)
        n = int(file.metadata.num_rows)
    whole: dict[str, tuple[int, ...]] = {"": (n, len(numeric))} if numeric else {}
    return {**whole, **{name: (n, width) for name, width in lists.items()}}


def read(path: Path, key: str) -> Any:
    """Read the numeric columns (`key` is ""), one of them, or one column of lists.

    Parameters
    ----------
    path : Path
    key : str

    Returns
    -------
    ndarray of shape (n, d)
    """
    with open_parquet(path) as file:
        numeric, lists = _columns(file)
        n = file.metadata.num_rows
        names = [key] if key in lists or key in numeric else numeric if key == "" else []
        if not names:
            others = [name for name in file.schema_arrow.names if name not in numeric and name not in lists]
            raise InputError(
                f"{path} has no column of numbers {key!r}; numbers: {', '.join(numeric) or 'none'}; lists of numbers: "
                f"{', '.join(lists) or 'none'}; other columns, which are not read: {', '.join(others) or 'none'}."
            )
        check_size(8 * n * sum(lists.get(name, 1) for name in names), f"{path}:{key}" if key else str(path))
        table = file.read(columns=names)
    arrays = []
    for name in names:
        column = table.column(name).combine_chunks()
        values = column.flatten() if name in lists else column
        if column.null_count or values.null_count:
            raise InputError(f"{path} has empty cells in {name!r}; every cell needs a number. Fill or drop them.")
        arrays.append(np.asarray(values.to_numpy(zero_copy_only=False)).reshape(n, lists.get(name, 1)))
    return arrays[0] if len(arrays) == 1 else np.hstack(arrays)
