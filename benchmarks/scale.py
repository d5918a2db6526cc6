"""One against two: training with torch.distributed, encoding with Dask, and scanning codes, in one run.

    python benchmarks/scale.py                                    # about three minutes on two quiet cores
    python benchmarks/scale.py --output benchmarks/scale.json     # what scale_model.py reads

Every process has one thread. Configurations take turns and the best of the rounds counts. Training is on rows of
NUS-WIDE's shape (500 dense columns, 1,000 tags at 0.7 %, 10 labels); the time of an iteration is the median, the share
of the all-reduces includes waiting for the other process. CPU times are printed beside, since they say more where other
work shares the cores. Encoding reads Parquet and writes Parquet. The floor of training is its matrix products alone
(one thread, same matrices, same run).

The last lines say whether two processes reach 1.6 times one; the exit status is 1 if not.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

RATIO = 1.6
TAGS, DENSITY, LABELS = 1000, 0.007, 10
ENCODE_WIDTH = 256
BLOCK = 1000  # rows that are drawn from one seed, so that every split of the rows sees the same data


def nuswide_rows(start: int, stop: int, dense: int) -> tuple[dict[str, Any], Any]:
    """Rows `start` to `stop`, multiples of BLOCK, of an endless matrix like NUS-WIDE's with `dense` dense columns."""
    image, text, labels = [], [], []
    for block in range(start // BLOCK, stop // BLOCK):
        rng = np.random.default_rng(block)
        image.append(rng.integers(0, 60, (BLOCK, dense)).astype(np.float32))
        nnz = int(BLOCK * TAGS * DENSITY)
        places = rng.integers(0, BLOCK, nnz), rng.integers(0, TAGS, nnz)
        text.append(sparse.csr_matrix((np.ones(nnz, np.float32), places), shape=(BLOCK, TAGS)))
        labels.append((rng.random((BLOCK, LABELS)) < 0.2).astype(np.uint8))
    tags = sparse.vstack(text, "csr")
    tags.data[:] = 1
    return {"image": np.concatenate(image), "text": tags}, np.concatenate(labels)


# Training ------------------------------------------------------------------------------------------------------------


def train_rank(points: list[tuple[int, int, int]], iterations: int) -> None:
    """One process of a training job; rank 0 prints what it measured as JSON."""
    import modalhash as mh
    from modalhash.engines import distributed

    out = []
    with distributed.join(timeout=120) as processes, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        views, labels = nuswide_rows(0, 20 * BLOCK, 50)  # a fit that does not count: compiled code, caches, clocks
        distributed.fit(mh.DMH(32, n_iter=10, random_state=0), views, labels, processes=processes)
        for n, bits, dense in points:
            share = n // BLOCK
            start = share * processes.rank // processes.size * BLOCK
            stop = share * (processes.rank + 1) // processes.size * BLOCK
            views, labels = nuswide_rows(start, stop, dense)
            marks: list[tuple[float, float, float, int]] = []

            def mark(*_: Any, marks: list[Any] = marks) -> None:
                marks.append((time.perf_counter(), time.process_time(), processes.seconds, processes.bytes))

            hasher = mh.DMH(bits, n_iter=iterations, random_state=0, callback=mark)
            distributed.fit(hasher, views, labels, processes=processes)
            if processes.rank == 0:
                times, busy, waits, sent = (np.diff(column) for column in zip(*marks, strict=True))
                point = {"task": "train", "n": n, "bits": bits, "dense": dense, "processes": processes.size}
                point |= {"seconds": float(np.median(times)), "all_reduce": float(np.median(waits))}
                point["cpu"] = float(np.median(busy))
                point |= {"bytes": int(sent[0]), "floor": product_seconds(views, bits) if processes.size == 1 else None}
                out.append(point)
        out += reduce_seconds(processes) if processes.size == 2 else []
        if processes.rank == 0:
            print(json.dumps(out))


def reduce_seconds(processes: Any) -> list[dict[str, Any]]:
    """An all-reduce alone, by size: the fastest of many, which is when nobody waited."""
    out = []
    for size in (2**12, 2**16, 2**18, 2**19, 2**20):
        buffer, best = np.ones(size // 4, dtype=np.float32), np.inf
        for _ in range(100):
            started = time.perf_counter()
            processes.sum([buffer])
            best = min(best, time.perf_counter() - started)
        out.append({"task": "reduce", "bytes": size, "processes": processes.size, "seconds": best})
    return out


def product_seconds(views: dict[str, Any], bits: int) -> float:
    """The matrix products of an iteration alone, one thread."""
    from threadpoolctl import threadpool_limits

    rng = np.random.default_rng(0)
    n = views["image"].shape[0]
    G = rng.normal(size=(n, bits)).astype(np.float32)
    W = {name: rng.normal(size=(X.shape[1], bits)).astype(np.float32) for name, X in views.items()}
    best = np.inf
    with threadpool_limits(limits=1, user_api="blas"):
        for _ in range(3):
            started = time.perf_counter()
            for name, X in views.items():
                X @ W[name]
                X.T @ G
                G.T @ G
                G @ W[name][:bits]
            best = min(best, time.perf_counter() - started)
    return float(best)


def train(size: int, points: list[tuple[int, int, int]], iterations: int) -> list[dict[str, Any]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, __file__, "--rank-of", json.dumps({"points": points, "iterations": iterations})]
    jobs = []
    for rank in range(size):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        place |= {"LOCAL_WORLD_SIZE": os.cpu_count() or 2, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": 1}
        environment = {**os.environ, **{name: str(value) for name, value in place.items()}}
        jobs.append(subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True))
    said = [job.communicate()[0] for job in jobs]
    if any(job.returncode for job in jobs):
        raise SystemExit("a training process failed; see above.")
    return list(json.loads(said[0].splitlines()[-1]))


# Encoding ------------------------------------------------------------------------------------------------------------


def write_rows(folder: Path, rows: int, files: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    X = np.random.default_rng(0).normal(size=(rows // files, ENCODE_WIDTH)).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), ENCODE_WIDTH)
    for i in range(files):
        pq.write_table(pa.table({"image": column}), folder / f"rows-{i:03d}.parquet", row_group_size=16_384)


def encode(workers: int, bits: list[int], rows: int, source: Path) -> list[dict[str, Any]]:
    import modalhash as mh
    from modalhash.engines import dask
    from modalhash.engines.codefiles import read_manifest

    X = np.random.default_rng(1).normal(size=(2000, ENCODE_WIDTH)).astype(np.float32)
    out = []
    with dask.connect(workers=workers) as client:
        for c in bits:
            hasher = mh.LSH(c, random_state=0).fit({"image": X})
            with tempfile.TemporaryDirectory() as folder:
                warm = sorted(source.iterdir())[:2]
                dask.encode(hasher, warm, f"{folder}/warm", client=client)  # imports, compiled code
                before, started = sum(client.run(time.process_time).values()), time.perf_counter()
                made = dask.encode(hasher, source, f"{folder}/codes", client=client)
                seconds = time.perf_counter() - started
                busy = sum(client.run(time.process_time).values()) - before
                size = sum(file.stat().st_size for file in made.glob("part-*"))
                if read_manifest(made)["rows"] != rows:
                    raise SystemExit("not every row was encoded.")
            point = {"task": "encode", "n": rows, "bits": c, "processes": workers, "seconds": seconds}
            out.append({**point, "cpu": busy, "width": ENCODE_WIDTH, "bytes_per_code": size / rows})
    return out


# Scanning ------------------------------------------------------------------------------------------------------------


def scan(sizes: list[int], bits: list[int]) -> list[dict[str, Any]]:
    import modalhash as mh

    rng = np.random.default_rng(0)
    out = []
    for c in bits:
        for n in sizes:
            codes = rng.integers(0, 256, (n, c // 8), dtype=np.uint8)
            started = time.perf_counter()
            index = mh.HammingIndex(c, threads=1).add(codes)
            built = time.perf_counter() - started
            queries = rng.integers(0, 256, (64, c // 8), dtype=np.uint8)
            index.search(queries[:2], k=100)
            best, busy = np.inf, np.inf
            for _ in range(3):
                started, before = time.perf_counter(), time.process_time()
                index.search(queries, k=100)
                best, busy = min(best, time.perf_counter() - started), min(busy, time.process_time() - before)
            with tempfile.TemporaryDirectory() as folder:
                index.save(f"{folder}/index")
                size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
            point = {"task": "scan", "n": n, "bits": c, "processes": 1, "seconds": best / len(queries)}
            out.append({**point, "cpu": busy / len(queries), "bytes_per_code": size / n, "build_seconds": built})
    return out


# The run -------------------------------------------------------------------------------------------------------------


def best_of(rounds: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The fastest of each point, and of each of its times."""
    timed = ("seconds", "cpu", "all_reduce", "floor")
    return [
        {**same[0], **{name: min(p[name] for p in same) for name in timed if same[0].get(name) is not None}}
        for same in zip(*rounds, strict=True)
    ]


def describe(points: list[dict[str, Any]]) -> bool:
    """Print the tables; whether the claim holds at every point."""

    def pairs(task: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        ones, twos = ([p for p in points if (p["task"], p["processes"]) == (task, size)] for size in (1, 2))
        return list(zip(ones, twos, strict=True))

    print("\ntraining, one thread per process, ms per iteration")
    print(
        "     rows  bits  dense  1 process         2  ratio  all-reduce      kB   CPU 1   CPU 2 each  1 process / floor"
    )
    for one, two in pairs("train"):
        print(
            f"{one['n']:>9,} {one['bits']:>5} {one['dense']:>6} {1e3 * one['seconds']:>10.1f} "
            f"{1e3 * two['seconds']:>9.1f} {one['seconds'] / two['seconds']:>6.2f} "
            f"{two['all_reduce'] / two['seconds']:>11.1%} {two['bytes'] / 1e3:>7.0f} "
            f"{1e3 * one['cpu']:>7.1f} {1e3 * two['cpu']:>12.1f} {one['seconds'] / one['floor']:>10.2f}"
        )
    print("\nall-reduce of two processes, fastest: ", end="")
    print(", ".join(f"{p['bytes'] // 1024} kB {1e3 * p['seconds']:.2f} ms" for p in points if p["task"] == "reduce"))
    print(f"\nencoding on Dask, Parquet to Parquet, {ENCODE_WIDTH} columns, rows per second")
    print("     rows  bits   1 worker          2  ratio  bytes per code  rows per CPU-second")
    for one, two in pairs("encode"):
        print(
            f"{one['n']:>9,} {one['bits']:>5} {one['n'] / one['seconds']:>10,.0f} {two['n'] / two['seconds']:>10,.0f} "
            f"{one['seconds'] / two['seconds']:>6.2f} {one['bytes_per_code']:>15.2f} "
            f"{one['n'] / one['cpu']:>20,.0f}"
        )
    print("\nexact search, k = 100, one thread")
    print("     codes  bits  ms per query     codes per s  bytes per code")
    for point in points:
        if point["task"] == "scan":
            print(
                f"{point['n']:>10,} {point['bits']:>5} {1e3 * point['seconds']:>13.3f} "
                f"{point['n'] / point['seconds']:>15,.0f} {point['bytes_per_code']:>15.2f}"
            )
    print()
    holds = True
    for what, task in (("training", "train"), ("encoding", "encode")):
        found = pairs(task)
        ratios = [one["seconds"] / two["seconds"] for one, two in found]
        total = sum(one["seconds"] for one, _ in found) / sum(two["seconds"] for _, two in found)
        holds &= min(ratios) >= RATIO
        print(
            f"{what}: two processes are {min(ratios):.2f} to {max(ratios):.2f} times one, {total:.2f} over all points "
            f"(needed {RATIO} at each): {'reached' if min(ratios) >= RATIO else 'NOT REACHED'}"
        )
    return holds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--encode-rows", type=int, default=2_560_000)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--output", type=Path, help="write the points as JSON")
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank_of:
        train_rank(**json.loads(arguments.rank_of))
        return 0
    import modalhash as mh

    points = [(40_000, 32, 500), (120_000, 32, 500), (60_000, 64, 500), (40_000, 128, 500), (80_000, 64, 100)]
    rows, bits, sizes = arguments.encode_rows, [64, 128], [1_000_000, 4_000_000]
    if arguments.quick:
        points, rows, sizes, arguments.rounds, arguments.iterations = [(8_000, 128, 500)], 40_000, [100_000], 1, 5
    trained: dict[int, list[Any]] = {1: [], 2: []}
    encoded: dict[int, list[Any]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as folder:
        write_rows(Path(folder), rows, files=32)
        for _ in range(arguments.rounds):
            for size in (1, 2):
                trained[size].append(train(size, points, arguments.iterations))
        for _ in range(min(2, arguments.rounds)):
            for size in (1, 2):
                encoded[size].append(encode(size, bits, rows, Path(folder)))
    found = [point for rounds in (*trained.values(), *encoded.values()) for point in best_of(rounds)]
    found += scan(sizes, [64, 128])
    print(f"modalhash {mh.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores, {_processor()}")
    holds = describe(found)
    if arguments.output:
        machine = {"processor": _processor(), "cores": os.cpu_count(), "python": platform.python_version()}
        content = {"modalhash": mh.__version__, "machine": machine, "points": found}
        arguments.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 0 if holds or arguments.quick else 1


def _processor() -> str:
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else platform.processor()


if __name__ == "__main__":
    raise SystemExit(main())
