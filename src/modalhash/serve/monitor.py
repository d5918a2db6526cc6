"""Counters of a server, in the text form that Prometheus reads (exposition format 0.0.4)."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

__all__ = ["Monitor"]

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Monitor:
    """Count requests by route and status, and how long they took.

    Only the event loop's thread writes, so there is no lock.

    Examples
    --------
    >>> monitor = Monitor()
    >>> monitor.observe("/search", "GET", 200, 0.004)
    >>> lines = monitor.render({("image", 64): 3}).splitlines()
    >>> [line for line in lines if line.startswith(("modalhash_requests_total", "modalhash_items"))]
    ['modalhash_requests_total{route="/search",method="GET",status="200"} 1', 'modalhash_items{database="image",bits="64"} 3']
    """  # noqa: E501

    def __init__(self) -> None:
        self.started = time.time()
        self.in_flight = 0
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.seconds: Counter[str] = Counter()
        self.buckets: dict[str, list[int]] = {}

    def observe(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one request that has been answered."""
        self.requests[route, method, status] += 1
        counts = self.buckets.setdefault(route, [0] * (len(_BUCKETS) + 1))
        counts[next((i for i, bound in enumerate(_BUCKETS) if seconds <= bound), len(_BUCKETS))] += 1
        self.seconds[route] += seconds  # type: ignore[assignment]

    def render(self, items: dict[tuple[str, int], int]) -> str:
        """Everything as text; `items` is the number of codes by database and bits."""
        out = [*_head("modalhash_requests_total", "counter", "Requests answered.")]
        for (route, method, status), count in sorted(self.requests.items()):
            out.append(f"modalhash_requests_total{_labels(route=route, method=method, status=status)} {count}")
        name = "modalhash_request_seconds"
        out += _head(name, "histogram", "Time from the request's head to the answer's end.")
        for route, counts in sorted(self.buckets.items()):
            total = 0
            for bound, count in zip((*_BUCKETS, float("inf")), counts, strict=True):
                total += count
                le = "+Inf" if bound == float("inf") else f"{bound:g}"
                out.append(f"{name}_bucket{_labels(route=route, le=le)} {total}")
            out.append(f"{name}_sum{_labels(route=route)} {self.seconds[route]:.6f}")
            out.append(f"{name}_count{_labels(route=route)} {total}")
        out += _head("modalhash_requests_in_flight", "gauge", "Requests being answered.")
        out.append(f"modalhash_requests_in_flight {self.in_flight}")
        out += _head("modalhash_items", "gauge", "Codes in each database.")
        for (database, bits), count in sorted(items.items()):
            out.append(f"modalhash_items{_labels(database=database, bits=bits)} {count}")
        out += _head("process_start_time_seconds", "gauge", "Start of the server, Unix time.")
        out.append(f"process_start_time_seconds {self.started:.3f}")
        memory = _resident_bytes()
        if memory is not None:
            out += _head("process_resident_memory_bytes", "gauge", "Memory in use.")
            out.append(f"process_resident_memory_bytes {memory}")
        return "\n".join(out) + "\n"


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _labels(**labels: object) -> str:
    parts = []
    for name, value in labels.items():
        text = str(value).replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
        parts.append(f'{name}="{text}"')
    return "{" + ",".join(parts) + "}"


def _resident_bytes() -> int | None:
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None  # not Linux
    return pages * os.sysconf("SC_PAGE_SIZE")
