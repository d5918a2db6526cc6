"""Encoding on Dask: partitions in, Parquet files of packed codes out (extra ``dask``).

The model is shipped once per worker, by a plugin that also reaches workers which join or restart later; a task carries
its checksum only. One task encodes one partition, batch by batch, and writes one file under another name before moving
it into place; Dask gives the tasks of a lost worker to others. The manifest comes last (see
:mod:`modalhash.engines.codefiles`), so that a folder without it is unfinished; running the same encode again keeps the
parts that are whole.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base import CrossModalHasher, load
from ..bundle import CONFIG, TENSORS
from ..exceptions import InputError, MissingExtraError, ModalHashError
from .codefiles import MANIFEST, read_codes, write_manifest
from .partitions import plan

if TYPE_CHECKING:
    from .daskworker import Block, Job

__all__ = ["connect", "encode", "read_codes"]


def _distributed() -> Any:
    try:
        import dask  # noqa: F401
        import distributed
    except ImportError as error:
        raise MissingExtraError("dask.distributed", "dask") from error
    return distributed


@contextmanager
def connect(address: str | None = None, *, workers: int | None = None) -> Iterator[Any]:
    """A Dask client: of a running scheduler, or of workers started on this machine for the time being.

    Parameters
    ----------
    address : str, optional
        Such as ``tcp://10.0.0.5:8786``; ``dask://`` in front is the same. Without it workers are started here, on
        127.0.0.1, one thread each.
    workers : int, optional
        How many to start; as many as there are cores by default.

    Yields
    ------
    distributed.Client

    Examples
    --------
    >>> with connect(workers=2) as client:                                   # doctest: +SKIP
    ...     encode("model/", "pairs/", "codes/", view="image", client=client)
    """
    distributed = _distributed()
    if address is not None:
        if workers is not None:
            raise InputError("workers= starts workers here; the scheduler at an address has its own.")
        address = address.removeprefix("dask://")
        address = address if "://" in address else f"tcp://{address}"
        try:
            client = distributed.Client(address, set_as_default=False)
        except (OSError, ValueError) as error:
            raise ModalHashError(f"no Dask scheduler answers at {address} ({error}). Start one there.") from error
        with client:
            yield client
        return
    count = workers or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    with (
        _quiet("distributed"),
        distributed.LocalCluster(
            n_workers=count, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Only errors of a logger, for a while: workers come and go by the way here."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def encode(
    model: CrossModalHasher | str | os.PathLike[str],
    data: Any,
    output: str | os.PathLike[str],
    *,
    view: str | None = None,
    ids: str | None = None,
    client: Any = None,
    partition_rows: int = 1_000_000,
    progress: Callable[[int, int], object] | None = None,
) -> Path:
    """Encode a view that is too large for one machine, or for one process.

    Parameters
    ----------
    model : hasher or path
        Fitted, or the folder of a saved one.
    data : path, sequence of paths, Dask array (n, d) or Dask frame
        Files as in :func:`modalhash.engines.partitions.plan`: Parquet, Zarr, ``.npy``; every worker must see them
        under the same path. Of a frame, the column named like the view (of lists) or all columns of numbers.
    output : path
        The folder of codes, which every worker must see too.
    view : str, optional
        Which view the data is; may be left out when the model has one.
    ids : str, optional
        The column of ids in Parquet or a frame, whole numbers or strings. Row numbers by default.
    client : distributed.Client, optional
        The one in use, or else workers started here for this call.
    partition_rows : int
        Files: rows of one task at most, as far as row groups and chunks allow.
    progress : callable(done, total), optional
        Called when a partition is done.

    Returns
    -------
    Path
        `output`; :func:`read_codes` reads it.

    Raises
    ------
    InputError
        A row that cannot be encoded, named with its file. The other partitions are written and kept; there is no
        manifest, and the next run encodes what is missing only.

    Examples
    --------
    >>> import dask.array as da                                              # doctest: +SKIP
    >>> encode(hasher, da.from_zarr("image.zarr"), "codes/", view="image")   # doctest: +SKIP
    >>> ids, codes = map(np.concatenate, zip(*read_codes("codes/")))         # doctest: +SKIP
    """
    distributed = _distributed()
    hasher = model if isinstance(model, CrossModalHasher) else load(model)
    view = _view(hasher, view)
    seal, files = _shipment(hasher)
    output = Path(output)
    if output.exists() and not output.is_dir():
        raise InputError(f"{output} is a file; codes are written as a folder. Choose another name.")
    output.mkdir(parents=True, exist_ok=True)
    output = output.resolve()
    with _client(distributed, client) as used:
        from .daskworker import Job, ModelPlugin

        def job(number: int, identity: dict[str, Any]) -> Job:
            about = {"model": seal, "view": view, **identity}
            return Job(seal, view, str(output / f"part-{number:05d}.parquet"), about)

        tasks = _tasks(hasher, data, view, ids, used, partition_rows, job)
        about = {"view": view, "method": type(hasher).__name__, "model": seal}
        (output / MANIFEST).unlink(missing_ok=True)  # whatever was there is unfinished from here on
        plugin = ModelPlugin(seal, files, type(hasher).__module__)
        used.register_plugin(plugin)
        try:
            parts = _gather(distributed, used, tasks(), progress)
        finally:
            used.unregister_worker_plugin(plugin.name)
    _raise_first_error(parts)
    parts = [part for part in parts if part["rows"]]
    if not parts:
        raise InputError("there are no rows to encode.")
    keep = {part["file"] for part in parts}
    for old in (*output.glob("part-*.parquet"), *output.glob(".part-*.tmp.parquet")):
        if old.name not in keep:
            old.unlink(missing_ok=True)  # of an earlier, longer run, or of a worker that was lost
    write_manifest(output, parts, hasher.n_bits, about)
    return output


def _view(hasher: CrossModalHasher, view: str | None) -> str:
    hasher._check_fitted()
    if view is None:
        if len(hasher.view_names_) != 1:
            raise InputError(f"say which view the data is with view=; the model has {', '.join(hasher.view_names_)}.")
        view = hasher.view_names_[0]
    hasher._known_view(view)
    return view


def _shipment(hasher: CrossModalHasher) -> tuple[str, dict[str, bytes]]:
    """The saved model without the codes of its training rows, and its checksum."""
    light = type(hasher)(**hasher.get_params())
    for name, value in vars(hasher).items():
        if name.endswith("_") and not name.startswith("_") and name not in ("train_codes_", "features_"):
            setattr(light, name, value)
    with tempfile.TemporaryDirectory() as folder:
        light.save(folder)
        files = {name: Path(folder, name).read_bytes() for name in (TENSORS, CONFIG)}
    return hashlib.sha256(files[TENSORS]).hexdigest(), files


def _client(distributed: Any, client: Any) -> Any:
    if client is None:
        try:
            client = distributed.default_client()
        except ValueError:
            return connect()
    return nullcontext(client)


def _tasks(
    hasher: CrossModalHasher,
    data: Any,
    view: str,
    ids: str | None,
    client: Any,
    partition_rows: int,
    job: Callable[[int, dict[str, Any]], Job],
) -> Callable[[], list[Any]]:
    """Check the data and return what submits one task per partition, in order, and gives their futures."""
    from .daskworker import encode_block, encode_part

    width = hasher._known_view(view)
    if isinstance(data, (str, os.PathLike)) or (isinstance(data, Sequence) and not hasattr(data, "dask")):
        parts = [
            replace(part, file=str(Path(part.file).resolve()))
            for part in plan(data, view, width, ids=ids, rows=partition_rows)
        ]
        jobs = [job(number, part.identity()) for number, part in enumerate(parts)]
        return lambda: client.map(encode_part, jobs, parts, pure=False, key="modalhash-encode")
    import dask

    if hasattr(data, "chunks"):
        blocks = _array_blocks(data, view, width, ids)
    else:
        blocks = _frame_blocks(data, view, width, ids, client)
    delayed = [
        dask.delayed(encode_block, pure=False)(
            job(block.number, {"block": str(piece.key), "offset": block.offset, "rows": block.rows, "ids": block.ids}),
            block,
            piece,
        )
        for block, piece in blocks
    ]
    return lambda: client.compute(delayed)


def _array_blocks(data: Any, view: str, width: int, ids: str | None) -> list[tuple[Block, Any]]:
    from .daskworker import Block

    if data.ndim != 2 or data.shape[1] != width:
        raise InputError(
            f"view {view!r} must be a Dask array of shape (n, {width}), as the model was fitted; got {data.shape}."
        )
    if ids is not None:
        raise InputError(f"a Dask array has no column {ids!r}; ids by column are for Parquet and frames.")
    sizes = data.chunks[0]
    if any(np.isnan(size) for size in sizes):
        raise InputError("the Dask array does not know the rows of its chunks. Call compute_chunk_sizes() first.")
    pieces = data.rechunk({1: -1}).to_delayed().ravel()
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return [
        (Block(i, int(offsets[i]), int(sizes[i]), width), piece) for i, piece in enumerate(pieces) if int(sizes[i]) > 0
    ]


def _frame_blocks(data: Any, view: str, width: int, ids: str | None, client: Any) -> list[tuple[Block, Any]]:
    import dask

    from .daskworker import Block

    if not (hasattr(data, "to_delayed") and hasattr(data, "dtypes")):
        raise InputError(f"data must be files, a Dask array or a Dask frame; got {type(data).__name__}.")
    names = list(data.columns)
    if ids is not None and ids not in names:
        raise InputError(f"the frame has no column {ids!r} for ids; it has {', '.join(map(str, names[:20]))}.")
    numeric = [n for n, kind in data.dtypes.items() if n != ids and getattr(kind, "kind", "O") in "biuf"]
    columns = [view] if view in names else numeric
    if view not in names and len(numeric) != width:
        raise InputError(
            f"the frame has no column {view!r}, and {len(numeric)} columns of numbers where the model was fitted with "
            f"{width}. Name the column of lists after the view, or pass those columns."
        )
    chosen = data[columns if ids is None else [*columns, ids]]
    pieces = chosen.to_delayed()
    if ids is not None:
        return [(Block(i, 0, None, width, ids, columns), piece) for i, piece in enumerate(pieces)]
    sizes = client.gather(client.compute([dask.delayed(len)(piece) for piece in pieces]))  # for the row numbers
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return [
        (Block(i, int(offsets[i]), int(sizes[i]), width, ids, columns), piece)
        for i, piece in enumerate(pieces)
        if int(sizes[i]) > 0
    ]


def _gather(
    distributed: Any, client: Any, futures: list[Any], progress: Callable[[int, int], object] | None
) -> list[dict[str, Any]]:
    """Results in the order of the partitions; what Dask itself could not do becomes one clear error."""
    try:
        for done, future in enumerate(distributed.as_completed(futures, loop=client.loop), start=1):
            if future.status != "finished":
                reason = future.exception()
                raise ModalHashError(
                    f"a partition could not be encoded ({type(reason).__name__}: {reason}). What was written is kept; "
                    "run the same encode again to finish."
                ) from reason
            if progress is not None:
                progress(done, len(futures))
        return [future.result() for future in futures]
    except BaseException:
        client.cancel(futures)
        raise


def _raise_first_error(parts: list[dict[str, Any]]) -> None:
    bad = [part for part in parts if "error" in part]
    if bad:
        more = f" ({len(bad) - 1} more partitions have errors.)" if len(bad) > 1 else ""
        raise InputError(f"{bad[0]['error']}{more} The other partitions are written; the next run keeps them.")
