"""Speed and memory of evaluation against the usual NumPy script, in one run.

    python benchmarks/evaluate.py            # about a minute on two cores
    python benchmarks/evaluate.py --json out.json

1. NUS-WIDE's shape: 1,866 queries x 184,711 codes of 64 bits, 10 labels; tie-aware MAP and F1 at every radius.
   The usual script (±1 float product, stable argsort, cumulative sums, one query at a time) runs on the first
   queries only, between runs of ours; its time is scaled to all queries. It gets the faster of one and all BLAS
   threads, and its MAP must equal ours with ties by id.
2. Cost per query from 10^5 to 10^7 codes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import time
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

import modalhash as mh
from modalhash.evaluation import DEFAULT_METRICS


class Took(NamedTuple):
    """Seconds on the clock, and of all cores together (what counts on a machine that others use too)."""

    wall: float
    cpu: float


def make(n_queries: int, n: int, n_bits: int = 64, n_labels: int = 10, seed: int = 0) -> dict[str, np.ndarray]:
    """Codes scattered around one centre per label, and multi-labels."""
    rng = np.random.default_rng(seed)
    total = n_queries + n
    centres = rng.integers(0, 256, (n_labels, n_bits // 8), dtype=np.uint8)
    main = rng.integers(0, n_labels, total)
    labels = np.zeros((total, n_labels), dtype=np.uint8)
    labels[np.arange(total), main] = 1
    labels[np.arange(total), rng.integers(0, n_labels, total)] = 1
    codes = centres[main]
    flips = [rng.integers(0, 256, codes.shape, dtype=np.uint8) for _ in range(3)]
    codes ^= flips[0] & flips[1] & flips[2]  # each bit with chance 1/8
    return {
        "query_codes": codes[:n_queries],
        "database_codes": codes[n_queries:],
        "query_labels": labels[:n_queries],
        "database_labels": labels[n_queries:],
    }


def ours(data: dict[str, np.ndarray], *, metrics: list[str], threads: int | None = None) -> tuple[Took, mh.Report]:
    start, cpu = time.perf_counter(), time.process_time()
    report = mh.evaluate(**data, n_bits=64, metrics=metrics, threads=threads, diagnostics=False)
    return Took(time.perf_counter() - start, time.process_time() - cpu), report


def usual_script(data: dict[str, np.ndarray], n_queries: int, n_bits: int = 64) -> tuple[Took, float]:
    """What evaluation scripts of the field do; returns seconds and MAP with ties by id."""
    signs = [
        2 * mh.codes.unpack(data[side], n_bits).astype(np.float32) - 1 for side in ("query_codes", "database_codes")
    ]
    labels = [data[side].astype(np.float32) for side in ("query_labels", "database_labels")]
    rank = np.arange(1, signs[1].shape[0] + 1)
    start, cpu = time.perf_counter(), time.process_time()
    total, f1 = 0.0, np.zeros(n_bits + 1)
    for i in range(n_queries):
        relevant = labels[1] @ labels[0][i] > 0
        distance = 0.5 * (n_bits - signs[1] @ signs[0][i])
        hit = relevant[np.argsort(distance, kind="stable")]
        total += (np.cumsum(hit)[hit] / rank[hit]).mean()
        # F1 at every radius: kinder than the usual loop over radii, which scans the database once per radius.
        returned = np.cumsum(np.bincount(distance.astype(np.intp), minlength=n_bits + 1))
        found = np.cumsum(np.bincount(distance.astype(np.intp), weights=relevant, minlength=n_bits + 1))
        f1 += 2 * found / (returned + relevant.sum())
    return Took(time.perf_counter() - start, time.process_time() - cpu), total / n_queries


def compare(n_queries: int, n: int, subset: int) -> dict[str, float]:
    data = make(n_queries, n)
    wanted = ["MAP[ties=expected]", "PR@r"]
    ours(make(4, 5000), metrics=["MAP", "PR@r"])  # compile, or load what was compiled before
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    runs, scripts = [ours(data, metrics=wanted)[0]], []
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for blas_threads in (None, 1, None, 1):
        with threadpool_limits(blas_threads, user_api="blas"):
            took, mean_ap = usual_script(data, subset)
        scripts.append(took)
        seconds, report = ours(data, metrics=wanted)
        runs.append(seconds)
    by_id = ours(data, metrics=["MAP[ties=id]"])[0]
    everything = ours(data, metrics=list(DEFAULT_METRICS))[0]
    ours_took = Took(*(statistics.median(values) for values in zip(*runs, strict=True)))
    usual = Took(*(min(values) / subset * n_queries for values in zip(*scripts, strict=True)))
    part = {name: x[:subset] if name.startswith("query") else x for name, x in data.items()}
    if abs(mean_ap - ours(part, metrics=["MAP[ties=id]"])[1]["MAP"]) > 1e-6:
        raise SystemExit("the usual script and modalhash disagree")
    print(f"{n_queries} queries x {n} codes of 64 bits, 10 labels; {os.cpu_count()} cores; seconds: clock, all cores")
    print(f"  tie-aware MAP {report['MAP']:.4f}, F1@r2 {report.curves['PR@r']['f1'][2]:.4f}")
    for name, took in (
        ("modalhash, tie-aware MAP + F1 at all radii", ours_took),
        ("modalhash, MAP with ties by id", by_id),
        ("modalhash, all default metrics, both ties", everything),
        (f"usual NumPy script ({subset} queries, scaled)", usual),
    ):
        print(f"  {name:<46}{took.wall:8.2f} {took.cpu:8.2f}")
    ratio = Took(usual.wall / ours_took.wall, usual.cpu / ours_took.cpu)
    print(f"  {'usual script / modalhash':<46}{ratio.wall:7.1f}x {ratio.cpu:7.1f}x")
    print(f"  peak memory of the process {peak / 1024:.0f} MiB ({before / 1024:.0f} MiB before the evaluation)")
    return {
        "seconds": ours_took.wall,
        "usual_seconds": usual.wall,
        "ratio": ratio.wall,
        "ratio_cpu": ratio.cpu,
        "by_id_seconds": by_id.wall,
        "all_metrics_seconds": everything.wall,
        "peak_mib": peak / 1024,
    }


def growth(sizes: list[int], pairs: int = 1 << 29) -> list[dict[str, float]]:
    rows = []
    print("cost of one query on one thread, core-milliseconds per million codes")
    for n in sizes:
        n_queries = max(64, pairs // n)
        data = make(n_queries, n)
        one = {name: x[:1] if name.startswith("query") else x for name, x in data.items()}
        row = {"n": float(n), "queries": float(n_queries)}
        for name, metrics in (("expected", ["MAP[ties=expected]", "PR@r"]), ("id", ["MAP[ties=id]"])):
            # Less a run with one query: what is done once per database (checks, packing of labels) drops out.
            whole = min(ours(data, metrics=metrics, threads=1)[0].cpu for _ in range(2))
            first = min(ours(one, metrics=metrics, threads=1)[0].cpu for _ in range(2))
            row[name], row[f"once_{name}"] = (whole - first) / (n_queries - 1) / n * 1e9, first
        rows.append(row)
        print(
            f"  {n:>10,} codes, {n_queries:>4} queries: ties expected {row['expected']:.2f}, by id {row['id']:.2f}; "
            f"a single query with all checks {row['once_expected'] * 1e3:.0f} ms"
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=1866)
    parser.add_argument("--database", type=int, default=184_711)
    parser.add_argument("--subset", type=int, default=60, help="queries for the usual script")
    parser.add_argument("--sizes", type=int, nargs="*", default=[10**5, 10**6, 10**7])
    parser.add_argument("--json", help="write the numbers here")
    args = parser.parse_args()
    result = {"compare": compare(args.queries, args.database, args.subset), "growth": growth(args.sizes)}
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
