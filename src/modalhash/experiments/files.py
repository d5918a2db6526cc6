"""What lies where in a folder of results, and reading and writing it.

``runs/{dataset}/{label}/{bits}-s{seed}.npz``   what a fit made: codes, row numbers, the objective, and ``meta``, JSON
``scores/{dataset}/{label}/{bits}-s{seed}.json``   what the codes are worth, from a run and the data's labels
``report/``   pages, figures and tables, from the scores

Every file is written beside its place and moved there in one step, so that an interrupted run leaves nothing torn.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import zipfile
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ..bundle import atomic_write, write_whole
from .plan import Run

__all__ = ["describe_code", "describe_machine", "now", "read_run", "read_score", "run_path", "score_path"]

_CODE = ("*.py", "methods/*.py", "solvers/*.py", "datasets/*.py", "features/*.py")
_EXPERIMENT = ("plan.py", "run.py", "score.py", "sources.py")


def _place(run: Run) -> Path:
    return Path(run.dataset) / run.label / f"{run.bits:03d}-s{run.seed}"


def run_path(results: Path, run: Run) -> Path:
    """Where the run's codes lie.

    Examples
    --------
    >>> from modalhash.experiments import make_plan
    >>> print(run_path(Path("results"), make_plan("mirflickr", studies=["table-map"])[0]))
    results/runs/mirflickr/DMH/016-s0.npz
    """
    return Path(f"{results / 'runs' / _place(run)}.npz")


def score_path(results: Path, run: Run) -> Path:
    """Where the run's scores lie.

    Examples
    --------
    >>> from modalhash.experiments import make_plan
    >>> print(score_path(Path("results"), make_plan("mirflickr", studies=["table-map"])[0]))
    results/scores/mirflickr/DMH/016-s0.json
    """
    return Path(f"{results / 'scores' / _place(run)}.json")


def write_run(path: Path, arrays: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
    """Write a run's arrays and what is known about it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = np.array(json.dumps(meta, sort_keys=True, allow_nan=False))
    write_whole(path, lambda file: np.savez_compressed(file, **arrays, meta=text))


def read_run(path: Path) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Read a run back: arrays and ``meta``, or None where there is no whole file.

    Parameters
    ----------
    path : Path

    Returns
    -------
    tuple of (dict of str to ndarray, dict), or None
        Every array is read, so that a file damaged anywhere is found out.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as held:
            arrays = {name: held[name] for name in held.files}
        meta = json.loads(str(arrays.pop("meta")))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
        return None
    return (arrays, meta) if isinstance(meta, dict) else None


def write_score(path: Path, score: Mapping[str, Any]) -> None:
    """Write a run's scores as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, (json.dumps(score, sort_keys=True, allow_nan=False) + "\n").encode())


def read_score(path: Path) -> dict[str, Any] | None:
    """Read a run's scores, or None where there is no whole file.

    Examples
    --------
    >>> read_score(Path("no/such/file.json")) is None
    True
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def file_hash(path: Path) -> str:
    """Twelve hex digits of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def now() -> str:
    """The time, as ISO 8601 in UTC.

    Examples
    --------
    >>> now().endswith("Z")
    True
    """
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@cache
def describe_code() -> dict[str, Any]:
    """The version, the commit where the package is a checkout, and a hash of the code that makes the numbers.

    Returns
    -------
    dict
        ``version``, ``commit`` (with ``+`` when files differ from it; None outside a checkout) and ``source``.

    Examples
    --------
    >>> sorted(describe_code())
    ['commit', 'source', 'version']
    """
    from .. import __version__

    package = Path(__file__).resolve().parents[1]
    files = {file for pattern in _CODE for file in package.glob(pattern)}
    files |= {package / "experiments" / name for name in _EXPERIMENT}
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes())
    return {"version": __version__, "commit": _commit(package), "source": digest.hexdigest()[:12]}


def _commit(package: Path) -> str | None:
    root = package.parents[1]
    if package.parent.name != "src" or not (root / ".git").exists():
        return None

    def ask(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, check=True, timeout=20
        ).stdout.strip()

    try:
        return ask("rev-parse", "--short=12", "HEAD") + ("+" if ask("status", "--porcelain", "--", "src") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def describe_machine(device: str, threads: int) -> dict[str, Any]:
    """What a run was made on.

    Parameters
    ----------
    device : str
        "cpu", or the torch device.
    threads : int
        Cores that the run could use.

    Returns
    -------
    dict

    Examples
    --------
    >>> describe_machine("cpu", 2)["cores"]
    2
    """
    shown = device
    if device != "cpu":
        import torch

        shown = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
    return {
        "cpu": _cpu(),
        "cores": threads,
        "device": shown,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "system": f"{platform.system()} {platform.machine()}",
    }


@cache
def _cpu() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def cores() -> int:
    """Cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
