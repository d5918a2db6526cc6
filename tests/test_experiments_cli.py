"""``modalhash reproduce``, run as a user runs it, on small data."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter

import numpy as np
import pytest

from modalhash.cli.app import app
from modalhash.cli.console import guarded
from modalhash.datasets import make_synthetic
from modalhash.experiments import run as running

SMALL = ["--methods", "CVH,MDBE", "--bits", "8", "--seeds", "2", "--what", "table-map", "--steps", "run,score"]


@pytest.fixture
def call(monkeypatch, capsys):
    def do(*words):
        monkeypatch.setattr(sys, "argv", ["modalhash", "reproduce", *map(str, words)])
        code = guarded(app)
        out = capsys.readouterr()
        return code, out.out, out.err

    return do


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return make_synthetic(n=240, random_state=0).save(tmp_path_factory.mktemp("data") / "own.npz")


@pytest.fixture
def fits(monkeypatch):
    count = Counter()
    whole = running.fit_run
    monkeypatch.setattr(running, "fit_run", lambda one, *a, **k: (count.update([one.method]), whole(one, *a, **k))[1])
    return count


def test_run_and_score_then_nothing_more(call, file, tmp_path, fits):
    code, out, err = call("--data", f"own={file}", *SMALL, "-o", tmp_path, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["runs"], found["fitted"], found["kept"], found["scored"]) == (4, 4, 0, 4)
    assert "[4/4] own MDBE, 8 bits, seed 1" in err
    assert "left" in err
    names = sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.json"))
    assert names == [f"scores/own/{m}/008-s{s}.json" for m in ("CVH", "MDBE") for s in (0, 1)]
    code, out, _ = call("--data", f"own={file}", *SMALL, "-o", tmp_path)
    assert code == 0
    assert "0 fitted, 4 kept; 0 scored, 4 kept" in out
    assert fits.total() == 4
    code, out, _ = call("--data", f"own={file}", *SMALL, "-o", tmp_path, "--set", "mdbe.ridge=0.01", "--quiet")
    assert "2 fitted, 2 kept; 2 scored, 2 kept" in out
    assert fits == {"CVH": 2, "MDBE": 4}


def test_scores_alone(call, file, tmp_path):
    code, out, err = call("--data", f"own={file}", *SMALL[:-1], "score", "-o", tmp_path)
    assert code == 0
    assert "4 of 4 runs are not there, such as own CVH, 8 bits, seed 0" in err
    assert "0 scored, 0 kept, 4 missing" in out


def test_dry_run(call, file, tmp_path):
    code, out, _ = call("--data", f"own={file}", "--dry-run", "-o", tmp_path / "none")
    assert code == 0
    assert "shared ones once" in out
    assert not (tmp_path / "none").exists()
    found = json.loads(call("--data", f"own={file}", "--dry-run", "--what", "table-time", "--json", "-q")[1])
    assert {one["bits"] for one in found["runs"]} == {32}
    assert found["seconds"] > 0


def test_a_failure_is_named_and_counted(call, tmp_path):
    data = make_synthetic(n=120, random_state=0)
    np.savez(tmp_path / "a.npz", image=data.views["image"], text=data.views["text"][:, :5], labels=data.labels)
    code, out, err = call("--data", f"own={tmp_path / 'a.npz'}", *SMALL, "-o", tmp_path / "r", "-q")
    assert code == 1
    assert "own CVH, 8 bits, seed 1 could not be done: CVH gives at most as many bits" in err
    assert "2 fitted, 0 kept, 2 failed; 2 scored, 0 kept, 2 missing" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "pass --data NAME=PATH"),
        (["--quick", "--data", "own=a.npz"], "not both"),
        (["--data", "own"], "--data takes name=value"),
        (["--data", "own=nowhere.npz"], "nowhere.npz does not exist"),
        (["--quick", "--what", "table-mop"], "--what takes names among table-map"),
        (["--quick", "--methods", "dmh,lsh"], "--methods takes names among DMH"),
        (["--quick", "--steps", "walk"], "--steps takes names among run, score, report"),
        (["--quick", "--bits", "a"], "--bits takes whole numbers"),
        (["--quick", "--bits", "0"], "bits must be whole numbers of at least 1"),
        (["--quick", "--seeds", "0"], "seeds must be a whole number"),
        (["--quick", "--set", "n_iter=3"], "--set takes METHOD.NAME=VALUE"),
        (["--quick", "--set", "DMH.steps=3"], "DMH has no parameter 'steps'"),
        (["--quick", "--set", "XYZ.steps=3"], "unknown method 'XYZ'"),
    ],
)
def test_wrong_options(call, words, message, tmp_path):
    code, _, err = call(*words, "-o", tmp_path / "r")
    assert code == 2
    assert message in " ".join(err.split())
    assert not (tmp_path / "r").exists()


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_keeps_what_is_done(file, tmp_path, jobs):
    words = ["--data", f"own={file}", "--methods", "DMH", "--bits", "16,32", "--seeds", "4", "--what", "table-map"]
    words += ["--set", "DMH.n_iter=150", "--steps", "run", "-o", str(tmp_path), "--jobs", str(jobs)]
    command = [sys.executable, "-m", "modalhash", "reproduce", *words]
    started = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    while not list(tmp_path.rglob("*.npz")) and time.monotonic() < until:
        time.sleep(0.02)
    while not list((tmp_path / "runs").rglob("[0-9]*.npz")) and time.monotonic() < until:
        time.sleep(0.02)
    started.send_signal(signal.SIGINT)
    _, err = started.communicate(timeout=60)
    assert started.returncode == 130, err
    assert f"stopped; what is done is kept in {tmp_path}. The same command goes on from there." in err
    assert "Traceback" not in err
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "runs").rglob("[0-9]*.npz")}
    assert 1 <= len(before) < 16
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    after = {p: p.stat().st_mtime_ns for p in (tmp_path / "runs").rglob("[0-9]*.npz")}
    assert len(after) == 16
    assert {p: after[p] for p in before} == before  # not made again
    assert f"{len(before)} kept" in done.stdout


def write_nuswide(root, n, seed=0):
    """A tree of NUS-WIDE's official files: 500 visual words, 1,000 tags and 81 concepts of n images."""
    rng = np.random.default_rng(seed)
    features, tags = root / "NUS_WID_Low_Level_Features" / "Low_Level_Features", root / "NUS_WID_Tags"
    truth, listing = root / "Groundtruth" / "AllLabels", root / "ImageList"
    for folder in (features, tags, truth, listing):
        folder.mkdir(parents=True)
    topic = rng.integers(0, 12, n)  # one concept in particular; some images show none of the ten most frequent
    shown = rng.random((n, 81)) < 0.02 * np.linspace(1, 0.1, 81)
    shown[np.arange(n), topic] |= rng.random(n) < 0.8
    words = rng.poisson(rng.gamma(1.0, 2.0, (81, 500))[topic]).clip(0, 255)
    carried = rng.random((n, 1000)) < rng.beta(0.15, 12, (81, 1000))[topic]
    np.savetxt(features / "BoW_int.dat", words, fmt="%d")
    np.savetxt(tags / "AllTags1k.txt", carried.astype(int), fmt="%d", delimiter="\t")
    (tags / "TagList1k.txt").write_text("\n".join(f"tag{j}" for j in range(1000)))
    for j in range(81):
        np.savetxt(truth / f"Labels_concept{j:02d}.txt", shown[:, j].astype(int), fmt="%d")
    (listing / "Imagelist.txt").write_text("\n".join(f"actor\\{i:06d}.jpg" for i in range(n)))
    return root


@pytest.mark.slow
def test_nuswide_from_the_official_files(call, tmp_path):
    """Every column of the real set, 2 % of its rows: files to scores."""
    n = 269_648 // 50
    tree = write_nuswide(tmp_path / "NUS-WIDE", n)
    words = ["--data", f"nuswide={tree}", "--methods", "DMH,SCM", "--bits", "16,32", "--seeds", "1"]
    words += ["--what", "table-map,fig-f1,table-time", "--set", "DMH.n_iter=60", "--steps", "run,score"]
    code, _, err = call(*words, "-o", tmp_path / "r")
    assert code == 2  # a part of the set is taken only when asked for
    assert "269648" in err.replace(",", "")
    code, out, err = call(*words, "--incomplete", "-o", tmp_path / "r", "--json")
    assert code == 0, err
    assert json.loads(out)["fitted"] == 6  # DMH, DMH with the printed step, SCM; two lengths
    scores = [json.loads(p.read_text()) for p in (tmp_path / "r" / "scores" / "nuswide").rglob("*.json")]
    assert len(scores) == 6
    for found in scores:
        split = found["split"]
        assert split["train"] == split["database"]
        assert split["queries"] == -(-(split["train"] + split["queries"]) // 100)  # 1 %, rounded up
        assert n * 0.5 < split["train"] < n
        if found["method"] == "DMH":
            assert found["parameters"]["scale"] == {"image": 1.0, "text": 255.0}
        best = found["scores"][found["rule"]]["text>image"]
        assert best["MAP"] > 0.3  # ten concepts, one in particular: chance is under .2
        assert 0 <= best["F1@r2"] <= 1
    assert {found["alone"] for found in scores if found["bits"] == 32} == {True}


@pytest.mark.slow
def test_without_faiss_matplotlib_and_yaml(file, tmp_path):
    """Steps run and score need none of them, so that they can be done on a bare machine."""
    blocked = "import sys; sys.modules.update(dict.fromkeys(['faiss', 'matplotlib', 'yaml', 'pandas']))"
    words = ["modalhash", "reproduce", "--data", f"own={file}", *SMALL, "-o", str(tmp_path)]
    code = f"{blocked}; sys.argv = {words!r}; from modalhash.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "4 fitted, 0 kept; 4 scored" in done.stdout
