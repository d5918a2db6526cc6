"""Features of pictures and texts, as scikit-learn transformers. Names are loaded when first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ..lazy import lazy_names

STEPS = {
    "GIST": "gist",
    "BagOfVisualWords": "bovw",
    "TagVectorizer": "tags",
    "PCA": "pca",
    "RBFAnchors": "anchors",
}
"""The steps whose state can be saved, and the module of each."""

_HOMES = {
    **STEPS,
    "CorruptImageWarning": "images",
    "LazyImages": "images",
    "render_svg": "svg",
    "split_words": "tags",
    "FeaturePipeline": "pipeline",
    "FeatureTransformer": "transformer",
    "gabor_filters": "gist",
    "grey_square": "images",
    "map_images": "images",
    "open_image": "images",
}

__all__ = [
    "GIST",
    "PCA",
    "STEPS",
    "BagOfVisualWords",
    "CorruptImageWarning",
    "FeaturePipeline",
    "FeatureTransformer",
    "LazyImages",
    "RBFAnchors",
    "TagVectorizer",
    "gabor_filters",
    "grey_square",
    "map_images",
    "open_image",
    "render_svg",
    "split_words",
]


def load_step(name: str) -> Any:
    """Return the class of a step by its name in :data:`STEPS`."""
    return getattr(importlib.import_module(f".{STEPS[name]}", __name__), name)


__getattr__, __dir__ = lazy_names(__name__, _HOMES)

if TYPE_CHECKING:
    from .anchors import RBFAnchors as RBFAnchors
    from .bovw import BagOfVisualWords as BagOfVisualWords
    from .gist import GIST as GIST
    from .gist import gabor_filters as gabor_filters
    from .images import CorruptImageWarning as CorruptImageWarning
    from .images import LazyImages as LazyImages
    from .images import grey_square as grey_square
    from .images import map_images as map_images
    from .images import open_image as open_image
    from .pca import PCA as PCA
    from .pipeline import FeaturePipeline as FeaturePipeline
    from .svg import render_svg as render_svg
    from .tags import TagVectorizer as TagVectorizer
    from .tags import split_words as split_words
    from .transformer import FeatureTransformer as FeatureTransformer
