from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import modalhash as mh
from modalhash import bundle
from modalhash.exceptions import ModelFormatError

pytestmark = pytest.mark.filterwarnings("ignore::modalhash.exceptions.ConstantBitsWarning")


@pytest.fixture
def saved(small, tmp_path):
    hasher = mh.DMH(12, n_iter=10, random_state=0, view_weights={"text": 2.0}).fit(small.views, labels=small.labels)
    return hasher, hasher.save(tmp_path / "model")


def test_what_is_on_disk(saved):
    _, path = saved
    assert sorted(p.name for p in path.iterdir()) == ["config.json", "model.safetensors"]
    config = json.loads((path / "config.json").read_text())
    assert config["format_version"] == 1
    assert config["package_version"] == mh.__version__
    assert config["method"] == "DMH"
    assert config["params"]["view_weights"] == {"text": 2.0}
    assert config["views"] == {"image": 128, "text": 100}
    assert config["state"]["training_"]["n_rows"] == 400
    assert config["tensors"]["weights_/text"] == {"dtype": "float32", "shape": [100, 12]}


def test_loading_gives_the_same_model(saved, small):
    hasher, path = saved
    again = mh.load(path)
    assert type(again) is mh.DMH
    assert again.get_params() == hasher.get_params()
    for view, X in small.views.items():
        np.testing.assert_array_equal(again.encode(view, X), hasher.encode(view, X))
    np.testing.assert_array_equal(again.train_codes_, hasher.train_codes_)
    np.testing.assert_array_equal(again.objective_, hasher.objective_)
    assert vars(again).keys() == vars(hasher).keys()


def test_a_callback_is_not_part_of_the_model(small, tmp_path):
    hasher = mh.DMH(8, n_iter=2, random_state=np.random.default_rng(0), callback=print.__class__)
    hasher.callback = lambda k, K, value: None
    again = mh.load(hasher.fit(small.views, labels=small.labels).save(tmp_path))
    assert again.callback is None
    assert again.random_state is None


def _edit_seal(path, **changes):
    from safetensors import safe_open
    from safetensors.numpy import save_file

    with safe_open(path / "model.safetensors", "numpy") as f:
        config = json.loads(f.metadata()["modalhash"])
        arrays = {name: f.get_tensor(name) for name in f.keys()}  # noqa: SIM118
    for key, value in changes.items():
        if callable(value):
            value(config, arrays)
        else:
            config[key] = value
    save_file(arrays, path / "model.safetensors", metadata={"modalhash": json.dumps(config)})
    (path / "config.json").write_text(json.dumps(config))


def test_unknown_version(saved):
    _edit_seal(saved[1], format_version=99)
    with pytest.raises(ModelFormatError, match="format version 99; this modalhash reads version 1"):
        mh.load(saved[1])


def test_unknown_method(saved):
    _edit_seal(saved[1], method="Magic")
    with pytest.raises(ModelFormatError, match="method 'Magic', which this modalhash does not know"):
        mh.load(saved[1])


def test_unknown_parameter(saved):
    _edit_seal(saved[1], params={"n_bits": 12, "colour": "red"})
    with pytest.raises(ModelFormatError, match="does not describe a DMH"):
        mh.load(saved[1])


def test_other_kind(saved):
    _edit_seal(saved[1], kind="index")
    with pytest.raises(ModelFormatError, match="holds 'index', not a model"):
        mh.load(saved[1])


def test_shapes_are_checked(saved):
    def narrow(config, arrays):
        arrays["weights_/text"] = arrays["weights_/text"][:5].copy()

    _edit_seal(saved[1], x=narrow)
    with pytest.raises(ModelFormatError, match=r"array 'weights_/text'.*its header declares"):
        mh.load(saved[1])

    def consistent(config, arrays):
        config["tensors"]["weights_/text"]["shape"] = [5, 12]

    _edit_seal(saved[1], x=consistent)
    with pytest.raises(ModelFormatError, match="weights of view 'text' have shape"):
        mh.load(saved[1])


def test_missing_arrays(saved):
    _edit_seal(saved[1], x=lambda config, arrays: arrays.pop("train_codes_"))
    with pytest.raises(ModelFormatError, match="does not hold the arrays that its header declares"):
        mh.load(saved[1])


def test_broken_folders(saved, tmp_path):
    _, path = saved
    with pytest.raises(ModelFormatError, match="there is no such folder"):
        mh.load(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelFormatError, match=r"has no model\.safetensors"):
        mh.load(tmp_path / "empty")
    whole = (path / "model.safetensors").read_bytes()
    for broken in (whole[: len(whole) // 2], whole[:5], b"", b"\x80\x04pickle" * 10):
        (path / "model.safetensors").write_bytes(broken)
        with pytest.raises(ModelFormatError, match="damaged or truncated"):
            mh.load(path)
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(1)}, path / "model.safetensors")
    with pytest.raises(ModelFormatError, match="not written by modalhash"):
        mh.load(path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(ModelFormatError, match="is a file"):
        saved[0].save(tmp_path / "file")


def test_the_sealed_configuration_wins(saved, caplog):
    _, path = saved
    (path / "config.json").write_text("{}")
    with caplog.at_level(logging.WARNING):
        assert mh.load(path).n_bits == 12
    assert "the sealed one is used" in caplog.text


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    target = tmp_path / "a"
    bundle.atomic_write(target, b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        bundle.atomic_write(target, b"new")
    assert target.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_killed_between_any_two_steps_of_a_save(tmp_path):
    """A process that dies at each system call of a save in turn leaves the old model or the new one."""
    script = textwrap.dedent(
        """
        import os, sys
        import numpy as np
        from modalhash import bundle
        folder, step = sys.argv[1], int(sys.argv[2])
        left = [step]
        def dying(real):
            def call(*a, **k):
                if left[0] == 0:
                    os._exit(9)
                left[0] -= 1
                return real(*a, **k)
            return call
        for name in ("fsync", "replace", "chmod"):
            setattr(os, name, dying(getattr(os, name)))
        bundle.write_folder(folder, {"kind": "test", "n": 2}, {"a": np.full(3, 2)})
        """
    )
    outcomes = []
    for step in range(9):
        folder = tmp_path / str(step)
        bundle.write_folder(folder, {"kind": "test", "n": 1}, {"a": np.full(3, 1)})
        done = subprocess.run([sys.executable, "-c", script, str(folder), str(step)], check=False)
        config, arrays = bundle.read_folder(folder, kind="test")
        assert arrays["a"].tolist() == [config["n"]] * 3
        outcomes.append((done.returncode, config["n"]))
    assert (9, 1) in outcomes
    assert (9, 2) in outcomes
    assert outcomes[-1] == (0, 2)
