"""GIST: how strongly each part of a picture answers to each scale and direction (Oliva & Torralba 2001).

The definition is that of the authors' descriptor. A grey square with values from 0 to 255 is whitened (log,
minus its low frequencies, divided by the local standard deviation), filtered by one-sided log-Gabor-like transfer
functions G (one per scale and direction), and the magnitude of each answer is averaged over a grid of blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..exceptions import InputError
from .images import grey_square, map_images, stack_rows
from .transformer import FeatureTransformer, Progress, check_count

__all__ = ["GIST", "gabor_filters"]

_EXTEND = 32  # pixels of mirrored border around the picture before the filters
_WHITEN_BORDER = 5
_WHITEN_CYCLES = 4  # cut-off of the low frequencies, cycles per image
_NEGLIGIBLE = 1e-7  # of the peak; below the precision of the float32 transforms


def gabor_filters(size: int, orientations: Sequence[int]) -> NDArray[np.float64]:
    """Transfer functions of the filter bank on a `size` x `size` grid of frequencies.

    With f the frequency in cycles per pixel and a its angle, scale s (0, 1, ...) with m directions has
    ``G = exp(-3.5 (f / f_s - 1)^2 - 2 pi (m / 8)^2 (a + pi j / m)^2)`` for j = 0 .. m - 1, where f_s = 0.3 / 1.85^s
    and the angle is taken between -pi and pi, so that each filter covers one side only.

    Parameters
    ----------
    size : int
        Even.
    orientations : sequence of int
        Directions at each scale, from fine to coarse.

    Returns
    -------
    ndarray of shape (sum(orientations), size, size)
        Zero frequency first, as :func:`scipy.fft.fft2` has it.

    Examples
    --------
    >>> gabor_filters(64, (8, 8, 4)).shape
    (20, 64, 64)
    """
    f = np.fft.fftfreq(size) * size
    fx, fy = np.meshgrid(f, f)
    radius = np.hypot(fx, fy)
    angle = np.arctan2(fy, fx)
    bank = []
    for scale, m in enumerate(orientations):
        centre = 0.3 / 1.85**scale
        sharpness = 16 * m**2 / 32**2
        for j in range(m):
            turned = angle + np.pi / m * j
            turned = turned + 2 * np.pi * (turned < -np.pi) - 2 * np.pi * (turned > np.pi)
            bank.append(np.exp(-10 * 0.35 * (radius / size / centre - 1) ** 2 - 2 * sharpness * np.pi * turned**2))
    return np.array(bank)


@dataclass(frozen=True)
class _Filter:
    """One filter, cut down to the columns (or rows, where they are fewer) in which it is not negligible."""

    turned: bool  # rows and columns are exchanged
    runs: tuple[tuple[slice, slice], ...]  # runs of columns: in the plane of frequencies, and in `G`
    G: NDArray[np.float32]


@lru_cache(maxsize=8)
def _bank(size: int, orientations: tuple[int, ...]) -> tuple[_Filter, ...]:
    out = []
    for G in gabor_filters(size, orientations).astype(np.float32):
        kept = _NEGLIGIBLE * G.max() < G
        columns, rows = np.flatnonzero(kept.any(axis=0)), np.flatnonzero(kept.any(axis=1))
        turned = len(rows) < len(columns)
        part = rows if turned else columns
        breaks = np.flatnonzero(np.diff(part) > 1) + 1
        bounds = [0, *breaks.tolist(), len(part)]
        runs = tuple((slice(int(part[lo]), int(part[hi - 1]) + 1), slice(lo, hi)) for lo, hi in pairwise(bounds))
        out.append(_Filter(turned, runs, np.ascontiguousarray((G.T if turned else G)[:, part])))
    return tuple(out)


@lru_cache(maxsize=8)
def _averages(size: int, blocks: int) -> NDArray[np.float32]:
    """Matrix (blocks, size) that averages over equal parts of a side."""
    edges = (np.arange(blocks + 1) * size) // blocks
    out = np.zeros((blocks, size), dtype=np.float32)
    for k, (lo, hi) in enumerate(pairwise(edges)):
        out[k, lo:hi] = 1 / (hi - lo)
    return out


@lru_cache(maxsize=8)
def _low_pass(size: int) -> NDArray[np.float32]:
    """The whitening's Gaussian on the half plane of :func:`scipy.fft.rfft2`."""
    width = _WHITEN_CYCLES / np.sqrt(np.log(2))
    fy, fx = np.fft.fftfreq(size) * size, np.fft.rfftfreq(size) * size
    low: NDArray[np.float32] = np.exp(-(fy[:, None] ** 2 + fx[None, :] ** 2) / width**2).astype(np.float32)
    return low


def _mirror(x: NDArray[np.float32], border: int) -> NDArray[np.float32]:
    """Mirror the picture around itself, then once more at the far end where that makes an odd side even."""
    x = np.pad(x, border, mode="symmetric")
    return np.pad(x, (0, x.shape[0] % 2), mode="symmetric")


def _whiten(grey: NDArray[np.float32]) -> NDArray[np.float32]:
    """Take out the low frequencies of the log image, then divide by the local standard deviation."""
    from scipy import fft

    n = grey.shape[0]
    border = _WHITEN_BORDER
    padded = _mirror(np.log1p(grey), border)
    low = _low_pass(padded.shape[0])

    def smooth(x: NDArray[np.float32]) -> NDArray[np.float32]:
        out: NDArray[np.float32] = fft.irfft2(fft.rfft2(x) * low, s=x.shape)
        return out

    high = padded - smooth(padded)
    flat: NDArray[Any] = high / (np.float32(0.2) + np.sqrt(np.abs(smooth(np.square(high)))))
    return flat[border : border + n, border : border + n]


def describe(grey: NDArray[np.float32], orientations: tuple[int, ...], blocks: int) -> NDArray[np.float32]:
    """GIST of one grey square.

    Parameters
    ----------
    grey : ndarray of float32, shape (size, size)
    orientations : tuple of int
    blocks : int

    Returns
    -------
    ndarray of float32, shape (sum(orientations) * blocks**2,)
    """
    from scipy import fft

    size = grey.shape[0]
    grey = grey - grey.min()
    top = grey.max()
    white = _whiten(np.float32(255) * grey / top if top > 0 else grey)
    F = fft.fft2(_mirror(white, _EXTEND))
    F_turned = np.ascontiguousarray(F.T)
    n = F.shape[0]
    inside = slice(_EXTEND, _EXTEND + size)
    average = _averages(size, blocks)
    out = np.empty((sum(orientations), blocks, blocks), dtype=np.float32)
    for k, part in enumerate(_bank(n, orientations)):
        # inverse transform along the columns that matter, then along the rows inside the border
        plane = F_turned if part.turned else F
        columns = np.empty_like(part.G, dtype=np.complex64)
        for where, own in part.runs:
            np.multiply(plane[:, where], part.G[:, own], out=columns[:, own])
        columns = fft.ifft(columns, axis=0, overwrite_x=True)
        answer = np.zeros((size, n), dtype=np.complex64)
        for where, own in part.runs:
            answer[:, where] = columns[inside, own]
        strength = np.abs(fft.ifft(answer, axis=1, overwrite_x=True)[:, inside])
        mean = average @ strength @ average.T
        out[k] = mean if part.turned else mean.T  # blocks column by column, as the original counts them
    return out.reshape(-1)


class GIST(FeatureTransformer):
    """GIST descriptors of pictures.

    Parameters
    ----------
    size : int
        The picture is scaled and cut to a grey square of this many pixels (128 or 256 are usual).
    orientations : sequence of int
        Directions at each scale, from fine to coarse.
    blocks : int
        The answers are averaged over blocks x blocks parts of the picture.
    n_jobs : int, optional
        Threads; all processors by default. The features do not depend on it.
    progress : callable, optional
        ``progress(done, total)``.

    Attributes
    ----------
    failed_ : list of (int, str, str)
        Row, name and reason of each picture that the last ``transform`` could not read; its features are NaN,
        which :mod:`modalhash.views` reads as "this view is missing".

    Examples
    --------
    >>> import numpy as np
    >>> pictures = np.random.default_rng(0).integers(0, 256, (2, 100, 150, 3), dtype=np.uint8)
    >>> GIST().fit_transform(list(pictures)).shape
    (2, 512)
    """

    def __init__(
        self,
        size: int = 128,
        orientations: Sequence[int] = (8, 8, 8, 8),
        blocks: int = 4,
        n_jobs: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.size = size
        self.orientations = orientations
        self.blocks = blocks
        self.n_jobs = n_jobs
        self.progress = progress

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Check the parameters; GIST learns nothing.

        Parameters
        ----------
        X, y : ignored

        Returns
        -------
        self
        """
        self._checked()
        return self

    def _checked(self) -> tuple[int, tuple[int, ...], int]:
        size = check_count(self.size, "size", 16)
        blocks = check_count(self.blocks, "blocks")
        orientations = tuple(check_count(m, "each of orientations") for m in self.orientations)
        if not orientations or blocks > size:
            raise InputError(
                f"orientations must not be empty and blocks at most size; got {self.orientations!r} and {blocks}."
            )
        return size, orientations, blocks

    def transform(self, X: Sequence[Any]) -> NDArray[np.float32]:
        """Describe pictures.

        Parameters
        ----------
        X : sequence of n pictures
            Paths, bytes, PIL images or arrays (see :func:`modalhash.features.open_image`).

        Returns
        -------
        ndarray of float32, shape (n, sum(orientations) * blocks**2)
        """
        size, orientations, blocks = self._checked()

        def one(image: Any) -> NDArray[np.float32]:
            return describe(grey_square(image, size), orientations, blocks)

        results, self.failed_ = map_images(one, X, n_jobs=self.n_jobs, progress=self.progress)
        return stack_rows(results, sum(orientations) * blocks**2)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the columns: scale, direction, and block as column and row.

        Parameters
        ----------
        input_features : ignored

        Returns
        -------
        ndarray of str
        """
        _, orientations, blocks = self._checked()
        names = [
            f"scale {s} direction {j} block {c},{r}"
            for s, m in enumerate(orientations)
            for j in range(m)
            for c in range(blocks)
            for r in range(blocks)
        ]
        return np.array(names, dtype=object)
