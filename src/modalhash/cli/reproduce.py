"""reproduce: the paper's tables and figures from one command."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..exceptions import InputError
from .console import emit, parse_assignments, progress, say
from .options import JsonOption, QuietOption

if TYPE_CHECKING:
    from ..datasets import Dataset
    from ..experiments import Run

STEPS = ("run", "score", "report")


def _words(text: str | None, default: tuple[str, ...], option: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """Names separated by commas, in any case."""
    if text is None:
        return default
    by_name = {name.lower(): name for name in known}
    asked = [word.strip().lower() for word in text.split(",") if word.strip()]
    unknown = [word for word in asked if word not in by_name]
    if unknown or not asked:
        raise InputError(f"{option} takes names among {', '.join(known)}, separated by commas; got {text!r}.")
    return tuple(dict.fromkeys(by_name[word] for word in asked))


def _lengths(text: str | None, default: tuple[int, ...]) -> tuple[int, ...]:
    if text is None:
        return default
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(f"--bits takes whole numbers separated by commas; got {text!r}.") from error


def _parameters(items: list[str]) -> dict[str, dict[str, Any]]:
    """``METHOD.NAME=VALUE`` by method; values are read as JSON where they are JSON.

    Examples
    --------
    >>> _parameters(["dmh.n_iter=20", "SePH.version=a"])
    {'DMH': {'n_iter': 20}, 'SePH': {'version': 'a'}}
    """
    from .models import find_method

    out: dict[str, dict[str, Any]] = {}
    for name, text in parse_assignments(items, "--set").items():
        method, dot, parameter = name.partition(".")
        if not dot:
            raise InputError(f"--set takes METHOD.NAME=VALUE, such as DMH.n_iter=100; got {name!r}.")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        out.setdefault(find_method(method).__name__, {})[parameter] = value
    return out


def _clock(seconds: float) -> str:
    """A duration for people.

    Examples
    --------
    >>> _clock(42), _clock(200), _clock(8000)
    ('42 s', '3 min', '2 h 13 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


@contextmanager
def _fitting(quiet: bool) -> Iterator[Callable[[Any], None]]:
    """A bar with the time left on a terminal; a line per run elsewhere."""
    if quiet:
        yield lambda _: None
        return
    if not sys.stderr.isatty():
        yield lambda out: say(
            f"[{out.done}/{out.total}] {out.latest or f'{out.skipped} runs are there'}; "
            f"about {_clock(out.seconds_left)} left"
        )
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("fitting"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        TextColumn("[dim]{task.fields[latest]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, left="", latest="")

        def update(out: Any) -> None:
            left = f"about {_clock(out.seconds_left)} left"
            bar.update(task, completed=out.done, total=out.total, left=left, latest=out.latest)

        yield update


def _read(data: list[str], quick: bool, incomplete: bool, quiet: bool) -> dict[str, Dataset]:
    from ..experiments.sources import demo_source, read_source

    if quick == bool(data):
        raise InputError("pass --data NAME=PATH, such as --data mirflickr=mirflickr25k.npz, or --quick; not both.")
    if quick:
        found, lacking = demo_source()
        if lacking:
            say(f"modalhash: made-up data stands in for the icons: {lacking}")
        return {found.name: found}
    out = {}
    for name, path in parse_assignments(data, "--data").items():
        out[name] = read_source(name, path, complete=not incomplete)
        if not quiet:
            say(f"{out[name]!r}")
    return out


def reproduce(
    data: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=PATH",
            help="mirflickr or nuswide, and its .npz or folder of official files; other names take a file of "
            "matrices. Repeatable.",
            show_default=False,
        ),
    ] = [],  # noqa: B006
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The folder of results; `results` by default.")
    ] = None,
    what: Annotated[
        str | None,
        typer.Option(help="table-map, fig-f1, fig-parameters, fig-convergence, table-time, ladder; all by default."),
    ] = None,
    methods: Annotated[str | None, typer.Option(help="DMH,CMSSH,CVH,SCM,SePH,MDBE; all by default.")] = None,
    bits: Annotated[str | None, typer.Option(help="Lengths; 16,32,64,96,128 by default.")] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Splits and starts, 3 by default; the ladder takes at least 5.")
    ] = None,
    steps: Annotated[str | None, typer.Option(help="run, score, report; all by default.")] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Processes that fit at once, each with its share of the cores; 1 by default, 2 with --quick."
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, or a torch device such as cuda for DMH.")] = "cpu",
    quick: Annotated[bool, typer.Option("--quick", help="All studies, small, on the demo's icons: minutes.")] = False,
    incomplete: Annotated[
        bool, typer.Option("--incomplete", help="Take a folder that holds a part of the data set.")
    ] = False,
    setting: Annotated[
        list[str],
        typer.Option(
            "--set", metavar="METHOD.NAME=VALUE", help="A parameter in place of the setting's.", show_default=False
        ),
    ] = [],  # noqa: B006
    pages: Annotated[
        Path | None,
        typer.Option(help="Also write the results as Markdown with plots and one JSON of all scores to this folder."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be run, and stop.")] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Rebuild the paper's tables and figures: fit, score, and write the report.

    What is done already is kept and not done again; after an interruption the same command goes on where it stopped.

    Example: `modalhash reproduce --data mirflickr=mirflickr25k.npz -o results`

    Example: `modalhash reproduce --quick`
    """
    from ..experiments.plan import BITS, FULL, METHODS, QUICK, STUDIES, make_plan

    studies = _words(what, tuple(STUDIES), "--what", tuple(STUDIES))
    wanted = _words(methods, METHODS, "--methods", METHODS)
    asked = _words(steps, STEPS, "--steps", STEPS)
    lengths = _lengths(bits, (16, 32, 64) if quick else BITS)
    repeats = seeds if seeds is not None else 2 if quick else 3
    processes = jobs if jobs is not None else 2 if quick else 1
    folder = output if output is not None else Path("results/quick" if quick else "results")
    parameters = _parameters(setting)

    def plan(name: str) -> list[Run]:
        return make_plan(
            name,
            studies=studies,
            methods=wanted,
            bits=lengths,
            seeds=repeats,
            parameters=parameters,
            size=QUICK if quick else FULL,
        )

    plan("mirflickr")  # wrong options are said before the data is read
    read = _read(data, quick, incomplete, quiet)
    runs = [run for name in read for run in plan(name)]
    if dry_run:
        _show_plan(runs, read, as_json)
        return
    summary: dict[str, Any] = {"results": str(folder), "runs": len(runs)}
    try:
        if "run" in asked:
            summary |= _run(runs, read, folder, processes, device, quiet)
        if "score" in asked:
            summary |= _score(runs, read, folder, quiet)
    except KeyboardInterrupt:
        say(f"modalhash: stopped; what is done is kept in {folder}. The same command goes on from there.")
        raise SystemExit(130) from None
    if "report" in asked:
        from ..experiments.report import write_docs, write_report

        summary["report"] = [str(path) for path in write_report(folder, studies=list(studies))]
        if pages is not None:
            summary["pages"] = [str(path) for name in read for path in write_docs(folder, pages, dataset=name)]
    emit(summary, as_json=as_json, text=lambda: _text(summary))
    if summary.get("failed"):
        raise typer.Exit(1)


def _run(
    runs: list[Run], read: dict[str, Dataset], folder: Path, jobs: int, device: str, quiet: bool
) -> dict[str, Any]:
    from ..experiments.run import execute

    with _fitting(quiet) as update:
        outcome = execute(runs, read, folder, jobs=jobs, device=device, progress=update)
    for name, why in outcome.failed.items():
        say(f"modalhash: {name} could not be done: {why}")
    return {"fitted": outcome.fitted, "kept": outcome.skipped, "failed": outcome.failed}


def _score(runs: list[Run], read: dict[str, Dataset], folder: Path, quiet: bool) -> dict[str, Any]:
    from ..experiments.score import score_runs

    with progress("scoring", quiet=quiet) as update:
        scored, current, missing = score_runs(runs, read, folder, progress=update)
    if missing and not quiet:
        say(f"modalhash: {len(missing)} of {len(runs)} runs are not there, such as {missing[0]}.")
    return {"scored": scored, "scores_kept": current, "missing": [str(run) for run in missing]}


def _text(summary: dict[str, Any]) -> str:
    parts = [f"{summary['runs']} runs in {summary['results']}"]
    if "fitted" in summary:
        failed = f", {len(summary['failed'])} failed" if summary["failed"] else ""
        parts.append(f"{summary['fitted']} fitted, {summary['kept']} kept{failed}")
    if "scored" in summary:
        missing = f", {len(summary['missing'])} missing" if summary["missing"] else ""
        parts.append(f"{summary['scored']} scored, {summary['scores_kept']} kept{missing}")
    pages = [path for path in summary.get("report", []) if path.endswith("index.html")]
    return "; ".join([*parts, *(f"open {path}" for path in pages)])


def _show_plan(runs: list[Run], read: dict[str, Dataset], as_json: bool) -> None:
    from ..experiments.estimate import cost
    from ..experiments.plan import STUDIES

    seconds = sum(cost(run, len(read[run.dataset])) for run in runs)
    listed = [
        {"dataset": r.dataset, "label": r.label, "bits": r.bits, "seed": r.seed, "studies": list(r.studies)}
        for r in runs
    ]
    lines = [f"{study:<16}{sum(study in run.studies for run in runs):>5} runs  {STUDIES[study]}" for study in STUDIES]
    lines.append(f"{len(runs)} runs in all (shared ones once); about {_clock(seconds)} on two cores")
    emit({"runs": listed, "seconds": seconds}, as_json=as_json, text="\n".join(lines))
