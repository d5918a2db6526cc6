"""Binding an address and running until stopped."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import uvicorn

from ..exceptions import InputError
from .settings import Settings

__all__ = ["bind", "is_loopback", "run", "with_own_hosts"]

_log = logging.getLogger(__name__)


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only.

    Examples
    --------
    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def with_own_hosts(settings: Settings, host: str) -> Settings:
    """On a loopback address, answer to its own names only, unless others were given.

    Examples
    --------
    >>> with_own_hosts(Settings(), "127.0.0.1").hosts
    ('127.0.0.1', 'localhost', '::1')
    """
    if is_loopback(host):
        own = dict.fromkeys((host, "127.0.0.1", "localhost", "::1", *(settings.hosts or ())))
        return replace(settings, hosts=tuple(own))
    return settings


def bind(host: str, port: int) -> socket.socket:
    """A listening address; port 0 takes a free one.

    Parameters
    ----------
    host : str
    port : int

    Returns
    -------
    socket.socket
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except (OSError, OverflowError) as error:
        raise InputError(f"cannot listen on {host} port {port}: {error}. Choose another --port or --host.") from error
    return bound


def run(
    app: Any, bound: socket.socket, settings: Settings | None = None, ready: Callable[[str], object] | None = None
) -> None:
    """Serve until interrupted.

    Parameters
    ----------
    app : ASGI application
        Of :func:`modalhash.serve.create_app`.
    bound : socket.socket
        Of :func:`bind`.
    settings : Settings, optional
    ready : callable, optional
        Gets the address, such as ``http://127.0.0.1:8000/``, once requests are answered.
    """
    settings = settings or Settings()
    host, port = bound.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=5,
        limit_concurrency=settings.max_connections,
    )
    server = _Server(config, (lambda: ready(f"http://{name}:{port}/")) if ready else (lambda: None))
    with contextlib.suppress(KeyboardInterrupt):  # how a person stops a server
        server.run(sockets=[bound])


class _Server(uvicorn.Server):
    """Says when it is ready."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], object]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if self.started:
            self._ready()
