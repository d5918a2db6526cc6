"""A made-up data set whose right answer is known: classes seen through two noisy, non-linear views."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..exceptions import InputError
from .dataset import Dataset

__all__ = ["make_synthetic"]


def make_synthetic(
    n: int = 2000,
    n_classes: int = 10,
    *,
    n_image: int = 128,
    n_text: int = 100,
    max_labels: int = 3,
    noise: float = 0.5,
    sparse_text: bool = False,
    random_state: int = 0,
) -> Dataset:
    """Draw items with one to three labels and two views that depend on nothing but the labels and noise.

    Each class has a direction in a hidden space; an item lies at the sum of its classes' directions plus noise.
    The image view bends that space smoothly and stretches it to values of hundreds; the text view is either
    another bend with small values, or 0/1 tags of which every class switches on its own. Two items are relevant to
    each other exactly when they share a class, so a perfect code would reach MAP 1.

    Parameters
    ----------
    n : int
        Items.
    n_classes : int
        Labels; some are more frequent than others.
    n_image, n_text : int
        Widths of the views.
    max_labels : int
        An item has between one and this many labels; 1 makes separable classes.
    noise : float
        0 makes the views a function of the labels; at 1 about one in eight of the nearest neighbours is wrong.
    sparse_text : bool
        Make the text view a CSR matrix of 0/1 tags.
    random_state : int

    Returns
    -------
    Dataset
        Views ``image`` and ``text``, labels, and splits by the protocol "mirflickr" (5 % queries).

    Examples
    --------
    >>> data = make_synthetic(n=300, random_state=0)
    >>> data
    <Dataset 'synthetic': 300 items; image (300, 128), text (300, 100); 10 labels, query 15, train 285, database 285>
    >>> int(data.labels.sum(axis=1).min()), int(data.labels.sum(axis=1).max())
    (1, 3)
    """
    sizes = {"n": (n, 2), "n_classes": (n_classes, 1), "n_image": (n_image, 1), "n_text": (n_text, 1)}
    for name, (value, least) in sizes.items():
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
            raise InputError(f"{name} must be a whole number of at least {least}; got {value!r}.")
    if not 1 <= max_labels <= n_classes:
        raise InputError(f"max_labels must lie between 1 and n_classes ({n_classes}); got {max_labels!r}.")
    if not noise >= 0:
        raise InputError(f"noise must not be negative; got {noise!r}.")
    rng = np.random.default_rng(random_state)
    labels = _draw_labels(rng, n, n_classes, max_labels)
    k = max(16, 2 * n_classes)
    directions = np.linalg.qr(rng.standard_normal((k, k)))[0][:n_classes] * 3.0
    hidden = labels @ directions
    image = _bend(rng, hidden, n_image, noise)
    views: dict[str, Any] = {"image": (127.5 * (1 + image)).astype(np.float32)}
    if sparse_text:
        views["text"] = _tags(rng, labels, n_text, noise)
    else:
        views["text"] = np.maximum(_bend(rng, hidden, n_text, noise), 0).astype(np.float32)
    data = Dataset(
        views,
        labels=labels,
        label_names=[f"class {j}" for j in range(n_classes)],
        feature_names={"text": [f"word {j}" for j in range(n_text)]},
        provenance={
            "source": "modalhash.datasets.make_synthetic",
            "n": int(n),
            "n_classes": int(n_classes),
            "max_labels": int(max_labels),
            "noise": float(noise),
            "sparse_text": bool(sparse_text),
            "random_state": int(random_state),
        },
        name="synthetic",
    )
    return data.split("mirflickr", seed=random_state)


def _draw_labels(rng: np.random.Generator, n: int, n_classes: int, max_labels: int) -> NDArray[np.uint8]:
    """0/1 labels (n, n_classes): a row has 1 to `max_labels` ones; class j is drawn in proportion to 1/(j + 5)."""
    weight = 1 / (np.arange(n_classes) + 5)
    count = rng.integers(1, max_labels + 1, size=n)
    # Gumbel keys: the largest `count` keys of a row are a weighted draw without replacement.
    keys = np.log(weight) + rng.gumbel(size=(n, n_classes))
    place = np.argsort(np.argsort(-keys, axis=1), axis=1)
    return (place < count[:, None]).astype(np.uint8)


def _bend(rng: np.random.Generator, hidden: NDArray[np.float64], width: int, noise: float) -> NDArray[np.float64]:
    """A smooth non-linear image of `hidden`, values in (-1, 1): tanh of a random map plus its square."""
    k = hidden.shape[1]
    noisy = hidden + noise * rng.standard_normal(hidden.shape)
    straight = noisy @ rng.standard_normal((k, width)) / np.sqrt(k)
    curved = np.square(noisy @ rng.standard_normal((k, width)) / np.sqrt(k)) - 1
    out: NDArray[np.float64] = np.tanh(straight + 0.5 * curved + rng.standard_normal(width) * 0.2)
    return out


def _tags(rng: np.random.Generator, labels: NDArray[np.uint8], width: int, noise: float) -> Any:
    """0/1 tags as CSR (n, width): tag t belongs to class t mod n_classes; noise switches on tags of no class."""
    own = labels[:, np.arange(width) % labels.shape[1]].astype(bool)
    chance = np.where(own, 0.35, min(1.0, 0.02 * noise))
    on = rng.random(own.shape) < chance
    return sparse.csr_array(on.astype(np.float32))
