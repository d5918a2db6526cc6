"""A file from which an interrupted fit goes on: arrays, a JSON state and the fingerprint of the fit they belong to.

It is one safetensors file, replaced in one step at every save, so that a crash at any moment leaves a whole one.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..bundle import atomic_write, remove_with_leftovers
from ..exceptions import InputError, ModelFormatError

__all__ = ["Checkpoint", "digest"]

_SEAL = "modalhash-checkpoint"
_VERSION = 1

_log = logging.getLogger(__name__)


def digest(*arrays: Any) -> str:
    """Sixteen hexadecimal digits that tell one sequence of arrays from another.

    Examples
    --------
    >>> digest(np.arange(3)) == digest(np.arange(3)), digest(np.arange(3)) == digest(np.arange(3.0))
    (True, False)
    """
    found = hashlib.sha256()
    for array in arrays:
        array = np.ascontiguousarray(array)
        found.update(f"{array.dtype.str}{array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()[:16]


class Checkpoint:
    """Where a fit saves its state, and how often.

    Parameters
    ----------
    path : path
        The file; its folder must exist.
    every : int
        Iterations between saves.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     point = Checkpoint(f"{folder}/fit.safetensors", every=10)
    ...     point.write({"seed": 0}, {"W": np.ones(2)}, {"k": 10})
    ...     arrays, state = point.read({"seed": 0})
    >>> arrays["W"].tolist(), state["k"]
    ([1.0, 1.0], 10)
    """

    def __init__(self, path: str | os.PathLike[str], every: int = 50) -> None:
        if isinstance(every, bool) or not isinstance(every, (int, np.integer)) or every < 1:
            raise InputError(f"checkpoint_every must be a whole number of at least 1; got {every!r}.")
        self.path, self.every = Path(path), int(every)
        if self.path.is_dir() or not self.path.parent.is_dir():
            what = "it is a folder" if self.path.is_dir() else f"the folder {self.path.parent} does not exist"
            raise InputError(f"checkpoint must name a file; {self.path} cannot be one: {what}.")

    def read(self, fingerprint: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """What was saved last, if it belongs to this fit; None where there is no file.

        Parameters
        ----------
        fingerprint : dict of str to JSON value
            What makes the fit this one: parameters, shapes, seed, start.

        Returns
        -------
        tuple of (dict of str to ndarray, dict) or None
        """
        from safetensors import SafetensorError, safe_open

        if not self.path.exists():
            return None
        try:
            with safe_open(str(self.path), framework="numpy") as handle:
                sealed = (handle.metadata() or {}).get(_SEAL)
                if sealed is None:
                    raise ModelFormatError(f"{self.path} is not a checkpoint of modalhash. Name another file.")
                content = json.loads(sealed)
                arrays = {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118  (not a dict)
        except (SafetensorError, OSError, ValueError) as error:
            if isinstance(error, ModelFormatError):
                raise
            raise ModelFormatError(f"{self.path} is damaged ({error}). Remove it to start the fit anew.") from error
        if content.get("version") != _VERSION:
            raise ModelFormatError(
                f"{self.path} is a checkpoint of version {content.get('version')!r}; this modalhash reads {_VERSION}. "
                "Remove it to start the fit anew."
            )
        there, here = content["fingerprint"], json.loads(json.dumps(dict(fingerprint)))
        differ = [name for name in sorted({*there, *here}) if there.get(name) != here.get(name)]
        if differ:
            shown = "; ".join(f"{name} is {there.get(name)!r} there and {here.get(name)!r} here" for name in differ[:4])
            raise InputError(
                f"the checkpoint {self.path} belongs to another fit: {shown}. Remove it to start anew, or fit with the "
                "same parameters and data to continue."
            )
        _log.info("continuing from the checkpoint %s", self.path)
        return arrays, content["state"]

    def write(self, fingerprint: Mapping[str, Any], arrays: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        """Replace the file in one step.

        Parameters
        ----------
        fingerprint : dict of str to JSON value
        arrays : dict of str to ndarray
        state : dict
            JSON values.
        """
        from safetensors.numpy import save

        content = {"version": _VERSION, "fingerprint": dict(fingerprint), "state": dict(state)}
        plain = {name: np.ascontiguousarray(value) for name, value in arrays.items()}
        atomic_write(self.path, save(plain, metadata={_SEAL: json.dumps(content, allow_nan=False)}))

    def remove(self) -> None:
        """Remove the file of a fit that is finished."""
        remove_with_leftovers(self.path)
