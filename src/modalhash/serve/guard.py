"""What every request passes before a route sees it: host, token, size of the body; and what every answer carries."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from .monitor import Monitor
from .settings import Settings

__all__ = ["OPEN_PATHS", "Guard"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

OPEN_PATHS = frozenset({"/", "/page.css", "/page.js", "/icon.svg", "/healthz"})
"""What needs no token: the page itself, which holds no data, and the sign of life."""

_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    b"content-security-policy": _PAGE_POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}
_log = logging.getLogger(__name__)


class Guard:
    """ASGI middleware around the routes.

    A body is read whole, up to the limit, before the route runs: no route can be held up by a slow sender, and none
    sees half a body.

    Parameters
    ----------
    app : ASGI application
    settings : Settings
    monitor : Monitor
    """

    def __init__(self, app: App, settings: Settings, monitor: Monitor) -> None:
        self.app, self.settings, self.monitor = app, settings, monitor
        self._expected = None if settings.token is None else f"Bearer {settings.token}".encode()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Let one request through, or answer it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500
        self.monitor.in_flight += 1

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                there = {name.lower() for name, _ in message.get("headers", ())}
                message["headers"] = [
                    *message.get("headers", ()),
                    *((name, value) for name, value in _HEADERS.items() if name not in there),
                ]
            await send(message)

        try:
            refused = self._refuse(scope)
            if refused is None:
                try:
                    async with asyncio.timeout(self.settings.timeout):
                        body = await self._read(scope, receive)
                except TimeoutError:
                    refused = (408, f"the body did not arrive within {self.settings.timeout:g} s.", {})
                else:
                    if body is None:
                        limit = self.settings.max_body
                        refused = (413, f"the body is larger than {limit} bytes. Send less, or a smaller picture.", {})
            if refused is not None:
                await _say(answer, *refused)
                return
            await self.app(scope, _replay(body or b"", receive), answer)
        finally:
            self.monitor.in_flight -= 1
            route = getattr(scope.get("route"), "path", "(none)")
            self.monitor.observe(route, _known_method(scope["method"]), status, time.perf_counter() - started)

    def _refuse(self, scope: MutableMapping[str, Any]) -> tuple[int, str, dict[str, str]] | None:
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name, value)
        if self.settings.hosts is not None:
            host = _host_name(headers.get(b"host", b"").decode("latin-1"))
            if host not in self.settings.hosts:
                return 421, f"this server does not answer to the name {host[:80]!r}. Add it with --allow-host.", {}
        if self._expected is not None and scope["path"] not in OPEN_PATHS:
            # Compared in constant time, so that the time of an answer tells nothing about the token.
            same = hmac.compare_digest(headers.get(b"authorization", b""), self._expected)
            if not same:
                return 401, "a token is needed: Authorization: Bearer <token>.", {"www-authenticate": "Bearer"}
        return None

    async def _read(self, scope: MutableMapping[str, Any], receive: Receive) -> bytes | None:
        """The whole body; None where it is too large."""
        limit = self.settings.max_body
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if declared.isdigit() and int(declared[:20]) > limit:
            return None
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return b""  # the client has gone; the route's answer goes nowhere
            size += len(message.get("body", b""))
            if size > limit:
                return None
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                return b"".join(parts)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Hand out a body that has been read; afterwards whatever comes."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return pending.pop() if pending else await receive()

    return again


async def _say(send: Send, status: int, detail: str, headers: dict[str, str]) -> None:
    body = json.dumps({"detail": detail}).encode()
    fields = {"content-type": "application/json", "content-length": str(len(body)), **headers}
    if status in (408, 413):
        fields["connection"] = "close"  # the rest of the body is not read
    raw = [(name.encode(), value.encode()) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def _host_name(host: str) -> str:
    """The name in a Host header, without the port.

    Examples
    --------
    >>> _host_name("localhost:8000"), _host_name("[::1]:8000")
    ('localhost', '::1')
    """
    if host.startswith("["):
        return host[1:].split("]", 1)[0]
    return host.rsplit(":", 1)[0].lower() if ":" in host else host.lower()


def _known_method(method: str) -> str:
    return method if method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS") else "other"
