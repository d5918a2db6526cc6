from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from modalhash.datasets import make_synthetic

settings.register_profile("modalhash", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("modalhash")


@pytest.fixture(scope="session")
def small():
    """400 items, two dense views, multi-labels; read-only, since tests share it."""
    data = make_synthetic(n=400, random_state=0)
    for X in (*data.views.values(), data.labels):
        X.flags.writeable = False
    return data


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command in this process; returns (exit code, standard output, standard error)."""
    from modalhash.cli.app import app
    from modalhash.cli.console import guarded

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["modalhash", *map(str, words)])
        code = guarded(app)
        out = capsys.readouterr()
        return code, out.out, out.err

    return call
