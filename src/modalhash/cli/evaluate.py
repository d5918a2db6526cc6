"""evaluate: score a model on a data set, or stored codes against labels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..exceptions import InputError
from .console import emit, say, warn_lines
from .options import (
    JsonOption,
    LabelsOption,
    ProtocolOption,
    QuietOption,
    SeedOption,
    ViewOption,
    read_data,
)


def _codes(path: Path, bits: int | None) -> tuple[Any, int | None]:
    """Codes from a file that ``encode`` wrote, and their number of bits if the file says it."""
    from ..datasets import list_arrays, read_array

    arrays = list_arrays(path)
    key = "codes" if "codes" in arrays else None
    codes = np.asarray(read_array(path, key))
    if "n_bits" in arrays:
        stored = int(np.asarray(read_array(path, "n_bits")).item())
        if bits is not None and bits != stored:
            raise InputError(f"{path} holds codes of {stored} bits; --bits says {bits}.")
        return codes, stored
    return codes, bits


def _labels(reference: str | None, option: str) -> Any:
    from ..datasets import list_arrays, read_array
    from ..datasets.arrays import parse_reference

    if reference is None:
        raise InputError(f"codes are scored against labels; pass {option} FILE[:KEY].")
    path, key = parse_reference(reference)
    if key is None and "labels" in list_arrays(path):
        key = "labels"
    labels = read_array(path, key)
    if isinstance(labels, np.ndarray) and labels.ndim == 2 and 1 in labels.shape and labels.size > 1:
        return labels.ravel()  # MATLAB has no vectors: class ids come as one column or one row
    return labels


def evaluate_command(
    model: Annotated[Path | None, typer.Argument(help="A model folder.", show_default=False)] = None,
    data: Annotated[
        Path | None, typer.Argument(help="A labelled data set with splits query and database.", show_default=False)
    ] = None,
    view: ViewOption = [],  # noqa: B006
    labels: LabelsOption = None,
    protocol: ProtocolOption = None,
    seed: SeedOption = 0,
    query_codes: Annotated[Path | None, typer.Option(help="Score stored codes: those of the queries.")] = None,
    database_codes: Annotated[Path | None, typer.Option(help="Score stored codes: those of the database.")] = None,
    query_labels: Annotated[str | None, typer.Option(metavar="FILE[:KEY]", help="Labels of the queries.")] = None,
    database_labels: Annotated[str | None, typer.Option(metavar="FILE[:KEY]", help="Labels of the database.")] = None,
    bits: Annotated[int | None, typer.Option(help="n_bits of stored codes; read from .npz files.")] = None,
    rule: Annotated[
        list[str], typer.Option(help="Database rule(s) of the model; for stored codes, how they were made.")
    ] = [],  # noqa: B006
    metric: Annotated[list[str], typer.Option(help="Such as MAP, MAP@100, P@10, NDCG@100, F1@r2. Repeatable.")] = [],  # noqa: B006
    k: Annotated[int | None, typer.Option(help="For metrics at k; 100 by default.")] = None,
    radius: Annotated[int, typer.Option(help="For metrics within a Hamming radius.")] = 2,
    plot: Annotated[Path | None, typer.Option(help="Draw the precision-recall curves into this .svg or .png.")] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Measure retrieval: a model on a data set, in all directions and under all its database rules.

    Or score stored codes. "learned" codes (made with the database's labels) and "encoded" ones (a view's own
    hash function) are always named.

    Example: `modalhash evaluate model/ data.npz`

    Example: `modalhash evaluate --query-codes q.npz --database-codes d.npz --query-labels ql.npy
    --database-labels dl.npy --rule encoded`
    """
    stored = query_codes is not None or database_codes is not None
    options: dict[str, Any] = {"k": k, "radius": radius}
    if metric:
        options["metrics"] = metric
    if stored:
        if model is not None or query_codes is None or database_codes is None:
            raise InputError("to score stored codes pass --query-codes and --database-codes, and no model.")
        if len(rule) != 1:
            raise InputError("say with --rule how the database codes were made, such as encoded or learned.")
        report = _score_stored(query_codes, database_codes, query_labels, database_labels, bits, rule[0], options)
    else:
        if model is None or (data is None and not view):
            raise InputError("pass a model and a data set, or --query-codes and --database-codes.")
        report = _score_model(model, data, view, labels, protocol, seed, rule, options, quiet)
    emit(report.to_dict(), as_json=as_json, text=lambda: str(report))
    if plot is not None:
        _draw(report, plot)
        if not quiet:
            say(f"precision-recall curves in {plot}")


def _score_stored(
    query_codes: Path,
    database_codes: Path,
    query_labels: str | None,
    database_labels: str | None,
    bits: int | None,
    rule: str,
    options: dict[str, Any],
) -> Any:
    from ..evaluation import evaluate

    queries, n_bits = _codes(query_codes, bits)
    database, n_bits = _codes(database_codes, n_bits)
    if n_bits is None:
        raise InputError("the code files do not say how many bits a code has; pass --bits.")
    return evaluate(
        queries,
        database,
        query_labels=_labels(query_labels, "--query-labels"),
        database_labels=_labels(database_labels, "--database-labels"),
        n_bits=n_bits,
        database_rule=rule,
        **options,
    )


def _score_model(
    model: Path,
    data: Path | None,
    view: list[str],
    labels: str | None,
    protocol: str | None,
    seed: int,
    rules: list[str],
    options: dict[str, Any],
    quiet: bool,
) -> Any:
    from ..base import load
    from ..report import cross_modal_report

    hasher = load(model)
    dataset = read_data(data, view, labels, protocol=protocol, seed=seed)
    if dataset.labels is None:
        raise InputError("the data set has no labels to score against; pass --labels FILE[:KEY].")
    if "query" not in dataset.splits:
        raise InputError(
            "the data set has no split 'query', so nothing says which rows the model never saw. "
            "Split it as at fit, with the same --protocol and --seed."
        )
    if protocol and not quiet:
        say(f"split {protocol!r}, seed {seed}: the model must have been fitted with the same.")
    with warn_lines():
        return cross_modal_report(hasher, dataset, rules=rules or None, **options)


def _draw(report: Any, path: Path) -> None:
    if path.suffix not in (".svg", ".png", ".pdf"):
        raise InputError(f"curves are drawn as .svg, .png or .pdf; got {path.name!r}.")
    draw = getattr(report, "plot_pr_curves", None) or report.plot_pr_curve
    axes = draw()
    axes.figure.savefig(path, bbox_inches="tight")
