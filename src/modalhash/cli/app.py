"""The typer application: every command with its help and an example."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from . import data, demo, evaluate, index, models, reproduce, serve
from .console import emit

app = typer.Typer(
    name="modalhash",
    help="Short binary codes for things seen in several views: fit, encode, evaluate.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        from .. import __version__

        emit(None, as_json=False, text=__version__)
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log what the library does to standard error.")
    ] = False,
) -> None:
    """Short binary codes for things seen in several views: fit, encode, evaluate."""
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="modalhash: %(message)s")


app.command(name="fit")(models.fit)
app.command(name="encode")(models.encode)
app.command(name="evaluate")(evaluate.evaluate_command)
app.command(name="info")(models.info)
app.command(name="methods")(models.methods)
app.command(name="demo")(demo.demo)
app.command(name="reproduce")(reproduce.reproduce)
app.command(name="serve")(serve.serve)
app.add_typer(data.app, name="data")
app.add_typer(index.app, name="index")
