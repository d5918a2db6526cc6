"""The DMH objective, its codes and its gradient, written once over NumPy or torch.

n rows, c bits; X (n, d) a view, centred and scaled; C = sigmoid(X W + 1 v); B (n, c) in {0, 1}.
Equation names are the labels of the paper's source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from array_api_compat import array_namespace
from array_api_compat import device as device_of
from scipy import sparse

from ..exceptions import InputError
from ..linalg import CentredMatrix, is_torch, sigmoid, to_device

__all__ = [
    "KINDS",
    "STORAGES",
    "Engine",
    "Part",
    "ReferenceEngine",
    "choose_engine",
    "gradient",
    "suits_blocks",
    "unified_codes",
]

KINDS = ("paper", "centered", "weights", None)
"""Regularisers; see :mod:`modalhash.methods.dmh`."""

_OF_ROWS = ("paper", "centered")  # regularisers that need the Gram matrix of all rows

STORAGES = ("auto", "float32", "bfloat16")
"""How a GPU may hold dense views."""

_WORTH_COMPILING = 500_000  # n x c; below it the plain version is as fast, and needs no compiled code


@dataclass
class Part:
    """One view inside the iteration: the matrix, its parameters and its constants.

    Attributes
    ----------
    name : str
    X : CentredMatrix, shape (m, d)
        The rows present.
    W : array (d, c); v : array (c,)
        Changed in place by the solver.
    alpha, gamma : float
        Weight of the view, and of its regulariser.
    rows : array of int or None
        Which of the n items the m rows are; None for all.
    total : int
        Rows of the view in all processes that fit together; those here unless given.
    """

    name: str
    X: CentredMatrix
    W: Any
    v: Any
    alpha: float
    gamma: float
    rows: Any = None
    total: int = 0

    def __post_init__(self) -> None:
        self.total = self.total or self.X.shape[0]

    def embed(self) -> Any:
        """C = sigmoid(X W + 1 v), shape (m, c)."""
        Z = self.X @ self.W
        Z += self.v
        return sigmoid(Z)


Gradient = tuple[Any, Any, Any, Any]


class Engine:
    """Evaluates the gradient at the parts' present W and v, and takes the paper's steps with it.

    Parameters
    ----------
    parts : list of Part
        Their W and v are changed in place.
    n : int
        Items.
    kind : str or None
        One of :data:`KINDS`.

    Attributes
    ----------
    combine : callable or None
        Where the rows are spread over several processes: takes a list of arrays and numbers and returns their sums
        over all processes. It is called twice per iteration, with the c x c Gram matrices and with all the rest.
    """

    stride = 1
    """After how many iterations it is cheap to look at the objective."""
    combine: Callable[[list[Any]], list[Any]] | None = None

    def __init__(self, parts: list[Part], n: int, kind: str | None) -> None:
        self.parts, self.n, self.kind = parts, n, kind

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def gradients(self) -> list[Gradient]:
        """For each part: dE/dW, dE/dv, alpha ‖B - C‖^2, alpha R, with B updated first."""
        grams = self._combined(self.correlations())
        sums = self._combined(self.sums(grams))
        out: list[Gradient] = []
        for i, part in enumerate(self.parts):
            dW, dv, fit = sums[3 * i : 3 * i + 3]
            out.append((dW, dv, fit, regularise(part, self.kind, grams[i] if grams else None, dW)))
        return out

    def correlations(self) -> list[Any]:
        """Update C and B; the Gram matrix of each part that the regulariser takes, or nothing where it takes none."""
        raise TypeError(f"{type(self).__name__} does not say how to compute Gram matrices.")

    def sums(self, grams: list[Any]) -> list[Any]:
        """What is summed over the rows, given the Gram matrices of all rows: dE/dW, dE/dv, fit of each part in turn."""
        raise TypeError(f"{type(self).__name__} does not say how to compute gradients.")

    def _combined(self, values: list[Any]) -> list[Any]:
        return self.combine(values) if self.combine is not None and values else values

    def advance(self, steps: Sequence[float], normalize: bool) -> list[list[Any]]:
        """Lines 3 to 5 of Algorithm 2 (of Algorithm 1 without `normalize`), once for each step length.

        Parameters
        ----------
        steps : sequence of float
        normalize : bool
            Divide the step of W by the gradient's norm.

        Returns
        -------
        list of list
            Per iteration, the two parts of the objective for each view, before the step.
        """
        curve = []
        for dt in steps:
            terms: list[Any] = []
            for part, (dW, dv, fit, penalty) in zip(self.parts, self.gradients(), strict=True):
                terms += [fit, penalty]
                if normalize:
                    norm = (dW * dW).sum() ** 0.5
                    dW /= norm + (norm == 0)
                part.v -= dt * (dv / part.total)  # Eq. (updatab) carries 1/n
                part.W -= dt * dW  # Eq. (updateW)
            curve.append(terms)
        return curve


def unified_codes(parts: list[Part], C: list[Any], n: int) -> Any:
    """B = [sum_i alpha_i C^i / sum_i alpha_i > 1/2] over the entries present, 0 or 1; Eq. (updateB), rounded.

    Parameters
    ----------
    parts : list of Part
    C : list of array (m_i, c)
    n : int

    Returns
    -------
    array (n, c) of C's type
    """
    xp = array_namespace(C[0])
    total = xp.zeros((n, C[0].shape[1]), dtype=C[0].dtype, device=device_of(C[0]))
    for part, Ci in zip(parts, C, strict=True):
        signed = (Ci - 0.5) * part.alpha  # its sum is positive where the weighted mean exceeds 1/2
        if part.rows is None:
            total += signed
        else:
            total[part.rows] += signed
    return xp.astype(total > 0, total.dtype)


def correlation(C: Any, kind: str | None) -> Any:
    """C'C, or S'S with S = 2C - 1 for the kind "centered"; shape (c, c)."""
    if kind == "centered":
        C = 2 * C - 1
    return C.T @ C


def gradient(part: Part, C: Any, B: Any, kind: str | None) -> Gradient:
    """Gradient of alpha (‖B - C‖^2 + R) by W and by v, and the two parts of that objective.

    Parameters
    ----------
    part : Part
    C : array (m, c)
        ``part.embed()``.
    B : array (m, c)
        The codes of the same rows, 0 or 1.
    kind : str or None
        One of :data:`KINDS`.

    Returns
    -------
    tuple
        dE/dW (d, c); dE/dv (c,); alpha ‖B - C‖^2; alpha R. The last two are scalars of C's namespace.
    """
    gram = correlation(C, kind) if kind in _OF_ROWS else None
    dW, dv, fit = gradient_of_rows(part, C, B, kind, gram)
    return dW, dv, fit, regularise(part, kind, gram, dW)


def gradient_of_rows(part: Part, C: Any, B: Any, kind: str | None, gram: Any) -> tuple[Any, Any, Any]:
    """What :func:`gradient` sums over rows: dE/dW but for a regulariser of W alone, dE/dv, alpha ‖B - C‖^2.

    Parameters
    ----------
    part, C, B, kind
        As in :func:`gradient`.
    gram : array (c, c) or None
        :func:`correlation` of all rows, also of those that are not here.

    Returns
    -------
    tuple
    """
    alpha, gamma, n = part.alpha, part.gamma, part.total
    G = C - B
    fit = alpha * (G * G).sum()
    if kind == "paper":
        G += (gamma / n) * (C @ gram)
    elif kind == "centered":
        G += (2 * gamma / n) * ((2 * C - 1) @ gram)
    G *= C
    G *= 1 - C
    G *= 2 * alpha
    return part.X.tdot(G), G.sum(0), fit  # Eq. (updateW), Eq. (updatab)


def regularise(part: Part, kind: str | None, gram: Any, dW: Any) -> Any:
    """Alpha R; for the kind "weights" its gradient is added to `dW`, once for all rows."""
    if kind == "weights":
        return add_weight_penalty(part, part.total, dW)
    if gram is None:
        return 0.0
    squares = gram * gram
    total = squares.sum() if is_torch(squares) else squares.sum(dtype=np.float64)
    return (part.alpha * part.gamma / (2 * part.total)) * total


def add_weight_penalty(part: Part, n: int, dW: Any) -> Any:
    """Add the gradient of alpha (gamma n / 2) ‖W'W - I‖^2 to `dW`, and return that penalty; Eq. (mcrtmp)."""
    W = part.W
    eye = np.eye(W.shape[1])
    gram = W.T @ W - (to_device(eye, W.device).to(W.dtype) if is_torch(W) else eye.astype(W.dtype))
    dW += (2 * part.alpha * part.gamma * n) * (W @ gram)
    return (part.alpha * part.gamma * n / 2) * (gram * gram).sum()


class ReferenceEngine(Engine):
    """The plain version: whole arrays, NumPy or torch. The other engines are tested against it."""

    def correlations(self) -> list[Any]:
        """Update C and B; the Gram matrix of each part that the regulariser takes, or nothing where it takes none."""
        self.C = [part.embed() for part in self.parts]
        self.B = unified_codes(self.parts, self.C, self.n)  # Eq. (updateB)
        return [correlation(C, self.kind) for C in self.C] if self.kind in _OF_ROWS else []

    def sums(self, grams: list[Any]) -> list[Any]:
        """What is summed over the rows, given the Gram matrices of all rows: dE/dW, dE/dv, fit of each part in turn."""
        out: list[Any] = []
        for i, (part, C) in enumerate(zip(self.parts, self.C, strict=True)):
            B = self.B if part.rows is None else self.B[part.rows]
            out += gradient_of_rows(part, C, B, self.kind, grams[i] if grams else None)
        return out


def choose_engine(parts: list[Part], n: int, kind: str | None, storage: str = "auto") -> Engine:
    """The fastest engine that can do it: compiled ones for float32 on all cores or on a GPU, else the plain version.

    Parameters
    ----------
    parts : list of Part
    n : int
    kind : str or None
    storage : "auto", "float32" or "bfloat16"
        How a GPU holds dense views; see :class:`modalhash.solvers.gpu.GraphEngine`.

    Returns
    -------
    Engine
    """
    if storage != "bfloat16" and suits_blocks(parts, n, kind):
        from .cpu import BlockEngine

        return BlockEngine(parts, n, kind)
    if is_torch(parts[0].W):
        from .gpu import GraphEngine, usable

        if usable(parts, kind) and (n * parts[0].W.shape[1] >= _WORTH_COMPILING or storage == "bfloat16"):
            return GraphEngine(parts, n, kind, storage)
    if storage == "bfloat16":
        raise InputError(
            'storage="bfloat16" needs a CUDA device with Triton, dtype float32, all rows present and a regulariser of '
            'the kind "paper" or None. Leave storage="auto".'
        )
    return ReferenceEngine(parts, n, kind)


def suits_blocks(parts: list[Part], n: int, kind: str | None) -> bool:
    """Whether the block engine can do it, and is worth compiling for.

    Parameters
    ----------
    parts : list of Part
    n : int
    kind : str or None

    Returns
    -------
    bool
    """
    plain = all(
        (isinstance(part.X.X, np.ndarray) or sparse.issparse(part.X.X))
        and part.W.dtype == part.X.X.dtype == np.float32
        and part.rows is None
        for part in parts
    )
    return plain and kind != "centered" and n * parts[0].W.shape[1] >= _WORTH_COMPILING
