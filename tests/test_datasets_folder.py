"""A folder of images with a table of captions and labels."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image
from scipy import sparse

from modalhash.datasets import Dataset, load_folder
from modalhash.datasets.folder import read_table
from modalhash.exceptions import InputError, ModelFormatError
from modalhash.features import GIST, PCA, CorruptImageWarning, TagVectorizer

N = 24
ROWS = [
    {
        "file": f"pics/{i:02d}.png",
        "caption": f"a {'red' if i % 2 else 'blue'} thing, 北京",
        "labels": ["x", "y"][: 1 + i % 2],
    }
    for i in range(N)
]


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "pics").mkdir()
    for row in ROWS:
        Image.fromarray(rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)).save(tmp_path / row["file"])
    return tmp_path


def as_csv(rows):
    lines = [f'{r["file"]},"{r["caption"]}",{";".join(r["labels"])}' for r in rows]
    return "\ufefffile,caption,labels\r\n" + "\r\n\r\n".join(lines) + "\r\n"


def write_parquet(path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(ROWS), path)


WRITE = {
    "t.csv": lambda path: path.write_bytes(as_csv(ROWS).encode()),
    "t.tsv": lambda path: path.write_text(
        "file\tcaption\tlabels\n" + "\n".join(f"{r['file']}\t{r['caption']}\t{'|'.join(r['labels'])}" for r in ROWS)
    ),
    "t.json": lambda path: path.write_text(json.dumps(ROWS)),
    "columns.json": lambda path: path.write_text(json.dumps({k: [r[k] for r in ROWS] for k in ROWS[0]})),
    "t.jsonl": lambda path: path.write_text("\n".join(json.dumps(r) for r in ROWS) + "\n\n"),
    "t.parquet": write_parquet,
}


@pytest.mark.parametrize("name", WRITE)
def test_every_kind_of_table(folder, name):
    WRITE[name](folder / name)
    data = load_folder(folder, features={"image": GIST(size=32)})
    assert data.ids.tolist() == [r["file"] for r in ROWS]
    assert data.label_names == ["x", "y"]
    assert data.labels.tolist() == [[1, i % 2] for i in range(N)]
    assert data.feature_names["text"] == ["a", "blue", "red", "thing", "北京"]
    assert sparse.issparse(data.views["text"])
    assert data.views["text"][[1]].toarray().tolist() == [[1, 0, 1, 1, 1]]
    paths = [folder / r["file"] for r in ROWS]
    np.testing.assert_array_equal(data.views["image"], GIST(size=32).transform(paths))
    assert data.columns["text"][0] == ROWS[0]["caption"]


def test_without_a_table_the_folders_are_labels(tmp_path):
    for name in ("cats/1.png", "cats/2.jpg", "dogs/1.png", "loose.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(np.zeros((20, 20), np.uint8)).save(tmp_path / name)
    data = load_folder(tmp_path, features={"image": GIST(size=32)})
    assert data.ids.tolist() == ["cats/1.png", "cats/2.jpg", "dogs/1.png", "loose.png"]
    assert data.labels.tolist() == [[1, 0], [1, 0], [0, 1], [0, 0]]
    assert list(data.views) == ["image"]


def test_a_flat_folder_has_no_labels(tmp_path):
    for i in range(3):
        Image.fromarray(np.zeros((20, 20), np.uint8)).save(tmp_path / f"{i}.png")
    assert load_folder(tmp_path, features={"image": GIST(size=32)}).labels is None


def test_other_columns_by_name(folder):
    rows = [{"bild": r["file"], "wort": r["caption"], "art": 3} for r in ROWS]
    (folder / "t.json").write_text(json.dumps(rows))
    data = load_folder(folder, image="bild", text="wort", labels="art", features={"image": GIST(size=32)})
    assert data.label_names == ["3"]
    with pytest.raises(InputError, match=r"t\.json has no column 'nix' for text; it has bild, wort, art"):
        load_folder(folder, image="bild", text="nix")
    with pytest.raises(InputError, match="none is called image, file"):
        load_folder(folder)


def test_steps_are_fitted_on_training_rows_and_failures_dropped(folder):
    WRITE["t.csv"](folder / "t.csv")
    bad = folder / ROWS[4]["file"]
    bad.write_bytes(b"\x89PNG not really")
    steps = {"image": [GIST(size=32), PCA(3)], "text": [TagVectorizer(min_count=2), PCA(2)]}
    with pytest.warns(CorruptImageWarning, match=r"04\.png"):
        data = load_folder(folder, features=steps, seed=1)
    assert ROWS[4]["file"] not in data.ids
    assert len(data) == N - 1
    assert [row[1] for row in data.provenance["skipped"]] == [str(bad)]
    raw = GIST(size=32).transform([folder / name for name in data.ids])
    expected = PCA(3).fit(raw[data.splits["train"]]).transform(raw)
    np.testing.assert_allclose(data.views["image"], expected, atol=1e-6)
    assert data.provenance["fitted"]["image"]["rows"] == "train"


def test_it_can_be_saved(folder):
    WRITE["t.csv"](folder / "t.csv")
    data = load_folder(folder, features={"image": GIST(size=32)})
    back = Dataset.load(data.save(folder / "out.npz"))
    assert back.checksums() == data.checksums()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", "file,caption\npics/00.png\n", r"t\.csv, line 2: 1 fields where the header has 2"),
        ("t.csv", 'file,caption\npics/00.png,"open\n', r"t\.csv, line \d: "),
        ("t.csv", "file,caption\npics/00.png,a\nno.png,b\n", r"t\.csv, line 3: the image 'no\.png' does not exist"),
        ("t.csv", "file,caption\npics/00.png,a\npics/00.png,b\n", "names 1 images more than once"),
        ("t.csv", "file,caption\n", r"t\.csv has no rows"),
        ("t.json", '[{"file": 1},', r"t\.json, line 1: not whole JSON"),
        ("t.json", "3", "list of records or a dict of columns"),
        ("t.json", "[3]", "record 1: a record such as"),
        ("t.json", '{"file": ["a"], "caption": []}', "different lengths"),
        ("t.jsonl", '{"file": "pics/00.png"}\n{"file"', "not whole JSON"),
    ],
)
def test_broken_tables_name_file_and_line(folder, name, content, message):
    (folder / name).write_text(content)
    with pytest.raises((InputError, ModelFormatError), match=message):
        load_folder(folder)


def test_what_else_can_be_wrong(folder, tmp_path):
    with pytest.raises(InputError, match="does not exist; a folder of images is needed"):
        load_folder(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no image"):
        load_folder(tmp_path / "empty")
    WRITE["t.csv"](folder / "t.csv")
    WRITE["t.json"](folder / "t.json")
    with pytest.raises(InputError, match=r"several tables \(t\.csv, t\.json\)"):
        load_folder(folder)
    with pytest.raises(InputError, match="features\\['sound'\\] is given, but the folder has only image, text"):
        load_folder(folder, folder / "t.csv", features={"sound": PCA()})
    (folder / "latin.csv").write_bytes("file,caption\na,caf\xe9\n".encode("latin-1"))
    with pytest.raises(ModelFormatError, match=r"latin\.csv, line 2: not UTF-8"):
        read_table(folder / "latin.csv")
    with pytest.raises(InputError, match="a table is one of"):
        read_table(folder / "pics" / "00.png")
    with pytest.raises(InputError, match="does not exist; a table"):
        read_table(folder / "none.csv")
