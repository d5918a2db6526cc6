"""fit, encode, info, methods."""

from __future__ import annotations

import inspect
import io
import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..exceptions import InputError
from .console import emit, parse_assignments, progress, say, warn_lines
from .options import (
    DataArgument,
    JsonOption,
    LabelsOption,
    ProtocolOption,
    QuietOption,
    SeedOption,
    SplitOption,
    ViewOption,
    choose_rows,
    read_data,
)
from .scale import encode_on_dask, fit_in_processes
from .stream import choose, encode_by_blocks, sources, streamed_data

ModelArgument = Annotated[Path, typer.Argument(help="A model folder made by `modalhash fit`.", show_default=False)]


def find_method(name: str) -> Any:
    """The class of a method by its name, upper or lower case.

    Examples
    --------
    >>> find_method("dmh").__name__
    'DMH'
    """
    from .. import methods

    known = {cls.lower(): cls for cls in methods.__all__}
    if name.lower() not in known:
        raise InputError(f"unknown method {name!r}; there are {', '.join(sorted(known))}.")
    return getattr(methods, known[name.lower()])


def build(method: str, bits: int, seed: int, parameters: list[str]) -> Any:
    """A hasher from command-line words; values are read as JSON where they are JSON."""
    cls = find_method(method)
    accepted = list(inspect.signature(cls.__init__).parameters)[1:]
    values: dict[str, Any] = {"n_bits": bits}
    if "random_state" in accepted:
        values["random_state"] = seed
    for name, text in parse_assignments(parameters, "--param").items():
        if name not in accepted:
            raise InputError(f"{cls.__name__} has no parameter {name!r}; it has {', '.join(accepted)}.")
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = text
    return cls(**values)


def fit(
    data: DataArgument = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The model folder to write.", show_default=False)
    ] = Path("model"),
    method: Annotated[str, typer.Option(help="See `modalhash methods`.")] = "dmh",
    bits: Annotated[int, typer.Option(help="Length of a code.")] = 64,
    view: ViewOption = [],  # noqa: B006  (typer reads it, nobody changes it)
    labels: LabelsOption = None,
    no_labels: Annotated[bool, typer.Option("--no-labels", help="Fit without labels even if there are some.")] = False,
    split: SplitOption = None,
    protocol: ProtocolOption = None,
    seed: SeedOption = 0,
    param: Annotated[
        list[str],
        typer.Option(metavar="NAME=VALUE", help="A parameter of the method, e.g. n_iter=100.", show_default=False),
    ] = [],  # noqa: B006
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="Save the state of the fit here, and continue from it after a kill (dmh).", show_default=False
        ),
    ] = None,
    distributed: Annotated[
        bool, typer.Option("--distributed", help="Fit with the other processes that torchrun started (dmh).")
    ] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Learn hash functions and save them as a folder.

    Rows are those of the split `train` where the data set has one: queries are never fitted on.

    Example: `modalhash fit data.npz -o model/ --method dmh --bits 64`

    In several processes: `torchrun --nproc-per-node 2 -m modalhash fit data.npz -o model/ --distributed`

    Larger than memory: `modalhash fit --view image=i.npy --view text=t.parquet --labels l.npy --param solver=minibatch`
    """
    hasher = build(method, bits, seed, param)
    if checkpoint is not None:
        if "checkpoint" not in hasher.get_params():
            raise InputError(f"{type(hasher).__name__} keeps no checkpoint; leave --checkpoint out.")
        hasher.set_params(checkpoint=checkpoint)
    streamed = None
    if getattr(hasher, "solver", None) == "minibatch" and data is None and not (split or protocol or distributed):
        streamed = streamed_data(view, None if no_labels else labels)
    if streamed is not None:
        views, known = streamed
        which = "all rows"
    else:
        dataset = read_data(data, view, labels, protocol=protocol, seed=seed)
        if distributed:
            fit_in_processes(hasher, dataset, split, output, labels=not no_labels, as_json=as_json, quiet=quiet)
            return
        rows, which = choose_rows(dataset, split, "train")
        views, known = rows.views, None if no_labels else rows.labels
    with progress(f"fitting {type(hasher).__name__}", quiet=quiet) as update, warn_lines():
        if "callback" in hasher.get_params():
            hasher.set_params(callback=update)
        hasher.fit(views, labels=known)
    path = hasher.save(output)
    n = hasher.training_["n_rows"]
    summary = {
        "model": str(path),
        "method": type(hasher).__name__,
        "n_bits": bits,
        "rows": n,
        "which_rows": which,
        "views": {name: hasher.n_features_in_[name] for name in hasher.view_names_},
        "labels": 0 if hasher.label_names_ is None else len(hasher.label_names_),
        "seconds": hasher.training_["seconds"],
    }
    emit(
        summary,
        as_json=as_json,
        text=f"{summary['method']} with {bits} bits fitted on {n} rows ({which}) "
        f"in {summary['seconds']:.1f} s; saved in {path}",
    )


def encode(
    model: ModelArgument,
    data: DataArgument = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Codes to write: .npy, or .npz with ids and n_bits.")
    ] = Path("codes.npz"),
    view: ViewOption = [],  # noqa: B006
    use: Annotated[str | None, typer.Option("--use", help="Which view to encode, where the data has several.")] = None,
    split: SplitOption = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="dask[://HOST:PORT]",
            help="Encode Parquet, Zarr or .npy on Dask: workers started here, or those of a scheduler. "
            "Writes a folder of Parquet files and a manifest.",
        ),
    ] = None,
    ids: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="With --engine: the Parquet column of ids; else row numbers.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="With --engine dask: how many to start; else one per core.")
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Encode a view's rows by its own hash function.

    Example: `modalhash encode model/ data.npz --use text -o codes.npz`

    On Dask: `modalhash encode model/ parquet-folder/ --use text -o codes/ --engine dask`

    A .npy, Parquet or Zarr view is encoded to .npy by blocks of rows, whatever its size; after a kill the same command
    goes on.
    """
    if engine is not None:
        encode_on_dask(
            model,
            data,
            output,
            engine=engine,
            use=use,
            ids=ids,
            workers=workers,
            as_json=as_json,
            quiet=quiet,
        )
        return
    if ids is not None or workers is not None:
        raise InputError("--ids and --workers go with --engine dask.")
    from ..base import load
    from ..bundle import atomic_write

    if output.suffix not in (".npy", ".npz"):
        raise InputError(f"codes are written as .npy or .npz; got {output.name!r}.")
    hasher = load(model)
    if output.suffix == ".npy" and split is None:
        found = sources(data, view, [use] if use else hasher.view_names_)
        if found:
            chosen = choose(found, use, hasher.view_names_)
            encode_by_blocks(model, chosen, found[chosen], output, as_json=as_json, quiet=quiet)
            return
    dataset, which = choose_rows(read_data(data, view, None), split, None)
    name = use or (hasher.view_names_[0] if len(hasher.view_names_) == 1 else None)
    if name is None:
        shared = [v for v in hasher.view_names_ if v in dataset.views]
        if len(shared) != 1:
            raise InputError(f"say which view to encode with --use; the model has {', '.join(hasher.view_names_)}.")
        name = shared[0]
    if name not in dataset.views:
        raise InputError(f"the data has no view {name!r}; it has {', '.join(dataset.views)}.")
    codes = hasher.encode(name, dataset.views[name])
    buffer = io.BytesIO()
    if output.suffix == ".npy":
        np.save(buffer, codes)
    else:
        np.savez(buffer, codes=codes, ids=dataset.ids, n_bits=np.int64(hasher.n_bits))
    atomic_write(output, buffer.getvalue())
    summary = {"codes": str(output), "view": name, "rows": len(codes), "n_bits": hasher.n_bits, "which_rows": which}
    if not quiet or as_json:
        emit(summary, as_json=as_json, text=f"{len(codes)} codes of {hasher.n_bits} bits ({name}, {which}) in {output}")


def info(
    path: Annotated[Path, typer.Argument(help="A model folder, or a data file.", show_default=False)],
    as_json: JsonOption = False,
) -> None:
    """Say what a model folder or a data file holds.

    Example: `modalhash info model/`
    """
    if path.is_file():
        from ..datasets import list_arrays

        arrays = {name: list(shape) for name, shape in list_arrays(path).items()}
        lines = [f"{path.name}: {len(arrays)} array(s)", *(f"  {n or '(whole file)'}  {s}" for n, s in arrays.items())]
        emit({"file": str(path), "arrays": arrays}, as_json=as_json, text="\n".join(lines))
        return
    from ..base import load
    from ..bundle import read_folder

    config, _ = read_folder(path, kind="model")
    hasher = load(path)
    training = config["state"].get("training_", {})
    summary = {
        "method": config["method"],
        "n_bits": hasher.n_bits,
        "views": config["views"],
        "labels": hasher.label_names_,
        "params": config["params"],
        "training": training,
        "database_rules": list(hasher.database_rules),
        "package_version": config["package_version"],
        "format_version": config["format_version"],
    }
    views = ", ".join(f"{name} ({width} columns)" for name, width in config["views"].items())
    names = "none" if hasher.label_names_ is None else ", ".join(map(str, hasher.label_names_[:12]))
    lines = [
        f"{hasher!r}",
        f"  bits            {hasher.n_bits}",
        f"  views           {views}",
        f"  labels          {names}{' ...' if hasher.label_names_ and len(hasher.label_names_) > 12 else ''}",
        f"  trained on      {training.get('n_rows')} rows in {training.get('seconds')} s",
        f"  database rules  {', '.join(hasher.database_rules)}",
        f"  written by      modalhash {config['package_version']}, format {config['format_version']}",
    ]
    emit(summary, as_json=as_json, text="\n".join(lines))


def methods(as_json: JsonOption = False) -> None:
    """List the methods, one line each.

    Example: `modalhash methods`
    """
    from .. import methods as registry

    found = {}
    for name in registry.__all__:
        cls = getattr(registry, name)
        found[name.lower()] = {
            "summary": (inspect.getdoc(cls) or "").splitlines()[0].rstrip("."),
            "labels": "required" if cls.requires_labels else "optional or unused",
            "database_rules": list(cls.database_rules),
        }
    width = max(map(len, found))
    lines = [
        f"{name:<{width}}  {item['summary']} [{', '.join(item['database_rules'])}]" for name, item in found.items()
    ]
    emit(found, as_json=as_json, text="\n".join(lines))


__all__ = ["build", "encode", "find_method", "fit", "info", "methods", "say"]
