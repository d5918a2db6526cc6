"""The processes of one training job, and sums over them: a thin layer over ``torch.distributed``.

Processes are started by ``torchrun``, which tells each its rank and where to find the others. Arrays in main memory
travel over gloo, those on GPUs over NCCL. Whatever goes wrong with another process becomes one clear error here.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from ..exceptions import InputError, MissingExtraError, ModalHashError
from ..linalg import is_torch

__all__ = ["Processes", "join", "own_rows"]

_log = logging.getLogger(__name__)


def own_rows(n: int, rank: int, size: int) -> slice:
    """Which of `n` rows belong to a process: `size` contiguous shares that differ by at most one row.

    Parameters
    ----------
    n : int
    rank : int
        From 0.
    size : int
        Processes.

    Returns
    -------
    slice

    Examples
    --------
    >>> [own_rows(7, rank, 3) for rank in range(3)]
    [slice(0, 2, None), slice(2, 4, None), slice(4, 7, None)]
    """
    if not 0 <= rank < size:
        raise InputError(f"rank must lie between 0 and {size - 1}; got {rank}.")
    if n < size:
        raise InputError(f"{n} rows cannot be spread over {size} processes. Start at most {n}.")
    return slice(n * rank // size, n * (rank + 1) // size)


class Processes:
    """One process among those of a job; made by :func:`join`.

    Parameters
    ----------
    torch : module
    timeout : float
        Seconds that were agreed on, for messages.

    Attributes
    ----------
    rank, size : int
        Which process this is, and how many there are.
    local_rank, local_size : int
        The same, on this machine.
    rounds, bytes, seconds : int, int, float
        Sums taken so far, bytes put in, and time until they came back (waiting for slower processes included).
    """

    def __init__(self, torch: Any, timeout: float) -> None:
        self._torch, self._timeout = torch, timeout
        self.rank = int(torch.distributed.get_rank())
        self.size = int(torch.distributed.get_world_size())
        self.local_rank = int(os.environ.get("LOCAL_RANK", self.rank))
        self.local_size = int(os.environ.get("LOCAL_WORLD_SIZE", self.size))
        self.rounds, self.bytes, self.seconds = 0, 0, 0.0

    def sum(self, values: list[Any]) -> list[Any]:
        """Sums over all processes of arrays and numbers, in one buffer and one all-reduce.

        Parameters
        ----------
        values : list of ndarray or torch tensor, and numbers
            In every process as many and of the same shapes. The buffer has the first one's type and place.

        Returns
        -------
        list
            New arrays (numbers as scalars), the same in every process to the last bit.
        """
        torch, like = self._torch, values[0]
        if is_torch(like):
            pieces = [torch.as_tensor(v, dtype=like.dtype, device=like.device).reshape(-1) for v in values]
            buffer = torch.cat(pieces)
        else:
            kind = np.result_type(like)
            buffer = torch.from_numpy(np.concatenate([np.asarray(v, dtype=kind).ravel() for v in values]))
        started = time.perf_counter()
        self._call(torch.distributed.all_reduce, buffer)
        if is_torch(like) and like.is_cuda:
            torch.cuda.synchronize(like.device)
        self.seconds += time.perf_counter() - started
        self.rounds += 1
        self.bytes += buffer.numel() * buffer.element_size()
        flat = buffer if is_torch(like) else buffer.numpy()
        out, at = [], 0
        for value in values:
            shape = tuple(getattr(value, "shape", ()))
            size = int(np.prod(shape, dtype=np.int64))
            out.append(flat[at : at + size].reshape(shape) if shape else flat[at])
            at += size
        return out

    def exchange(self, value: Any) -> list[Any]:
        """What every process passed, in the order of their ranks; JSON values only.

        Parameters
        ----------
        value : JSON value

        Returns
        -------
        list
        """
        torch = self._torch
        content = np.frombuffer(json.dumps(value).encode(), dtype=np.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        self._call(torch.distributed.all_gather, sizes, torch.tensor([content.size]))
        longest = max(int(size) for size in sizes)
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: content.size] = torch.from_numpy(content.copy())
        found = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.size)]
        self._call(torch.distributed.all_gather, found, padded)
        return [json.loads(f[: int(n)].numpy().tobytes()) for f, n in zip(found, sizes, strict=True)]

    @contextmanager
    def together(self, what: str) -> Iterator[None]:
        """A step that fails everywhere if it fails anywhere: every process raises, and names the first that failed.

        Parameters
        ----------
        what : str
            The step, for the message.
        """
        mine: Exception | None = None
        try:
            yield
        except (ModalHashError, OSError, MemoryError) as error:
            mine = error
        told = self.exchange(None if mine is None else f"{mine}" or type(mine).__name__)
        failed = [(rank, text) for rank, text in enumerate(told) if text is not None]
        if failed:
            rank, text = failed[0]
            message = f"{what} failed in {len(failed)} of {self.size} processes; rank {rank}: {text}"
            raise (InputError if isinstance(mine, InputError) else ModalHashError)(message) from mine

    def _call(self, function: Any, *arguments: Any) -> None:
        try:
            function(*arguments)
        except RuntimeError as error:  # torch raises this, or a subclass, for everything
            reason = " ".join(str(error).split())[:200]
            raise ModalHashError(
                f"rank {self.rank} of {self.size} lost another process of the job: it ended, or did not answer "
                f"within {self._timeout:g} s ({reason}). Its own last lines say why. Start the same job again; "
                "with a checkpoint it goes on from there."
            ) from error


@contextmanager
def join(*, timeout: float = 600.0) -> Iterator[Processes]:
    """Join the processes that ``torchrun`` started; a group that the caller made already is used as it is.

    Parameters
    ----------
    timeout : float
        Seconds to wait for another process that neither answers nor ends. One that ends is noticed at once.

    Yields
    ------
    Processes

    Examples
    --------
    >>> with join() as processes:              # doctest: +SKIP
    ...     fit(hasher, views, processes=processes)
    """
    try:
        import torch
        import torch.distributed
    except ImportError as error:
        raise MissingExtraError("torch", "torch") from error
    distributed = torch.distributed
    if not distributed.is_available():
        raise ModalHashError("this build of torch has no torch.distributed. Install another build.")
    if not timeout > 0:
        raise InputError(f"timeout must be positive; got {timeout!r}.")
    if distributed.is_initialized():
        yield Processes(torch, timeout)
        return
    missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise InputError(
            f"no other processes are known ({', '.join(missing)} not set). Start with torchrun, as in: "
            "torchrun --nproc-per-node 2 -m modalhash fit DATA --distributed"
        )
    gpus = torch.cuda.is_available() and distributed.is_nccl_available()
    backend = "cpu:gloo,cuda:nccl" if gpus else "gloo"
    if os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"] and Path("/sys/class/net/lo").exists():
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all on one machine: nothing leaves it
    try:
        distributed.init_process_group(backend, timeout=timedelta(seconds=timeout))
    except (RuntimeError, ValueError) as error:
        raise ModalHashError(
            f"the processes did not find each other ({' '.join(str(error).split())[:200]}). "
            "Check torchrun's options and that the ports are open."
        ) from error
    try:
        processes = Processes(torch, timeout)
        _log.info("rank %d of %d, over %s", processes.rank, processes.size, backend)
        yield processes
    finally:
        distributed.destroy_process_group()
