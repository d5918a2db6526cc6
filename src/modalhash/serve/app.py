"""The routes of the server."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib import resources
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, File, Path, Query, Request, Response, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from .. import __version__
from ..codes import unpack
from ..exceptions import InputError, MissingExtraError, ModalHashError
from . import schemas
from .answers import Found, QueryCode, UnknownItemError
from .catalogue import ItemRecord
from .guard import Guard
from .monitor import Monitor
from .pictures import read_upload
from .service import SearchService
from .settings import Settings

__all__ = ["create_app"]

T = TypeVar("T")
_PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
_PICTURE_HEADERS = {
    # A drawing may hold scripts and links: seen as an image it runs none, and opened by itself it is shut in.
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox",
    "content-disposition": "inline",
    "cache-control": "private, max-age=3600",
}
_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": schemas.Error, "description": "The body is not JSON, or not a form."},
    401: {"model": schemas.Error, "description": "A token is needed."},
    404: {"model": schemas.Error, "description": "There is no such item."},
    408: {"model": schemas.Error, "description": "The body came too slowly."},
    413: {"model": schemas.Error, "description": "The body is too large."},
    421: {"model": schemas.Error, "description": "The server does not answer to that host name."},
    422: {"model": schemas.Error, "description": "The request cannot be answered as it is; the text says why."},
    501: {"model": schemas.Error, "description": "The server lacks a package that this needs."},
    503: {"model": schemas.Error, "description": "Too busy."},
}


class _Routes:
    """The functions behind the routes; each does its work in a thread of its own pool."""

    def __init__(self, service: SearchService, settings: Settings, monitor: Monitor) -> None:
        self.service, self.settings, self.monitor = service, settings, monitor
        self.pool = ThreadPoolExecutor(settings.workers, thread_name_prefix="modalhash")

    async def _work(self, function: Callable[[], T]) -> T:
        """Run in the pool; what is not done in time is answered 503, and its thread finishes alone."""
        async with asyncio.timeout(self.settings.timeout):
            return await asyncio.get_running_loop().run_in_executor(self.pool, function)

    async def _json(self, function: Callable[[], BaseModel]) -> Response:
        content = await self._work(lambda: function().model_dump_json())
        return Response(content, media_type="application/json")

    # Searching -----------------------------------------------------------------------------------------------------

    async def search(self, query: Annotated[schemas.SearchQuery, Query()]) -> Response:
        """The nearest items of a text, an item or a code."""
        return await self._json(lambda: self._search(self._query(query), query))

    async def search_body(self, query: schemas.SearchBody) -> Response:
        """The nearest items of a text, an item, a code or a vector."""
        return await self._json(lambda: self._search(self._query(query), query))

    async def search_image(
        self,
        query: Annotated[schemas.UploadQuery, Query()],
        image: Annotated[UploadFile, File(description="A PNG, JPEG, WebP, GIF or BMP file.")],
    ) -> Response:
        """The nearest items of a picture."""
        content = await image.read()
        return await self._json(lambda: self._search(self._upload(content, query.view, query.bits), query))

    async def lookup(self, query: Annotated[schemas.LookupQuery, Query()]) -> Response:
        """All items within a radius of a text, an item or a code."""
        return await self._json(lambda: self._lookup(query))

    async def lookup_body(self, query: schemas.LookupBody) -> Response:
        """All items within a radius of a text, an item, a code or a vector."""
        return await self._json(lambda: self._lookup(query))

    async def encode(self, query: schemas.EncodeBody) -> Response:
        """The code of a text, an item or a vector."""
        return await self._json(lambda: self._encoded(self._query(query)))

    async def encode_image(
        self,
        query: Annotated[schemas.EncodeUploadQuery, Query()],
        image: Annotated[UploadFile, File(description="A PNG, JPEG, WebP, GIF or BMP file.")],
    ) -> Response:
        """The code of a picture."""
        content = await image.read()
        return await self._json(lambda: self._encoded(self._upload(content, query.view, query.bits)))

    def _query(self, asked: Any) -> QueryCode:
        given = [name for name in ("text", "item", "code", "vector") if getattr(asked, name, None) is not None]
        if len(given) != 1:
            raise InputError(f"give exactly one of text, item, code or vector; got {', '.join(given) or 'none'}.")
        if asked.text is None and (asked.complete or asked.expand):
            raise InputError(f"complete and expand go with a text; the query is by {given[0]}.")
        if asked.text is not None:
            _bounded(len(asked.text), 0, self.settings.max_text, "characters of text")
            return self.service.of_text(
                asked.text, view=asked.view, bits=asked.bits, complete=asked.complete, expand=asked.expand
            )
        if asked.item is not None:
            return self.service.of_item(asked.item, view=asked.view, bits=asked.bits)
        if asked.code is not None:
            if asked.view is not None:
                raise InputError("a code is of no view; leave `view` out.")
            return self.service.of_code(asked.code, bits=asked.bits)
        return self.service.of_vector(asked.vector, view=asked.view, bits=asked.bits)

    def _upload(self, content: bytes, view: str | None, bits: int | None) -> QueryCode:
        return self.service.of_image(read_upload(content, self.settings.max_pixels), view=view, bits=bits)

    def _search(self, query: QueryCode, asked: Any) -> schemas.SearchResult:
        k = _bounded(asked.k, 10, self.settings.max_k, "items (k)")
        return self._result(query, self.service.search(query, asked.database, k, by_scores=asked.rank == "scores"))

    def _lookup(self, asked: Any) -> schemas.SearchResult:
        limit = _bounded(asked.limit, 100, self.settings.max_k, "items (limit)")
        radius = _bounded(asked.radius, 2, self.settings.max_radius, "differing bits (radius)")
        query = self._query(asked)
        return self._result(query, self.service.lookup(query, asked.database, radius, limit))

    def _result(self, query: QueryCode, found: Found) -> schemas.SearchResult:
        items = self.service.catalogue.take(found.ids)
        hits = [
            schemas.Hit(
                **_shown(item),
                distance=found.distances[i],
                code=found.codes[i].tobytes().hex(),
                score=None if found.scores is None else found.scores[i],
            )
            for i, item in enumerate(items)
        ]
        return schemas.SearchResult(query=self._asked(query), database=found.database, total=found.total, hits=hits)

    def _asked(self, query: QueryCode) -> schemas.Asked:
        read = query.read
        examples = [] if read is None else self.service.catalogue.take(read.examples)
        return schemas.Asked.model_validate(
            {
                "by": query.by,
                "view": query.view,
                "n_bits": query.n_bits,
                "code": query.code.tobytes().hex(),
                "text": None if read is None else read.text,
                "known": [] if read is None else read.known,
                "unknown": [] if read is None else read.unknown,
                "suggestions": [] if read is None else read.suggestions,
                "examples": [_shown(item) for item in examples],
            }
        )

    def _encoded(self, query: QueryCode) -> schemas.Encoded:
        bits = "".join("01"[int(bit)] for bit in unpack(query.code, query.n_bits)[0])
        return schemas.Encoded(query=self._asked(query), bits=bits)

    # Items ---------------------------------------------------------------------------------------------------------

    async def items(
        self,
        start: Annotated[int, Query(ge=0, le=2**62, description="How many to pass over.")] = 0,
        limit: Annotated[int | None, Query(ge=1, description="How many to list; 50 unless given.")] = None,
        step: Annotated[int, Query(ge=1, le=2**31, description="List every so many-th.")] = 1,
    ) -> Response:
        """Items in order of id."""
        catalogue, most = self.service.catalogue, _bounded(limit, 50, self.settings.max_k, "items (limit)")

        def listed() -> schemas.Items:
            found = [schemas.Item(**_shown(item)) for item in catalogue.page(start, most, step)]
            return schemas.Items(total=len(catalogue), items=found)

        return await self._json(listed)

    async def item(self, item_id: Annotated[schemas.Id, Path()]) -> Response:
        """One item."""
        if item_id not in self.service.catalogue:
            raise UnknownItemError(f"there is no item {item_id}.")
        return await self._json(lambda: schemas.Item(**_shown(self.service.catalogue[item_id])))

    async def picture(self, item_id: Annotated[schemas.Id, Path()]) -> Response:
        """The picture of an item."""
        found = await self._work(lambda: self.service.catalogue.picture(item_id))
        if found is None:
            raise UnknownItemError(f"there is no picture of an item {item_id}.")
        return Response(found.content, media_type=found.media_type, headers=_PICTURE_HEADERS)

    # The server itself ---------------------------------------------------------------------------------------------

    async def about(self) -> schemas.About:
        """What this server has, and its limits."""
        service, limits = self.service, self.settings
        sizes = service.sizes()
        collections = [
            schemas.Collection(
                bits=bits,
                method=service.method(bits),
                views=[
                    schemas.View.model_validate(
                        {
                            "name": name,
                            "columns": columns,
                            "kind": service.kind(name, bits),
                            "size": service.picture_size(name, bits),
                        }
                    )
                    for name, columns in service.views(bits).items()
                ],
                databases={name: sizes[name, bits] for name in service.databases(bits)},
                expands=service.can_expand(bits),
            )
            for bits in reversed(service.lengths)
        ]
        return schemas.About(
            name=service.name,
            version=__version__,
            items=len(service.catalogue),
            credit=service.credit,
            collections=collections,
            limits=schemas.Limits(
                k=limits.max_k,
                radius=limits.max_radius,
                text=limits.max_text,
                body=limits.max_body,
                pixels=limits.max_pixels,
            ),
        )

    async def health(self) -> schemas.Health:
        """The server is up."""
        return schemas.Health()

    async def metrics(self) -> Response:
        """Counters, in the text form of Prometheus."""
        text = self.monitor.render(self.service.sizes())
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def create_app(service: SearchService, settings: Settings | None = None) -> FastAPI:
    """Make the application.

    Parameters
    ----------
    service : SearchService
    settings : Settings, optional

    Returns
    -------
    fastapi.FastAPI
        An ASGI application; :func:`modalhash.serve.run` runs it.

    Examples
    --------
    >>> import modalhash as mh
    >>> data = mh.datasets.make_synthetic(n=100, random_state=0)
    >>> hasher = mh.DMH(n_bits=8, n_iter=20, random_state=1).fit(data.views, labels=data.labels)
    >>> app = create_app(SearchService(hasher, data=data))
    >>> sorted(path for path in app.openapi()["paths"] if path.startswith("/s"))
    ['/search', '/search/image']
    """
    settings = settings or Settings()
    monitor = Monitor()
    routes = _Routes(service, settings, monitor)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        routes.pool.shutdown(wait=False, cancel_futures=True)

    app = FastAPI(
        title="modalhash",
        version=__version__,
        summary="Search by Hamming distance across views.",
        docs_url=None,  # FastAPI's own pages load from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        responses=_ERRORS,
    )
    app.add_middleware(Guard, settings=settings, monitor=monitor)
    found, code = schemas.SearchResult, schemas.Encoded
    app.add_api_route("/search", routes.search, methods=["GET"], response_model=found)
    app.add_api_route("/search", routes.search_body, methods=["POST"], response_model=found)
    app.add_api_route("/search/image", routes.search_image, methods=["POST"], response_model=found)
    app.add_api_route("/lookup", routes.lookup, methods=["GET"], response_model=found)
    app.add_api_route("/lookup", routes.lookup_body, methods=["POST"], response_model=found)
    app.add_api_route("/encode", routes.encode, methods=["POST"], response_model=code)
    app.add_api_route("/encode/image", routes.encode_image, methods=["POST"], response_model=code)
    app.add_api_route("/items", routes.items, methods=["GET"], response_model=schemas.Items)
    app.add_api_route("/items/{item_id}", routes.item, methods=["GET"], response_model=schemas.Item)
    pictures: dict[int | str, dict[str, Any]] = {200: {"content": {"image/*": {}}}}
    app.add_api_route(
        "/items/{item_id}/picture", routes.picture, methods=["GET"], response_class=Response, responses=pictures
    )
    app.add_api_route("/about", routes.about, methods=["GET"], response_model=schemas.About)
    app.add_api_route("/healthz", routes.health, methods=["GET"], response_model=schemas.Health)
    text: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {}}}}
    app.add_api_route("/metrics", routes.metrics, methods=["GET"], response_class=Response, responses=text)
    for path, (file, media_type) in _PAGE.items():
        app.add_api_route(path, _static(file, media_type), methods=["GET"], include_in_schema=False)
    described = _with_limits(app.openapi(), settings)
    app.openapi = lambda: described  # type: ignore[method-assign]
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(ModalHashError, _refused)
    app.add_exception_handler(TimeoutError, _late)
    return app


def _bounded(value: int | None, default: int, limit: int, what: str) -> int:
    """What was asked for, if the server allows it; else the default, as far as it does."""
    if value is None:
        return min(default, limit)
    if value > limit:
        raise InputError(f"at most {limit} {what} may be asked for; got {value}.")
    return value


def _shown(item: ItemRecord) -> dict[str, Any]:
    return {
        "id": item.id,
        "name": item.name,
        "title": item.title,
        "text": item.text,
        "labels": item.labels,
        "picture": f"/items/{item.id}/picture" if item.has_picture else None,
        "flat": item.flat,
    }


def _static(file: str, media_type: str) -> Callable[[Request], Any]:
    content = resources.files(__package__).joinpath("page", file).read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'

    async def page(request: Request) -> Response:
        headers = {"etag": tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=media_type, headers=headers)

    return page


def _with_limits(described: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """Write this server's limits into the description."""
    limits = {
        "k": ("maximum", settings.max_k),
        "limit": ("maximum", settings.max_k),
        "radius": ("maximum", settings.max_radius),
        "text": ("maxLength", settings.max_text),
    }
    schemas = {name: s for name, s in described["components"]["schemas"].items() if name.endswith("Body")}
    fields = [(name, one) for schema in schemas.values() for name, one in schema.get("properties", {}).items()]
    for routes in described["paths"].values():
        for route in routes.values():
            fields += [(one["name"], one["schema"]) for one in route.get("parameters", ())]
    for name, schema in fields:
        keyword, limit = limits.get(name, ("", 0))
        for one in schema.get("anyOf", [schema]):
            if keyword and one.get("type") in ("integer", "string"):
                one[keyword] = limit
    return described


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    """What does not fit the description, in one line and without repeating the input."""
    lines = []
    for problem in error.errors() if isinstance(error, RequestValidationError) else ():
        where = ".".join(str(part) for part in problem["loc"][1:]) or str(problem["loc"][0])
        lines.append(f"{where}: {problem['msg']}")
    more = f"; and {len(lines) - 5} more" if len(lines) > 5 else ""
    return JSONResponse({"detail": "; ".join(lines[:5]) + more}, status_code=422)


async def _refused(_: Request, error: Exception) -> JSONResponse:
    status = 404 if isinstance(error, UnknownItemError) else 501 if isinstance(error, MissingExtraError) else 422
    return JSONResponse({"detail": str(error)}, status_code=status)


async def _late(_: Request, __: Exception) -> JSONResponse:
    return JSONResponse({"detail": "the server is too busy; try again."}, status_code=503, headers={"retry-after": "1"})
