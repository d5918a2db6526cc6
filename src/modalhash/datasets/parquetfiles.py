"""Read matrices from Parquet files: the numeric columns, or one column of lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..exceptions import InputError, MissingExtraError, ModelFormatError
from .declared import check_size

__all__ = ["as_matrix", "choose_columns", "common_type", "list_arrays", "open_parquet", "read"]


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
        names, widths = choose_columns(file, path, key)
        check_size(8 * file.metadata.num_rows * sum(widths.values()), f"{path}:{key}" if key else str(path))
        table = file.read(columns=names)
    return as_matrix(table, names, widths, path)


def choose_columns(file: Any, path: Path, key: str | None) -> tuple[list[str], dict[str, int]]:
    """The columns that `key` names, and the width of each: all columns of numbers for "" or None.

    Parameters
    ----------
    file : pyarrow.parquet.ParquetFile
    path : Path
        For the message.
    key : str or None

    Returns
    -------
    tuple of (list of str, dict of str to int)
    """
    numeric, lists = _columns(file)
    names = [key] if key and (key in lists or key in numeric) else numeric if not key else []
    if not names and not key and len(lists) == 1:
        names = list(lists)
    if not names:
        others = [name for name in file.schema_arrow.names if name not in numeric and name not in lists]
        raise InputError(
            f"{path} has no column of numbers {key or ''!r}; numbers: {', '.join(numeric) or 'none'}; "
            f"lists of numbers: {', '.join(lists) or 'none'}; other columns, which are not read: "
            f"{', '.join(others) or 'none'}."
        )
    return names, {name: lists.get(name, 1) for name in names}


def common_type(file: Any, names: list[str]) -> np.dtype[Any]:
    """The NumPy type that holds all of these columns.

    Parameters
    ----------
    file : pyarrow.parquet.ParquetFile
    names : list of str

    Returns
    -------
    numpy dtype
    """
    import pyarrow.types as kinds

    found = []
    for name in names:
        kind = file.schema_arrow.field(name).type
        kind = kind.value_type if kinds.is_fixed_size_list(kind) else kind
        found.append(np.dtype(kind.to_pandas_dtype()))
    return np.result_type(*found)


def as_matrix(table: Any, names: list[str], widths: dict[str, int], path: Path) -> Any:
    """Columns of a table side by side.

    Parameters
    ----------
    table : pyarrow.Table
    names : list of str
    widths : dict of str to int
        More than 1 for a column of lists.
    path : Path
        For the message.

    Returns
    -------
    ndarray of shape (n, d)
    """
    import pyarrow.types as kinds

    arrays = []
    for name in names:
        column = table.column(name).combine_chunks()
        values = column.flatten() if kinds.is_fixed_size_list(column.type) else column
        if column.null_count or values.null_count:
            raise InputError(f"{path} has empty cells in {name!r}; every cell needs a number. Fill or drop them.")
        arrays.append(np.asarray(values.to_numpy(zero_copy_only=False)).reshape(table.num_rows, widths[name]))
    return arrays[0] if len(arrays) == 1 else np.hstack(arrays)
