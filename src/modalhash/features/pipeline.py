"""Feature steps per view, fitted on training items only, then applied to all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from ..datasets.dataset import Dataset
from ..exceptions import InputError, ModelFormatError, UnknownViewError
from .transformer import FeatureTransformer

__all__ = ["FeaturePipeline"]


class FeaturePipeline:
    """A list of transformers for each view.

    Parameters
    ----------
    steps : dict of str to transformer or list of transformers
        View name -> what turns its raw items (pictures, tags, a matrix) into a matrix, first step first. Views
        without steps pass unchanged.

    Examples
    --------
    >>> from modalhash.features import PCA, TagVectorizer
    >>> train = {"text": [["sea", "sky"], ["sky"], ["sea"], ["dog", "sea"]]}
    >>> pipeline = FeaturePipeline({"text": [TagVectorizer(), PCA(n_components=2)]}).fit(train)
    >>> pipeline.transform({"text": [["sky", "dog"]]})["text"].shape
    (1, 2)
    """

    def __init__(self, steps: Mapping[str, Any]) -> None:
        self.steps = steps

    def _checked(self) -> dict[str, list[Any]]:
        if not isinstance(self.steps, Mapping) or not self.steps:
            raise InputError('steps must be a dict such as {"text": [TagVectorizer(), PCA(500)]}.')
        out = {}
        for view, steps in self.steps.items():
            listed = list(steps) if isinstance(steps, (list, tuple)) else [steps]
            if not listed or not all(hasattr(step, "fit") and hasattr(step, "transform") for step in listed):
                raise InputError(f"steps[{view!r}] must be a transformer or a list of them (fit and transform).")
            out[view] = listed
        return out

    def fit(self, train: Mapping[str, Any] | Dataset) -> Self:
        """Fit every step on the training items, each on the output of the step before.

        Parameters
        ----------
        train : dict of str to raw items, or Dataset
            The training rows alone: ``data.rows("train")``. A view that a data set lacks is looked for among its
            columns of strings.

        Returns
        -------
        self
        """
        from sklearn.base import clone

        fitted: dict[str, list[Any]] = {}
        for view, steps in self._checked().items():
            items = _items(train, view)
            fitted[view] = []
            for i, step in enumerate(steps):
                step = clone(step).fit(items)
                fitted[view].append(step)
                if i + 1 < len(steps):
                    items = step.transform(items)
        self.steps_ = fitted
        return self

    def transform(self, data: Any) -> Any:
        """Apply the fitted steps.

        Parameters
        ----------
        data : dict of str to raw items, or Dataset

        Returns
        -------
        dict of str to matrix, or Dataset
            The same kind as `data`. A dict need not hold every view.
        """
        self._check_fitted()
        if isinstance(data, Dataset):
            views = dict(data.views)
            names = dict(data.feature_names)
            for view in self.steps_:
                views[view] = self._apply(view, _items(data, view))
                names.pop(view, None)
                last = self.steps_[view][-1]
                if hasattr(last, "vocabulary_"):
                    names[view] = list(last.vocabulary_)
            return replace(data, views=views, feature_names=names)
        out = {}
        for view, items in data.items():
            out[view] = self._apply(view, items) if view in self.steps_ else items
        return out

    def fit_transform(self, data: Dataset, *, split: str = "train") -> Dataset:
        """Fit on one split of a data set and transform all of its rows.

        Parameters
        ----------
        data : Dataset
        split : str
            The rows that the steps may see.

        Returns
        -------
        Dataset
            Its provenance says which views were fitted, and on which split.

        Examples
        --------
        >>> from modalhash.datasets import make_synthetic
        >>> from modalhash.features import PCA
        >>> FeaturePipeline({"text": PCA(5)}).fit_transform(make_synthetic(n=100)).views["text"].shape
        (100, 5)
        """
        out: Dataset = self.fit(data.rows(split)).transform(data)
        about = {
            view: {"steps": [repr(step) for step in steps], "rows": split, "split_hash": data.split_hash}
            for view, steps in self.steps_.items()
        }
        fitted = {**data.provenance.get("fitted", {}), **about}
        return replace(out, provenance={**data.provenance, "fitted": fitted})

    def _apply(self, view: str, items: Any) -> Any:
        for step in self.steps_[view]:
            items = step.transform(items)
        return items

    def _check_fitted(self) -> None:
        if not hasattr(self, "steps_"):
            from .. import exceptions

            raise exceptions.NotFittedError("this FeaturePipeline is used before fit; call fit(training items).")

    def get_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return everything that was learned, as arrays and as JSON values.

        Returns
        -------
        tuple of (dict of str to ndarray, dict)
            An array is called ``view/number of the step/name``.
        """
        self._check_fitted()
        arrays: dict[str, Any] = {}
        config: dict[str, Any] = {}
        for view, steps in self.steps_.items():
            config[view] = []
            for i, step in enumerate(steps):
                if not isinstance(step, FeatureTransformer):
                    raise InputError(
                        f"step {i} of view {view!r} is a {type(step).__name__}; only the steps of modalhash.features "
                        "can be saved without pickle."
                    )
                own, about = step.get_state()
                arrays.update({f"{view}/{i}/{name}": value for name, value in own.items()})
                config[view].append(about)
        return arrays, {"steps": config}

    @classmethod
    def from_state(cls, arrays: Mapping[str, Any], config: Mapping[str, Any]) -> Self:
        """Make a fitted pipeline of what :meth:`get_state` returned.

        Parameters
        ----------
        arrays : dict of str to ndarray
        config : dict

        Returns
        -------
        FeaturePipeline

        Examples
        --------
        >>> from modalhash.features import TagVectorizer
        >>> pipeline = FeaturePipeline({"text": TagVectorizer()}).fit({"text": [["sea", "sky"]]})
        >>> FeaturePipeline.from_state(*pipeline.get_state()).transform({"text": [["sky"]]})["text"].toarray()
        array([[0., 1.]], dtype=float32)
        """
        from . import STEPS, load_step

        steps: dict[str, list[Any]] = {}
        try:
            for view, listed in config["steps"].items():
                steps[view] = []
                for i, about in enumerate(listed):
                    if about["class"] not in STEPS:
                        raise ModelFormatError(f"unknown feature step {about['class']!r}; known: {', '.join(STEPS)}.")
                    prefix = f"{view}/{i}/"
                    own = {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
                    steps[view].append(load_step(about["class"]).from_state(own, about))
        except (KeyError, TypeError, AttributeError) as error:
            raise ModelFormatError(f"the state of the feature pipeline is damaged ({error!r}).") from error
        out = cls(steps)
        out.steps_ = steps
        return out


def _items(source: Any, view: str) -> Any:
    if isinstance(source, Dataset):
        if view in source.views:
            return source.views[view]
        if view in source.columns:
            return source.columns[view]
        have: Sequence[str] = [*source.views, *source.columns]
    else:
        if view in source:
            return source[view]
        have = list(source)
    raise UnknownViewError(f"the pipeline needs {view!r}; the data has {', '.join(map(repr, have)) or 'nothing'}.")
