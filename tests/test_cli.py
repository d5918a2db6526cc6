"""The command line, run as a user runs it: in a process of its own, or in this one where that is enough."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import h5py
import numpy as np
import pandas as pd
import pytest
from scipy import io, sparse

from modalhash import __version__
from modalhash.datasets import make_synthetic

SHORT = ["--param", "n_iter=15"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    data = make_synthetic(n=300, sparse_text=True, random_state=0)
    data.save(folder / "saved.npz")
    text = data.views["text"].tocsr()
    parts = {f"text_{k}": getattr(text, k) for k in ("data", "indices", "indptr")}
    np.savez(folder / "plain.npz", image=data.views["image"], labels=data.labels, text_shape=text.shape, **parts)
    np.save(folder / "image.npy", data.views["image"])
    np.save(folder / "text.npy", text.toarray())
    np.save(folder / "labels.npy", data.labels)
    io.savemat(folder / "v5.mat", {"I": data.views["image"], "T": sparse.csc_matrix(text), "L": data.labels})
    with h5py.File(folder / "v73.mat", "w") as file:  # MATLAB stores arrays transposed there
        file["I"] = data.views["image"].T
        file["T"] = text.toarray().T
        file["L"] = data.labels.T.astype(float)
    pd.DataFrame(data.views["image"]).rename(columns=str).to_parquet(folder / "image.parquet")
    return folder


def test_help_names_every_command_with_an_example(run):
    code, out, _ = run("--help")
    assert code == 0
    for command in ("fit", "encode", "evaluate", "info", "methods", "demo", "data"):
        assert command in out
    for command in (["fit"], ["encode"], ["evaluate"], ["info"], ["methods"], ["demo"], ["data", "prepare"]):
        code, out, _ = run(*command, "--help")
        assert code == 0
        assert "modalhash " + " ".join(command) in out.replace("\n", " ")


def test_version(run):
    assert run("--version")[:2] == (0, f"{__version__}\n")


def test_methods_are_listed_with_one_line_each(run):
    code, out, _ = run("methods")
    assert code == 0
    assert any(line.startswith("dmh") and "Decorrelated multimodal hashing" in line for line in out.splitlines())
    assert json.loads(run("methods", "--json")[1])["dmh"]["database_rules"] == ["encoded", "learned", "fused"]


def test_fit_encode_evaluate_info(run, files, tmp_path):
    model = tmp_path / "model"
    code, out, err = run("fit", files / "saved.npz", "-o", model, "--bits", 16, *SHORT, "--json")
    assert code == 0, err
    summary = json.loads(out)
    assert summary["rows"] == 285  # the split "train": queries are not fitted on
    assert summary["which_rows"] == "split 'train'"
    assert sorted(p.name for p in model.iterdir()) == ["config.json", "model.safetensors"]

    code, out, _ = run(
        "encode", model, files / "saved.npz", "--use", "text", "--split", "query", "-o", tmp_path / "q.npz"
    )
    assert code == 0
    assert "15 codes of 16 bits" in out
    with np.load(tmp_path / "q.npz", allow_pickle=False) as codes:
        assert codes["codes"].shape == (15, 2)
        assert int(codes["n_bits"]) == 16

    code, out, err = run("evaluate", model, files / "saved.npz", "--json", "--metric", "MAP", "--metric", "F1@r2")
    assert code == 0, err
    assert {run["database_rule"] for run in json.loads(out)["runs"]} == {"encoded", "learned", "fused"}
    code, out, _ = run("evaluate", model, files / "saved.npz", "--rule", "encoded")
    assert code == 0
    assert "encoded" in out
    assert "learned" not in out.split("database rules:")[1]

    code, out, _ = run("info", model)
    assert code == 0
    assert "image (128 columns), text (100 columns)" in out
    assert json.loads(run("info", model, "--json")[1])["params"]["n_iter"] == 15
    assert "labels" in run("info", files / "plain.npz")[1]


def test_stored_codes(run, files, tmp_path):
    model = tmp_path / "model"
    run("fit", files / "saved.npz", "-o", model, "--bits", 12, *SHORT)
    for split, view in (("query", "image"), ("database", "text")):
        run("encode", model, files / "saved.npz", "--use", view, "--split", split, "-o", tmp_path / f"{split}.npz")
    data = make_synthetic(n=300, sparse_text=True, random_state=0)
    for split in ("query", "database"):
        np.save(tmp_path / f"{split}_labels.npy", data.rows(split).labels)
    words = ["evaluate", "--query-codes", tmp_path / "query.npz", "--database-codes", tmp_path / "database.npz"]
    words += ["--query-labels", tmp_path / "query_labels.npy", "--database-labels", tmp_path / "database_labels.npy"]
    code, out, err = run(*words, "--rule", "encoded", "--json", "--metric", "MAP")
    assert code == 0, err
    stored = json.loads(out)
    assert stored["database_rule"] == "encoded"
    _, out, _ = run("evaluate", model, files / "saved.npz", "--json", "--metric", "MAP", "--rule", "encoded")
    same = [r for r in json.loads(out)["runs"] if (r["query_view"], r["database_view"]) == ("image", "text")]
    assert same[0]["values"] == pytest.approx(stored["values"])
    assert "--rule how the database codes were made" in run(*words)[2]


@pytest.mark.parametrize(
    "words",
    [
        ["plain.npz"],
        ["--view", "image={}/image.npy", "--view", "text={}/text.npy", "--labels", "{}/labels.npy"],
        ["--view", "image={}/v5.mat:I", "--view", "text={}/v5.mat:T", "--labels", "{}/v5.mat:L"],
        ["--view", "image={}/v73.mat:I", "--view", "text={}/v73.mat:T", "--labels", "{}/v73.mat:L"],
        ["--view", "image={}/image.parquet", "--view", "text={}/text.npy", "--labels", "{}/labels.npy"],
    ],
)
def test_every_kind_of_file_gives_the_same_model(run, files, tmp_path, words):
    words = [files / word if word.endswith("plain.npz") else word.format(files) for word in words]
    code, _, err = run("fit", *words, "-o", tmp_path / "model", "--bits", 8, *SHORT)
    assert code == 0, err
    code, _, err = run(
        "encode", tmp_path / "model", "--view", f"image={files}/image.npy", "--use", "image", "-o", tmp_path / "c.npy"
    )
    assert code == 0, err
    codes = np.load(tmp_path / "c.npy")
    run("fit", files / "plain.npz", "-o", tmp_path / "reference", "--bits", 8, *SHORT)
    run("encode", tmp_path / "reference", files / "plain.npz", "--use", "image", "-o", tmp_path / "r.npy")
    agree = np.unpackbits(codes ^ np.load(tmp_path / "r.npy")).mean()
    assert agree < 0.01


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fit"], "no data given"),
        (["fit", "nothing.npz"], "nothing.npz"),
        (["fit", "{}/saved.npz", "--method", "magic"], "unknown method 'magic'"),
        (["fit", "{}/saved.npz", "--bits", "0"], "n_bits must be a whole number"),
        (["fit", "{}/saved.npz", "--param", "colour=red"], "DMH has no parameter 'colour'"),
        (["fit", "{}/saved.npz", "--param", "n_iter"], "--param takes name=value"),
        (["fit", "{}/saved.npz", "--view", "image"], "--view takes name=value"),
        (["fit", "{}/saved.npz", "--split", "validation"], "no split 'validation'"),
        (["fit", "--view", "a={}/image.npy", "--view", "b={}/labels.npy:x"], "labels.npy"),
        (["encode", "nowhere", "{}/saved.npz"], "there is no such folder"),
        (["info", "nowhere"], "there is no such folder"),
        (["evaluate"], "pass a model and a data set"),
        (["evaluate", "nowhere", "{}/plain.npz"], "there is no such folder"),
        (["data", "info", "magic"], "magic"),
        (["demo", "--data", "magic"], "the demo knows the data sets"),
        (["demo", "--data", "synthetic", "--bits", "x"], "whole numbers separated by commas"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(run, files, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*(word.format(files) for word in words))
    assert code == 2
    assert out == ""
    lines = err.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("modalhash: error: ")
    assert message in lines[0]
    assert list(tmp_path.iterdir()) == []


def test_unknown_options_are_usage_errors(run):
    code, _, err = run("fit", "--colour", "red")
    assert code == 2
    assert "No such option" in err


def test_an_object_array_is_refused(run, tmp_path):
    np.savez(tmp_path / "evil.npz", image=np.array([{"a": 1}], dtype=object))
    code, _, err = run("fit", tmp_path / "evil.npz", "-o", tmp_path / "model")
    assert code == 2
    assert "object" in err
    assert not (tmp_path / "model").exists()


def test_encode_needs_to_know_the_view(run, files, tmp_path):
    run("fit", files / "plain.npz", "-o", tmp_path / "model", "--bits", 8, *SHORT)
    code, _, err = run("encode", tmp_path / "model", files / "plain.npz", "-o", tmp_path / "c.npy")
    assert code == 2
    assert "say which view to encode with --use" in err
    code, _, err = run("encode", tmp_path / "model", files / "plain.npz", "--use", "image", "-o", tmp_path / "c.txt")
    assert code == 2
    assert "written as .npy or .npz" in err
    code, _, err = run("evaluate", tmp_path / "model", files / "plain.npz")
    assert code == 2
    assert "no split 'query'" in err


def test_ctrl_c_leaves_nothing_half_written(files, tmp_path):
    words = [
        "fit",
        str(files / "saved.npz"),
        "-o",
        str(tmp_path / "model"),
        "--param",
        "n_iter=1000000",
        "--bits",
        "64",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "modalhash", *words], stderr=subprocess.PIPE, text=True, env={**os.environ}
    )
    time.sleep(4)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted; nothing was written" in err
    assert list(tmp_path.iterdir()) == []


def test_data_commands(run):
    code, out, _ = run("data", "list")
    assert code == 0
    for name in ("mirflickr", "nuswide", "wiki", "icons", "folder"):
        assert name in out
    code, out, _ = run("data", "info", "mirflickr")
    assert code == 0
    assert "tags" in out
    assert json.loads(run("data", "info", "nuswide", "--json")[1])["files"]


def test_demo_on_synthetic_data(run, tmp_path):
    code, out, err = run("demo", "--data", "synthetic", "--bits", "16", "-o", tmp_path / "demo", "--json")
    assert code == 0, err
    result = json.loads(out)
    scores = {(r["direction"], r["rule"]): r["MAP[ties=expected]"] for r in result["scores"]}
    assert len(scores) == 6
    for direction in ("image -> text", "text -> image"):
        assert scores[direction, "learned"] > scores[direction, "random codes"] + 0.2
        assert scores[direction, "encoded"] > scores[direction, "random codes"] + 0.15
    assert len(result["text_finds_pictures"]) == 5
    assert (tmp_path / "demo" / "index.html").read_text().count("<tr>") > 10
    assert (tmp_path / "demo" / "model" / "config.json").is_file()
