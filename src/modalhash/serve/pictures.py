"""Pictures from strangers and for the page: decoded carefully, served as plain bytes."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..exceptions import InputError, MissingExtraError
from ..features.images import open_image

__all__ = ["Picture", "is_flat", "picture_file", "read_upload"]

_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
    ".gif": "image/gif",
    ".bmp": "image/bmp",
}
_COLOURED = re.compile(r"\b(?:fill|stroke|style|stop-color|class)\s*=|<style|<image", re.IGNORECASE)


@dataclass(frozen=True)
class Picture:
    """A picture as it goes over the wire."""

    content: bytes
    media_type: str


def read_upload(content: bytes, max_pixels: int) -> Any:
    """Decode an uploaded picture.

    Parameters
    ----------
    content : bytes
        A PNG, JPEG, WebP, GIF or BMP file; of an animation the first picture counts.
    max_pixels : int
        Refused above this, before anything is decoded.

    Returns
    -------
    ndarray of shape (h, w) or (h, w, 3)

    Examples
    --------
    >>> read_upload(b"GIF89a", 100)
    Traceback (most recent call last):
    ...
    modalhash.exceptions.InputError: the picture cannot be read as PNG, JPEG, WEBP, GIF, BMP: ...
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError("pillow", "features") from error
    try:
        with Image.open(io.BytesIO(content), formats=_FORMATS) as image:
            width, height = image.size
            if width * height > max_pixels:
                raise InputError(
                    f"the picture has {width} x {height} pixels; at most {max_pixels} are taken. Make it smaller."
                )
            image.load()
            return open_image(image)
    except InputError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise InputError(f"the picture has too many pixels; at most {max_pixels} are taken.") from error
    except (OSError, ValueError, SyntaxError, EOFError, IndexError, OverflowError, TypeError, KeyError) as error:
        # what Pillow raises on files that are damaged in one way or another
        said = str(error).split("<_io", 1)[0].strip() or type(error).__name__
        raise InputError(f"the picture cannot be read as {', '.join(_FORMATS)}: {said}.") from error


def picture_file(root: Path, name: str) -> Picture | None:
    """A picture of the data set below `root`; None where there is none, or it lies elsewhere.

    Parameters
    ----------
    root : Path
        The folder, resolved.
    name : str
        The path below it, as the data set has it.

    Returns
    -------
    Picture or None
    """
    path = (root / name).resolve()
    media_type = _TYPES.get(path.suffix.lower())
    if media_type is None or not path.is_relative_to(root) or not path.is_file():
        return None
    return Picture(path.read_bytes(), media_type)


def is_flat(svg: str) -> bool:
    """Whether a drawing names no colour of its own, so that a dark page may draw it light.

    Examples
    --------
    >>> is_flat('<svg><path d="M0 0h4"/></svg>'), is_flat('<svg><path fill="red" d="M0 0h4"/></svg>')
    (True, False)
    """
    return _COLOURED.search(svg) is None
