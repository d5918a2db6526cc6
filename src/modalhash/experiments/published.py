"""The published numbers as data: ``papers/*.yaml``, one file per method, read and checked here.

Every number is from D. Tian, "Learning Decorrelated Hashing Codes for Multimodal Retrieval", whose tables compare six
methods; a file also says which settings are printed, what is left out, and which of our settings stands beside it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..exceptions import InputError, MissingExtraError
from ..report import RULES

__all__ = ["DIRECTIONS", "Paper", "Table", "load_papers", "read_paper"]

DIRECTIONS = ("image>text", "text>image")
"""Queries of the first view, a database of the second: the paper's Image-Text and Text-Image."""

_VALUES = {"MAP": DIRECTIONS, "seconds": ("fit", "encode_per_query")}
_VERDICTS = ("at least", "within")
_NEEDED = ("key", "method", "title", "reference", "source", "tables", "settings", "omitted", "ours", "tolerance")


@dataclass(frozen=True)
class Table:
    """A row of a printed table: one method on one data set.

    Attributes
    ----------
    dataset, table : str
        Our name of the data set; the table's caption.
    metric : {"MAP", "seconds"}
    rule : str
        How the database got its codes, by the names of :data:`modalhash.report.RULES`.
    bits : list of int
    values : dict of str to list of float
        One number per length: by direction for MAP; "fit" and "encode_per_query" for seconds.
    """

    dataset: str
    table: str
    metric: str
    rule: str
    bits: list[int]
    values: dict[str, list[float]]


@dataclass(frozen=True)
class Paper:
    """What is published about one method, and what of ours is put beside it.

    Attributes
    ----------
    key, method, title, reference : str
        Short name; class in :mod:`modalhash.methods`; the method's own paper.
    source : str
        Where the numbers are printed.
    tables : tuple of Table
    settings : dict
        As printed, under our names of the parameters.
    omitted : list of str
        What the source does not say.
    ours : dict
        ``constructor`` (a class, or a class method of it), ``parameters`` that differ from its own, and
        ``datasets`` with parameters for one data set.
    tolerance : float
    verdict : {"at least", "within"}
        A number of ours holds when it is at least the printed one less `tolerance`, or within it on either side.
    claims : list of dict
        Statements in words: ``id``, ``text``, ``where``.
    """

    key: str
    method: str
    title: str
    reference: str
    source: str
    tables: tuple[Table, ...]
    settings: dict[str, Any]
    omitted: list[str]
    ours: dict[str, Any]
    tolerance: float
    verdict: str
    claims: list[dict[str, str]] = field(default_factory=list)

    def find(self, dataset: str, metric: str) -> Table | None:
        """Return the row for a data set and a metric, or None where nothing is printed.

        Examples
        --------
        >>> load_papers()["DMH"].find("mirflickr", "MAP").values["image>text"][0]
        0.7012
        """
        return next((t for t in self.tables if (t.dataset, t.metric) == (dataset, metric)), None)


def load_papers() -> dict[str, Paper]:
    """Read and check every file of published numbers.

    Returns
    -------
    dict of str to Paper
        By method.

    Examples
    --------
    >>> sorted(load_papers())
    ['CMSSH', 'CVH', 'DMH', 'MDBE', 'SCM', 'SePH']
    """
    files = sorted((Path(__file__).parent / "papers").glob("*.yaml"))
    found = [read_paper(file) for file in files]
    return {paper.method: paper for paper in found}


def read_paper(path: str | Path) -> Paper:
    """Read one file and check it: known names, parameters of the constructor, one number per length.

    Parameters
    ----------
    path : path

    Returns
    -------
    Paper
    """
    try:
        import yaml
    except ImportError as error:
        raise MissingExtraError("pyyaml", "plot") from error
    path = Path(path)
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise InputError(f"{path.name} is not YAML: {error}.") from error
    missing = [name for name in (*_NEEDED, "verdict") if not isinstance(raw, Mapping) or name not in raw]
    if missing:
        raise InputError(f"{path.name} lacks {', '.join(missing)}.")
    unknown = set(raw) - {*_NEEDED, "verdict", "claims"}
    if unknown:
        raise InputError(f"{path.name} has entries of no meaning: {', '.join(sorted(unknown))}.")
    try:
        tables = tuple(Table(**table) for table in raw["tables"])
        paper = Paper(**{**raw, "tables": tables, "tolerance": float(raw["tolerance"])})
    except (TypeError, ValueError) as error:
        raise InputError(f"{path.name} is not of the right form: {error}.") from error
    _check(paper, path.name)
    return paper


def _check(paper: Paper, where: str) -> None:
    if paper.verdict not in _VERDICTS or not 0 <= paper.tolerance < 1:
        raise InputError(f"{where}: verdict must be one of {', '.join(_VERDICTS)}, tolerance from 0 to 1.")
    for table in paper.tables:
        if table.metric not in _VALUES or table.rule not in RULES:
            raise InputError(f"{where}: {table.metric!r} by rule {table.rule!r} is not known.")
        if tuple(table.values) != _VALUES[table.metric]:
            raise InputError(f"{where}: values of {table.metric} must be {', '.join(_VALUES[table.metric])}.")
        for name, numbers in table.values.items():
            if len(numbers) != len(table.bits):
                raise InputError(f"{where}: {name} has {len(numbers)} numbers for {len(table.bits)} lengths.")
            most = 1.0 if table.metric == "MAP" else float("inf")
            if not all(isinstance(x, (int, float)) and 0 < x < most for x in numbers):
                raise InputError(f"{where}: {table.metric} {name} has a number that cannot be one: {numbers}.")
    _check_setting(paper, where)


def _check_setting(paper: Paper, where: str) -> None:
    from .. import methods

    name = str(paper.ours.get("constructor", ""))
    cls = getattr(methods, paper.method, None) if paper.method in methods.__all__ else None
    if cls is None or name.split(".")[0] != paper.method or not callable(_attribute(cls, name)):
        raise InputError(f"{where}: there is no constructor {name!r} of the method {paper.method!r}.")
    known = set(inspect.signature(cls.__init__).parameters) - {"self"}
    given = [paper.settings, paper.ours.get("parameters", {}), *paper.ours.get("datasets", {}).values()]
    wrong = sorted({p for parameters in given for p in parameters} - known)
    if wrong:
        raise InputError(f"{where}: {paper.method} has no parameter {', '.join(wrong)}.")


def _attribute(cls: Any, name: str) -> Any:
    return getattr(cls, name.partition(".")[2], None) if "." in name else cls
