"""From the state of an index to the arrays of its file and back, checked to fit together."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..codes import n_bytes
from ..exceptions import InputError, ModelFormatError
from .approximate import ApproximateNeighbors
from .records import Growing, Records, TextColumn
from .state import Cover, State
from .storage import read_index, write_index

__all__ = ["load_state", "save_state"]


def save_state(path: str | os.PathLike[str], state: State, parameters: Mapping[str, Any]) -> Path:
    """Write a state, and the parameters of its index, to the folder `path`.

    Returns
    -------
    Path
        The folder.
    """
    records, cover = state.records, state.covers.get("search")
    arrays = {"ids": records.ids, "words": records.words.array}
    for i, column in enumerate(records.columns.values()):
        arrays |= {f"text{i}": column.block.array, f"ends{i}": column.ends.array}
    config = {**parameters, "next_id": state.next_id, "columns": list(records.columns)}
    if cover is not None:
        arrays |= {"structure": cover.structure.to_bytes(), "structure_ids": cover.ids, "structure_fresh": cover.fresh}
        config["structure_gone"] = cover.n_gone
    return write_index(path, config, arrays).parent


def load_state(path: str | os.PathLike[str], *, verify: bool, threads: int) -> tuple[State, dict[str, Any]]:
    """Map what :func:`save_state` wrote: the state, and the parameters ``n_bits``, ``kind`` and ``effort``."""
    config, arrays = read_index(path, verify=verify)
    try:
        records = _records(config, arrays, verify)
        parameters = {name: config[name] for name in ("n_bits", "kind", "effort")}
        state = State(records, int(config["next_id"]))
        if "structure" in arrays:
            ids, fresh = arrays["structure_ids"], arrays["structure_fresh"]
            structure = ApproximateNeighbors(parameters["kind"], int(parameters["effort"]), threads)
            structure.from_bytes(arrays["structure"], len(ids), n_bytes(records.n_bits))
            state = state.covered("search", Cover(structure, ids, fresh, int(config["structure_gone"])))
    except ModelFormatError:
        raise
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ModelFormatError(f"{path} holds no usable index: {error}. Build the index again.") from error
    return state, parameters


def _records(config: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], verify: bool) -> Records:
    ids, words = arrays["ids"], arrays["words"]
    expected = Records.empty(config["n_bits"]).words.data
    if ids.dtype != np.int64 or ids.ndim != 1 or words.dtype != expected.dtype:
        raise InputError("ids or codes are of another type")
    if words.shape != (len(expected), len(ids)):
        raise InputError("there is not one code per id")
    if verify and not (ids[1:] > ids[:-1]).all():
        raise InputError("its ids do not ascend")
    columns = {}
    for i, name in enumerate(config["columns"]):
        block, ends = arrays[f"text{i}"], arrays[f"ends{i}"]
        if ends.shape != ids.shape or ends.dtype != np.int64 or block.dtype != np.uint8 or block.ndim != 1:
            raise InputError(f"column {name!r} does not fit the ids")
        if verify and ((np.diff(ends, prepend=0) < 0).any() or (int(ends[-1]) if ends.size else 0) != block.size):
            raise InputError(f"column {name!r} does not fit its text")
        columns[str(name)] = TextColumn(Growing(block), Growing(ends))
    return Records(int(config["n_bits"]), Growing(words), Growing(ids), columns)
