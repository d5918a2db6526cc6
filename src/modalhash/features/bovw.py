"""Bag of visual words: how often each of 500 typical local patterns occurs in a picture (SIFT + k-means)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..exceptions import InputError, MissingExtraError
from ..kernels import squared_distances
from .images import map_images, open_image, stack_rows
from .transformer import FeatureTransformer, Progress, check_count

__all__ = ["BagOfVisualWords"]


class BagOfVisualWords(FeatureTransformer):
    """Histogram of quantised SIFT descriptors.

    Parameters
    ----------
    n_words : int
        Size of the codebook (500 in NUS-WIDE).
    size : int
        Longest side in pixels that a picture is shrunk to.
    max_descriptors : int
        At most this many per picture, the strongest.
    n_sample : int
        Descriptors, drawn at random from the training pictures, that the codebook is learned from.
    norm : {None, "l1", "l2"}
        Scale each histogram to unit sum or unit length.
    random_state : int
    n_jobs, progress
        As in :class:`GIST`.

    Attributes
    ----------
    codebook_ : ndarray of float32, shape (n_words, 128)
    failed_ : list of (int, str, str)
        Row, name and reason of each picture that the last call could not read; its features are NaN.

    Examples
    --------
    >>> pictures = np.random.default_rng(0).integers(0, 256, (4, 64, 64), dtype=np.uint8)
    >>> BagOfVisualWords(n_words=8).fit_transform(list(pictures)).shape
    (4, 8)
    """

    _arrays = ("codebook_",)

    def __init__(
        self,
        n_words: int = 500,
        size: int = 256,
        max_descriptors: int = 500,
        n_sample: int = 200_000,
        norm: str | None = None,
        random_state: int = 0,
        n_jobs: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.n_words = n_words
        self.size = size
        self.max_descriptors = max_descriptors
        self.n_sample = n_sample
        self.norm = norm
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.progress = progress

    def fit(self, X: Sequence[Any], y: Any = None) -> Self:
        """Learn the codebook from training pictures.

        Parameters
        ----------
        X : sequence of n pictures
        y : ignored

        Returns
        -------
        self
        """
        words = check_count(self.n_words, "n_words")
        sample = check_count(self.n_sample, "n_sample")
        self._check_parameters()
        rng = np.random.default_rng(self.random_state)
        # enough pictures for the sample, and the same share of each
        per_image = max(1, min(self.max_descriptors, 4 * sample // max(1, len(X))))
        enough = min(len(X), -(-4 * sample // per_image))
        chosen = np.sort(rng.choice(len(X), size=enough, replace=False))
        found, self.failed_ = map_images(
            self._describe, [X[i] for i in chosen], n_jobs=self.n_jobs, progress=self.progress
        )
        kept = []
        for descriptors in found:
            if descriptors is not None and len(descriptors):
                kept.append(descriptors[rng.permutation(len(descriptors))[:per_image]])
        total = sum(len(d) for d in kept)
        if total < words:
            raise InputError(
                f"{len(X)} training pictures gave {total} local descriptors; {words} words need at least as many. "
                "Lower n_words or pass more pictures."
            )
        pool = np.concatenate(kept)
        pool = pool[np.sort(rng.choice(total, size=min(total, sample), replace=False))]
        from sklearn.cluster import MiniBatchKMeans

        seed = int(rng.integers(2**31))
        model = MiniBatchKMeans(words, random_state=seed, n_init=3, batch_size=max(4096, 3 * words)).fit(pool)
        self.codebook_ = model.cluster_centers_.astype(np.float32)
        return self

    def transform(self, X: Sequence[Any]) -> NDArray[np.float32]:
        """Count the words of each picture; one without local structure has a row of zeros.

        Parameters
        ----------
        X : sequence of n pictures

        Returns
        -------
        ndarray of float32, shape (n, n_words)
        """
        self._check_fitted()
        self._check_parameters()
        words = self.codebook_.shape[0]

        def one(image: Any) -> NDArray[np.float64]:
            descriptors = self._describe(image)
            if not len(descriptors):
                return np.zeros(words)
            nearest = squared_distances(descriptors, self.codebook_).argmin(axis=1)
            counts = np.bincount(nearest, minlength=words).astype(np.float64)
            if self.norm is not None:
                counts /= counts.sum() if self.norm == "l1" else np.linalg.norm(counts)
            return counts

        results, self.failed_ = map_images(one, X, n_jobs=self.n_jobs, progress=self.progress)
        return stack_rows(results, words)

    def _check_parameters(self) -> None:
        check_count(self.size, "size", 16)
        check_count(self.max_descriptors, "max_descriptors")
        if self.norm not in (None, "l1", "l2"):
            raise InputError(f'norm must be None, "l1" or "l2"; got {self.norm!r}.')

    def _describe(self, image: Any) -> NDArray[np.float32]:
        """SIFT descriptors of one picture, shape (m, 128)."""
        try:
            import cv2
        except ImportError as error:
            raise MissingExtraError("opencv-python-headless", "features") from error
        pixels = open_image(image)
        if pixels.dtype != np.uint8:
            pixels = np.clip(pixels, 0, 255).astype(np.uint8)
        grey = pixels if pixels.ndim == 2 else cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGB2GRAY)
        shrink = self.size / max(grey.shape)
        if shrink < 1:
            width, height = (max(1, round(s * shrink)) for s in grey.shape[::-1])
            grey = cv2.resize(grey, (width, height), interpolation=cv2.INTER_AREA)
        sift = cv2.SIFT_create(nfeatures=self.max_descriptors)  # type: ignore[attr-defined]
        keypoints, descriptors = sift.detectAndCompute(grey, None)
        if descriptors is None:
            return np.zeros((0, 128), dtype=np.float32)
        # ties in strength can exceed nfeatures; the strongest first
        order = np.argsort([-k.response for k in keypoints], kind="stable")[: self.max_descriptors]
        return np.asarray(descriptors[order], dtype=np.float32)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the words.

        Parameters
        ----------
        input_features : ignored

        Returns
        -------
        ndarray of str
        """
        self._check_fitted()
        return np.array([f"word {j}" for j in range(self.codebook_.shape[0])], dtype=object)
