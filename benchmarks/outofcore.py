"""Fit and encode data larger than memory: peak resident memory, time, and the floor that reading it sets.

    python benchmarks/outofcore.py                # 5,000,000 rows: 10 GB of image features on disk, and a text view
    python benchmarks/outofcore.py --rows 200000

The data is made first, in a temporary folder that is removed at the end: items of 20 classes, an image view of 512
float32 columns, a text view of 64, labels as class ids. Then `DMH(solver="minibatch")` is fitted on the memory-mapped
files, and the image view is encoded by the command line, each in a process of its own whose peak resident memory
(VmHWM) is read at its end. The floor is the time to read the bytes that are needed, by the bandwidth that a plain read
of the same file reaches in the same run. The files are dropped from the system's cache before each step; where memory
is larger than the data, the second and third pass of a fit may still find some of them there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import modalhash as mh

CLASSES, IMAGE, TEXT, BLOCK = 20, 512, 64, 20_000

FIT = """
import json, resource, sys, time, warnings
import numpy as np
import modalhash as mh
warnings.simplefilter("ignore")
folder, bits = sys.argv[1], int(sys.argv[2])
def resident():
    lines = open("/proc/self/status").read().splitlines()
    return {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines if line.startswith(("VmHWM", "VmRSS"))}
before = resident()["VmHWM"]
views = {name: np.load(f"{folder}/{name}.npy", mmap_mode="r") for name in ("image", "text")}
labels = np.load(f"{folder}/labels.npy")
started = time.perf_counter()
hasher = mh.DMH(bits, solver="minibatch", random_state=0).fit(views, labels=labels)
seconds = time.perf_counter() - started
hasher.save(f"{folder}/model")
print(json.dumps({
    "seconds": seconds, "imports_mb": before, "peak_mb": resident()["VmHWM"],
    "rusage_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "batches": hasher.n_iter_,
    "objective": [float(hasher.objective_[:10].mean()), float(hasher.objective_[-10:].mean())],
}))
"""

ENCODE = """
import atexit, sys
from modalhash.cli import main
def tell():
    peak = [line.split()[1] for line in open("/proc/self/status").read().splitlines() if line.startswith("VmHWM")]
    print("peak", int(peak[0]) / 1024)
atexit.register(tell)
folder = sys.argv[1]
sys.argv[1:] = ["encode", f"{folder}/model", "--view", f"image={folder}/image.npy", "-o", f"{folder}/codes.npy"]
sys.exit(main())
"""


def make(folder, n, seed=0):
    """Write the views block by block; a class has a mean in each view, an item has noise around it."""
    rng = np.random.default_rng(seed)
    means = {name: rng.normal(size=(CLASSES, d)).astype(np.float32) for name, d in (("image", IMAGE), ("text", TEXT))}
    labels = rng.integers(0, CLASSES, n).astype(np.int64)
    np.save(folder / "labels.npy", labels)
    for name, mean in means.items():
        out = np.lib.format.open_memmap(folder / f"{name}.npy", mode="w+", dtype=np.float32, shape=(n, mean.shape[1]))
        offset = out.offset
        del out
        with (folder / f"{name}.npy").open("r+b") as file:
            file.seek(offset)
            for start in range(0, n, BLOCK):
                rows = labels[start : start + BLOCK]
                block = rng.standard_normal((len(rows), mean.shape[1]), dtype=np.float32)
                block *= 3
                block += mean[rows]
                file.write(block.data)
            file.flush()
            os.fsync(file.fileno())
    return means, labels


def bandwidth(file):
    """Bytes per second of a plain read of (up to 2 GB of) the file, not from the cache."""
    with file.open("rb", buffering=0) as stream:
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        buffer = bytearray(16 * 2**20)
        started, total = time.perf_counter(), 0
        while total < 2 * 2**30 and (count := stream.readinto(buffer)):
            total += count
        seconds = time.perf_counter() - started
    return total / seconds


def uncache(folder):
    """Drop the files from the system's cache, so that what comes next reads them from disk."""
    for file in folder.glob("*.npy"):
        with file.open("rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def child(program, *arguments):
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout, time.perf_counter() - started


def quality(folder, means, n_queries=500, database=50_000, seed=1):
    """MAP of unseen text queries over the codes of the first image rows."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, CLASSES, n_queries)
    text = 3 * rng.standard_normal((n_queries, TEXT), dtype=np.float32) + means["text"][classes]
    hasher = mh.load(folder / "model")
    codes = np.load(folder / "codes.npy", mmap_mode="r")[:database]
    report = mh.evaluate(
        hasher.encode("text", text),
        np.array(codes),
        query_labels=classes,
        database_labels=np.load(folder / "labels.npy")[: len(codes)],
        n_bits=hasher.n_bits,
        metrics=["MAP[ties=id]"],
        database_rule="encoded",
        diagnostics=False,
    )
    return report["MAP[ties=id]"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--bits", type=int, default=64)
    parser.add_argument("--folder", type=Path, default=None, help="where to put the temporary folder")
    parser.add_argument("--limit", type=float, default=2000, help="megabytes of resident memory that may be used")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        started = time.perf_counter()
        means, _ = make(folder, options.rows)
        size = sum((folder / f"{view}.npy").stat().st_size for view in means)
        print(f"{options.rows:,} rows, {size / 1e9:.2f} GB on disk, written in {time.perf_counter() - started:.0f} s")
        print(f"modalhash {mh.__version__}, NumPy {np.__version__}, {os.cpu_count()} cores, {platform.platform()}")
        rate = bandwidth(folder / "image.npy")
        uncache(folder)
        fit = json.loads(child(FIT, folder, options.bits)[0])
        passes = 2 + max(1, -(-100 * min(options.rows, 4096) // options.rows))  # moments, training, codes
        floor = passes * size / rate
        uncache(folder)
        out, seconds = child(ENCODE, folder)
        peak = float(out.split("peak")[1])
        image = (folder / "image.npy").stat().st_size
        print(f"\nread from disk: {rate / 1e9:.2f} GB/s\n")
        print("                   seconds   floor (bytes/bandwidth)   ratio   peak resident MB")
        print(
            f"fit, {passes} passes     {fit['seconds']:8.1f}   {floor:8.1f}                  "
            f"{fit['seconds'] / floor:7.1f}   {fit['peak_mb']:8.0f} (getrusage {fit['rusage_mb']:.0f}; "
            f"{fit['imports_mb']:.0f} after imports)"
        )
        print(
            f"encode, 1 pass     {seconds:8.1f}   {image / rate:8.1f}                  "
            f"{seconds * rate / image:7.1f}   {peak:8.0f}"
        )
        print(f"\n{fit['batches']} batches; objective {fit['objective'][0]:.4g} -> {fit['objective'][1]:.4g}")
        print(f"MAP text to image, encoded, 500 unseen queries over 50,000 rows: {quality(folder, means):.4f}")
        worst = max(fit["peak_mb"], peak)
        print(f"peak {worst:.0f} MB of {options.limit:.0f} MB: {'held' if worst <= options.limit else 'NOT HELD'}")
        return worst > options.limit


if __name__ == "__main__":
    sys.exit(main())
