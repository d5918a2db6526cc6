"""DMH's solvers against each other: objective, MAP under both rules, time; three seeds, interleaved in one run.

    python benchmarks/solvers.py --data ../shared/data/mirflickr25k.npz

The reference is solver="paper" with its 400 iterations. "reached" is the first iteration at which a solver's objective
is at or below the reference's last one, from the same start (for "minibatch", whose own curve is an estimate from
batches, the objective of all rows is computed at the end only). Times are ratios to the reference, in CPU seconds and
in wall seconds: solvers take turns, so that what else the machine does falls on all of them. Without the file a
synthetic set of the same size is used.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
import warnings
from pathlib import Path

import numpy as np

import modalhash as mh
from modalhash.datasets import load_arrays, make_synthetic
from modalhash.exceptions import ConstantBitsWarning
from modalhash.features import PCA, FeaturePipeline

SOLVERS = ("paper", "momentum", "minibatch")
DIRECTIONS = (("image", "text"), ("text", "image"))


def dataset(file, seed):
    if not file.exists():
        return make_synthetic(n=20_015, n_image=512, n_text=500, n_classes=24, random_state=seed).split(
            "mirflickr", seed=seed
        )
    whole = load_arrays(file, views={"image": "gist", "text": "tags"})
    return FeaturePipeline({"text": PCA(500)}).fit_transform(whole.split("mirflickr", seed=seed))


def objective(hasher, train):
    """Of all rows, at the fitted model: one iteration from it tells."""

    class Probe(mh.DMH):
        def _start(self, data, rng):
            parts, transforms = super()._start(data, rng)
            for part in parts:
                part.W[...], part.v[...] = hasher.weights_[part.name], hasher.biases_[part.name]
            return parts, transforms

    return float(Probe(hasher.n_bits, n_iter=1, random_state=0).fit(train.views, labels=train.labels).objective_[0])


def run(solver, data, bits, seed):
    train, query = data.rows("train"), data.rows("query")
    hasher = mh.DMH(bits, solver=solver, random_state=seed)
    wall, cpu = time.perf_counter(), time.process_time()
    hasher.fit(train.views, labels=train.labels)
    row = {"solver": solver, "seed": seed, "wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    row["iterations"], row["objective"] = hasher.n_iter_, objective(hasher, train)
    row["curve"] = hasher.objective_.tolist()
    for source, target in DIRECTIONS:
        queries = hasher.encode(source, query.views[source])
        databases = {"learned": hasher.train_codes_, "encoded": hasher.encode(target, train.views[target])}
        for rule, codes in databases.items():
            report = mh.evaluate(
                queries,
                codes,
                query_labels=query.labels,
                database_labels=train.labels,
                n_bits=bits,
                metrics=["MAP[ties=id]"],
                database_rule=rule,
                diagnostics=False,
            )
            row[f"{source}-{target} {rule}"] = report["MAP[ties=id]"]
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/mirflickr25k.npz"))
    parser.add_argument("--bits", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=None, help="write one JSON line per run here")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConstantBitsWarning)
    what = options.data.name if options.data.exists() else f"synthetic ({options.data} is not there)"
    print(f"{what}, {options.bits} bits, {options.seeds} seeds (split, start)")
    print(f"modalhash {mh.__version__}, NumPy {np.__version__}, {os.cpu_count()} cores, {platform.platform()}")
    tiny = make_synthetic(n=9_000, random_state=0)
    mh.DMH(options.bits, n_iter=1, random_state=0).fit(tiny.views, labels=tiny.labels)  # compile, outside the clock
    rows = []
    for seed in range(options.seeds):
        data = dataset(options.data, seed)
        for solver in SOLVERS:
            rows.append(run(solver, data, options.bits, seed))
            shown = {key: value for key, value in rows[-1].items() if key != "curve"}
            print(json.dumps(shown), flush=True)
            if options.json:
                options.json.write_text("\n".join(map(json.dumps, rows)) + "\n")
    by = {solver: [row for row in rows if row["solver"] == solver] for solver in SOLVERS}
    keys = [f"{a}-{b} {rule}" for rule in ("learned", "encoded") for a, b in DIRECTIONS]
    print("\nsolver     iterations  reached  objective  " + "  ".join(f"{key:<20}" for key in keys) + "  CPU    wall")
    for solver in SOLVERS:
        group, reference = by[solver], by["paper"]
        reached = "-"
        if solver == "momentum":
            found = [
                np.flatnonzero(np.array(r["curve"]) <= p["curve"][-1]) for r, p in zip(group, reference, strict=True)
            ]
            reached = "/".join(str(int(at[0]) + 1) if at.size else "never" for at in found)
        ratio = np.mean([r["objective"] / p["objective"] for r, p in zip(group, reference, strict=True)])
        cells = []
        for key in keys:
            mean = np.mean([row[key] for row in group])
            cells.append(f"{mean:.4f} ({mean - np.mean([row[key] for row in reference]):+.4f})".ljust(20))
        times = [sum(r[clock] for r in group) / sum(r[clock] for r in reference) for clock in ("cpu", "wall")]
        print(
            f"{solver:<10} {group[0]['iterations']:>6}      {reached:<8} {ratio:.3f}      "
            + "  ".join(cells)
            + f"  {times[0]:.3f}  {times[1]:.3f}"
        )
    seconds = [np.mean([row[clock] for row in by["paper"]]) for clock in ("cpu", "wall")]
    print(f"time, objective: ratios to paper, which takes {seconds[0]:.1f} CPU seconds, {seconds[1]:.1f} by the wall")


if __name__ == "__main__":
    main()
