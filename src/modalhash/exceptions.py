"""Errors and warnings.

Each error also inherits the standard exception a caller would expect, so that
``except ValueError`` keeps working. Every message says what was needed, what
came, and what to do.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "ConstantBitsWarning",
    "ConvergenceWarning",
    "InputError",
    "LabelsRequiredError",
    "MissingExtraError",
    "ModalHashError",
    "ModelFormatError",
    "NotFittedError",  # noqa: F822  (made on first use, below)
    "RankWarning",
    "UnknownViewError",
]


class ModalHashError(Exception):
    """Base of every error raised on purpose by modalhash."""


class InputError(ModalHashError, ValueError):
    """The data or a parameter handed in cannot be used as it is."""


class UnknownViewError(InputError):
    """A view name that the model was not fitted with."""


class LabelsRequiredError(InputError):
    """The method or rule needs labels and none were given."""


class ModelFormatError(ModalHashError, ValueError):
    """A saved model, index or data file is missing, damaged or of an unknown version."""


class MissingExtraError(ModalHashError, ImportError):
    """An optional dependency is not installed.

    Parameters
    ----------
    package : str
        What could not be imported.
    extra : str
        The extra of modalhash that brings it.
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"this needs {package}, which is not installed. Install it with: pip install 'modalhash[{extra}]'"
        )
        self.package = package
        self.extra = extra

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.package, self.extra))


class ConstantBitsWarning(UserWarning):
    """Some bits have the same value for every row and carry no information."""


class ConvergenceWarning(UserWarning):
    """An iterative method stopped before its tolerance was reached."""


class RankWarning(UserWarning):
    """More bits were asked for than the problem has directions; the rest are noise."""


def __getattr__(name: str) -> Any:
    # NotFittedError inherits scikit-learn's, whose import takes over a second: made when first asked for.
    if name == "NotFittedError":
        from sklearn.exceptions import NotFittedError as SklearnNotFittedError

        cls = type(
            "NotFittedError",
            (ModalHashError, SklearnNotFittedError),
            {"__doc__": "The model is used before ``fit``.", "__module__": __name__},
        )
        globals()[name] = cls
        return cls
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
