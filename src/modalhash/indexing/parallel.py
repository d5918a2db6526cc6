"""Work split over threads; for kernels that release the interpreter's lock."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

__all__ = ["cores", "in_parallel", "spans"]

Result = TypeVar("Result")

_pools: dict[int, ThreadPoolExecutor] = {}  # by process: threads do not survive a fork
_making = threading.Lock()


def _pool() -> ThreadPoolExecutor:
    pool = _pools.get(os.getpid())
    if pool is None:
        with _making:
            workers = max(32, os.cpu_count() or 1)
            pool = _pools.setdefault(os.getpid(), ThreadPoolExecutor(workers, thread_name_prefix="modalhash"))
    return pool


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_making.acquire, after_in_parent=_making.release, after_in_child=_making.release)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_parallel(task: Callable[..., Result], jobs: Sequence[tuple[Any, ...]], threads: int) -> list[Result]:
    """Call `task` with each of `jobs`, on up to `threads` threads; results in order.

    The calling thread takes part. The others come from a pool that is kept, since starting one takes longer than many
    searches; a caller never waits for a thread that has not started on its work.

    Examples
    --------
    >>> in_parallel(max, [(1, 2), (4, 3)], threads=2)
    [2, 4]
    """
    if threads == 1 or len(jobs) <= 1:
        return [task(*job) for job in jobs]
    results: dict[int, Result] = {}
    waiting = deque(range(len(jobs)))

    def work() -> None:
        while True:
            try:
                i = waiting.popleft()
            except IndexError:
                return
            results[i] = task(*jobs[i])

    others = [_pool().submit(work) for _ in range(min(threads, len(jobs)) - 1)]
    try:
        work()
    finally:
        running = [other for other in others if not other.cancel()]
        for other in running:
            other.result()
    return [results[i] for i in range(len(jobs))]


def spans(n: int, size: int) -> list[tuple[int, int]]:
    """Cut ``range(n)`` into pieces of `size`.

    Examples
    --------
    >>> spans(5, 2)
    [(0, 2), (2, 4), (4, 5)]
    """
    return [(start, min(n, start + size)) for start in range(0, n, size)]
