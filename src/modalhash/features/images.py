"""Open pictures, make them grey squares, and run a function over many of them in parallel."""

from __future__ import annotations

import io
import os
import struct
import warnings
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..exceptions import InputError, MissingExtraError
from .transformer import Progress

__all__ = ["CorruptImageWarning", "LazyImages", "grey_square", "map_images", "open_image"]

_LISTED = 5
_DAMAGED = (OSError, ValueError, SyntaxError, EOFError, IndexError, OverflowError, struct.error, zlib.error)
# what PIL raises on files that are damaged in one way or another


class CorruptImageWarning(UserWarning):
    """Some pictures could not be read; they have no features."""


def open_image(image: Any) -> Any:
    """Open a picture.

    Parameters
    ----------
    image : path, bytes of an image file, PIL image, or array of shape (h, w), (h, w, 3) or (h, w, 4)

    Returns
    -------
    ndarray of shape (h, w) or (h, w, 3)
        8-bit grey or RGB (what is transparent becomes white); an array of another type keeps it.

    Examples
    --------
    >>> open_image(np.zeros((4, 6, 3), np.uint8)).shape
    (4, 6, 3)
    """
    if isinstance(image, np.ndarray):
        if image.ndim not in (2, 3) or 0 in image.shape or (image.ndim == 3 and image.shape[2] not in (1, 3, 4)):
            raise InputError(f"an image array must be (h, w), (h, w, 3) or (h, w, 4); got shape {image.shape}.")
        if image.dtype.kind not in "biuf":
            raise InputError(f"an image array must hold real numbers; got {image.dtype}.")
        if image.ndim == 3 and image.shape[2] == 4:
            alpha = image[..., 3:].astype(np.float32) / 255
            return (image[..., :3] * alpha + 255 * (1 - alpha)).astype(image.dtype)
        return image[..., 0] if image.ndim == 3 and image.shape[2] == 1 else image
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError("pillow", "features") from error
    if isinstance(image, (bytes, bytearray)):
        image = io.BytesIO(image)
    if not isinstance(image, Image.Image):
        try:
            with Image.open(image) as opened:
                opened.load()
                image = opened
        except Image.DecompressionBombError as error:
            raise InputError(f"{image}: {error}") from error
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        layer = image.convert("RGBA")
        image = Image.new("RGBA", layer.size, "white")
        image.alpha_composite(layer)
    return np.asarray(image if image.mode in ("L", "RGB") else image.convert("RGB"))


def grey_square(image: Any, size: int) -> NDArray[np.float32]:
    """Make a picture grey (mean of its channels), scale it to `size` and cut the square in its middle.

    Parameters
    ----------
    image
        As in :func:`open_image`.
    size : int
        Side of the square in pixels.

    Returns
    -------
    ndarray of float32, shape (size, size)
        Bilinear with anti-aliasing.

    Examples
    --------
    >>> grey_square(np.full((20, 30), 7, np.uint8), 8)[0, :3].tolist()
    [7.0, 7.0, 7.0]
    """
    pixels = open_image(image)
    grey: NDArray[np.float32] = (pixels if pixels.ndim == 2 else pixels[..., 0]).astype(np.float32)
    if pixels.ndim == 3:  # three times as fast as mean(axis=2)
        grey += pixels[..., 1]
        grey += pixels[..., 2]
        grey /= 3
    h, w = grey.shape
    if (h, w) == (size, size):
        return grey
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError("pillow", "features") from error
    side = min(h, w)
    left, top = (w - side) / 2, (h - side) / 2
    square = Image.fromarray(grey).resize(
        (size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side)
    )
    return np.asarray(square, dtype=np.float32)


class LazyImages(Sequence[Any]):
    """Pictures that are made only when they are looked at, such as drawings to be rendered.

    Parameters
    ----------
    items : sequence
    make : callable
        Turns an item into something that :func:`open_image` takes.

    Examples
    --------
    >>> LazyImages([1, 2], lambda k: np.full((2, 2), k))[1].tolist()
    [[2, 2], [2, 2]]
    """

    def __init__(self, items: Sequence[Any], make: Callable[[Any], Any]) -> None:
        self.items = items
        self.make = make

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: Any) -> Any:
        return self.make(self.items[i])


def count_workers(n_jobs: int | None) -> int:
    """Threads to use: `n_jobs`, or the processors this process may run on when it is None or -1."""
    if n_jobs is None or n_jobs == -1:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, (int, np.integer)) or n_jobs < 1:
        raise InputError(f"n_jobs must be a whole number of at least 1, -1 or None; got {n_jobs!r}.")
    return int(n_jobs)


def map_images(
    function: Callable[[Any], Any],
    images: Sequence[Any],
    *,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> tuple[list[Any], list[tuple[int, str, str]]]:
    """Apply a function to every picture, in threads; pictures that cannot be read are listed, never lost silently.

    Parameters
    ----------
    function : callable
        Gets one item of `images`.
    images : sequence
    n_jobs : int, optional
        Threads; by default as many as there are processors. The result does not depend on it.
    progress : callable, optional
        ``progress(done, total)``.

    Returns
    -------
    results : list
        In the order of `images`; None where a picture could not be read.
    failed : list of (int, str, str)
        Row, name and reason of each of those. A :class:`CorruptImageWarning` names them too.

    Examples
    --------
    >>> map_images(np.sum, [np.ones((2, 2)), np.ones((3, 3))])[0]
    [np.float64(4.0), np.float64(9.0)]
    """
    if isinstance(images, (str, bytes, Path)):
        raise InputError("a list of images is needed; got a single path. Put it into a list.")
    total = len(images)
    results: list[Any] = [None] * total
    failed: list[tuple[int, str, str]] = []
    chunk = 8

    def run(start: int) -> list[tuple[int, Any]]:
        out: list[tuple[int, Any]] = []
        for i in range(start, min(start + chunk, total)):
            image = None
            try:
                image = images[i]
                out.append((i, function(image)))
            except MissingExtraError:
                raise
            except _DAMAGED as error:
                failed.append((i, _name_of(image, i), f"{type(error).__name__}: {error}"))
                out.append((i, None))
        return out

    done = 0
    pool = ThreadPoolExecutor(count_workers(n_jobs))
    try:
        for batch in pool.map(run, range(0, total, chunk)):
            for i, value in batch:
                results[i] = value
            done += len(batch)
            if progress is not None:
                progress(done, total)
    finally:
        pool.shutdown(cancel_futures=True)  # on Ctrl-C, or when the hook raises, what has not begun is not begun
    failed.sort()
    if failed:
        listed = "; ".join(f"{name} ({reason})" for _, name, reason in failed[:_LISTED])
        more = f"; and {len(failed) - _LISTED} more" if len(failed) > _LISTED else ""
        warnings.warn(
            f"{len(failed)} of {total} images could not be read and have no features: {listed}{more}",
            CorruptImageWarning,
            stacklevel=3,
        )
    return results, failed


def _name_of(image: Any, row: int) -> str:
    return str(image) if isinstance(image, (str, Path)) else f"image {row}"


def stack_rows(results: Sequence[Any], width: int) -> NDArray[np.float32]:
    """Rows as one matrix; where there is none, a row of NaN, which :mod:`modalhash.views` reads as "missing"."""
    out = np.full((len(results), width), np.nan, dtype=np.float32)
    for i, row in enumerate(results):
        if row is not None:
            out[i] = row
    return out
