"""What every feature step here is: a scikit-learn transformer whose state is plain arrays and JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from .. import exceptions
from ..exceptions import InputError, ModelFormatError

__all__ = ["FeatureTransformer", "Progress"]

Progress = Callable[[int, int], object]
"""A hook ``progress(done, total)``, called from the thread that called the transformer."""

_NOT_SAVED = ("n_jobs", "progress")  # about the machine and the caller, not about the features


class FeatureTransformer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the transformers: ``__init__`` stores, ``fit`` learns, and the state can be saved without pickle.

    A subclass names its learned arrays in `_arrays` and its other learned attributes, JSON values, in `_values`.
    """

    _arrays: tuple[str, ...] = ()
    _values: tuple[str, ...] = ()

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from training items; for steps with nothing to learn this only checks the parameters.

        Parameters
        ----------
        X : the items
        y : ignored

        Returns
        -------
        self
        """
        return self

    def get_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what was learned, as arrays and as JSON values.

        Returns
        -------
        tuple of (dict of str to ndarray, dict)
        """
        self._check_fitted()
        params = {k: v for k, v in self.get_params(deep=False).items() if k not in _NOT_SAVED}
        values = {name: getattr(self, name) for name in self._values}
        arrays = {name: np.ascontiguousarray(getattr(self, name)) for name in self._arrays}
        return arrays, {"class": type(self).__name__, "params": params, "values": values}

    @classmethod
    def from_state(cls, arrays: dict[str, Any], config: dict[str, Any]) -> Self:
        """Make a fitted transformer of what :meth:`get_state` returned.

        Parameters
        ----------
        arrays : dict of str to ndarray
        config : dict

        Returns
        -------
        FeatureTransformer
        """
        if config.get("class") != cls.__name__:
            raise ModelFormatError(f"the state is one of {config.get('class')!r}; {cls.__name__} was asked for.")
        missing = [k for k in cls._arrays if k not in arrays] + [k for k in cls._values if k not in config["values"]]
        if missing:
            raise ModelFormatError(f"the state of {cls.__name__} is not whole: {', '.join(missing)} missing.")
        step = cls(**config["params"])
        for name in cls._arrays:
            setattr(step, name, np.asarray(arrays[name]))
        for name in cls._values:
            setattr(step, name, config["values"][name])
        return step

    def _check_fitted(self) -> None:
        if any(not hasattr(self, name) for name in (*self._arrays, *self._values)):
            raise exceptions.NotFittedError(f"this {type(self).__name__} is used before fit; call fit(training items).")

    def __sklearn_is_fitted__(self) -> bool:
        return all(hasattr(self, name) for name in (*self._arrays, *self._values))


def check_count(value: Any, name: str, least: int = 1) -> int:
    """Check that a parameter is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}; got {value!r}.")
    return int(value)
