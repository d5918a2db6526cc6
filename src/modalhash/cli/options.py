"""Options that several commands share, and reading the data they name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exceptions import InputError
from .console import parse_assignments

if TYPE_CHECKING:
    from ..datasets import Dataset

DataArgument = Annotated[
    Path | None,
    typer.Argument(
        help="A data set: .npz (arrays, CSR parts, or saved by modalhash), .mat (v5 or v7.3) or .parquet. "
        "Every matrix in it but `labels` is a view.",
        show_default=False,
    ),
]
ViewOption = Annotated[
    list[str],
    typer.Option(
        "--view",
        metavar="NAME=FILE[:KEY]",
        help="A view from a file (.npy, .npz, .mat, .parquet); with DATA, NAME=KEY renames its arrays. Repeatable.",
        show_default=False,
    ),
]
LabelsOption = Annotated[
    str | None,
    typer.Option("--labels", metavar="FILE[:KEY]", help="Labels: a 0/1 matrix or class ids; with DATA, a key in it."),
]
SplitOption = Annotated[
    str | None, typer.Option("--split", help="Use these rows of the data set only, such as train, query or database.")
]
ProtocolOption = Annotated[
    str | None,
    typer.Option(
        "--protocol", help="Split the data set first: mirflickr (5 % queries), nuswide (1 %), deep, held-out."
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of everything random.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar and no remarks.")]


def read_data(
    source: Path | None,
    view: list[str],
    labels: str | None,
    *,
    protocol: str | None = None,
    seed: int = 0,
) -> Dataset:
    """Read what the options name as a data set, split by `protocol` if one is given."""
    from ..datasets import load_arrays

    if source is None and not view:
        raise InputError("no data given. Pass a data set, or views as --view name=file[:key].")
    data = load_arrays(source, views=parse_assignments(view, "--view") or None, labels=labels)
    return data.split(protocol, seed=seed) if protocol else data


def choose_rows(data: Dataset, split: str | None, default: str | None) -> tuple[Any, str]:
    """The rows to use: the split asked for, else `default` where the data has it, else all."""
    if split is None:
        split = default if default in data.splits else None
    if split is None:
        return data, "all rows"
    return data.rows(split), f"split {split!r}"
