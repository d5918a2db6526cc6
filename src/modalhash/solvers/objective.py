"""The DMH objective, its codes and its gradient, written once over NumPy or torch.

n rows, c bits; X (n, d) a view, centred and scaled; C = sigmoid(X W + 1 v); B (n, c) in {0, 1}.
Equation names are the labels of the paper's source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from array_api_compat import array_namespace
from array_api_compat import device as device_of
from scipy import sparse

from ..linalg import CentredMatrix, is_torch, sigmoid, to_device

__all__ = ["KINDS", "Engine", "Part", "ReferenceEngine", "choose_engine", "gradient", "unified_codes"]

KINDS = ("paper", "centered", "weights", None)
"""Regularisers; see :mod:`modalhash.methods.dmh`."""

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
    """

    name: str
    X: CentredMatrix
    W: Any
    v: Any
    alpha: float
    gamma: float
    rows: Any = None

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
    """

    stride = 1
    """After how many iterations it is cheap to look at the objective."""

    def __init__(self, parts: list[Part], n: int, kind: str | None) -> None:
        self.parts, self.n, self.kind = parts, n, kind

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def gradients(self) -> list[Gradient]:
        """For each part: dE/dW, dE/dv, alpha ‖B - C‖^2, alpha R, with B updated first."""
        raise TypeError(f"{type(self).__name__} does not say how to compute gradients.")

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
                part.v -= dt * (dv / part.X.shape[0])  # Eq. (updatab) carries 1/n
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
    n = C.shape[0]
    alpha, gamma = part.alpha, part.gamma
    G = C - B
    fit = alpha * (G * G).sum()
    penalty = 0.0 * fit
    if kind == "paper":
        gram = C.T @ C
        penalty = (alpha * gamma / (2 * n)) * (gram * gram).sum()
        G += (gamma / n) * (C @ gram)
    elif kind == "centered":
        S = 2 * C - 1
        gram = S.T @ S
        penalty = (alpha * gamma / (2 * n)) * (gram * gram).sum()
        G += (2 * gamma / n) * (S @ gram)
    G *= C
    G *= 1 - C
    G *= 2 * alpha
    dW = part.X.tdot(G)  # Eq. (updateW)
    if kind == "weights":
        penalty = add_weight_penalty(part, n, dW)
    return dW, G.sum(0), fit, penalty


def add_weight_penalty(part: Part, n: int, dW: Any) -> Any:
    """Add the gradient of alpha (gamma n / 2) ‖W'W - I‖^2 to `dW`, and return that penalty; Eq. (mcrtmp)."""
    W = part.W
    eye = np.eye(W.shape[1])
    gram = W.T @ W - (to_device(eye, W.device).to(W.dtype) if is_torch(W) else eye.astype(W.dtype))
    dW += (2 * part.alpha * part.gamma * n) * (W @ gram)
    return (part.alpha * part.gamma * n / 2) * (gram * gram).sum()


class ReferenceEngine(Engine):
    """The plain version: whole arrays, NumPy or torch. The other engines are tested against it."""

    def gradients(self) -> list[Gradient]:
        """For each part: dE/dW, dE/dv, alpha ‖B - C‖^2, alpha R, with B updated first."""
        C = [part.embed() for part in self.parts]
        B = unified_codes(self.parts, C, self.n)  # Eq. (updateB)
        return [
            gradient(part, Ci, B if part.rows is None else B[part.rows], self.kind)
            for part, Ci in zip(self.parts, C, strict=True)
        ]


def choose_engine(parts: list[Part], n: int, kind: str | None) -> Engine:
    """The fastest engine that can do it: blocks on all cores for float32 in NumPy, the plain version otherwise.

    Parameters
    ----------
    parts : list of Part
    n : int
    kind : str or None

    Returns
    -------
    Engine
    """
    plain = all(
        (isinstance(part.X.X, np.ndarray) or sparse.issparse(part.X.X))
        and part.W.dtype == part.X.X.dtype == np.float32
        and part.rows is None
        for part in parts
    )
    if plain and kind != "centered" and n * parts[0].W.shape[1] >= _WORTH_COMPILING:
        from .cpu import BlockEngine

        return BlockEngine(parts, n, kind)
    return ReferenceEngine(parts, n, kind)
