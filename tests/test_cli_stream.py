"""fit and encode by the command line on files that are read by blocks, also after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

import modalhash as mh
from modalhash.datasets import make_synthetic
from modalhash.datasets.codefile import CodeFile
from modalhash.exceptions import InputError

pytestmark = pytest.mark.filterwarnings("ignore::modalhash.exceptions.ConstantBitsWarning")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    data = make_synthetic(n=600, n_image=16, n_text=12, random_state=0)
    for name, X in data.views.items():
        np.save(folder / f"{name}.npy", X.astype(np.float32))
        pd.DataFrame(X.astype(np.float32)).rename(columns=str).to_parquet(
            folder / f"{name}.parquet", row_group_size=100
        )
    np.save(folder / "labels.npy", data.labels)
    views = {name: X.astype(np.float32) for name, X in data.views.items()}
    mh.DMH(16, n_iter=20, random_state=0).fit(views, labels=data.labels).save(folder / "model")
    return folder, views, data.labels


def test_fit_streams_where_the_solver_can(run, files, tmp_path):
    folder, views, labels = files
    code, out, err = run(
        *("fit", "--view", f"image={folder / 'image.npy'}", "--view", f"text={folder / 'text.parquet'}"),
        *("--labels", folder / "labels.npy", "--bits", 16, "--seed", 3, "-o", tmp_path / "model", "--json"),
        *("--param", "solver=minibatch", "--param", "batch_size=100", "--param", "n_epochs=3"),
        *("--checkpoint", tmp_path / "state"),
    )
    assert code == 0, err
    assert json.loads(out)["rows"] == 600
    assert not (tmp_path / "state").exists()
    expected = mh.DMH(16, solver="minibatch", batch_size=100, n_epochs=3, random_state=3).fit(views, labels=labels)
    found = mh.load(tmp_path / "model")
    for name in expected.weights_:
        np.testing.assert_array_equal(found.weights_[name], expected.weights_[name])
    np.testing.assert_array_equal(found.train_codes_, expected.train_codes_)
    code, _, err = run("fit", folder / "image.npy", "--method", "lsh", "--checkpoint", "x", "-o", tmp_path / "m")
    assert code == 2
    assert "LSH keeps no checkpoint" in err


@pytest.mark.parametrize("form", ["npy", "parquet"])
@pytest.mark.parametrize("given", ["as a view", "as data"])
def test_encode_streams(run, files, tmp_path, form, given):
    folder, views, _ = files
    words = (folder / f"text.{form}",) if given == "as data" else ("--view", f"text={folder / f'text.{form}'}")
    code, out, err = run("encode", folder / "model", *words, "--use", "text", "-o", tmp_path / "c.npy", "--json")
    assert code == 0, err
    assert json.loads(out)["resumed_at"] == 0
    np.testing.assert_array_equal(np.load(tmp_path / "c.npy"), mh.load(folder / "model").encode("text", views["text"]))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.npy"]


def test_what_cannot_be_encoded(run, files, tmp_path):
    folder, *_ = files
    out = tmp_path / "c.npy"
    both = ("--view", f"image={folder / 'image.npy'}", "--view", f"text={folder / 'text.npy'}")
    for words, message in (
        ((*both,), "say which view to encode with --use"),
        ((*both, "--use", "sound"), "the data has no view 'sound'"),
        (("--view", f"image={folder / 'text.npy'}"), "has 12 columns; the model was fitted with 16"),
        ((folder / "no.npy", "--use", "image"), "does not exist"),
    ):
        code, _, err = run("encode", folder / "model", *words, "-o", out)
        assert code == 2
        assert message in err
        assert not out.exists()


_SLOW = """
import sys, time
import modalhash.views, modalhash.datasets.codefile as codefile
modalhash.views._BLOCK_BYTES = 10 * 16 * 8
write = codefile.CodeFile.write
def slowly(self, codes):
    self.seconds = 0
    time.sleep(0.02)
    write(self, codes)
codefile.CodeFile.write = slowly
from modalhash.cli import main
main()
"""


def test_encode_goes_on_after_a_kill(run, files, tmp_path):
    folder, views, _ = files
    words = ["encode", folder / "model", "--view", f"image={folder / 'image.npy'}", "-o", tmp_path / "c.npy", "--json"]
    process = subprocess.Popen([sys.executable, "-c", _SLOW, *map(str, words)], stdout=subprocess.DEVNULL)
    note = tmp_path / ".c.npy.progress"
    started = time.monotonic()
    while not note.exists():
        assert process.poll() is None
        assert time.monotonic() - started < 60
        time.sleep(0.01)
    time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "c.npy").exists()  # part of it is never mistaken for the whole
    done = json.loads(note.read_text())["done"]
    assert 0 < done < 600
    code, out, err = run(*words)
    assert code == 0, err
    assert json.loads(out)["resumed_at"] == done
    assert "rows were encoded already" in err
    np.testing.assert_array_equal(
        np.load(tmp_path / "c.npy"), mh.load(folder / "model").encode("image", views["image"])
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.npy"]


def _half(path, identity, codes):
    for left in path.parent.glob(".c.npy.*"):
        left.unlink()
    file = CodeFile(path, codes.shape, identity, seconds=0)
    file.write(codes[: len(codes) // 2])
    file._file.close()


def test_an_unfinished_file_of_something_else_is_started_anew(tmp_path, rng):
    codes = rng.integers(0, 256, (10, 3)).astype(np.uint8)
    path = tmp_path / "c.npy"
    for change in ({"model": "b"}, {"model": "a"}):
        _half(path, {"model": "a"}, codes)
        with CodeFile(path, codes.shape, change) as file:
            assert file.done == (5 if change == {"model": "a"} else 0)
        if change == {"model": "b"}:  # and what it replaced is forgotten, even if it writes nothing
            with CodeFile(path, codes.shape, {"model": "a"}) as again:
                assert again.done == 0
    _half(path, {"model": "a"}, codes)
    with CodeFile(path, (12, 3), {"model": "a"}) as file:
        assert file.done == 0
    _half(path, {"model": "a"}, codes)
    (tmp_path / ".c.npy.partial").write_bytes(b"torn")
    with CodeFile(path, codes.shape, {"model": "a"}) as file:
        assert file.done == 0
        with pytest.raises(InputError, match=r"has 0 of 10 codes; it is not finished"):
            file.finish()
        with pytest.raises(InputError, match="got \\(4, 2\\) more"):
            file.write(codes[:4, :2])
        file.write(codes)
        with pytest.raises(InputError, match="has 10; got"):
            file.write(codes[:1])
        assert file.finish() == path
    np.testing.assert_array_equal(np.load(path), codes)
    with pytest.raises(InputError, match="does not exist"):
        CodeFile(tmp_path / "no" / "c.npy", (1, 1), {})
