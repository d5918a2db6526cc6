"""What the bits of a set of codes are worth: balance, entropy, correlation, distinct codes, quantisation error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .codes import Codes, as_words, check_codes, n_bytes, unpack
from .exceptions import InputError, MissingExtraError
from .linalg import is_torch, sigmoid

__all__ = ["BitDiagnostics", "bit_diagnostics", "quantisation_error"]

_ROWS = 1 << 15

LINKS = {
    "sigmoid": "bits as 0 and 1 against the sigmoid of the score (B and C of the decorrelated hashing model)",
    "linear": "bits as -1 and +1 against the score itself",
}
"""What a score is compared with when its quantisation error is measured."""


@dataclass(frozen=True, eq=False)
class BitDiagnostics:
    """How much the bits of a set of codes carry.

    Attributes
    ----------
    n : int
        Codes looked at.
    n_bits : int
    balance : ndarray of float64, shape (n_bits,)
        Share of ones per bit; 0.5 is balanced.
    entropy : ndarray of float64, shape (n_bits,)
        Entropy per bit, in bits: 1 when balanced, 0 when constant.
    correlation : ndarray of float64, shape (n_bits, n_bits)
        Pearson's correlation between bits; NaN in the row and column of a constant bit.
    mean_abs_correlation : float
        Mean absolute correlation over pairs of different bits that vary; NaN with fewer than two such bits.
    distinct_codes : int
        How many different codes occur.
    constant_bits : int
        Bits with one value throughout.
    quantisation_error : float or None
        Mean squared distance between score and bit (see :func:`quantisation_error`), where scores were given.
    link : str or None
        How scores were compared with bits.

    Examples
    --------
    >>> from modalhash.codes import pack
    >>> bits = bit_diagnostics(pack([[0, 0, 1], [0, 1, 1], [1, 0, 1], [1, 1, 1]]), n_bits=3)
    >>> bits.balance.tolist(), bits.constant_bits, bits.distinct_codes, bits.mean_abs_correlation
    ([0.5, 0.5, 1.0], 1, 4, 0.0)
    """

    n: int
    n_bits: int
    balance: NDArray[np.float64]
    entropy: NDArray[np.float64]
    correlation: NDArray[np.float64]
    mean_abs_correlation: float
    distinct_codes: int
    constant_bits: int
    quantisation_error: float | None = None
    link: str | None = None

    @property
    def constant_share(self) -> float:
        """Share of constant bits."""
        return self.constant_bits / self.n_bits

    def summary(self) -> dict[str, float | int | None]:
        """Return the numbers of one line: means over bits, and counts.

        Returns
        -------
        dict
            Plain numbers; None where one is not defined.
        """
        rho = self.mean_abs_correlation
        return {
            "n": self.n,
            "n_bits": self.n_bits,
            "mean_imbalance": float(np.abs(self.balance - 0.5).mean()),
            "mean_entropy": float(self.entropy.mean()),
            "mean_abs_correlation": None if math.isnan(rho) else rho,
            "distinct_codes": self.distinct_codes,
            "constant_bits": self.constant_bits,
            "constant_share": self.constant_share,
            "quantisation_error": self.quantisation_error,
        }

    def to_dict(self, *, correlation: bool = False) -> dict[str, Any]:
        """Everything as plain JSON values.

        Parameters
        ----------
        correlation : bool
            Whether to include the whole matrix of correlations.

        Returns
        -------
        dict
        """
        out: dict[str, Any] = {**self.summary(), "link": self.link}
        out["balance"], out["entropy"] = self.balance.tolist(), self.entropy.tolist()
        if correlation:
            out["correlation"] = [[None if math.isnan(v) else v for v in row] for row in self.correlation.tolist()]
        return out

    def __str__(self) -> str:
        rho = "not defined" if math.isnan(self.mean_abs_correlation) else f"{self.mean_abs_correlation:.4f}"
        text = (
            f"{self.n_bits} bits of {self.n} codes: mean |share of ones - 1/2| "
            f"{np.abs(self.balance - 0.5).mean():.4f}, mean entropy {self.entropy.mean():.4f}, "
            f"mean |correlation| {rho}, {self.distinct_codes} distinct codes, {self.constant_bits} constant bits"
        )
        if self.quantisation_error is not None:
            text += f", quantisation error {self.quantisation_error:.4g} ({self.link})"
        return text

    def plot_heat_map(self, ax: Any = None, *, title: str | None = None) -> Any:
        """Draw the absolute correlation between bits; constant bits are grey.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure without it.
        title : str, optional

        Returns
        -------
        matplotlib Axes
            ``ax.figure.savefig("bits.svg")`` writes it.
        """
        try:
            import matplotlib
            from matplotlib.figure import Figure
        except ImportError as error:
            raise MissingExtraError("matplotlib", "plot") from error
        if ax is None:
            ax = Figure(figsize=(4.8, 4.0), layout="constrained").add_subplot()
        colours = matplotlib.colormaps["viridis"].with_extremes(bad="0.8")
        shown = ax.imshow(np.abs(self.correlation), vmin=0, vmax=1, cmap=colours, interpolation="nearest")
        ax.figure.colorbar(shown, ax=ax, label="|correlation|")
        default = f"{self.n} codes of {self.n_bits} bits"
        ax.set(xlabel="bit", ylabel="bit", title=default if title is None else title)
        return ax


def bit_diagnostics(codes: Any, n_bits: int, *, scores: Any = None, link: str = "sigmoid") -> BitDiagnostics:
    """Measure what the bits of codes carry.

    Memory beyond the codes is bounded: rows are unpacked in blocks.

    Parameters
    ----------
    codes : array or tensor of uint8, shape (n, ceil(n_bits / 8))
        Packed codes.
    n_bits : int
    scores : array of shape (n, n_bits), optional
        Real scores behind the codes, for the quantisation error.
    link : {"sigmoid", "linear"}
        As in :func:`quantisation_error`.

    Returns
    -------
    BitDiagnostics

    Examples
    --------
    >>> from modalhash.codes import pack
    >>> print(bit_diagnostics(pack([[0, 0], [1, 1]]), n_bits=2))
    2 bits of 2 codes: mean |share of ones - 1/2| 0.0000, mean entropy 1.0000, mean |correlation| 1.0000,
    2 distinct codes, 0 constant bits
    """
    if is_torch(codes):
        codes = codes.detach().cpu().numpy()
    codes = check_codes(codes, n_bits)
    n = codes.shape[0]
    if n == 0:
        raise InputError("there are no codes to look at; pass at least one row.")
    if scores is not None and tuple(np.shape(scores)) != (n, n_bits):
        raise InputError(f"scores have another shape than {n} codes of {n_bits} bits; pass one score per bit.")
    ones, both = np.zeros(n_bits), np.zeros((n_bits, n_bits))
    for start in range(0, n, _ROWS):
        # float32 holds the counts of a block of 2^15 rows exactly; the sum over blocks is float64.
        block = unpack(codes[start : start + _ROWS], n_bits).astype(np.float32)
        ones += block.sum(axis=0, dtype=np.float64)
        both += block.T @ block
    mean = ones / n
    covariance = both / n - np.outer(mean, mean)
    varies = (ones > 0) & (ones < n)
    spread = np.where(varies, np.sqrt(mean * (1 - mean)), np.nan)
    correlation = np.clip(covariance / np.outer(spread, spread), -1, 1)
    off = np.abs(correlation[np.outer(varies, varies) & ~np.eye(n_bits, dtype=np.bool_)])
    return BitDiagnostics(
        n=n,
        n_bits=n_bits,
        balance=mean,
        entropy=_entropy(mean),
        correlation=correlation,
        mean_abs_correlation=float(off.mean()) if off.size else math.nan,
        distinct_codes=_distinct(codes),
        constant_bits=int(n_bits - varies.sum()),
        quantisation_error=None if scores is None else quantisation_error(scores, codes=codes, link=link),
        link=None if scores is None else link,
    )


def _entropy(share: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy.special import entr

    out: NDArray[np.float64] = (entr(share) + entr(1 - share)) / math.log(2)
    return out


def _distinct(codes: Codes) -> int:
    words = as_words(codes)
    if words.shape[1] == 1:
        return int(np.unique(words[:, 0]).size)
    rows = np.ascontiguousarray(words).view(np.dtype((np.void, 8 * words.shape[1])))
    return int(np.unique(rows[:, 0]).size)


def quantisation_error(scores: Any, *, codes: Any = None, link: str = "sigmoid") -> float:
    """Mean squared distance between scores and the bits that stand for them.

    Parameters
    ----------
    scores : array or tensor of shape (n, n_bits)
    codes : array of uint8, shape (n, ceil(n_bits / 8)), optional
        The packed codes; without them the signs of the scores.
    link : {"sigmoid", "linear"}
        "sigmoid" compares the score's sigmoid with 0 or 1, the quantisation term of the decorrelated hashing model:
        never above 1, and 0.25 for scores of 0. "linear" compares the score itself with -1 or +1, as iterative
        quantisation does; it depends on the scores' scale.

    Returns
    -------
    float
        Mean over rows and bits.

    Examples
    --------
    Scores 0.5 and -2: ((0.5 - 1)^2 + (-2 + 1)^2) / 2.

    >>> quantisation_error([[0.5, -2.0]], link="linear")
    0.625
    """
    if link not in LINKS:
        raise InputError(f"link must be one of {', '.join(map(repr, LINKS))}; got {link!r}.")
    if is_torch(scores):
        scores = scores.detach().cpu().numpy()
    real = np.asarray(scores)
    if real.ndim != 2 or real.size == 0 or real.dtype.kind not in "fiu":
        raise InputError(
            f"scores must be a matrix (n, n_bits) of real numbers; got {real.dtype} of shape {real.shape}."
        )
    n, n_bits = int(real.shape[0]), int(real.shape[1])
    packed = None if codes is None else check_codes(codes)
    if packed is not None and packed.shape != (n, n_bytes(n_bits)):
        raise InputError(
            f"scores have {n} rows of {n_bits} and codes {packed.shape[0]} rows of {packed.shape[1]} bytes; "
            "pass one row of scores per code, one score per bit."
        )
    error = 0.0
    for start in range(0, n, _ROWS):
        block = real[start : start + _ROWS].astype(np.float64)
        if not np.isfinite(block).all():
            raise InputError("scores hold NaN or infinity; pass finite scores.")
        bits = block > 0 if packed is None else unpack(packed[start : start + _ROWS], n_bits)
        target = bits.astype(np.float64) if link == "sigmoid" else np.where(bits, 1.0, -1.0)
        error += float(np.square((sigmoid(block) if link == "sigmoid" else block) - target).sum())
    return error / float(n * n_bits)
