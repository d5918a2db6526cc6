"""serve: an HTTP API and a search page over a model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..exceptions import InputError
from .console import say
from .options import QuietOption

if TYPE_CHECKING:
    from ..serve import SearchService, Settings

HostOption = Annotated[
    str, typer.Option(help="Address to listen on. Others than this machine reach it only if you choose another.")
]
PortOption = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")]


def serve(
    model: Annotated[list[Path], typer.Argument(help="Model folders, one per code length, made by `modalhash fit`.")],
    index: Annotated[
        list[str],
        typer.Option(
            metavar="[NAME=]FOLDER",
            help="An index made by `modalhash index build`. NAME is the view that its codes are of, or any other "
            "(default: database). Repeatable.",
            show_default=False,
        ),
    ] = [],  # noqa: B006
    data: Annotated[
        Path | None,
        typer.Option(help="The data set: titles, words and pictures, and the views to encode where no index is given."),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Encode only these rows of the data set.")] = None,
    pictures: Annotated[
        Path | None, typer.Option(help="The folder that the data set's column `file` is relative to.")
    ] = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="MODALHASH_TOKEN",
            help="Ask for this bearer token. Better in the environment, where other users do not see it.",
            show_default=False,
        ),
    ] = None,
    allow_host: Annotated[
        list[str], typer.Option(help="Another name that requests may be addressed to. Repeatable.", show_default=False)
    ] = [],  # noqa: B006
    max_body: Annotated[int, typer.Option(min=1, help="Bytes of a request.")] = 4 << 20,
    max_k: Annotated[int, typer.Option(min=1, help="Items in an answer.")] = 1000,
    max_radius: Annotated[int, typer.Option(min=1, help="Bits that a lookup may allow to differ.")] = 16,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds for a request.")] = 10.0,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads; twice the processors unless given.")] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Serve an HTTP API and a search page until interrupted.

    Only this machine can reach it unless --host says otherwise; then set a token.

    Example: `modalhash serve model/ --data data.npz`

    Example: `modalhash serve model/ --index image=index/ --port 9000`
    """
    from ..serve import SearchService, Settings

    named = [_named_index(text) for text in index]
    settings = Settings(
        token=token,
        hosts=tuple(allow_host) or None,
        max_body=max_body,
        max_k=max_k,
        max_radius=max_radius,
        timeout=timeout,
        workers=workers or 2 * (os.cpu_count() or 1),
    )
    service = SearchService.open(model, indexes=named, data=data, pictures=pictures, split=split)
    start(service, settings, host, port, open_page=open_page, quiet=quiet)


def check_ready(host: str, port: int) -> None:
    """Raise if a server could not start: a package is missing, or the port is taken."""
    from ..serve import create_app, run

    if callable(create_app) and callable(run):
        from ..serve.server import bind

        bind(host, port).close()


def start(
    service: SearchService, settings: Settings, host: str, port: int, *, open_page: bool = False, quiet: bool = False
) -> None:
    """Run a server in this process and say where it is."""
    from ..serve import create_app, run
    from ..serve.server import bind, is_loopback, with_own_hosts

    bound = bind(host, port)
    if not is_loopback(host) and settings.token is None:
        say(f"modalhash: warning: {host} may be reached by others, and no token is asked for. Set MODALHASH_TOKEN.")
    settings = with_own_hosts(settings, host)
    service.warm_up()

    def ready(address: str) -> None:
        if not quiet:
            say(f"{service.name}: {len(service.catalogue)} items on {address} (Ctrl-C stops it)")
        if open_page:
            import webbrowser

            webbrowser.open(address)

    run(create_app(service, settings), bound, settings, ready=ready)


def _named_index(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if not equals:
        return "database", Path(text)
    if not name or not path:
        raise InputError(f"--index takes FOLDER or NAME=FOLDER; got {text!r}.")
    return name, Path(path)
