"""demo: fit, measure and search on a small data set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..exceptions import InputError, MissingExtraError
from .console import emit, progress, say, warn_lines
from .options import JsonOption, QuietOption, SeedOption
from .serve import PortOption, check_ready, start


def demo(
    data: Annotated[str, typer.Option(help="icons, openclipart or synthetic.")] = "icons",
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the model, the index and the page go.")] = Path(
        "demo"
    ),
    bits: Annotated[str, typer.Option(help="Code lengths, separated by commas.")] = "16,32,64",
    seed: SeedOption = 0,
    serve: Annotated[
        bool, typer.Option("--serve", help="Then serve a search page over the result; needs the extra serve.")
    ] = False,
    port: PortOption = 8000,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Fit DMH on a small data set, print how good it is, and show what finds what.

    Example: `modalhash demo` (icons of Font Awesome Free); `modalhash demo --data synthetic` needs no extra.

    Example: `modalhash demo --serve`
    """
    from ..demo import METRICS, load_demo_data, run_demo, write_page

    if serve:
        check_ready("127.0.0.1", port)  # what is missing is said before the work, not after it
    try:
        lengths = tuple(int(part) for part in bits.split(","))
    except ValueError as error:
        raise InputError(f"--bits takes whole numbers separated by commas; got {bits!r}.") from error
    try:
        with progress(f"reading {data}", quiet=quiet) as update:
            dataset = load_demo_data(data, seed, update)
    except MissingExtraError as error:
        raise InputError(f"{error} Or try: modalhash demo --data synthetic") from error
    if not quiet:
        say(f"{dataset!r}")
    with progress("fitting DMH", quiet=quiet) as update, warn_lines():
        result = run_demo(dataset, bits=lengths, seed=seed, callback=update)
    model = result.hasher.save(output / "model")
    index = _save_index(result, output / "index")
    page = write_page(result, output / "index.html")
    summary = {
        "scores": result.scores,
        "text_finds_pictures": [_named(result, e) for e in result.by_text],
        "picture_finds_texts": [_named(result, e) for e in result.by_image],
        "model": str(model),
        "index": str(index),
        "page": str(page),
    }
    emit(summary, as_json=as_json, text=lambda: _text(result, METRICS))
    if not as_json:
        emit(None, as_json=False, text=f"\nmodel in {model}, index in {index}; open {page} to see the pictures")
    if serve:
        _serve(result, output, port, quiet)


def _serve(result: Any, output: Path, port: int, quiet: bool) -> None:
    """Save what a server needs and start one on this machine."""
    import sys

    from ..serve import SearchService, Settings

    data = result.data.save(output / "data.npz")
    models = [output / "model"]
    models += [h.save(output / f"model-{h.n_bits}") for h in result.hashers if h.n_bits != result.hasher.n_bits]
    if not quiet:
        say(f"to serve it again: modalhash serve {' '.join(map(str, models))} --data {data}")
    service = SearchService(result.hashers, data=result.data)
    start(service, Settings(), "127.0.0.1", port, open_page=sys.stdout.isatty(), quiet=quiet)


def _named(result: Any, example: Any) -> dict[str, Any]:
    from ..demo import describe

    found = [describe(result.data, row) for row in example.rows]
    return {"query": example.query, "found": found, "distances": example.distances}


def _save_index(result: Any, path: Path) -> Path:
    from ..demo import describe
    from ..index import HammingIndex

    database = result.data.rows("database")
    codes = result.hasher.database_codes(database.views, rule="fused")
    titles = [describe(database, row) for row in range(len(database))]
    index = HammingIndex(n_bits=result.hasher.n_bits)
    index.add(codes, ids=result.data.splits["database"], payload={"title": titles})
    index.save(path)
    return path


def _text(result: Any, metrics: tuple[str, ...]) -> str:
    from ..results import text_table

    rows = [[str(r["bits"]), r["direction"], r["rule"], *(f"{r[name]:.3f}" for name in metrics)] for r in result.scores]
    lines = [
        text_table(["bits", "query -> database", "rule", *metrics], rows),
        "",
        "Words find pictures (database rule: fused, no labels):",
    ]
    for title, examples in (
        ("", result.by_text),
        ("\nA picture that training never saw finds texts (database rule: encoded):", result.by_image),
    ):
        if title:
            lines.append(title)
        for example in examples:
            named = _named(result, example)
            found = ", ".join(f"{name} ({d})" for name, d in zip(named["found"][:6], named["distances"], strict=False))
            lines.append(f"  {example.query:<24} {found}")
    return "\n".join(lines)
