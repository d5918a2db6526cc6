"""What `fit --distributed` and `encode --engine dask` do: several processes, and several machines."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..exceptions import InputError
from .console import emit, progress, say, warn_lines

if TYPE_CHECKING:
    from ..datasets import Dataset

__all__ = ["encode_on_dask", "fit_in_processes", "parse_engine"]


def parse_engine(engine: str) -> str | None:
    """The scheduler's address in ``dask://host:port``; None for ``dask``, which starts workers here.

    Examples
    --------
    >>> parse_engine("dask://10.0.0.5:8786")
    'tcp://10.0.0.5:8786'
    """
    name, slashes, address = engine.partition("://")
    if name != "dask" or (slashes and not address):
        raise InputError(f"--engine takes dask or dask://host:port; got {engine!r}.")
    return f"tcp://{address}" if address else None


def fit_in_processes(
    hasher: Any, data: Dataset, split: str | None, output: Path, *, labels: bool, as_json: bool, quiet: bool
) -> None:
    """Fit with the other processes that torchrun started, each on its share of the rows; rank 0 tells the result."""
    import numpy as np

    from ..engines import distributed

    with distributed.join() as processes:
        rank = processes.rank
        previous = signal.signal(signal.SIGTERM, lambda *_: _ended_by_launcher(rank))
        try:
            name = split or ("train" if "train" in data.splits else None)
            if name is not None and name not in data.splits:
                data.rows(name)  # says which splits there are
            rows = np.arange(len(data)) if name is None else data.splits[name]
            mine = data.take(rows[distributed.own_rows(len(rows), rank, processes.size)])
            with progress(f"fitting {type(hasher).__name__}", quiet=quiet or rank > 0) as update, warn_lines():
                if rank == 0 and "callback" in hasher.get_params():
                    hasher.set_params(callback=update)
                distributed.fit(hasher, mine.views, mine.labels if labels else None, processes=processes)
            path = distributed.save(hasher, output, processes=processes)
        finally:
            signal.signal(signal.SIGTERM, previous)
        if rank:
            return
        which = "all rows" if name is None else f"split {name!r}"
        summary = {
            "model": str(path),
            "method": type(hasher).__name__,
            "n_bits": hasher.n_bits,
            "rows": len(rows),
            "which_rows": which,
            "processes": processes.size,
            "views": {view: hasher.n_features_in_[view] for view in hasher.view_names_},
            "labels": 0 if hasher.label_names_ is None else len(hasher.label_names_),
            "seconds": hasher.training_["seconds"],
        }
        emit(
            summary,
            as_json=as_json,
            text=f"{summary['method']} with {hasher.n_bits} bits fitted on {len(rows)} rows ({which}) by "
            f"{processes.size} process(es) in {summary['seconds']:.1f} s; saved in {path}",
        )


def _ended_by_launcher(rank: int) -> None:
    say(
        f"modalhash: error: rank {rank} was told to end, as torchrun does when another process of the job ended. "
        "Start the same job again; with a checkpoint it goes on from there."
    )
    raise SystemExit(143)


def encode_on_dask(
    model: Path,
    data: Path | None,
    output: Path,
    *,
    engine: str,
    use: str | None,
    ids: str | None,
    workers: int | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Encode files on Dask into a folder of Parquet files and a manifest."""
    from ..engines import dask
    from ..engines.codefiles import read_manifest

    address = parse_engine(engine)
    if data is None:
        raise InputError(f"--engine {engine} encodes Parquet, Zarr or .npy files; pass a file or folder of them.")
    if output.suffix:
        raise InputError(f"--engine {engine} writes a folder of Parquet files; got {output.name!r}. Pass -o FOLDER.")
    with dask.connect(address, workers=workers) as client, progress("encoding", quiet=quiet) as update:
        dask.encode(model, data, output, view=use, ids=ids, client=client, progress=update)
    manifest = read_manifest(output)
    summary = {
        "codes": str(output),
        "view": manifest["view"],
        "rows": manifest["rows"],
        "n_bits": manifest["n_bits"],
        "partitions": len(manifest["parts"]),
    }
    if not quiet or as_json:
        emit(
            summary,
            as_json=as_json,
            text=f"{summary['rows']} codes of {summary['n_bits']} bits ({summary['view']}) "
            f"in {summary['partitions']} partition(s) in {output}",
        )
