"""data: list the data sets, say what one needs, prepare it from files on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..exceptions import InputError
from .console import emit, parse_assignments, progress, warn_lines
from .options import JsonOption, QuietOption, SeedOption

app = typer.Typer(help="Data sets: list, info, prepare.", no_args_is_help=True, rich_markup_mode="markdown")


@app.command(name="list")
def list_command(as_json: JsonOption = False) -> None:
    """List the data sets that modalhash knows.

    Example: `modalhash data list`
    """
    from .. import datasets

    summaries = {about.name: about.summary for about in datasets.list_datasets()}
    width = max(map(len, summaries))
    emit(summaries, as_json=as_json, text="\n".join(f"{name:<{width}}  {text}" for name, text in summaries.items()))


@app.command(name="info")
def info_command(
    name: Annotated[str, typer.Argument(help="See `modalhash data list`.", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Say which files a data set needs, where they come from, and what becomes of them.

    Example: `modalhash data info mirflickr`
    """
    from .. import datasets

    about = datasets.info(name)
    value = {
        "name": about.name,
        "summary": about.summary,
        "size": about.size,
        "views": about.views,
        "protocol": about.protocol,
        "reference": about.reference,
        "licence": about.licence,
        "files": [{"path": f.path, "what": f.what, "size": f.size, "url": f.url} for f in about.files],
        "options": {key: repr(default) for key, default in about.options.items()},
    }
    lines = [f"{about.name}: {about.summary}", f"  size       {about.size}"]
    lines += [f"  view       {view}: {what}" for view, what in about.views.items()]
    lines += [f"  split      {about.protocol}", f"  by         {about.reference}", f"  licence    {about.licence}"]
    lines += [f"  file       {f}" for f in about.files]
    lines += [f"  option     {key}={default!r}" for key, default in about.options.items() if key != "progress"]
    emit(value, as_json=as_json, text="\n".join(lines))


@app.command(name="prepare")
def prepare_command(
    name: Annotated[str, typer.Argument(help="See `modalhash data list`.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .npz or .parquet to write.", show_default=False)],
    source: Annotated[
        Path | None, typer.Option("--from", help="The folder (or file) with the official files.", show_default=False)
    ] = None,
    option: Annotated[
        list[str], typer.Option(metavar="NAME=VALUE", help="An option of the loader, see `data info`.")
    ] = [],  # noqa: B006
    seed: SeedOption = 0,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Read the official files and save views, labels and the split as one file.

    Example: `modalhash data prepare mirflickr --from mirflickr/ -o mirflickr.npz`
    """
    import json

    from .. import datasets

    if output.suffix.lower() not in (".npz", ".parquet", ".pq"):
        raise InputError(f"a data set is saved as .npz or .parquet; got {output.name!r}.")
    options: dict[str, Any] = {"seed": seed}
    for key, text in parse_assignments(option, "--option").items():
        try:
            options[key] = json.loads(text)
        except ValueError:
            options[key] = text
    with progress(f"preparing {name}", quiet=quiet) as update, warn_lines():
        data = datasets.prepare(name, source, progress=update, **options)
    path = data.save(output)
    summary = {
        "file": str(path),
        "name": data.name,
        "rows": len(data),
        "views": {view: list(X.shape) for view, X in data.views.items()},
        "labels": len(data.label_names),
        "splits": {split: len(rows) for split, rows in data.splits.items()},
        "split_hash": data.split_hash,
        "checksums": data.checksums(),
    }
    emit(summary, as_json=as_json, text=f"{data!r}\nsaved in {path}; split {data.split_hash}")
