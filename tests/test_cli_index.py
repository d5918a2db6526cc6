"""``modalhash index`` and what ``modalhash serve`` refuses, run as a user runs them, in this process."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from PIL import Image

import modalhash as mh
from modalhash.codes import hamming
from modalhash.datasets import Dataset
from modalhash.features import GIST, FeaturePipeline, TagVectorizer
from modalhash.serve.server import bind


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A data set of 40 items with words and pictures, a model of 12 bits that carries both features, and codes."""
    folder = tmp_path_factory.mktemp("index")
    rng = np.random.default_rng(0)
    texts = [f"{'sea water' if i % 2 else 'dog pet'} w{i}" for i in range(40)]
    y, x = np.mgrid[:24, :24]
    pictures = [(128 + 100 * np.sin((x if i % 2 else y) + rng.uniform(0, 6))).astype(np.uint8) for i in range(40)]
    features = FeaturePipeline({"text": TagVectorizer(), "image": GIST(size=24, orientations=(4,), blocks=2)})
    features.fit({"text": texts, "image": []})
    data = Dataset(
        features.transform({"text": texts, "image": pictures}),
        labels=[i % 2 for i in range(40)],
        ids=np.array([f"name-{i}" for i in range(40)]),
        columns={"title": [f"Title {i}" for i in range(40)], "text": texts},
        splits={"database": np.arange(10, 40), "query": np.arange(10)},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hasher = mh.DMH(12, n_iter=40, random_state=0).fit(data.views, labels=data.labels).attach(features)
    hasher.save(folder / "model")
    data.save(folder / "data.npz")
    Image.fromarray(pictures[3]).save(folder / "picture.png")
    np.savez(folder / "codes.npz", codes=hasher.encode("text", data.views["text"]), n_bits=12, ids=np.arange(40) * 5)
    np.savez(folder / "named.npz", codes=hasher.encode("text", data.views["text"]), n_bits=12, ids=data.ids)
    np.save(folder / "codes.npy", hasher.encode("text", data.views["text"]))
    return folder


def made(folder):
    return ("--model", folder / "model", "--data", folder / "data.npz")


def test_build_info_search_add(run, folder, tmp_path):
    index = tmp_path / "index"
    code, out, err = run("index", "build", index, *made(folder), "--use", "image", "--split", "database")
    assert code == 0, err
    assert out == f"built 30 codes of 12 bits; 30 in {index}\n"

    about = json.loads(run("index", "info", index, "--json")[1])
    assert (about["codes"], about["n_bits"], about["kind"], about["columns"]) == (30, 12, "flat", ["title"])
    assert (about["first_id"], about["last_id"]) == (10, 39)  # ids are rows of the whole data set
    assert "30 codes" in run("index", "info", index)[1]

    data, hasher = Dataset.load(folder / "data.npz"), mh.load(folder / "model")
    query = hasher.encode_raw("text", ["sea water"])
    distance = hamming(query, hasher.encode("image", data.views["image"][10:]))[0]
    asked = ("index", "search", index, "--model", folder / "model", "--text", "sea water", "-k", 4)
    code, out, err = run(*asked, "--json")
    assert code == 0, err
    hits = json.loads(out)["results"][0]["hits"]
    assert [hit["id"] for hit in hits] == (np.lexsort((np.arange(30), distance))[:4] + 10).tolist()
    assert hits[0]["title"] == f"Title {hits[0]['id']}"
    text = run(*asked)[1]
    assert text.splitlines()[0] == "sea water: 4 found"
    assert f"{hits[0]['distance']} bits" in text

    code, out, err = run("index", "add", index, *made(folder), "--use", "image", "--split", "query", "--json")
    assert code == 0, err
    assert json.loads(out) == {"index": str(index), "codes": 40, "added": 10, "n_bits": 12, "kind": "flat"}
    assert json.loads(run("index", "info", index, "--json")[1])["last_id"] == 49  # they go on


def test_ids_can_be_kept_and_replaced(run, folder, tmp_path):
    index = tmp_path / "index"
    run("index", "build", index, *made(folder), "--use", "image", "--split", "database", "-q")
    add = ("index", "add", index, *made(folder), "--use", "image", "-q")
    assert run(*add, "--split", "query", "--keep-ids")[0] == 0
    assert json.loads(run("index", "info", index, "--json")[1])["first_id"] == 0
    code, _, err = run(*add, "--keep-ids")
    assert (code, "is in the index already" in err) == (2, True)
    assert run(*add, "--keep-ids", "--replace")[0] == 0
    assert json.loads(run("index", "info", index, "--json")[1])["codes"] == 40
    assert "--replace goes with --keep-ids" in run(*add, "--replace")[2]


def test_stored_codes(run, folder, tmp_path):
    index = tmp_path / "index"
    assert run("index", "build", index, "--codes", folder / "codes.npz")[0] == 0
    assert json.loads(run("index", "info", index, "--json")[1])["last_id"] == 195
    found = json.loads(run("index", "search", index, "--codes", folder / "codes.npz", "-k", 1, "--json")[1])["results"]
    assert len(found) == 40
    assert all(one["hits"][0]["distance"] == 0 for one in found)
    assert run("index", "build", tmp_path / "named", "--codes", folder / "named.npz")[0] == 0
    named = json.loads(run("index", "search", tmp_path / "named", "--codes", folder / "codes.npz", "--json")[1])
    assert named["results"][0]["hits"][0]["title"].startswith("name-")
    assert "does not say how many bits" in run("index", "build", tmp_path / "x", "--codes", folder / "codes.npy")[2]
    assert run("index", "build", tmp_path / "x", "--codes", folder / "codes.npy", "--bits", 12)[0] == 0


def test_search_by_picture_rows_and_radius(run, folder, tmp_path):
    index, model = tmp_path / "index", folder / "model"
    run("index", "build", index, *made(folder), "--use", "text")
    by_picture = json.loads(
        run("index", "search", index, "--model", model, "--image", folder / "picture.png", "--json", "-k", 3)[1]
    )["results"][0]
    assert by_picture["query"] == "picture.png"
    assert all(hit["id"] % 2 == 1 for hit in by_picture["hits"])  # the class of row 3
    by_row = json.loads(
        run("index", "search", index, *made(folder), "--use", "image", "--row", 3, "--json", "-k", 3)[1]
    )["results"][0]
    assert (by_row["query"], by_row["hits"]) == ("name-3", by_picture["hits"])
    near = json.loads(
        run("index", "search", index, *made(folder), "--use", "text", "--row", 3, "--radius", 0, "--json")[1]
    )["results"][0]["hits"]
    assert 3 in [hit["id"] for hit in near]
    assert all(hit["distance"] == 0 for hit in near)


def test_other_rules_and_kinds(run, folder, tmp_path):
    index = tmp_path / "index"
    assert run("index", "build", index, *made(folder), "--rule", "fused", "--kind", "ivf")[0] == 0
    assert json.loads(run("index", "info", index, "--json")[1])["kind"] == "ivf"
    data, hasher = Dataset.load(folder / "data.npz"), mh.load(folder / "model")
    stored = mh.HammingIndex.load(index).codes(np.arange(40))
    assert (stored == hasher.database_codes(data.views, rule="fused")).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["build", "OUT"], "pass --model and --data to encode, or --codes"),
        (["build", "OUT", "--model", "MODEL"], "pass --model and --data"),
        (["build", "OUT", "--codes", "CODES", "--model", "MODEL"], "not both"),
        (["build", "OUT", "--model", "MODEL", "--data", "DATA"], "say which view to encode with --use"),
        (["build", "OUT", "--model", "MODEL", "--data", "DATA", "--use", "smell"], "no view 'smell'"),
        (["build", "OUT", "--model", "MODEL", "--data", "DATA", "--rule", "luck"], "no database rule 'luck'"),
        (["build", "OUT", "--model", "MODEL", "--data", "DATA", "--rule", "fused", "--use", "text"], "joins all views"),
        (["build", "OUT", "--codes", "CODES", "--kind", "magic"], "kind must be"),
        (["build", "OUT", "--codes", "CODES", "--bits", "9"], "--bits says 9"),
        (["info", "NOTHING"], "NOTHING"),
        (["search", "INDEX"], "exactly one of --text, --image, --data or --codes; got none"),
        (["search", "INDEX", "--text", "sea", "--codes", "CODES"], "got text, codes"),
        (["search", "INDEX", "--text", "sea"], "--text needs --model"),
        (["search", "INDEX", "--model", "MODEL", "--text", "xyzzy"], "knows no word of 'xyzzy'"),
        (["search", "INDEX", "--model", "MODEL", "--image", "NOTHING"], "is not a file"),
        (
            ["search", "INDEX", "--model", "MODEL", "--data", "DATA", "--use", "text", "--row", "40"],
            "there is no row 40",
        ),
        (["search", "SHORT", "--model", "MODEL", "--text", "sea"], "the queries have 12 bits; the index has 8"),
        (["add", "SHORT", "--model", "MODEL", "--data", "DATA", "--use", "text"], "have 12 bits; the index has 8"),
    ],
)
def test_bad_input_is_one_clear_line(run, folder, tmp_path, words, message):
    mh.HammingIndex(12).add(np.zeros((2, 2), np.uint8)).save(tmp_path / "index")
    mh.HammingIndex(8).add(np.zeros((2, 1), np.uint8)).save(tmp_path / "short")
    places = {
        "OUT": tmp_path / "out",
        "INDEX": tmp_path / "index",
        "SHORT": tmp_path / "short",
        "MODEL": folder / "model",
        "DATA": folder / "data.npz",
        "CODES": folder / "codes.npz",
    }
    code, out, err = run("index", *(places.get(word, word) for word in words))
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["MODEL"], "nothing to search"),
        (["NOTHING", "--data", "DATA"], "cannot load a model from NOTHING"),
        (["MODEL", "--index", "=x"], "--index takes FOLDER or NAME=FOLDER; got '=x'"),
        (["MODEL", "--index", "NOTHING"], "NOTHING"),
        (["MODEL", "--data", "NOTHING.npz"], "NOTHING.npz"),
        (["MODEL", "--data", "DATA", "--split", "train"], "no split 'train'"),
        (["MODEL", "--data", "DATA", "--token", "two words"], "token must be visible ASCII"),
        (["MODEL", "--data", "DATA", "--pictures", "NOTHING"], "not a folder"),
        (["MODEL", "--data", "DATA", "--port", "PORT"], "cannot listen on 127.0.0.1 port"),
    ],
)
def test_serve_refuses_in_one_line(run, folder, words, message):
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        places = {"MODEL": folder / "model", "DATA": folder / "data.npz", "PORT": taken.getsockname()[1]}
        code, out, err = run("serve", *(places.get(word, word) for word in words))
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


def test_help_has_examples(run):
    for command in (["index", "build"], ["index", "add"], ["index", "search"], ["index", "info"], ["serve"]):
        code, out, _ = run(*command, "--help")
        assert code == 0
        assert "modalhash " + " ".join(command) in out.replace("\n", " ")
