"""Parameters by name, as scikit-learn has them, without importing it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .exceptions import InputError

__all__ = ["Parameters", "check_count", "check_random_state", "given_or_uniform"]


def check_random_state(seed: Any) -> np.random.Generator:
    """Make a NumPy generator of an int, None or a generator.

    Examples
    --------
    >>> int(check_random_state(0).integers(10))
    8
    """
    if seed is None or isinstance(seed, (int, np.integer, np.random.Generator)):
        if isinstance(seed, (int, np.integer)) and seed < 0:
            raise InputError(f"random_state must not be negative; got {seed}.")
        return np.random.default_rng(seed)
    raise InputError(f"random_state must be a whole number, None or a numpy.random.Generator; got {seed!r}.")


def check_count(value: Any, name: str) -> None:
    """Refuse anything but a whole number of at least 1.

    Examples
    --------
    >>> check_count(20, "n_iter")
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise InputError(f"{name} must be a whole number of at least 1; got {value!r}.")


def given_or_uniform(start: Any, shape: tuple[int, int], rng: np.random.Generator, what: str) -> NDArray[np.float64]:
    """A starting matrix: the one given, checked, or numbers drawn uniformly from (0, 1).

    Parameters
    ----------
    start : array of the shape, or None
    shape : tuple of int
    rng : numpy.random.Generator
        Drawn from only where nothing is given.
    what : str
        Its name, for the error.

    Examples
    --------
    >>> given_or_uniform([[1, 2]], (1, 2), np.random.default_rng(0), "init")
    array([[1., 2.]])
    """
    if start is None:
        return rng.random(shape)
    try:
        given = np.array(start, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} must be a matrix of numbers of shape {shape}; got {type(start).__name__}.") from error
    if given.shape != shape or not np.isfinite(given).all():
        raise InputError(f"{what} must be finite, of shape {shape}; got shape {given.shape}.")
    return given


class Parameters:
    """A class whose ``__init__`` stores its arguments under their own names, and nothing else."""

    @classmethod
    def _parameter_names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name, as given to the constructor.

        Parameters
        ----------
        deep : bool
            There is nothing nested; accepted for scikit-learn's ``clone``.

        Examples
        --------
        >>> import modalhash as mh
        >>> mh.DMH(n_bits=8).get_params()["n_bits"]
        8
        """
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters by name; an unknown one is an error.

        Examples
        --------
        >>> import modalhash as mh
        >>> mh.DMH().set_params(n_bits=8).n_bits
        8
        """
        known = self._parameter_names()
        for name, value in parameters.items():
            if name not in known:
                raise InputError(f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(known)}.")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        shown = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if defaults[name].default is inspect.Parameter.empty or not _same(value, defaults[name].default)
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    def _plain_params(self) -> dict[str, Any]:
        """Parameters as JSON values, for saving."""
        return {name: _plain(value) for name, value in self.get_params().items()}


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(np.all(value == default)))


def _plain(value: Any) -> Any:
    """A parameter as JSON; what JSON cannot hold (a callback, a generator) is not part of the model."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): _plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return np.dtype(value).name
    return value if value is None or isinstance(value, (bool, int, float, str)) else None
