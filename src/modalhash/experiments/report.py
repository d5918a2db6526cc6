"""The last step: from score files and published numbers to one page, its Markdown, its figures and its tables.

Nothing here runs or scores anything, and nothing that the page says is typed by hand: delete the report and write it
again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..bundle import atomic_write
from ..exceptions import InputError
from .claims import ask_claims
from .evidence import Evidence
from .figures import (
    convergence_figure,
    heat_map_figure,
    lengths_figure,
    parameter_figures,
    pr_bits,
    pr_figure,
)
from .page import Bullets, Figure, Section, Table, Text, to_csv, to_html, to_markdown
from .provenance import missing_runs, provenance_tables
from .published import Paper, load_papers
from .records import STUDIES, Score, bundle_scores, read_bundle, read_scores, select
from .settings import spell, varied_of
from .tables import (
    claims_table,
    correlation_table,
    ladder_table,
    map_table,
    plain_table,
    time_table,
)

__all__ = ["docs_pages", "write_docs", "write_report"]

_RULES_TEXT = (
    "A database's codes are made under a named rule. learned: with the database items' own labels, as in the paper's "
    "table. label: from their labels alone. fused: from all views together, without labels. encoded: each item by the "
    "hash function of the view that is searched, which is all that new, unlabelled data can have. Numbers under "
    "different rules do not compare."
)


def _kept(*blocks: Text | Bullets | Table | Figure | None) -> list[Text | Bullets | Table | Figure]:
    return [block for block in blocks if block is not None and not (isinstance(block, Table) and not block.rows)]


def _summary(evidence: Evidence) -> list[Text | Bullets | Table | Figure]:
    name = evidence.title
    cells, lines = evidence.cells("DMH"), []
    if cells:
        reached = sum((c.difference or 0) >= 0 for c in cells)
        head = f"{name}: DMH is at or above the printed MAP in {reached} of {len(cells)} cells (rule: {cells[0].rule})."
        if evidence.unmeasured:
            lines.append(f"{evidence.unmeasured} of DMH's printed cells are not measured.")
        for label in evidence.labels("table-map"):
            further = evidence.cells(label) if label.startswith("DMH,") else []
            if further:
                count = sum((c.difference or 0) >= 0 for c in further)
                lines.append(f"With {varied_of(label)}: {count} of {len(further)} cells.")
        others = [c for m in evidence.methods if m != "DMH" for c in evidence.cells(m)]
        if others:
            lines.append(
                f"Compared methods: {sum(c.holds for c in others)} of {len(others)} cells are within their tolerance "
                "of the printed number."
            )
    elif evidence.is_printed:
        head = f"{name}: no cell of DMH can be compared with the paper yet."
    else:
        head = f"{name}: the paper prints no numbers for this data set; ours stand alone."
    claims = ask_claims(evidence)
    counts = {v: sum(c.verdict == v for c in claims) for v in ("held", "held in part", "not held", "not tested")}
    lines.append(f"Claims of the paper: {', '.join(f'{n} {v}' for v, n in counts.items())}.")
    lines.append(
        f"{len(evidence.scores)} runs, {len({s.seed for s in evidence.scores})} seeds, "
        f"lengths of {', '.join(str(b) for b in sorted({s.bits for s in evidence.scores}))} bits."
    )
    return [Text(head, True), Bullets(lines)]


def _map_section(evidence: Evidence) -> Section | None:
    if not evidence.table:
        return None
    ties = plain_table(
        evidence,
        "table-map",
        "MAP",
        {"MAP(ties)": "any order"},
        name="rules-ties",
        caption=f"MAP on {evidence.title} under every database rule, items at one distance in the database's order; "
        "small: the mean over all orders of them (tie-aware MAP).",
    )
    return Section(
        "MAP",
        _kept(Text(_RULES_TEXT), map_table(evidence), lengths_figure(evidence, "MAP", study="table-map", printed=True)),
        [
            Section("All database rules, and ties", _kept(ties)),
            Section("Precision and recall", _kept(pr_figure(evidence))),
        ],
    )


def _f1_section(evidence: Evidence) -> Section | None:
    figure = lengths_figure(evidence, "F1@r2", study="fig-f1")
    if figure is None:
        return None
    table = plain_table(
        evidence,
        "fig-f1",
        "F1@r2",
        {"precision@r2": "P", "recall@r2": "R"},
        name="lookup",
        caption=f"Hash lookup on {evidence.title}: F1 of what lies within Hamming radius 2 of a query, mean ± standard "
        "deviation over seeds; small: precision and recall.",
    )
    text = Text("The paper shows F1 as a figure without numbers, so that only its order can be compared.")
    return Section("Lookup within radius 2", _kept(text, figure, table))


def _parameters_section(evidence: Evidence) -> Section | None:
    figures = parameter_figures(evidence)
    return Section("Parameters", figures) if figures else None


def _convergence_section(evidence: Evidence) -> Section | None:
    figure = convergence_figure(evidence)
    return Section("Convergence", [figure]) if figure else None


def _time_section(evidence: Evidence) -> Section | None:
    table = time_table(evidence)
    return Section("Time", [table]) if table.rows else None


def _ladder_section(evidence: Evidence) -> Section | None:
    runs = select(evidence.scores, study="ladder")
    if not runs:
        return None
    text = Text(
        "Does the regulariser help? Every setting is run with the same seeds, splits and starts; a difference is "
        "taken seed by seed. Where the 95 % interval covers 0, no effect is seen: that is a statement about these "
        "seeds, not a proof that there is none."
    )
    bits = Section("Correlation between bits", _kept(heat_map_figure(evidence), correlation_table(evidence)))
    return Section("The ladder, and what MCR does", _kept(text, ladder_table(evidence)), [bits])


def _provenance_section(evidence: Evidence, studies: Sequence[str]) -> Section:
    missing = missing_runs(evidence, studies)
    absent = Section("Missing runs", [Bullets(missing)] if missing else [Text("None.")])
    return Section(
        "Where the numbers come from", _kept(*provenance_tables(evidence)), [_settings_section(evidence), absent]
    )


def _own_settings(runs: Sequence[Score]) -> list[str]:
    """The setting of some runs of one method; one line for each that occurs, with its lengths."""
    lengths: dict[str, list[int]] = {}
    for score in runs:
        own = {k: v for k, v in score.parameters.items() if k not in ("n_bits", "random_state") and v is not None}
        lengths.setdefault(", ".join(f"{k} = {v}" for k, v in own.items()) or "its defaults", []).append(score.bits)
    if len(lengths) == 1:
        return [f"Our setting: {setting}." for setting in lengths]
    return [
        f"Our setting at {', '.join(str(b) for b in sorted(set(bits)))} bits: {setting}."
        for setting, bits in lengths.items()
    ]


def _settings_section(evidence: Evidence) -> Section:
    blocks: list[Text | Bullets | Table | Figure] = []
    for method in evidence.methods:
        paper = evidence.papers.get(method)
        if paper is None:
            continue
        lines = [f"Reference: {paper.reference}.", *_own_settings(select(evidence.table, label=method))]
        if paper.settings:
            lines.append("Printed: " + ", ".join(f"{k} = {v}" for k, v in paper.settings.items()) + ".")
        if paper.omitted:
            lines.append("Not said: " + "; ".join(paper.omitted) + ".")
        blocks += [Text(method, True), Bullets(lines)]
    return Section("Settings", blocks)


def _chapter(evidence: Evidence, studies: Sequence[str]) -> list[Section]:
    made = {
        "table-map": _map_section,
        "fig-f1": _f1_section,
        "fig-parameters": _parameters_section,
        "fig-convergence": _convergence_section,
        "table-time": _time_section,
        "ladder": _ladder_section,
    }
    sections = [made[study](evidence) for study in studies]
    return [section for section in sections if section is not None] + [_provenance_section(evidence, studies)]


def _claims_section(evidence: Evidence, title: str) -> Section:
    claims = ask_claims(evidence)
    differing = [
        f"{spell(c.method)}: {c.direction}, {c.bits} bits (rule {c.rule}): ours {c.ours}, "
        f"printed {c.printed.value:.4f}, {c.verdict}"
        for label in evidence.labels("table-map")
        for c in evidence.cells(label)
        if not c.holds and c.ours and c.printed
    ]
    rows = Section(
        "Cells that differ",
        [
            Text(
                "Every cell of the MAP table whose verdict is against the printed number: DMH below it, or a compared "
                "method further from it than the tolerance of its paper file."
            ),
            Bullets(differing) if differing else Text("None."),
        ],
    )
    return Section(title, [claims_table(claims, evidence)], [rows] if evidence.is_printed else [])


def _check_studies(studies: Sequence[str] | None) -> list[str]:
    asked = list(STUDIES if studies is None else studies)
    unknown = [study for study in asked if study not in STUDIES]
    if unknown or not asked:
        raise InputError(f"studies must be among {', '.join(STUDIES)}; got {', '.join(map(repr, unknown)) or 'none'}.")
    return [study for study in STUDIES if study in asked]


def _document(scores: Sequence[Score], papers: Mapping[str, Paper], studies: Sequence[str]) -> Section:
    datasets = list(dict.fromkeys(s.dataset for s in scores))
    evidence = [Evidence(name, scores, papers) for name in datasets]
    summary = [block for one in evidence for block in _summary(one)]
    sections: list[Section] = []
    for one in evidence:
        name = one.title
        suffix = f" ({name})" if len(evidence) > 1 else ""
        sections.append(_claims_section(one, f"What reproduces, and what does not{suffix}"))
        if len(evidence) > 1:
            sections.append(Section(name, [], _chapter(one, studies)))
        else:
            sections += _chapter(one, studies)
    source = papers["DMH"].reference if "DMH" in papers else "the paper"
    intro = Text(f"The tables and figures of {source}, rebuilt from scored runs, beside what is printed.")
    return Section("Decorrelated hashing, reproduced", [intro, *summary], sections)


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, text.encode("utf-8"))
    return path


def _write_figures(document: Section, folder: Path) -> list[Path]:
    figures = [block for block in document.walk() if isinstance(block, Figure)]
    return [_write(folder / f"{panel.name}.svg", panel.svg) for figure in figures for panel in figure.panels]


def write_report(results: Path, *, studies: Sequence[str] | None = None) -> list[Path]:
    """Write the report of a results folder: HTML, Markdown, figures and tables, from its score files alone.

    Parameters
    ----------
    results : Path
        Holds ``scores/``; gets ``report/``.
    studies : sequence of str, optional
        Which tables and figures; all by default. What was not run is listed as missing.

    Returns
    -------
    list of Path
        ``report/index.html`` first, ``report/report.md`` second, then the rest. The same scores give the same bytes.

    Raises
    ------
    InputError
        For an unknown study, or when there is no score file.
    MissingExtraError
        Without matplotlib or PyYAML, which the extra ``plot`` brings.
    """
    asked = _check_studies(studies)
    scores = read_scores(Path(results))
    document = _document(scores, load_papers(), asked)
    folder = Path(results) / "report"
    tables = [block for block in document.walk() if isinstance(block, Table)]
    return [
        _write(folder / "index.html", to_html(document)),
        _write(folder / "report.md", to_markdown(document)),
        *_write_figures(document, folder / "figures"),
        *(_write(folder / "tables" / f"{table.name}.csv", to_csv(table)) for table in tables),
    ]


def docs_pages(bundle: str, dataset: str = "mirflickr") -> dict[str, Section]:
    """The documentation's pages, from a bundle of scores.

    Parameters
    ----------
    bundle : str
        What :func:`~modalhash.experiments.records.bundle_scores` made.
    dataset : str

    Returns
    -------
    dict of str to Section
        By file name.
    """
    scores = read_bundle(bundle)
    evidence = Evidence(dataset, scores, load_papers())
    if not evidence.scores:
        raise InputError(f"the bundle has no scores of {dataset!r}. Score that data set first.")
    name = evidence.title
    made = Text(
        f"Made by modalhash reproduce from {dataset}.json beside this page; no number is typed by hand, and a test "
        "rebuilds the text from that file."
    )
    return {
        "README.md": Section(f"Results on {name}", [made, *_summary(evidence)], _chapter(evidence, STUDIES)),
        "what-reproduces.md": Section(
            "What reproduces, and what does not",
            [made, *_summary(evidence)],
            [_claims_section(evidence, f"The paper's claims on {name}")],
        ),
    }


def write_docs(results: Path, folder: Path, *, dataset: str = "mirflickr") -> list[Path]:
    """Write the pages to commit: the scores of one data set in one compact JSON, and all that follows from it.

    Parameters
    ----------
    results : Path
        Holds ``scores/``.
    folder : Path
        ``docs/results``.
    dataset : str

    Returns
    -------
    list of Path
    """
    scores = select(read_scores(Path(results)), dataset=dataset)
    if not scores:
        raise InputError(f"there are no scores of {dataset!r} in the results folder. Score that data set first.")
    seeds = [s.seed for s in scores if "ladder" in s.studies]
    bundle = bundle_scores(scores, pr_bits=pr_bits(scores), matrices=[min(seeds)] if seeds else [])
    pages = docs_pages(bundle, dataset)
    written = [_write(Path(folder) / f"{dataset}.json", bundle)]
    for name, page in pages.items():
        written.append(_write(Path(folder) / name, to_markdown(page)))
        written += _write_figures(page, Path(folder) / "figures")
    return written
