"""Work split over threads; for kernels that release the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

__all__ = ["in_parallel", "spans"]

Result = TypeVar("Result")


def in_parallel(task: Callable[..., Result], jobs: Sequence[tuple[Any, ...]], threads: int) -> list[Result]:
    """Call `task` with each of `jobs`, on up to `threads` threads; results in order.

    Examples
    --------
    >>> in_parallel(max, [(1, 2), (4, 3)], threads=2)
    [2, 4]
    """
    if threads == 1 or len(jobs) == 1:
        return [task(*job) for job in jobs]
    with ThreadPoolExecutor(min(threads, len(jobs))) as pool:
        return [done.result() for done in [pool.submit(task, *job) for job in jobs]]


def spans(n: int, size: int) -> list[tuple[int, int]]:
    """Cut ``range(n)`` into pieces of `size`.

    Examples
    --------
    >>> spans(5, 2)
    [(0, 2), (2, 4), (4, 5)]
    """
    return [(start, min(n, start + size)) for start in range(0, n, size)]
