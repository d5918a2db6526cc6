"""Checkpoints: a fit that was stopped, or killed, goes on to the result of an unbroken one, bit for bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from modalhash import DMH, load
from modalhash.datasets import make_synthetic
from modalhash.exceptions import InputError, ModelFormatError

pytestmark = pytest.mark.filterwarnings("ignore::modalhash.exceptions.ConstantBitsWarning")


class _StopError(Exception):
    pass


def _stop_at(k):
    def callback(done, total, objective):
        if done >= k:
            raise _StopError

    return callback


def _same(a, b):
    for view in b.weights_:
        np.testing.assert_array_equal(a.weights_[view], b.weights_[view])
        np.testing.assert_array_equal(a.biases_[view], b.biases_[view])
    np.testing.assert_array_equal(a.objective_, b.objective_)
    np.testing.assert_array_equal(a.train_codes_, b.train_codes_)


@pytest.mark.parametrize(("n", "dtype"), [(300, "float64"), (40_000, "float32")])  # plain engine, compiled engine
def test_a_stopped_fit_continues_to_the_same_bits(tmp_path, n, dtype):
    data = make_synthetic(n=n, n_image=8, n_text=6, random_state=0)
    settings = {"n_bits": 16, "n_iter": 30, "random_state": 0, "dtype": dtype}
    whole = DMH(**settings).fit(data.views, labels=data.labels)
    file = tmp_path / "fit.safetensors"
    for stop in (3, 17, 25):  # killed three times: before the first save, after one, after two
        with pytest.raises(_StopError):
            DMH(**settings, checkpoint=file, checkpoint_every=7, callback=_stop_at(stop)).fit(data.views, data.labels)
    seen = []
    again = DMH(**settings, checkpoint=file, checkpoint_every=7, callback=lambda k, K, value: seen.append(k))
    again.fit(data.views, labels=data.labels)
    assert seen == list(range(22, 31))  # 21 iterations were there already
    _same(again, whole)
    assert not file.exists()


def test_another_fits_checkpoint_is_refused_and_says_what_differs(small, tmp_path):
    file = tmp_path / "fit"
    settings = {"n_iter": 30, "random_state": 0, "checkpoint": file, "checkpoint_every": 10}
    with pytest.raises(_StopError):
        DMH(8, **settings, callback=_stop_at(12)).fit(small.views, labels=small.labels)
    labels = small.labels[::-1].copy()
    labels[0] = 1 - labels[0]
    for changed, views, given, message in (
        ({"label_weight": 5.0}, small.views, small.labels, r"label_weight is 10\.0 there and 5\.0 here"),
        ({"random_state": 1}, small.views, small.labels, "random_state is 0 there and 1 here"),
        ({}, {"image": small.views["image"]}, small.labels, r"columns of text is \d+ there and None here"),
        ({}, {**small.views, "image": small.views["image"] + 1}, small.labels, "moments of image"),
        ({}, {k: X[:399] for k, X in small.views.items()}, small.labels[:399], "rows is 400 there and 399 here"),
        ({}, small.views, labels, "counts of labels"),
    ):
        with pytest.raises(InputError, match=message):
            DMH(8, **{**settings, **changed}).fit(views, labels=given)
    assert file.exists()


def test_without_a_seed_the_checkpoint_holds_the_start(small, tmp_path):
    file = tmp_path / "fit"
    with pytest.raises(_StopError):
        DMH(8, n_iter=30, checkpoint=file, checkpoint_every=10, callback=_stop_at(12)).fit(small.views, small.labels)
    assert file.exists()
    assert DMH(8, n_iter=30, checkpoint=file).fit(small.views, small.labels).n_iter_ == 30
    assert not file.exists()


def test_what_is_no_checkpoint_is_refused(small, tmp_path):
    file = tmp_path / "fit"
    fit = DMH(8, n_iter=5, random_state=0, checkpoint=file).fit
    file.write_bytes(b"half of somethi")
    with pytest.raises(ModelFormatError, match="is damaged"):
        fit(small.views, labels=small.labels)
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(2)}, file)
    with pytest.raises(ModelFormatError, match="not a checkpoint of modalhash"):
        fit(small.views, labels=small.labels)
    save_file({"a": np.zeros(2)}, file, metadata={"modalhash-checkpoint": '{"version": 99}'})
    with pytest.raises(ModelFormatError, match="version 99"):
        fit(small.views, labels=small.labels)


def test_bad_parameters(small, tmp_path):
    with pytest.raises(InputError, match="checkpoint_every must be a whole number of at least 1; got 0"):
        DMH(8, checkpoint=tmp_path / "a", checkpoint_every=0).fit(small.views, labels=small.labels)
    with pytest.raises(InputError, match="it is a folder"):
        DMH(8, checkpoint=tmp_path).fit(small.views, labels=small.labels)
    with pytest.raises(InputError, match="does not exist"):
        DMH(8, checkpoint=tmp_path / "no" / "a").fit(small.views, labels=small.labels)


def test_the_checkpoint_is_no_part_of_the_saved_model(small, tmp_path):
    hasher = DMH(8, n_iter=5, random_state=0, checkpoint=str(tmp_path / "fit")).fit(small.views, labels=small.labels)
    again = load(hasher.save(tmp_path / "model"))
    assert again.checkpoint is None
    assert str(tmp_path) not in (tmp_path / "model" / "config.json").read_text()


_CHILD = """
import json, sys, time
from modalhash import DMH
from modalhash.datasets import make_synthetic
data = make_synthetic(n=400, random_state=0)
slow = lambda k, K, value: time.sleep(0.005)
settings = {"checkpoint": sys.argv[1], "checkpoint_every": 5, "callback": slow, **json.loads(sys.argv[2])}
DMH(16, n_iter=400, random_state=0, **settings).fit(
    data.views, labels=data.labels
).save(sys.argv[3])
"""


def _kill_when_there(command, file, seconds=30):
    """Start a process, wait until `file` is there, and kill it without warning."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    started = time.monotonic()
    while not file.exists():
        assert process.poll() is None
        assert time.monotonic() - started < seconds
        time.sleep(0.01)
    time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


@pytest.mark.parametrize("settings", [{}, {"solver": "momentum"}, {"solver": "minibatch", "batch_size": 50}])
def test_kill_minus_nine(tmp_path, settings):
    file = tmp_path / "fit.safetensors"
    command = [sys.executable, "-W", "ignore", "-c", _CHILD, str(file), json.dumps(settings), str(tmp_path / "model")]
    _kill_when_there(command, file)
    assert not (tmp_path / "model").exists()
    assert file.exists()
    data = make_synthetic(n=400, random_state=0)
    seen = []
    again = DMH(16, n_iter=400, random_state=0, checkpoint=file, callback=lambda k, K, v: seen.append(k), **settings)
    again.fit(data.views, labels=data.labels)
    assert seen[0] > 5  # it did not start anew
    _same(again, DMH(16, n_iter=400, random_state=0, **settings).fit(data.views, labels=data.labels))
    assert list(tmp_path.iterdir()) == []  # nor did a save that was cut short leave anything
