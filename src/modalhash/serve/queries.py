"""What a raw query can be, by the features that a model carries."""

from __future__ import annotations

from typing import Any

from ..base import CrossModalHasher
from ..exceptions import InputError

__all__ = ["first_step", "kind_of", "view_of_kind"]

_KINDS = {"TagVectorizer": "text", "GIST": "image", "BagOfVisualWords": "image"}


def first_step(hasher: CrossModalHasher, view: str) -> Any:
    """The feature step that raw items of a view go into; None where the model carries none."""
    features = getattr(hasher, "features_", None)
    steps = [] if features is None else features.steps_.get(view, [])
    return steps[0] if steps else None


def kind_of(hasher: CrossModalHasher, view: str) -> str:
    """What a query of a view can be made of: "text", "image", or only a "vector" of features.

    Examples
    --------
    >>> import modalhash as mh
    >>> data = mh.datasets.make_synthetic(n=50, random_state=0)
    >>> kind_of(mh.LSH(n_bits=8).fit(data.views), "text")
    'vector'
    """
    return _KINDS.get(type(first_step(hasher, view)).__name__, "vector")


def view_of_kind(hasher: CrossModalHasher, kind: str, view: str | None = None) -> str:
    """The view that a text or an image is of.

    Parameters
    ----------
    hasher : CrossModalHasher
    kind : {"text", "image"}
    view : str, optional
        Needed only where several views are of that kind.

    Returns
    -------
    str
    """
    able = [name for name in hasher.view_names_ if kind_of(hasher, name) == kind]
    if not able:
        raise InputError(f"the model carries no features for {kind}s, so it cannot encode one.")
    if view is None and len(able) == 1:
        return able[0]
    if view is None or view not in able:
        raise InputError(f"a query by {kind} needs a view of {kind}s: {', '.join(map(repr, able))}; got {view!r}.")
    return view
