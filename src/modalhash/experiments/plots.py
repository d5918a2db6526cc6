"""The figures, as SVG text: colour-blind safe (Okabe and Ito's palette), a marker for each method besides its colour.

The same numbers give the same bytes: no dates, no random names.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..exceptions import InputError, MissingExtraError

__all__ = ["BACKGROUND", "INK", "Series", "draw_heat_map", "draw_lines", "style_of"]

INK = "#1a1b1c"
"""Colour of text and axes; a page may replace it by its own."""
BACKGROUND = "#fefefe"
"""Colour behind a figure; a page may take it away."""

_METHODS = {
    "DMH": ("#d55e00", "o"),
    "MDBE": ("#0072b2", "s"),
    "SePH": ("#009e73", "^"),
    "SCM": ("#cc79a7", "D"),
    "CVH": ("#e69f00", "v"),
    "CMSSH": ("#56b4e9", "P"),
}
_OTHERS = (("#d55e00", "o"), ("#0072b2", "s"), ("#009e73", "^"), ("#cc79a7", "D"), ("#e69f00", "v"), ("#56b4e9", "P"),
           ("#7f7f7f", "X"))  # fmt: skip
_GRID = "#8c8c8c"
_FONTS = ("DejaVu Sans", "Verdana", "Arial")
_SHORTER = (
    (r"<metadata>.*?</metadata>|<!--.*?-->", ""),
    (r"\*\{[^}]*\}", "svg{stroke-linejoin:round;stroke-linecap:butt;font-family:" + ",".join(_FONTS) + ",sans-serif}"),
    (r" font-family: [^;\"]*;", ""),
    (r' transform="rotate\(-?0[^"]*\)"', ""),
    (r"\s*\n\s*", "\n"),
)


@dataclass(frozen=True)
class Series:
    """A line of a figure.

    Attributes
    ----------
    label : str
        For the legend; empty for none.
    x, y : sequences of float
    spread : sequence of float, optional
        Standard deviations, drawn as bars; NaN for none.
    color, marker : str
        An empty marker draws the line alone.
    dashed : bool
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] = ()
    color: str = _OTHERS[0][0]
    marker: str = "o"
    dashed: bool = False


def style_of(label: str, order: int = 0) -> tuple[str, str]:
    """The colour and marker of a method, the same in every figure; grey for a further setting; others by their order.

    Parameters
    ----------
    label : str
    order : int

    Returns
    -------
    (str, str)

    Examples
    --------
    >>> style_of("DMH")
    ('#d55e00', 'o')
    """
    if "," in label:
        return _OTHERS[-1]
    return _METHODS.get(label) or _OTHERS[order % len(_OTHERS)]


@contextmanager
def _style() -> Iterator[Any]:
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plot") from error
    settings = {
        "svg.fonttype": "none",
        "svg.hashsalt": "modalhash",
        "font.family": "sans-serif",
        "font.sans-serif": list(_FONTS),
        "font.size": 9,
        "mathtext.default": "regular",
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.facecolor": "none",
        "figure.facecolor": BACKGROUND,
        "savefig.facecolor": BACKGROUND,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 10,
        "axes.unicode_minus": True,
        "axes.formatter.use_mathtext": False,
        "legend.frameon": False,
        "legend.fontsize": 8,
        "lines.linewidth": 1.6,
        "lines.markersize": 4.5,
    }
    with rc_context(settings):
        yield Figure


def _two_digits(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def _svg(figure: Any) -> str:
    """The figure as SVG, without what is of no use: dates, seven digits of a point, a font named at every word."""
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = out.getvalue()
    for pattern, replacement in _SHORTER:
        text = re.sub(pattern, replacement, text, flags=re.DOTALL)
    # Coordinates only, which stand inside tags: the words between them say what was measured.
    text = re.sub(r"<[^>]+>", lambda tag: re.sub(r"-?\d+\.\d{3,}", _two_digits, tag[0]), text)
    return text[text.index("<svg") :].strip() + "\n"


def _number(value: float) -> str:
    """A tick of a logarithmic axis, without a font of its own."""
    return f"{value:g}" if 1e-3 <= abs(value) < 1e4 else f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")


def draw_lines(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    log_y: bool = False,
    ticks: Sequence[float] = (),
    y_limits: tuple[float, float] | None = None,
    mark: float | None = None,
) -> str:
    """Draw lines with their spread.

    Parameters
    ----------
    series : sequence of Series
    title, x_label, y_label : str
        Labels carry their units.
    log_x, log_y : bool
    ticks : sequence of float
        Where the horizontal axis has numbers; matplotlib's choice without them.
    y_limits : (float, float), optional
    mark : float, optional
        A place on the horizontal axis to mark with a dotted line.

    Returns
    -------
    str
        SVG.
    """
    drawn = [s for s in series if len(s.x)]
    if not drawn:
        raise InputError(f"the figure {title!r} has nothing to draw. Leave it out.")
    with _style() as figure_class:
        figure = figure_class(figsize=(4.7, 3.5), layout="constrained")
        axes = figure.add_subplot()
        axes.grid(True, color=_GRID, alpha=0.25, linewidth=0.6)
        for s in drawn:
            style: dict[str, Any] = {
                "color": s.color,
                "linestyle": "--" if s.dashed else "-",
                "linewidth": 1.1 if s.dashed else 1.6,
                "label": s.label or "_nolegend_",
                "marker": s.marker or None,
                "markevery": max(1, len(s.x) // 8),
            }
            if s.dashed:
                style |= {"markerfacecolor": "none", "markersize": 3.5}
            axes.plot(s.x, s.y, **style)
            if any(e == e for e in s.spread):
                axes.errorbar(s.x, s.y, yerr=s.spread, fmt="none", ecolor=s.color, capsize=2, elinewidth=0.9)
        axes.set(title=title, xlabel=x_label, ylabel=y_label)
        if log_x:
            axes.set_xscale("log")
        if log_y:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda value, _: _number(value))
            axes.yaxis.set_minor_formatter(lambda value, _: "")
        if ticks:
            axes.set_xticks(ticks, labels=[_number(t) for t in ticks])
            axes.set_xticks([], minor=True)
        elif log_x:
            axes.xaxis.set_major_formatter(lambda value, _: _number(value))
            axes.xaxis.set_minor_formatter(lambda value, _: "")
        if y_limits:
            axes.set_ylim(*y_limits)
        if mark is not None:
            axes.axvline(mark, color=_GRID, linestyle=":", linewidth=1)
        if any(s.label for s in drawn):
            columns = 3 if max(len(s.label) for s in drawn) <= 20 else 2
            figure.legend(loc="outside lower center", ncols=columns, handlelength=1.8, columnspacing=1.2)
        return _svg(figure)


def draw_heat_map(matrix: Sequence[Sequence[float | None]], *, title: str, limit: float) -> str:
    """Draw the correlations between bits; the diagonal, which is 1, is left out.

    Parameters
    ----------
    matrix : square, float or None
        None, the correlation with a constant bit, is left out too.
    title : str
    limit : float
        The colours end at plus and minus this; what lies beyond has the last colour.

    Returns
    -------
    str
        SVG.
    """
    import numpy as np

    M = np.array([[np.nan if v is None else v for v in row] for row in matrix], dtype=np.float64)
    if M.ndim != 2 or M.shape[0] != M.shape[1] or not M.size:
        raise InputError(f"a square matrix of correlations is needed; got shape {M.shape}.")
    np.fill_diagonal(M, np.nan)
    with _style() as figure_class:
        figure = figure_class(figsize=(4.2, 3.6), layout="constrained")
        axes = figure.add_subplot()
        image = axes.imshow(M, cmap="PuOr", vmin=-limit, vmax=limit, interpolation="nearest")
        axes.set(title=title, xlabel="bit", ylabel="bit")
        bar = figure.colorbar(image, ax=axes, shrink=0.85, label="correlation")
        bar.outline.set_visible(False)
        return _svg(figure)
