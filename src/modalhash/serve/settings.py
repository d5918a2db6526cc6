"""Limits and access of a server."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ..exceptions import InputError

__all__ = ["Settings"]

_MB = 1 << 20


@dataclass(frozen=True)
class Settings:
    """What a request may ask for, and who may ask.

    Parameters
    ----------
    token : str, optional
        Requests must carry ``Authorization: Bearer <token>``; the page and ``/healthz`` alone stay open.
    hosts : tuple of str, optional
        Host names that a request may be addressed to; anything by default. A server on a loopback address should
        name its own, so that a web page elsewhere cannot reach it through a name of its own (DNS rebinding).
    max_body : int
        Bytes of a request's body.
    max_k : int
        Items that one request may get.
    max_radius : int
        Bits that a lookup may allow to differ.
    max_text : int
        Characters of a text.
    max_pixels : int
        Pixels of an uploaded picture, checked before it is decoded.
    timeout : float
        Seconds to read a body, and again to answer; then 408 or 503.
    workers : int
        Threads that search and encode.
    max_connections : int
        Connections at once; more are answered 503.

    Examples
    --------
    >>> Settings(max_k=100).max_k
    100
    >>> Settings(max_k=0)
    Traceback (most recent call last):
    ...
    modalhash.exceptions.InputError: max_k must be positive; got 0.
    """

    token: str | None = None
    hosts: tuple[str, ...] | None = None
    max_body: int = 4 * _MB
    max_k: int = 1000
    max_radius: int = 16
    max_text: int = 1000
    max_pixels: int = 25_000_000
    timeout: float = 10.0
    workers: int = 4
    max_connections: int = 256

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "token":
                # What HTTP allows in the header: a token that can never match would lock everyone out.
                if value is not None and (not value or not value.isascii() or not value.isprintable() or " " in value):
                    raise InputError("token must be visible ASCII characters without spaces. Choose another one.")
            elif field.name != "hosts" and not value > 0:
                raise InputError(f"{field.name} must be positive; got {value!r}.")
