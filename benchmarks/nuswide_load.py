"""How long a whole NUS-WIDE takes to load, on generated text files of its size in its official layout.

    python benchmarks/nuswide_load.py [--rows 269648]

The floor: the tags alone, 269,648 x 1,000 numbers as text, in under a minute and under 2 GB.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

CHUNK = 8192
CONCEPTS = 81

MEASURE = """
import json, resource, sys, time
import numpy as np
from modalhash.datasets import load_nuswide, read_text_matrix
what, folder, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
start, cpu = time.perf_counter(), time.process_time()
if what == "tags":
    path = folder + "/NUS_WID_Tags/AllTags1k.txt"
    X = read_text_matrix(path, n_columns=1000, n_rows=rows, as_sparse=True, dtype=np.uint8)
    about = [list(X.shape), int(X.nnz)]
else:
    about = [repr(load_nuswide(folder, complete=rows == 269_648)), 0]
seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(json.dumps([about, seconds, cpu, peak]))
"""


def write_tree(root: Path, n: int) -> None:
    """Text files with NUS-WIDE's shapes and about its densities."""
    rng = np.random.default_rng(0)
    names = ("NUS_WID_Low_Level_Features/Low_Level_Features", "NUS_WID_Tags", "Groundtruth/AllLabels", "ImageList")
    features, tags, truth, listing = (root / name for name in names)
    for folder in (features, tags, truth, listing):
        folder.mkdir(parents=True)
    with (tags / "AllTags1k.txt").open("wb") as stream:
        for start in range(0, n, CHUNK):
            m = min(CHUNK, n - start)
            line = np.full((m, 2001), ord("\t"), np.uint8)
            line[:, 0:2000:2] = ord("0") + (rng.random((m, 1000)) < 0.0058)
            line[:, 2000] = ord("\n")
            stream.write(line.tobytes())
    with (features / "BoW_int.dat").open("w") as stream:
        for start in range(0, n, CHUNK):
            m = min(CHUNK, n - start)
            counts = (rng.random((m, 500)) < 0.4) * np.minimum(rng.geometric(0.3, (m, 500)), 255)
            stream.writelines(" ".join(map(str, row)) + " \n" for row in counts.tolist())
    for j in range(CONCEPTS):
        shown = rng.random(n) < 0.28 / (1 + j)
        (truth / f"Labels_concept{j:02d}.txt").write_bytes(b"\n".join(np.where(shown, b"1", b"0").tolist()) + b"\n")
    (listing / "Imagelist.txt").write_text("\n".join(f"actor\\{i:04d}_{10**9 + i}.jpg" for i in range(n)))


def measure(what: str, folder: Path, rows: int) -> tuple[list, float, float, float]:
    """Run one load in a process of its own, so that the peak of memory is its own."""
    command = [sys.executable, "-c", MEASURE, what, str(folder), str(rows)]
    return tuple(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=269_648)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tree(folder, rows)
        path = folder / "NUS_WID_Tags" / "AllTags1k.txt"
        about, seconds, cpu, peak = measure("tags", folder, rows)
        print(f"AllTags1k.txt ({path.stat().st_size / 1e6:.0f} MB): {about[0]}, {about[1]} ones")
        print(f"  read_text_matrix: {seconds:.1f} s ({cpu:.1f} CPU-s), peak {peak:.2f} GB")
        sample = min(4000, rows)
        with path.open() as stream:
            lines = [next(stream) for _ in range(sample)]
        start = time.process_time()
        np.loadtxt(lines, dtype=np.uint8)
        plain = (time.process_time() - start) * rows / sample
        print(f"  numpy.loadtxt on {sample} lines, for all: {plain:.0f} CPU-s, ratio {plain / cpu:.1f}")
        holds = seconds < 60 and peak < 2
        about, seconds, cpu, peak = measure("all", folder, rows)
        print(f"load_nuswide: {about[0]}")
        print(f"  {seconds:.1f} s ({cpu:.1f} CPU-s), peak {peak:.2f} GB")
        print("holds" if holds else "DOES NOT HOLD")


if __name__ == "__main__":
    main()
