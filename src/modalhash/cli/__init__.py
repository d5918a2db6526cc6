"""The command line: ``modalhash fit | encode | evaluate | info | methods | data | demo``."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; the entry point of the ``modalhash`` script.

    Exit codes: 0 done, 2 bad input (one clear line on standard error), 130 interrupted.
    """
    from .app import app
    from .console import guarded

    sys.exit(guarded(app))
