"""What encoding costs beside the matrix product inside it.

    python benchmarks/encode.py
    python benchmarks/encode.py --rows 50000 --rounds 3

The reference is the bare product of the same rows and weights: ``X @ W`` in float32 by BLAS for dense rows, SciPy's
``S @ W`` for sparse ones, all cores. Encoding adds the check that every number is finite, the bias, the sign and the
packing of bits. Versions take turns and the best of the rounds counts. Sparse rows are encoded in a process whose
peak memory is measured: held dense they would not fit in what is allowed. The exit status is 1 if a claim fails.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import modalhash
from modalhash import DMH

LIMIT = 1.25


def fitted(d: int, tags: int, bits: int) -> DMH:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, d), dtype=np.float32)
    T = sparse.random(500, tags, 0.05, "csr", np.float32, rng=rng)
    labels = (rng.random((500, 5)) < 0.3).astype(np.uint8)
    labels[:, 0] |= labels.sum(axis=1) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return DMH(bits, n_iter=3, random_state=0).fit({"image": X, "text": T}, labels=labels)


def ratio(hasher: DMH, view: str, X: Any, rounds: int) -> tuple[float, float]:
    W = hasher.weights_[view]
    best = [np.inf, np.inf]
    hasher.encode(view, X[:1000])
    for _ in range(rounds):
        for i, run in enumerate((lambda: X @ W, lambda: hasher.encode(view, X))):
            started = time.perf_counter()
            run()
            best[i] = min(best[i], time.perf_counter() - started)
    return best[0], best[1]


def sparse_memory(rows: int, tags: int) -> tuple[float, float]:
    """Megabytes beyond the matrix while encoding sparse rows, and what they would take held dense."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import encode, numpy as np\n"
        "from scipy import sparse\n"
        "n, d = int(sys.argv[2]), int(sys.argv[3])\n"
        "hasher = encode.fitted(16, d, 64)\n"
        "S = sparse.random(n, d, 0.001, 'csr', np.float32, rng=np.random.default_rng(0))\n"
        "hasher.encode('text', S[:1000])\n"
        "open('/proc/self/clear_refs', 'w').write('5')\n"
        "read = lambda key: int(next(x for x in open('/proc/self/status') if x.startswith(key)).split()[1])\n"
        "before = read('VmRSS'); hasher.encode('text', S); print((read('VmHWM') - before) / 1000)\n"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent), str(rows), str(tags)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1]), rows * tags * 4 / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=184_711)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    n = arguments.rows
    print(
        f"modalhash {modalhash.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores, {n:,} rows\n"
    )
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, 500), dtype=np.float32)
    S = sparse.random(n, 1000, 0.007, "csr", np.float32, rng=rng)
    print(f"{'rows':22} | bits | product ms | encode ms | ratio | million rows/s")
    worst = 0.0
    for bits in (32, 64, 128):
        hasher = fitted(500, 1000, bits)
        for name, view, matrix in (("dense, 500 columns", "image", X), ("sparse, 1,000 columns", "text", S)):
            product, encode = ratio(hasher, view, matrix, arguments.rounds)
            print(
                f"{name:22} | {bits:4} | {1000 * product:10.1f} | {1000 * encode:9.1f} | {encode / product:5.2f} "
                f"| {n / encode / 1e6:.2f}",
                flush=True,
            )
            if view == "image":
                worst = max(worst, encode / product)
    used, dense = sparse_memory(200_000, 20_000)
    print(
        f"\nsparse rows, 200,000 x 20,000: {used:.0f} MB beyond the matrix; held dense they would take {dense:,.0f} MB"
    )
    claims = {
        f"dense rows: at most {LIMIT} times the bare product ({worst:.2f})": worst <= LIMIT,
        "sparse rows are never held dense": used < 0.05 * dense,
    }
    for claim, holds in claims.items():
        print(f"{'holds' if holds else 'NOT REACHED':11} | {claim}")
    return 0 if all(claims.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
