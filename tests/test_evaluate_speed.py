"""Evaluation stays cheap: no array of queries x database, and far from the usual script's time."""

from __future__ import annotations

import runpy
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from modalhash.evaluation import evaluate

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "evaluate.py"


@pytest.fixture(scope="module")
def benchmark():
    if not BENCHMARK.exists():
        pytest.skip("the benchmarks are not part of this copy")
    pytest.importorskip("threadpoolctl")
    return runpy.run_path(str(BENCHMARK))


def peak(data, **options):
    tracemalloc.start()
    evaluate(**data, n_bits=64, diagnostics=False, **options)
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found


def test_memory_does_not_grow_with_queries_times_database(benchmark):
    few, many = benchmark["make"](20, 100_000), benchmark["make"](600, 100_000)
    evaluate(**few, n_bits=64)  # compiled before memory is watched
    block = 2_000_000
    small, large = peak(few, block_bytes=block), peak(many, block_bytes=block)
    # 600 x 100,000 pairs would take 60 MB at one byte each; the database alone is 0.8 MB of codes and 1 MB of labels.
    assert large < small + 3 * block
    assert large < 15_000_000


@pytest.mark.slow
def test_far_faster_than_the_usual_script(benchmark):
    data = benchmark["make"](400, 100_000)
    benchmark["ours"](data, metrics=["MAP"])
    took, report = benchmark["ours"](data, metrics=["MAP[ties=expected]", "PR@r"])
    usual, mean_ap = benchmark["usual_script"](data, 20)
    part = {name: x[:20] if name.startswith("query") else x for name, x in data.items()}
    assert mean_ap == pytest.approx(benchmark["ours"](part, metrics=["MAP[ties=id]"])[1]["MAP"])
    assert np.isfinite(report["MAP"])
    assert usual.cpu / 20 * 400 > 8 * took.cpu
