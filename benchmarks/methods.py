"""Time, peak memory and MAP of every method in the registry, one process each.

    python benchmarks/methods.py                          # MIRFlickr, 64 bits, all methods
    python benchmarks/methods.py --bits 16 --only MDBE SCM --seed 1
    python benchmarks/methods.py --text tags              # the sparse tag matrix instead of its PCA

The data is MIRFlickr-25K as one .npz (``--data``; keys gist, tags_*, labels); without it a synthetic set of the same
shape is drawn, and the output says so. The split is the paper's: 1,001 queries, the rest is training set and database,
by ``numpy.random.default_rng(seed).permutation``; the text is a PCA to 500 dimensions fitted on the training rows.
Every method gets a fresh process: "peak" is the largest resident size while it fits, "data" what the process held
before. MAP is over the whole database, ties in its order; [rule] says how the database got its codes.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import inspect
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from scipy import sparse

DEFAULT_DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "mirflickr25k.npz"
N_QUERIES, N_COMPONENTS = 1001, 500


def load(path: Path, text: str, seed: int) -> tuple[dict[str, object], np.ndarray, str]:
    """Views of all rows (training rows decide the PCA), labels, and what the data is."""
    if path.is_file():
        with np.load(path, allow_pickle=False) as d:
            image, labels = d["gist"].astype(np.float32), d["labels"].astype(np.uint8)
            parts = (d["tags_data"].astype(np.float32), d["tags_indices"], d["tags_indptr"])
            tags = sparse.csr_array(parts, shape=tuple(d["tags_shape"]))
        name = f"MIRFlickr-25K ({path.name})"
    else:
        from modalhash.datasets import make_synthetic

        print(f"note: {path} is not there; the data is synthetic, and the MAP is not that of any paper.")
        data = make_synthetic(
            n=20_015, n_classes=24, n_image=512, n_text=1386, noise=1.0, sparse_text=True, random_state=seed
        )
        image, tags, labels = data.views["image"] / 255, data.views["text"], data.labels
        name = "synthetic"
    if text == "tags":
        return {"image": image, "text": tags}, labels, name + ", sparse tags"
    train = split(len(labels), seed)[1]
    dense = tags[train].toarray().astype(np.float64)
    mean = dense.mean(axis=0)
    dense -= mean
    axes = np.linalg.eigh(dense.T @ dense)[1][:, : -N_COMPONENTS - 1 : -1]
    del dense
    return {"image": image, "text": np.asarray(tags @ axes - mean @ axes, dtype=np.float32)}, labels, name


def split(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.random.default_rng(seed).permutation(n)
    return order[:N_QUERIES], order[N_QUERIES:]


def forget_peak() -> None:
    """Linux can start the record of the largest resident size anew; elsewhere it counts from the process's start."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_mb() -> float:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # macOS counts bytes


def measure(method: str, bits: int, seed: int, folder: Path) -> dict[str, object]:
    """Fit one method in this process."""
    import modalhash as mh
    from modalhash import methods

    cls = getattr(methods, method)
    files = {name: next(folder.glob(f"{name}.np[yz]")) for name in ("image", "text")}
    views = {}
    for name, file in files.items():
        views[name] = np.load(file) if file.suffix == ".npy" else sparse.load_npz(file)
    labels = np.load(folder / "labels.npy")
    query, train = split(len(labels), seed)
    names = list(views)[: cls.max_views]
    data = {name: views[name][train] for name in names}
    queries = {name: views[name][query] for name in names}
    del views
    parameters = {"random_state": seed} if "random_state" in inspect.signature(cls.__init__).parameters else {}
    hasher = cls(bits, **parameters)
    gc.collect()
    forget_peak()
    before = peak_mb()
    start = time.perf_counter(), time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hasher.fit(data, labels=labels[train])
    found: dict[str, object] = {
        "seconds": time.perf_counter() - start[0],
        "cpu": time.process_time() - start[1],
        "data_mb": before,
        "peak_mb": peak_mb(),
        "notes": [str(w.message).split(". ")[0] for w in caught],
    }
    start_encode = time.perf_counter()
    codes = {name: hasher.encode(name, X) for name, X in queries.items()}
    found["encode_us"] = (time.perf_counter() - start_encode) / (len(query) * len(names)) * 1e6
    scores: dict[str, list[float]] = {}
    for rule in cls.database_rules:
        for source in names:
            target = next((name for name in names if name != source), source)
            database = (
                hasher.encode(target, data[target])
                if rule == "encoded"
                else hasher.database_codes(data, labels[train], rule=rule)
            )
            report = mh.evaluate(
                codes[source],
                database,
                query_labels=labels[query],
                database_labels=labels[train],
                n_bits=bits,
                metrics="MAP[ties=id]",
            )
            scores.setdefault(rule, []).append(float(report["MAP[ties=id]"]))
    found["map"] = scores
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--bits", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--text", choices=["pca", "tags"], default="pca")
    parser.add_argument("--only", nargs="+", default=None, metavar="METHOD")
    parser.add_argument("--skip", nargs="+", default=[], metavar="METHOD")
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds for one method")
    parser.add_argument("--json", type=Path, default=None, help="write the measurements here too")
    parser.add_argument("--child", nargs=2, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        method, folder = options.child
        print(json.dumps(measure(method, options.bits, options.seed, Path(folder))))
        return
    from modalhash import methods

    wanted = [name for name in options.only or methods.__all__ if name not in options.skip]
    unknown = [name for name in wanted if name not in methods.__all__]
    if unknown:
        parser.error(f"no such method: {', '.join(unknown)}; there are {', '.join(methods.__all__)}")
    views, labels, name = load(options.data, options.text, options.seed)
    print(f"{name}: {len(labels)} rows, {options.bits} bits, seed {options.seed}, {len(os.sched_getaffinity(0))} cores")
    heads = f"{'method':<16}{'fit s':>9}{'cpu s':>9}{'data MB':>9}{'peak MB':>9}{'us/query':>10}"
    print(f"{heads}  MAP image>text, text>image")
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for view, X in views.items():
            if sparse.issparse(X):
                sparse.save_npz(Path(folder) / f"{view}.npz", X)
            else:
                np.save(Path(folder) / f"{view}.npy", X)
        np.save(Path(folder) / "labels.npy", labels)
        del views
        for method in wanted:
            command = [sys.executable, __file__, "--bits", str(options.bits), "--seed", str(options.seed)]
            try:
                run = subprocess.run(
                    [*command, "--child", method, folder],
                    capture_output=True,
                    text=True,
                    timeout=options.timeout,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                print(f"{method:<16}not done in {options.timeout:.0f} s", flush=True)
                continue
            if run.returncode:
                print(f"{method:<16}{(run.stderr.strip().splitlines() or ['failed'])[-1]}", flush=True)
                continue
            found = json.loads(run.stdout.splitlines()[-1])
            results[method] = found
            scores = "  ".join(f"[{rule}] " + ", ".join(f"{v:.4f}" for v in m) for rule, m in found["map"].items())
            notes = f"  ({'; '.join(found['notes'])})" if found["notes"] else ""
            print(
                f"{method:<16}{found['seconds']:>9.2f}{found['cpu']:>9.2f}{found['data_mb']:>9.0f}"
                f"{found['peak_mb']:>9.0f}{found['encode_us']:>10.1f}  {scores}{notes}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps({"data": name, "bits": options.bits, "results": results}, indent=1))


if __name__ == "__main__":
    main()
