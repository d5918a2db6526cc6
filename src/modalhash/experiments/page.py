"""One document, three ways to write it: a self-contained HTML page, Markdown, and CSV for its tables.

The document is plain data (:class:`Section` and the blocks below it) without markup, so that everything which comes
from a file is escaped in one place, and the page and the Markdown cannot differ in what they say.
"""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

__all__ = ["Bullets", "Entry", "Figure", "Panel", "Section", "Table", "Text", "to_csv", "to_html", "to_markdown"]

MISSING = "–"


@dataclass(frozen=True)
class Text:
    """A paragraph; `strong` makes it stand out."""

    text: str
    strong: bool = False


@dataclass(frozen=True)
class Bullets:
    """A list of sentences."""

    items: Sequence[str]


@dataclass(frozen=True)
class Entry:
    """A table's cell: what is to be read first, what stands below it, and a tone.

    Attributes
    ----------
    text : str
    detail : str
        In small print, such as the number a paper prints.
    delta : str
        The difference, with its sign.
    tone : {"", "up", "down", "even", "missing"}
        Colour for the delta, or for the text where there is none.
    """

    text: str
    detail: str = ""
    delta: str = ""
    tone: str = ""

    def __str__(self) -> str:
        return self.text + (
            f" ({'; '.join(x for x in (self.detail, self.delta) if x)})" if self.detail or self.delta else ""
        )


@dataclass(frozen=True)
class Table:
    """A table: its header, its rows of str or Entry, and a file name for the CSV.

    The first `heads` columns name the row. `data`, where given, goes to the CSV in place of the cells: a header and
    rows of plain values.
    """

    name: str
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str | Entry]]
    heads: int = 1
    data: Sequence[Sequence[object]] = ()


@dataclass(frozen=True)
class Panel:
    """One drawing: a file name, how to draw it, and what a reader who cannot see it should know.

    It is drawn when its SVG is first asked for, so that Markdown alone needs no matplotlib.
    """

    name: str
    draw: Callable[[], str]
    alt: str

    @cached_property
    def svg(self) -> str:
        """The drawing, as SVG text."""
        return self.draw()


@dataclass(frozen=True)
class Figure:
    """Panels side by side (one below the other on a narrow screen) with a caption."""

    caption: str
    panels: Sequence[Panel]


Block = Text | Bullets | Table | Figure


@dataclass(frozen=True)
class Section:
    """A heading with blocks and further sections below it."""

    title: str
    blocks: Sequence[Block] = ()
    sections: Sequence[Section] = field(default=())

    def walk(self) -> Iterator[Block]:
        """Every block, in order.

        Yields
        ------
        Block
        """
        yield from self.blocks
        for section in self.sections:
            yield from section.walk()


# --- HTML -------------------------------------------------------------------------------------------------------------

_STYLE = Path(__file__).with_name("page.css")


def _anchor(title: str, used: set[str]) -> str:
    base = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"
    name, i = base, 2
    while name in used:
        name, i = f"{base}-{i}", i + 1
    used.add(name)
    return name


def _entry_html(entry: str | Entry) -> tuple[str, str]:
    if isinstance(entry, str):
        return html.escape(entry), "wide" if len(entry) > 60 else ""
    tone = entry.tone if entry.tone in ("up", "down", "even", "missing") else ""
    own = f' class="{tone}"' if tone and not entry.delta else ""
    out = f"<span{own}>{html.escape(entry.text)}</span>" if own else html.escape(entry.text)
    if entry.detail:
        out += f"<small>{html.escape(entry.detail)}</small>"
    if entry.delta:
        out += f'<span class="delta {tone}">{html.escape(entry.delta)}</span>'
    return out, "wide" if len(entry.text) > 60 else ""


def _table_html(table: Table) -> str:
    kind = (
        ' class="text"'
        if any(len(c if isinstance(c, str) else c.text) > 60 for row in table.rows for c in row[table.heads :])
        else ""
    )
    head = "".join(
        f'<th scope="col"{" class=left" if j < table.heads else ""}>{html.escape(h)}</th>'
        for j, h in enumerate(table.header)
    )
    body = []
    for row in table.rows:
        cells = []
        for j, item in enumerate(row):
            inner, wide = _entry_html(item)
            cells.append(
                f'<th scope="row">{inner}</th>'
                if j < table.heads
                else f"<td{' class=wide' if wide else ''}>{inner}</td>"
            )
        body.append("<tr>" + "".join(cells) + "</tr>")
    return (
        f'<p class="caption">{html.escape(table.caption)}</p>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{html.escape(table.caption)}"><table{kind}>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def inline_svg(panel: Panel) -> str:
    """A drawing for use inside a page: its own names for what it defines, ink in the page's colour, no background.

    Parameters
    ----------
    panel : Panel

    Returns
    -------
    str
    """
    from .plots import BACKGROUND, INK

    svg = panel.svg[panel.svg.index("<svg") :]
    prefix = re.sub(r"[^a-zA-Z0-9-]", "-", panel.name)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}.\1"', svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}.\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}.\1)", svg)
    svg = svg.replace(INK, "currentColor").replace(f"fill: {BACKGROUND}", "fill: none")
    return svg.replace("<svg", f'<svg role="img" aria-label="{html.escape(panel.alt)}"', 1)


def _block_html(block: Block) -> str:
    match block:
        case Text(text, strong):
            return f"<p{' class=strong' if strong else ''}>{html.escape(text)}</p>"
        case Bullets(items):
            return "<ul>" + "".join(f"<li>{html.escape(item)}</li>" for item in items) + "</ul>"
        case Table():
            return _table_html(block)
        case Figure(caption, panels):
            drawn = "".join(f'<div class="panel">{inline_svg(panel)}</div>' for panel in panels)
            return f'<figure><div class="panels">{drawn}</div><figcaption>{html.escape(caption)}</figcaption></figure>'


def to_html(document: Section) -> str:
    """The whole document as one page that needs nothing else: no script, no font, no style from elsewhere.

    Parameters
    ----------
    document : Section

    Returns
    -------
    str

    Examples
    --------
    >>> "&lt;b&gt;" in to_html(Section("Report", [Text("<b>")]))
    True
    """
    used: set[str] = set()
    links: list[str] = []

    def render(section: Section, level: int) -> str:
        anchor = _anchor(section.title, used)
        if level == 2:
            links.append(f'<a href="#{anchor}">{html.escape(section.title)}</a>')
        parts = [f'<h{level} id="{anchor}">{html.escape(section.title)}</h{level}>']
        parts += [_block_html(block) for block in section.blocks]
        parts += [render(child, min(level + 1, 4)) for child in section.sections]
        return "\n".join(parts)

    title, style = html.escape(document.title), _STYLE.read_text(encoding="utf-8")
    blocks = "\n".join(_block_html(block) for block in document.blocks)
    body = "\n".join(render(section, 2) for section in document.sections)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n{blocks}\n"
        f'<nav aria-label="Contents">{"".join(links)}</nav>\n{body}\n</main>\n</body>\n</html>\n'
    )


# --- Markdown and CSV -------------------------------------------------------------------------------------------------


_MARKS = re.compile(
    r"[\\`*<|~]"  # always of a meaning
    r"|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])"  # emphasis, at the edge of a word only
    r"|^[>#\[]|^[+-](?=\s)|(?<=^\d)[.)](?=\s)"  # at the start of a line
)


def _escape_markdown(text: str) -> str:
    escaped = _MARKS.sub(lambda mark: "\\" + mark[0], text.replace("&", "&amp;"))
    return escaped.replace("[", "\\[") if re.search(r"\]\s*[(\[:]", escaped) else escaped


def _block_markdown(block: Block, figures: str) -> str:
    match block:
        case Text(text, strong):
            return f"**{_escape_markdown(text)}**" if strong else _escape_markdown(text)
        case Bullets(items):
            return "\n".join(f"- {_escape_markdown(item)}" for item in items)
        case Table():
            align = ["---"] * table_heads(block) + ["---:"] * (len(block.header) - table_heads(block))
            lines = [list(block.header), align, *([str(cell) for cell in row] for row in block.rows)]
            drawn = ["| " + " | ".join(x if x in align else _escape_markdown(x) for x in line) + " |" for line in lines]
            return f"{_escape_markdown(block.caption)}\n\n" + "\n".join(drawn)
        case Figure(caption, panels):
            drawn = [f"![{_escape_markdown(panel.alt)}]({figures}/{panel.name}.svg)" for panel in panels]
            return "\n".join(drawn) + f"\n\n*{_escape_markdown(caption)}*"


def table_heads(table: Table) -> int:
    """How many columns of a table are set to the left.

    Parameters
    ----------
    table : Table

    Returns
    -------
    int
    """
    wordy = any(len(c if isinstance(c, str) else c.text) > 60 for row in table.rows for c in row[table.heads :])
    return len(table.header) if wordy else table.heads


def to_markdown(document: Section, *, figures: str = "figures") -> str:
    r"""The document as Markdown, with the figures as files.

    Parameters
    ----------
    document : Section
    figures : str
        The folder of the figures, as seen from the Markdown file.

    Returns
    -------
    str

    Examples
    --------
    >>> print(to_markdown(Section("Report", [Table("t", "Numbers", ["a", "b"], [["x|y", "1"]])])))
    # Report
    <BLANKLINE>
    Numbers
    <BLANKLINE>
    | a | b |
    | --- | ---: |
    | x\|y | 1 |
    <BLANKLINE>
    """
    parts: list[str] = []

    def render(section: Section, level: int) -> None:
        parts.append(f"{'#' * min(level, 6)} {_escape_markdown(section.title)}")
        parts.extend(_block_markdown(block, figures) for block in section.blocks)
        for child in section.sections:
            render(child, level + 1)

    render(document, 1)
    return "\n\n".join(parts) + "\n"


def to_csv(table: Table) -> str:
    r"""A table as CSV: its data where it has some, its cells otherwise.

    Parameters
    ----------
    table : Table

    Returns
    -------
    str

    Examples
    --------
    >>> to_csv(Table("t", "", ["a", "b"], [["x,y", Entry("1", "paper 2")]]))
    'a,b\n"x,y",1 (paper 2)\n'
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows(table.data or [list(table.header), *([str(cell) for cell in row] for row in table.rows)])
    return out.getvalue()
