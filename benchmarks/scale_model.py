"""What a data set of any size costs, from a few measured constants; the measured points are reproduced first.

    python benchmarks/scale.py --output benchmarks/scale.json           # measure (three minutes)
    python benchmarks/scale_model.py                                    # reproduce, then 10^9 items
    python benchmarks/scale_model.py --items 1e8 --bits 128 --machines 4

Constants are in core-seconds (CPU time) and bytes, fitted to the points of scale.json by non-negative least squares on
relative errors; formulas and assumptions are printed. The exit status is 1 if a point is missed by more than 25 %.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

TOLERANCE = 0.25
VIEWS = 3  # image, text, labels
TAGS, TAGS_PER_ROW, LABELS = 1000, 7, 10
Point = dict[str, Any]


def reduce_bytes(bits: int, columns: int) -> int:
    """Bytes that one process puts into the two all-reduces of an iteration, float32."""
    grams = VIEWS * bits * bits
    sums = columns * bits + VIEWS * bits + VIEWS
    return 4 * (grams + sums)


@dataclass(frozen=True)
class Stage:
    """One kind of work: what is measured, and the terms that add up to it.

    Attributes
    ----------
    task : str
    unit : str
    formula : str
    value : function of a point: what was measured
    terms : functions of a point: what the constants multiply
    """

    task: str
    unit: str
    formula: str
    value: Callable[[Point], float]
    terms: Sequence[Callable[[Point], float]]

    def fit(self, points: list[Point]) -> Any:
        """Constants that reproduce the points best, none of them negative."""
        A = np.array([[term(p) / self.value(p) for term in self.terms] for p in points])
        scale = A.max(axis=0)
        return nnls(A / scale, np.ones(len(points)))[0] / scale

    def predict(self, constants: Any, point: Point) -> float:
        """What the model says of a point."""
        return float(sum(k * term(point) for k, term in zip(constants, self.terms, strict=True)))


STAGES = {
    "train": Stage(
        "train",
        "core-seconds per iteration and process",
        "n/p * (k0 c d + k1 c + k2 c^2) + k3 c (sum of d)",
        lambda p: p["cpu"],
        [
            lambda p: p["n"] / p["processes"] * p["bits"] * p["dense"],
            lambda p: p["n"] / p["processes"] * p["bits"],
            lambda p: p["n"] / p["processes"] * p["bits"] ** 2,
            lambda p: p["bits"] * (p["dense"] + TAGS + LABELS),
        ],
    ),
    "reduce": Stage(
        "reduce",
        "seconds per all-reduce, two processes of one machine",
        "k0 + k1 bytes",
        lambda p: p["seconds"],
        [lambda p: 1.0, lambda p: p["bytes"]],
    ),
    "encode": Stage(
        "encode",
        "core-seconds, Parquet to Parquet",
        "n (k0 d + k1 d c)",
        lambda p: p["cpu"],
        [lambda p: p["n"] * p["width"], lambda p: p["n"] * p["width"] * p["bits"]],
    ),
    "scan": Stage(
        "scan",
        "core-seconds per query, exact, k = 100",
        "n (k0 + k1 bytes per code)",
        lambda p: p["cpu"],
        [lambda p: p["n"], lambda p: p["n"] * p["bits"] / 8],
    ),
}


def reproduce(points: list[Point]) -> tuple[dict[str, Any], bool]:
    """Fit every stage, print predicted against measured, and the error when a point is left out of its own fit."""
    constants, holds = {}, True
    for name, stage in STAGES.items():
        mine = [p for p in points if p["task"] == name]
        constants[name] = stage.fit(mine)
        shown = ", ".join(f"k{i} = {k:.3g}" for i, k in enumerate(constants[name]))
        print(f"\n{name}: {stage.unit} = {stage.formula}; {shown}")
        for p in mine:
            others = [q for q in mine if q is not p]
            measured, got = stage.value(p), stage.predict(constants[name], p)
            blind = stage.predict(stage.fit(others), p) if len(others) > len(stage.terms) else math.nan
            error = got / measured - 1
            holds &= abs(error) <= TOLERANCE
            what = "  ".join(f"{k} {p[k]:,}" for k in ("n", "bits", "dense", "bytes", "processes") if k in p)
            print(
                f"  {what:<62} measured {measured:.3e}  model {got:.3e}  {error:+6.1%}"
                f"  (left out {blind / measured - 1:+6.1%}){'' if abs(error) <= TOLERANCE else '  MISSED'}"
            )
    print("\ntrain: seconds per iteration = core-seconds of a process + the two all-reduces")
    for p in points:
        if p["task"] == "train" and p["processes"] == 2:
            half = STAGES["train"].predict(constants["train"], p)
            sums = p["bytes"] - 4 * VIEWS * p["bits"] ** 2
            wall = half + sum(
                STAGES["reduce"].predict(constants["reduce"], {"bytes": size})
                for size in (4 * VIEWS * p["bits"] ** 2, sums)
            )
            busy = p["seconds"] / (p["cpu"] + p["all_reduce"])
            shared = f"  (cores were shared: {busy:.1f} times the CPU time)" if busy > 1.15 else ""
            if not shared:
                holds &= abs(wall / p["seconds"] - 1) <= TOLERANCE
            what = f"n {p['n']:,}  bits {p['bits']}  dense {p['dense']}"
            print(f"  {what:<40} measured {p['seconds']:.3e}  model {wall:.3e}{shared}")
            if reduce_bytes(p["bits"], p["dense"] + TAGS + LABELS) != p["bytes"]:
                holds = False
                print("  the bytes of the all-reduces are not what the formula says.")
    return constants, holds


def human(seconds: float) -> str:
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{1e3 * seconds:,.2f} ms"


def size(count: float) -> str:
    for scale, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= scale:
            return f"{count / scale:,.1f} {unit}"
    return f"{count:,.0f} bytes"


def extrapolate(constants: dict[str, Any], points: list[Point], a: argparse.Namespace) -> None:
    """Print the plan for `a.items` items."""
    n, c, d, cores = a.items, a.bits, a.dense, a.machines * a.cores
    columns = d + TAGS + LABELS
    stored = {p["bits"]: p["bytes_per_code"] for p in points if p["task"] == "encode"}
    indexed = {p["bits"]: p["bytes_per_code"] for p in points if p["task"] == "scan"}
    parquet, index = (table.get(c, c / 8 + extra) for table, extra in ((stored, 0.1), (indexed, 8)))
    print(f"\n{n:,.0f} items, {c} bits, {d} dense columns, {a.machines} machines of {a.cores} cores: {cores} processes")
    print(
        "assumptions: every core is as fast as the one measured; work is linear in rows; one process per core, of one\n"
        f"  thread; all-reduce is a ring over {a.gbit:g} Gbit/s, {1e6 * a.latency:g} microseconds per hop; files are\n"
        f"  read at {size(a.disk)}/s per machine; shards of codes lie in memory, evenly spread; nothing fails."
    )
    rows = min(n, a.sample)
    point = {"n": rows, "bits": c, "dense": d, "processes": cores}
    compute = STAGES["train"].predict(constants["train"], point)
    sent = reduce_bytes(c, columns)
    hops = 2 * (a.machines - 1)
    local = 2 * STAGES["reduce"].predict(constants["reduce"], {"bytes": sent / 2}) * math.log2(max(2, a.cores))
    network = 2 * hops * a.latency + 2 * (a.machines - 1) / a.machines * sent / (a.gbit * 1e9 / 8)
    iteration = compute + local + network
    row_bytes = 4 * d + 8 * TAGS_PER_ROW + LABELS
    memory = rows / cores * (row_bytes + VIEWS * 4 * c + c)
    read = n * 4 * d / (a.machines * a.disk)
    encode = STAGES["encode"].predict(constants["encode"], {"n": n, "width": d, "bits": c}) / cores
    scan = STAGES["scan"].predict(constants["scan"], {"n": n, "bits": c})
    queries = f"all shards at once; {cores / scan:,.1f} queries/s; {human(scan)} of one core"
    gpu = f"; {human(n / a.gpu_rows)} on one GPU at {a.gpu_rows:,.0f} rows/s" if a.gpu_rows else ""
    table = [
        ("views on disk", size(n * row_bytes), "4 d + 8 tags + labels per item"),
        (
            f"train on {rows:,.0f} rows",
            human(a.iterations * iteration),
            f"{a.iterations} iterations of {human(iteration)}: compute {human(compute)}, all-reduce "
            f"{human(local + network)}",
        ),
        ("  all-reduce", size(sent), "per iteration and process, whatever the rows: 4 (g c^2 + (sum of d + g) c + g)"),
        ("  memory", size(memory), "per process: its rows, C of each view, B"),
        ("encode one view", human(max(encode, read)), f"CPU {human(encode)}, disks {human(read)}{gpu}"),
        ("codes as Parquet", size(n * parquet), f"{parquet:.2f} bytes per code with its id"),
        ("index in memory", size(n * index), f"{index:.1f} bytes per code; {size(n * index / a.machines)} per machine"),
        ("exact query", human(scan / cores), queries),
        ("PostgreSQL table", size(n * a.pg_bytes), f"{a.pg_bytes:g} bytes per row with its key"),
        ("  scan", human(n * a.pg_scan / cores), f"per query; {1e6 * a.pg_scan * 1e3:.0f} core-ms per million codes"),
    ]
    for name, value, note in table:
        print(f"  {name:<26} {value:>12}   {note}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--points", type=Path, default=Path(__file__).with_name("scale.json"))
    parser.add_argument("--items", type=float, default=1e9)
    parser.add_argument("--bits", type=int, default=64)
    parser.add_argument("--dense", type=int, default=512, help="dense columns")
    parser.add_argument("--sample", type=float, default=1e7, help="rows to train on")
    parser.add_argument("--iterations", type=int, default=400)
    parser.add_argument("--machines", type=int, default=16)
    parser.add_argument("--cores", type=int, default=16)
    parser.add_argument("--gbit", type=float, default=10.0, help="network")
    parser.add_argument("--latency", type=float, default=50e-6, help="seconds per hop")
    parser.add_argument("--disk", type=float, default=1e9, help="bytes per second and machine")
    parser.add_argument("--gpu-rows", type=float, default=0.0, help="rows per second that one GPU encodes")
    parser.add_argument("--pg-bytes", type=float, default=76.0, help="bytes per row of the table and its key")
    parser.add_argument("--pg-scan", type=float, default=0.134e-6, help="core-seconds per code of a scan")
    arguments = parser.parse_args()
    content = json.loads(arguments.points.read_text(encoding="utf-8"))
    print(f"measured with modalhash {content['modalhash']} on {content['machine']}")
    constants, holds = reproduce(content["points"])
    extrapolate(constants, content["points"], arguments)
    print(f"\nmeasured points within {TOLERANCE:.0%}: {'yes' if holds else 'NOT REACHED'}")
    return 0 if holds else 1


if __name__ == "__main__":
    raise SystemExit(main())
