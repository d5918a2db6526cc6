"""Drawings (SVG) as pixels."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..exceptions import InputError, MissingExtraError

__all__ = ["render_svg"]


def render_svg(svg: str, size: int = 128) -> NDArray[np.uint8]:
    """Draw an SVG in the middle of a white square.

    Parameters
    ----------
    svg : str
        The text of the drawing. Files that it refers to are not looked for.
    size : int
        Side of the square in pixels; the longer side of the drawing fills it.

    Returns
    -------
    ndarray of uint8, shape (size, size, 3)

    Examples
    --------
    >>> square = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 2"><path d="M0 0h4v2h-4z"/></svg>'
    >>> render_svg(square, 8)[:, 4, 0].tolist()
    [255, 255, 0, 0, 0, 0, 255, 255]
    """
    try:
        import resvg_py
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError(error.name or "resvg-py", "demo") from error
    try:
        with Image.open(io.BytesIO(_draw(resvg_py, svg, size))) as opened:
            tall = opened.height > size
            width = max(1, round(size * opened.width / opened.height)) if tall else size
            drawing = opened.convert("RGB") if not tall else None
        if drawing is None:
            with Image.open(io.BytesIO(_draw(resvg_py, svg, width))) as opened:
                drawing = opened.convert("RGB").crop((0, 0, opened.width, min(opened.height, size)))
    except (ValueError, OSError) as error:
        raise InputError(f"an SVG drawing cannot be rendered: {error}.") from error
    square = Image.new("RGB", (size, size), "white")
    square.paste(drawing, ((size - drawing.width) // 2, (size - drawing.height) // 2))
    out: Any = np.asarray(square)
    return np.array(out, dtype=np.uint8)


def _draw(resvg_py: Any, svg: str, width: int) -> bytes:
    """PNG of a drawing, `width` pixels wide. Without a resolution, sizes in points or millimetres count as zero."""
    return bytes(resvg_py.svg_to_bytes(svg_string=svg, background="white", width=width, dpi=96, skip_system_fonts=True))
