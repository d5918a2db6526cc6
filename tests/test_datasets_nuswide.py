"""NUS-WIDE and text matrices, on small trees in the official layout."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import io as sio
from scipy import sparse

from modalhash.datasets import load_nuswide, read_text_matrix, textmatrix
from modalhash.exceptions import InputError, ModelFormatError

N = 40
BOM = b"\xef\xbb\xbf"
RNG = np.random.default_rng(0)
WORDS = np.minimum(RNG.geometric(0.05, (N, 6)) - 1, 255)
TAGS = (RNG.random((N, 5)) < 0.3).astype(int)
# 12 concepts: concept j is shown by about one image in j + 2; image 7 shows none, image 8 only the rarest
SHOWN = np.array([[int((i + j) % (j + 2) == 0) for j in range(12)] for i in range(N)])
SHOWN[7] = 0
SHOWN[8] = [0] * 11 + [1]
CONCEPTS = [f"concept{chr(ord('a') + (5 * j) % 12)}" for j in range(12)]
NAMES = [f"actor\\{i:04d}_{1000 + i}.jpg" for i in range(N)]


def lines(matrix, separator=" ", end="\n"):
    return (end.join(separator.join(map(str, row)) + separator for row in matrix.tolist()) + end).encode()


def write_tree(root: Path) -> Path:
    features = root / "NUS_WID_Low_Level_Features" / "Low_Level_Features"
    tags = root / "NUS_WID_Tags"
    truth = root / "Groundtruth" / "AllLabels"
    listing = root / "ImageList"
    for folder in (features, tags, truth, listing):
        folder.mkdir(parents=True)
    (features / "BoW_int.dat").write_bytes(lines(WORDS))
    (tags / "AllTags1k.txt").write_bytes(BOM + lines(TAGS, "\t", "\r\n") + b"\r\n\r\n")
    (tags / "TagList1k.txt").write_bytes("sky\r\nsea\r\n北京\r\ndog\r\ncat\r\n".encode())
    for j, name in enumerate(CONCEPTS):
        (truth / f"Labels_{name}.txt").write_bytes(lines(SHOWN[:, [j]], "", "\r\n" if j % 2 else "\n"))
    (listing / "Imagelist.txt").write_text("\r\n".join(NAMES) + "\r\n")
    return root


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return write_tree(tmp_path_factory.mktemp("nuswide"))


@pytest.fixture
def tree(original, tmp_path):
    shutil.copytree(original, tmp_path / "tree")
    return tmp_path / "tree"


def load(tree, **options):
    return load_nuswide(tree, **{"complete": False, **options})


def test_the_official_layout(tree):
    seen = []
    data = load(tree, progress=lambda done, total: seen.append((done, total)))
    order = np.argsort(-SHOWN[:, np.argsort(CONCEPTS)].sum(axis=0), kind="stable")[:10]
    kept_names = [sorted(CONCEPTS)[j] for j in order]
    kept = SHOWN[:, [CONCEPTS.index(name) for name in kept_names]]
    rows = np.flatnonzero(kept.any(axis=1))
    assert 7 not in rows
    assert 8 not in rows  # it shows only a concept that is not among the ten
    assert data.label_names == kept_names
    assert data.labels.tolist() == kept[rows].tolist()
    assert data.views["image"].tolist() == WORDS[rows].tolist()
    assert sparse.issparse(data.views["text"])
    assert data.views["text"].toarray().tolist() == TAGS[rows].tolist()
    assert data.ids[0] == "actor/0000_1000.jpg"
    assert data.feature_names["text"] == ["sky", "sea", "北京", "dog", "cat"]
    assert len(data.splits["query"]) == 1
    assert data.provenance["without_label"] == N - len(rows)
    assert seen[-1][0] == seen[-1][1]
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_other_numbers_of_concepts(tree):
    assert load(tree, n_concepts=12).labels.shape[1] == 12
    assert load(tree, n_concepts=3).labels.shape[1] == 3
    with pytest.raises(InputError, match="n_concepts must be a whole number from 1 to 12; got 13"):
        load(tree, n_concepts=13)


def test_names_are_optional(tree):
    shutil.rmtree(tree / "ImageList")
    (tree / "NUS_WID_Tags" / "TagList1k.txt").unlink()
    data = load(tree)
    assert data.ids.dtype.kind == "i"
    assert data.feature_names == {}


def test_halves_are_put_into_the_order_of_the_image_list(tree):
    whole = load(tree)
    features = tree / "NUS_WID_Low_Level_Features" / "Low_Level_Features"
    (features / "BoW_int.dat").unlink()
    train, test = np.arange(N)[::3], np.array([i for i in range(N) if i % 3])[::-1]
    for part, rows in (("Train", train), ("Test", test)):
        (features / f"BoW_{part}_int.dat").write_bytes(lines(WORDS[rows]))
        (tree / "ImageList" / f"{part}Imagelist.txt").write_text("\n".join(NAMES[i] for i in rows))
    assert load(tree).checksums() == whole.checksums()
    (tree / "ImageList" / "TestImagelist.txt").write_text("\n".join(["no.jpg", *(NAMES[i] for i in test[1:])]))
    with pytest.raises(ModelFormatError, match=r"TestImagelist\.txt, line 1: 'no\.jpg' is not in the image list"):
        load(tree)
    (tree / "ImageList" / "TestImagelist.txt").unlink()
    with pytest.raises(InputError, match=r"TestImagelist\.txt"):
        load(tree)


@pytest.mark.parametrize(
    "lost", ["NUS_WID_Tags/AllTags1k.txt", "NUS_WID_Low_Level_Features/Low_Level_Features/BoW_int.dat", "Groundtruth"]
)
def test_missing_files_are_named_with_their_sizes(tree, lost):
    path = tree / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(InputError) as error:
        load(tree)
    assert Path(lost).name in str(error.value).split("The official files")[0]
    assert "540 MB" in str(error.value)
    assert "nus.edu.sg" in str(error.value)


def change(path, line, content):
    all_lines = path.read_bytes().split(b"\n")
    all_lines[line - 1] = content
    path.write_bytes(b"\n".join(all_lines))


@pytest.mark.parametrize(
    ("file", "line", "content", "message"),
    [
        ("NUS_WID_Tags/AllTags1k.txt", 5, b"0\t1\t0", r"AllTags1k\.txt, line 5: 3 numbers where 5 are needed"),
        ("NUS_WID_Tags/AllTags1k.txt", 5, b"0\t1\t0\t1\t0\t1", "line 5: 6 numbers where 5"),
        ("NUS_WID_Tags/AllTags1k.txt", 5, b"0\t1\tx\t1\t0", "line 5: 'x' is not a number"),
        ("NUS_WID_Tags/AllTags1k.txt", 5, b"0\t1\t7\t1\t0", "other than 0 and 1; it is not the file of tags"),
        ("NUS_WID_Tags/AllTags1k.txt", 5, b"0\t1\t300\t1\t0", "line 5: 300 where whole numbers from 0 to 255"),
        ("NUS_WID_Tags/AllTags1k.txt", 5, b"", "the file ends after 39 rows; it should have 40"),
        ("Groundtruth/AllLabels/Labels_conceptb.txt", 9, b"2", r"Labels_conceptb\.txt, line 9: 2 where .* 0 to 1"),
        ("Groundtruth/AllLabels/Labels_conceptb.txt", 9, b"", "the file ends after 39 rows; it should have 40"),
        ("Groundtruth/AllLabels/Labels_conceptb.txt", 9, b"0 1", "line 9: 2 numbers where 1"),
        (
            "NUS_WID_Low_Level_Features/Low_Level_Features/BoW_int.dat",
            9,
            b"0 1 2 3 -4 5",
            r"BoW_int\.dat, line 9: -4.0 where whole numbers from 0",
        ),
        (
            "NUS_WID_Low_Level_Features/Low_Level_Features/BoW_int.dat",
            9,
            b"0 1 2 3 4 .5",
            r"BoW_int\.dat, line 9: 0.5 where whole numbers",
        ),
    ],
)
def test_a_broken_line_is_named(tree, file, line, content, message):
    change(tree / file, line, content)
    with pytest.raises(ModelFormatError, match=message):
        load(tree)


def test_a_truncated_last_row_is_named(tree):
    path = tree / "NUS_WID_Low_Level_Features" / "Low_Level_Features" / "BoW_int.dat"
    raw = path.read_bytes()
    path.write_bytes(raw[: raw.rstrip().rfind(b" ")])  # the last number of the last row is lost
    with pytest.raises(ModelFormatError, match=rf"BoW_int\.dat, line {N}: 5 numbers where 6 are needed"):
        load(tree)


def test_lists_of_another_length(tree):
    path = tree / "ImageList" / "Imagelist.txt"
    path.write_text("\n".join(NAMES[:-1]))
    with pytest.raises(ModelFormatError, match=f"{N - 1} image names; the labels have {N} rows"):
        load(tree)
    path.unlink()
    (tree / "NUS_WID_Tags" / "TagList1k.txt").write_text("sky\n")
    with pytest.raises(ModelFormatError, match="1 tags; the tag matrix has 5 columns"):
        load(tree)


def test_a_whole_copy_is_insisted_on(tree):
    with pytest.raises(InputError, match=r"12 files Labels_\*\.txt; NUS-WIDE has 81 concepts"):
        load_nuswide(tree)


def test_matlab_files(tmp_path):
    sio.savemat(tmp_path / "a.mat", {"XAll": WORDS, "YAll": np.tile(TAGS, 20), "LAll": SHOWN[:, :10]})
    data = load_nuswide(tmp_path / "a.mat")
    assert data.views["image"].tolist() == WORDS.tolist()
    assert data.views["text"].shape == (N, 100)
    assert len(data.splits["query"]) == 1


# --- text matrices ---------------------------------------------------------------------------------------------


@given(
    matrix=st.integers(1, 6).flatmap(
        lambda d: st.lists(st.lists(st.integers(0, 99_999), min_size=d, max_size=d), min_size=1, max_size=30)
    ),
    separator=st.sampled_from([" ", "\t", ",", "  ", ", "]),
    end=st.sampled_from(["\n", "\r\n", "\n\n"]),
    last=st.booleans(),
    block=st.integers(3, 60),
)
def test_text_matrix_equals_the_numbers(tmp_path_factory, matrix, separator, end, last, block):
    path = tmp_path_factory.mktemp("text") / "a.txt"
    path.write_bytes(
        end.join(separator.join(map(str, row)) for row in matrix).encode() + (end.encode() if last else b"")
    )
    whole = textmatrix._BLOCK
    textmatrix._BLOCK = block  # so that rows fall across the blocks that are read
    try:
        assert read_text_matrix(path, dtype=np.int64).tolist() == matrix
        got = read_text_matrix(path, dtype=np.float32, as_sparse=True, n_rows=len(matrix), n_columns=len(matrix[0]))
    finally:
        textmatrix._BLOCK = whole
    assert got.toarray().tolist() == matrix


def test_text_matrix_of_real_numbers(tmp_path):
    X = np.random.default_rng(0).standard_normal((7, 3)) * 10.0 ** np.arange(-3, 4)[:, None]
    np.savetxt(tmp_path / "a.txt", X)
    np.testing.assert_allclose(read_text_matrix(tmp_path / "a.txt", dtype=np.float64), X, rtol=1e-15)
    (tmp_path / "b.txt").write_text("1 2\n3 12345678901234\n")
    assert read_text_matrix(tmp_path / "b.txt", dtype=np.float64).tolist() == [[1, 2], [3, 12345678901234]]


def test_text_matrix_line_numbers_across_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(textmatrix, "_BLOCK", 16)
    (tmp_path / "a.txt").write_text("1 2\n" * 20 + "\n" + "1 2\n" * 5 + "1\n")
    with pytest.raises(ModelFormatError, match=r"a\.txt, line 27: 1 numbers where 2"):
        read_text_matrix(tmp_path / "a.txt")
    (tmp_path / "b.txt").write_text("1 2\n" * 30)
    with pytest.raises(ModelFormatError, match=r"b\.txt, line 26: more than the 25 rows"):
        read_text_matrix(tmp_path / "b.txt", n_rows=25)


@pytest.mark.parametrize("content", [b"", b"\n\n", BOM])
def test_text_matrix_that_is_empty(tmp_path, content):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(ModelFormatError, match=r"a\.txt is empty"):
        read_text_matrix(tmp_path / "a.txt")


def test_text_matrix_of_nan(tmp_path):
    (tmp_path / "a.txt").write_text("1 2\n3 nan\n")
    with pytest.raises(ModelFormatError, match="line 2: a number is not finite"):
        read_text_matrix(tmp_path / "a.txt")
    with pytest.raises(InputError, match="does not exist"):
        read_text_matrix(tmp_path / "none.txt")
