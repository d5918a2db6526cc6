"""``python -m modalhash`` is the command line."""

from .cli import main

main()
