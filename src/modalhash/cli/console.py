"""What every command shares: one clear line on bad input, progress on a terminal, JSON for machines."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..exceptions import InputError, ModalHashError

__all__ = ["emit", "guarded", "parse_assignments", "progress", "say", "warn_lines"]


_INTERRUPTED = 130


def guarded(app: Callable[..., Any]) -> int:
    """Run a typer app and turn errors of ours, of files and Ctrl-C into one line and an exit code."""
    import typer

    usage_error: Any = typer.BadParameter.__mro__[2]  # the base of what typer raises on wrong options
    try:
        result = app(standalone_mode=False)
        code = result if isinstance(result, int) else 0
    except (typer.Abort, KeyboardInterrupt):
        code = _INTERRUPTED
    except (ModalHashError, OSError, MemoryError) as error:
        say(f"modalhash: error: {' '.join(str(error).split()) or type(error).__name__}")
        return 2
    except usage_error as error:
        error.show()
        return int(error.exit_code)
    if code == _INTERRUPTED:
        say("modalhash: interrupted; nothing was written.")
    return code


def say(text: str) -> None:
    """Say something to a person: on standard error, so that standard output stays for results."""
    print(text, file=sys.stderr)


def emit(value: Any, *, as_json: bool, text: Callable[[], str] | str) -> None:
    """Print a result: as JSON for machines, or as text."""
    if as_json:
        print(json.dumps(value, indent=2, sort_keys=True, allow_nan=False))
    else:
        print(text() if callable(text) else text)


@contextmanager
def progress(description: str, *, quiet: bool = False) -> Iterator[Callable[..., None]]:
    """A progress bar on a terminal, silence elsewhere; yields ``callback(done, total, note="")``."""
    if quiet or not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=None, note="")

        def update(done: int, total: int, value: Any = "") -> None:
            note = f"objective {value:.4g}" if isinstance(value, float) else str(value)
            bar.update(task, completed=done, total=total, note=note)

        yield update


@contextmanager
def warn_lines() -> Iterator[None]:
    """Show warnings of the library as one line each, without source lines."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        previous = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
            if category.__module__.startswith("modalhash") or issubclass(category, UserWarning):
                say(f"modalhash: warning: {message}")

        warnings.showwarning = show
        try:
            yield
        finally:
            warnings.showwarning = previous


def parse_assignments(items: list[str], what: str) -> dict[str, str]:
    """Parse ``name=value`` options.

    Examples
    --------
    >>> parse_assignments(["image=a.npy", "text=b.mat:T"], "--view")
    {'image': 'a.npy', 'text': 'b.mat:T'}
    """
    out: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name or not value:
            raise InputError(f"{what} takes name=value; got {item!r}.")
        if name in out:
            raise InputError(f"{what} names {name!r} twice.")
        out[name] = value
    return out
