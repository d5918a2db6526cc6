"""A search server: an HTTP API and a page to play with, over a model, its indexes and a data set (extra ``serve``).

=============  =========================================================================================
service        the state and the answers: models, one index per database, items; no HTTP in it
answers        a query once encoded, and what was found
queries        what a raw query can be, by the features of the model
catalogue      what is known about each item: title, text, labels, picture
words          the vocabulary of a text view: known words, completions, examples that carry them
pictures       reading an uploaded picture, carefully
schemas        what goes in and out of the API
app            the routes
guard          what every request passes: host, token, size of the body, headers, counting
monitor        counters, as Prometheus reads them
server         binding an address and running
page/          the page: plain HTML, CSS and JavaScript, no build step
=============  =========================================================================================

Names are loaded when first used; FastAPI is imported only by :func:`create_app` and :func:`run`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {"SearchService": "service", "Settings": "settings", "create_app": "app", "run": "server"}

__all__ = ["SearchService", "Settings", "create_app", "run"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(f".{home}", __name__), name)
    except ModuleNotFoundError as error:
        if error.name in ("fastapi", "uvicorn", "pydantic", "starlette"):
            from ..exceptions import MissingExtraError

            raise MissingExtraError(error.name, "serve") from error
        raise
    globals()[name] = value
    return value


if TYPE_CHECKING:
    from .app import create_app as create_app
    from .server import run as run
    from .service import SearchService as SearchService
    from .settings import Settings as Settings
