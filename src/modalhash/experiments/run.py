"""The first step: fit, and store codes, row numbers and timings, one file per run. What is there is not done again."""

from __future__ import annotations

import logging
import os
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..datasets import Dataset
from ..exceptions import InputError, ModalHashError
from . import files
from .estimate import Estimate, cost
from .plan import Run
from .sources import VIEWS, data_hash, protocol_of, split_data

__all__ = ["Outcome", "execute", "fit_run", "is_done", "joint_rule"]

_log = logging.getLogger(__name__)

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_WARM_ROWS = 400
Progress = Callable[["Outcome"], object]


@dataclass
class Outcome:
    """How far the runs are.

    Attributes
    ----------
    total, skipped, fitted : int
        Runs planned; those that were there; those made now.
    failed : dict of str to str
        Runs that could not be made, with the reason.
    seconds_left : float
        Estimated.
    latest : str
        What happened last.
    """

    total: int = 0
    skipped: int = 0
    fitted: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    seconds_left: float = 0.0
    latest: str = ""

    @property
    def done(self) -> int:
        """Runs that need nothing more."""
        return self.skipped + self.fitted + len(self.failed)


def joint_rule(method: str) -> str | None:
    """The database rule of a method's own that joins views or labels, or None where it only encodes.

    Examples
    --------
    >>> [joint_rule(name) for name in ("DMH", "MDBE", "SePH", "SCM")]
    ['learned', 'label', 'fused', None]
    """
    from .. import methods

    rules = getattr(methods, method).database_rules
    return next((rule for rule in ("learned", "label", "unified", "fused") if rule in rules), None)


def _made_from(run: Run, data: str) -> dict[str, Any]:
    """What decides a run's codes: the same means that it need not be made again."""
    return {"method": run.method, "parameters": run.parameters, "data": data, "protocol": protocol_of(run.dataset)}


def is_done(results: Path, run: Run, data: str) -> bool:
    """Whether a whole file of this run is there, made with the same parameters from the same data.

    Parameters
    ----------
    results : Path
    run : Run
    data : str
        Hash of the data; see :func:`modalhash.experiments.sources.data_hash`.

    Returns
    -------
    bool
        A run that must be timed alone counts only if it was.
    """
    found = files.read_run(files.run_path(results, run))
    if found is None:
        return False
    meta = found[1]
    return meta.get("made_from") == _made_from(run, data) and (bool(meta.get("alone")) or not run.alone)


def fit_run(run: Run, data: Dataset, *, device: str = "cpu") -> tuple[dict[str, Any], dict[str, Any]]:
    """Fit one run on the training rows of a split data set and encode queries and database.

    Parameters
    ----------
    run : Run
    data : Dataset
        Split; see :func:`modalhash.experiments.sources.split_data`.
    device : str
        "cpu", or a torch device for the methods that have one.

    Returns
    -------
    tuple of (dict of str to ndarray, dict)
        Packed codes ``query_image``, ``query_text``, ``db_encoded_image``, ``db_encoded_text`` and, where the method
        has a rule of its own, ``db_`` and its name; row numbers in the data set, ``query_ids`` and ``database_ids``;
        ``objective`` where there is one. And timings, sizes and warnings.
    """
    from .. import methods

    train, query, database = (data.rows(name) for name in ("train", "query", "database"))
    hasher = getattr(methods, run.method)(**run.parameters)
    if device != "cpu" and "device" in hasher.get_params():
        hasher.set_params(device=device)
    if run.alone:
        _warm_up(run, train, device)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        wall, cpu = time.perf_counter(), time.process_time()
        hasher.fit({view: train.views[view] for view in VIEWS}, labels=train.labels)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    arrays: dict[str, Any] = {
        "query_ids": data.splits["query"].astype(np.int32),
        "database_ids": data.splits["database"].astype(np.int32),
    }
    per_query = {}
    for view in VIEWS:
        arrays[f"query_{view}"] = hasher.encode(view, query.views[view])
        spent = []
        for _ in range(3):
            started = time.perf_counter()
            hasher.encode(view, query.views[view])
            spent.append(time.perf_counter() - started)
        per_query[view] = min(spent) / len(query)
        arrays[f"db_encoded_{view}"] = hasher.encode(view, database.views[view])
    rule = joint_rule(run.method)
    if rule is not None:
        own = {view: database.views[view] for view in VIEWS}
        arrays[f"db_{rule}"] = hasher.database_codes(own, database.labels, rule=rule)
    curve = getattr(hasher, "objective_", None)
    if curve is not None and np.isfinite(curve).all():
        arrays["objective"] = np.asarray(curve, dtype=np.float64)
    meta = {
        "seconds": {"fit": wall, "cpu_fit": cpu, "encode_per_query": per_query},
        "n_iter": int(hasher.n_iter_) if hasattr(hasher, "n_iter_") else None,
        "split": {
            "hash": data.split_hash[:12],
            "train": len(train),
            "database": len(database),
            "queries": len(query),
        },
        "warnings": sorted({str(one.message).split(". ")[0] for one in caught}),
    }
    return arrays, meta


def _warm_up(run: Run, train: Dataset, device: str) -> None:
    """Fit something small first, so that loading and compiling are not part of a time that is reported."""
    from .. import methods

    few = train.take(np.arange(min(_WARM_ROWS, len(train))))
    hasher = getattr(methods, run.method)(**{**run.parameters, "n_bits": min(8, run.bits)})
    for name, small in (("n_iter", 5), ("n_pairs", 500), ("n_anchors", 50)):
        if name in hasher.get_params():
            hasher.set_params(**{name: small})
    if device != "cpu" and "device" in hasher.get_params():
        hasher.set_params(device=device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            hasher.fit({view: few.views[view] for view in VIEWS}, labels=few.labels)
        except ModalHashError:  # such as a label that the few rows lack; compiling was all that was wanted
            _log.info("%s: no warm-up on %d rows", run, len(few))


class _Bench:
    """The data that runs need: whole sets by name, and the split of the last seed."""

    def __init__(self, data: Mapping[str, Dataset | str]) -> None:
        self._data = dict(data)
        self._hash: dict[str, str] = {}
        self._last: tuple[tuple[str, int], Dataset] | None = None

    def whole(self, name: str) -> Dataset:
        held = self._data[name]
        if isinstance(held, str):
            held = self._data[name] = Dataset.load(held)
        return held

    def hash(self, name: str) -> str:
        if name not in self._hash:
            self._hash[name] = data_hash(self.whole(name))
        return self._hash[name]

    def split(self, name: str, seed: int) -> Dataset:
        if self._last is None or self._last[0] != (name, seed):
            self._last = None  # let the old one go before the new one is made
            self._last = ((name, seed), split_data(self.whole(name), seed))
        return self._last[1]

    def make(self, run: Run, results: Path, device: str) -> float | str:
        """Fit and store a run; the seconds that it took, or why it could not be done."""
        started = time.perf_counter()
        try:
            arrays, found = fit_run(run, self.split(run.dataset, run.seed), device=device)
        except (ModalHashError, MemoryError, np.linalg.LinAlgError) as error:
            return " ".join(str(error).split()) or type(error).__name__
        meta = {
            **{name: getattr(run, name) for name in ("dataset", "method", "label", "varied", "bits", "seed")},
            "parameters": run.parameters,
            "rule": joint_rule(run.method) or "encoded",
            "alone": run.alone,
            "made_from": _made_from(run, self.hash(run.dataset)),
            "machine": files.describe_machine(device, files.cores()),
            **files.describe_code(),
            **found,
            "finished": files.now(),
        }
        files.write_run(files.run_path(results, run), arrays, meta)
        return time.perf_counter() - started


_bench: _Bench | None = None  # of a worker process


def _start_worker(data: dict[str, str], places: Any, share: int) -> None:
    global _bench
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    if hasattr(os, "sched_setaffinity"):
        mine = sorted(os.sched_getaffinity(0))
        first = places.get() * share
        os.sched_setaffinity(0, [mine[(first + i) % len(mine)] for i in range(share)])
    _bench = _Bench(data)


def _work(run: Run, results: Path, device: str) -> float | str:
    if _bench is None:
        raise InputError("a worker process was used before it was started.")
    return _bench.make(run, results, device)


@contextmanager
def _threads(share: int) -> Iterator[None]:
    """New processes get `share` threads each."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update({name: str(share) for name in _THREADS})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def execute(
    runs: Sequence[Run],
    data: Mapping[str, Dataset],
    results: str | Path,
    *,
    jobs: int = 1,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Outcome:
    """Make all runs that are not there yet.

    Parameters
    ----------
    runs : sequence of Run
    data : dict of str to Dataset
        By name, whole; see :func:`modalhash.experiments.read_source`.
    results : path
        The folder of results.
    jobs : int
        Processes, each with its share of the cores. Runs whose time is reported are made alone, after the others.
    device : str
        "cpu", or a torch device for the methods that can use one.
    progress : callable, optional
        Called with the :class:`Outcome` so far: at the start, and after every run.

    Returns
    -------
    Outcome

    Examples
    --------
    >>> import tempfile
    >>> from modalhash.datasets import make_synthetic
    >>> from modalhash.experiments import make_plan
    >>> runs = make_plan("synthetic", studies=["table-map"], methods=["CVH", "MDBE"], bits=[8], seeds=1)
    >>> data = {"synthetic": make_synthetic(n=200, random_state=0)}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first, again = execute(runs, data, folder), execute(runs, data, folder)
    >>> (first.fitted, first.skipped), (again.fitted, again.skipped)
    ((2, 0), (0, 2))
    """
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise InputError(f"jobs must be a whole number of at least 1; got {jobs!r}.")
    if device != "cpu":
        from ..linalg import torch_device

        torch_device(device)
    results, bench = Path(results), _Bench(data)
    results.mkdir(parents=True, exist_ok=True)
    todo = [run for run in runs if not is_done(results, run, bench.hash(run.dataset))]
    together = [run for run in todo if not run.alone]
    jobs = min(jobs, max(1, len(together)))
    outcome = Outcome(total=len(runs), skipped=len(runs) - len(todo))
    rows = {name: len(whole) for name, whole in data.items()}
    # Costs are seconds on the whole machine; one of several runs at once has 1 / jobs of it, one alone has it all.
    slots = [1 if run.alone else jobs for run in todo]
    left = Estimate({i: (run.method, cost(run, rows[run.dataset])) for i, run in enumerate(todo)})
    places = {id(run): i for i, run in enumerate(todo)}

    def tell(run: Run | None, found: float | str | None) -> None:
        if run is not None and found is not None:
            place = places[id(run)]
            if isinstance(found, str):
                outcome.failed[str(run)] = found
                left.drop(place)
            else:
                outcome.fitted += 1
                left.finish(place, found / slots[place])
            outcome.latest = f"{run}: {found}" if isinstance(found, str) else f"{run}: {found:.1f} s"
        outcome.seconds_left = left.seconds()
        if progress is not None:
            progress(outcome)

    tell(None, None)
    if jobs > 1:
        together.sort(key=lambda run: -cost(run, rows[run.dataset]))  # the longest first, so that none is left alone
        _execute_together(together, data, results, jobs, device, tell)
    else:
        for run in together:
            tell(run, bench.make(run, results, device))
    for run in todo:
        if run.alone:
            tell(run, bench.make(run, results, device))
    return outcome


def _execute_together(
    runs: Sequence[Run],
    data: Mapping[str, Dataset],
    results: Path,
    jobs: int,
    device: str,
    tell: Callable[[Run, float | str], None],
) -> None:
    """Runs in several processes, which read the data from files and share nothing else."""
    from multiprocessing import get_context

    context, share = get_context("spawn"), max(1, files.cores() // jobs)
    with tempfile.TemporaryDirectory(dir=results, prefix=".data-") as folder, _threads(share):
        saved = {name: str(data[name].save(Path(folder) / f"{name}.npz")) for name in {r.dataset for r in runs}}
        places = context.Queue()
        for place in range(jobs):
            places.put(place)
        pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_start_worker, initargs=(saved, places, share))
        try:
            waiting: dict[Future[float | str], Run] = {pool.submit(_work, run, results, device): run for run in runs}
            while waiting:
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    tell(waiting.pop(future), future.result())
        except BrokenProcessPool as error:
            raise ModalHashError(
                "a process that was fitting died, perhaps for want of memory. What is done is kept: start again with "
                "fewer jobs."
            ) from error
        finally:
            workers = list((pool._processes or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in workers:
                worker.terminate()
