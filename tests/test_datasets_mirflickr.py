"""MIRFlickr-25K on small trees in the official layout, on MATLAB files, and on the real features."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image
from scipy import io as sio
from scipy import sparse

from modalhash.datasets import Dataset, load_arrays, load_mirflickr
from modalhash.datasets.mirflickr import CONCEPTS, N_IMAGES
from modalhash.exceptions import InputError, ModelFormatError
from modalhash.features import GIST, PCA, CorruptImageWarning, FeaturePipeline

N = 24
SIZE = 32  # of the squares for GIST: quicker than 128
BOM = b"\xef\xbb\xbf"
SHARED = Path(__file__).parents[2] / "shared" / "data" / "mirflickr25k.npz"


def write_tree(root: Path) -> Path:
    """25 photographs; im3 has no tags file, im4 no label, im5 no frequent tag, the others both."""
    pictures = root / "mirflickr"
    tags = pictures / "meta" / "tags"
    concepts = root / "mirflickr25k_annotations_v080"
    tags.mkdir(parents=True)
    concepts.mkdir()
    rng = np.random.default_rng(0)
    for n in range(1, N + 1):
        pixels = rng.integers(0, 256, (24, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(pictures / f"im{n}.jpg", quality=90)
        if n == 3:
            continue
        words = [f"rare{n}"] if n == 5 else ["sky", "北京"] if n % 2 else ["Sea", "sea", "sky"]
        ends = b"\r\n" if n % 3 else b"\n"
        content = (BOM if n % 4 == 0 else b"") + ends.join(w.encode() for w in words) + ends * 2
        (tags / f"tags{n}.txt").write_bytes(content)
    for j, name in enumerate(CONCEPTS):
        shown = [n for n in range(1, N + 1) if n != 4 and (n + j) % 6 == 0]
        if name == "sky":
            shown = [n for n in range(1, N + 1) if n != 4]
        lines = "\r\n".join(str(n) for n in shown) + "\r\n\r\n"
        (concepts / f"{name}.txt").write_bytes((BOM if j == 0 else b"") + lines.encode())
        (concepts / f"{name}_r1.txt").write_text("1\n")  # the stricter annotations lie beside; they are not used
    (concepts / "README.txt").write_text("about the annotations\n")
    return root


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return write_tree(tmp_path_factory.mktemp("mirflickr"))


@pytest.fixture
def tree(original, tmp_path):
    shutil.copytree(original, tmp_path / "tree")
    return tmp_path / "tree"


def load(tree, **options):
    return load_mirflickr(tree, **{"min_count": 5, "complete": False, "pca": None, "size": SIZE, **options})


def test_the_official_layout(tree):
    data = load(tree)
    assert data.ids.tolist() == [n for n in range(1, N + 1) if n not in (3, 4, 5)]
    assert data.feature_names["text"] == ["sea", "sky", "北京"]
    expected = [[0, 1, 1] if n % 2 else [1, 1, 0] for n in data.ids]
    assert data.views["text"].toarray().tolist() == expected
    assert sparse.issparse(data.views["text"])
    assert data.label_names == list(CONCEPTS)
    sky = data.label_names.index("sky")
    assert data.labels[:, sky].all()
    # animals is file 0: photographs whose number is a multiple of 6
    assert data.ids[data.labels[:, 0] == 1].tolist() == [6, 12, 18, 24]
    assert data.columns["file"][0] == "im1.jpg"
    about = data.provenance
    assert (about["without_label"], about["without_frequent_tag"], about["without_tag_file"]) == (1, 2, 1)
    assert len(data.splits["query"]) == 2


def test_gist_is_that_of_the_photographs(tree):
    data = load(tree)
    paths = [tree / "mirflickr" / f"im{n}.jpg" for n in data.ids]
    np.testing.assert_array_equal(data.views["image"], GIST(size=SIZE).transform(paths))
    assert data.views["image"].shape == (N - 3, 512)


def test_progress_counts_pictures(tree):
    seen = []
    load(tree, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (N - 3, N - 3)


def test_the_archives_may_be_unpacked_side_by_side_or_together(tree):
    inside = tree / "mirflickr" / "annotations"
    shutil.move(tree / "mirflickr25k_annotations_v080", inside)
    assert len(load(tree / "mirflickr")) == N - 3


def test_a_corrupt_photograph_is_listed_and_left_out(tree):
    (tree / "mirflickr" / "im7.jpg").write_bytes(b"\xff\xd8 not a jpeg")
    whole = (tree / "mirflickr" / "im8.jpg").read_bytes()
    (tree / "mirflickr" / "im8.jpg").write_bytes(whole[: len(whole) // 2])
    with pytest.warns(CorruptImageWarning, match=r"2 of 21 images could not be read.*im7\.jpg.*im8\.jpg"):
        data = load(tree)
    assert 7 not in data.ids
    assert 8 not in data.ids
    assert len(data) == N - 5
    assert [Path(name).name for _, name, _ in data.provenance["skipped"]] == ["im7.jpg", "im8.jpg"]
    assert np.isfinite(data.views["image"]).all()


def test_pca_is_fitted_on_the_training_rows(tree):
    data = load(tree, pca=2, seed=3)
    raw = load(tree, pca=None, seed=3)
    step = PCA(2).fit(raw.rows("train").views["text"])
    np.testing.assert_array_equal(data.views["text"], step.transform(raw.views["text"]))
    assert data.provenance["fitted"]["text"]["split_hash"] == data.split_hash == raw.split_hash


# --- what is missing or broken ---------------------------------------------------------------------------------


def test_an_empty_folder_lists_the_files_and_where_to_get_them(tmp_path):
    with pytest.raises(InputError) as error:
        load_mirflickr(tmp_path)
    message = str(error.value)
    assert "im1.jpg, meta/tags, plant_life.txt" in message
    assert "https://press.liacs.nl/mirflickr" in message
    assert "2.9 GB" in message


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="does not exist; MIRFlickr-25K needs a folder"):
        load_mirflickr(tmp_path / "none")


def test_an_archive_that_was_not_unpacked(tmp_path):
    (tmp_path / "mirflickr25k.zip").write_bytes(b"PK")
    with pytest.raises(InputError, match="Unpack archives and pass their folder"):
        load_mirflickr(tmp_path / "mirflickr25k.zip")


def test_fewer_photographs_than_there_should_be(tree):
    with pytest.raises(InputError, match=f"has {N} photographs; MIRFlickr-25K has {N_IMAGES}"):
        load(tree, complete=True)


def test_a_gap_in_the_photographs(tree):
    (tree / "mirflickr" / "im9.jpg").unlink()
    with pytest.raises(InputError, match=rf"has im{N}\.jpg but lacks 1 before it: im9\.jpg"):
        load(tree)


def test_a_missing_concept(tree):
    (tree / "mirflickr25k_annotations_v080" / "sea.txt").unlink()
    with pytest.raises(InputError, match=r"sea\.txt"):
        load(tree)


@pytest.mark.parametrize("bad", ["99", "0", "-3", "1.5", "sky"])
def test_an_annotation_that_is_none_names_file_and_line(tree, bad):
    path = tree / "mirflickr25k_annotations_v080" / "sea.txt"
    path.write_bytes(f"\r\n2\r\n{bad}\r\n".encode())
    with pytest.raises(ModelFormatError, match=rf"sea\.txt, line 3: '{bad}' where an image number from 1 to {N}"):
        load(tree)


def test_no_tags_at_all(tree):
    for path in (tree / "mirflickr" / "meta" / "tags").iterdir():
        path.unlink()
    with pytest.raises(InputError, match=r"none of tags1\.txt"):
        load(tree)


def test_no_frequent_tag(tree):
    with pytest.raises(InputError, match="Lower min_count"):
        load(tree, min_count=1000)


# --- MATLAB files ----------------------------------------------------------------------------------------------


def matrices(n=40):
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, (n, 20, 24, 3), dtype=np.uint8)
    tags = (rng.random((n, 60)) < 0.1).astype(np.uint8)
    labels = (rng.random((n, 24)) < 0.2).astype(np.uint8)
    return images, tags, labels


def check(data, images, tags, labels):
    assert data.labels.tolist() == labels.tolist()
    assert data.views["text"].toarray().tolist() == tags.tolist()
    np.testing.assert_allclose(data.views["image"], GIST(size=SIZE).transform(list(images)), atol=1e-6)
    assert data.label_names == list(CONCEPTS)
    assert len(data.splits["query"]) == 2


def test_one_v73_file_as_matlab_writes_it(tmp_path):
    images, tags, labels = matrices()
    with h5py.File(tmp_path / "anything.mat", "w") as file:
        # MATLAB: images (h, w, 3, n), which HDF5 shows reversed: (n, 3, w, h)
        file["images"] = images.transpose(0, 3, 2, 1)
        file["YAll"] = tags.T
        file["LAll"] = labels.T
        for item in file.values():
            item.attrs["MATLAB_class"] = np.bytes_("uint8")
    check(load_mirflickr(tmp_path / "anything.mat", pca=None, size=SIZE), images, tags, labels)


def test_v73_written_from_python_and_not_transposed(tmp_path):
    images, tags, labels = matrices()
    with h5py.File(tmp_path / "a.mat", "w") as file:
        file["IAll"] = images.transpose(0, 3, 1, 2)
    sio.savemat(tmp_path / "b.mat", {"YAll": tags})
    sio.savemat(tmp_path / "c.mat", {"LAll": labels})
    check(load_mirflickr(tmp_path, pca=None, size=SIZE), images, tags, labels)


def test_v5_with_other_names(tmp_path):
    images, tags, labels = matrices()
    (tmp_path / "x").mkdir()
    sio.savemat(tmp_path / "x" / "1.mat", {"pictures": images, "words": sparse.csc_matrix(tags.astype(float))})
    sio.savemat(tmp_path / "x" / "2.mat", {"truth": labels.T})
    check(load_mirflickr(tmp_path, pca=None, size=SIZE), images, tags, labels)


def test_features_instead_of_pictures(tmp_path):
    _, tags, labels = matrices()
    features = np.random.default_rng(2).random((40, 30))
    sio.savemat(tmp_path / "a.mat", {"XAll": features, "YAll": tags, "LAll": labels})
    data = load_mirflickr(tmp_path / "a.mat", pca=3)
    np.testing.assert_allclose(data.views["image"], features, rtol=1e-6)
    assert data.views["text"].shape == (40, 3)


def test_what_cannot_be_told_is_asked_for(tmp_path):
    _, tags, labels = matrices()
    real = np.random.default_rng(2).random((40, 30))
    sio.savemat(tmp_path / "a.mat", {"one": real, "two": real[:, :20], "LAll": labels})
    with pytest.raises(InputError, match=r"cannot tell which variable holds the image among a\.mat:one \(40, 30\)"):
        load_mirflickr(tmp_path / "a.mat")
    data = load_mirflickr(tmp_path / "a.mat", pca=None, views={"image": "one", "text": "a.mat:two", "labels": "LAll"})
    assert data.views["text"].shape == (40, 20)
    with pytest.raises(InputError, match="fits 0 variables"):
        load_mirflickr(tmp_path / "a.mat", views={"image": "none"})
    sio.savemat(tmp_path / "b.mat", {"XAll": real, "L1": labels, "L2": labels, "YAll": tags})
    with pytest.raises(InputError, match="two variables look like the labels"):
        load_mirflickr(tmp_path / "b.mat")


def test_training_and_test_parts_keep_their_split(tmp_path):
    _, tags, labels = matrices()
    real = np.random.default_rng(2).random((40, 30))
    parts = {"I": real, "T": tags.astype(float), "L": labels}
    sio.savemat(
        tmp_path / "a.mat",
        {f"{k}_{p}": v[:30] if p == "tr" else v[30:] for k, v in parts.items() for p in ("tr", "te")},
    )
    data = load_mirflickr(tmp_path / "a.mat", pca=None)
    assert data.splits["train"].tolist() == list(range(30))
    assert data.splits["query"].tolist() == list(range(30, 40))
    assert data.labels.tolist() == labels.tolist()


def test_labels_other_than_0_and_1(tmp_path):
    _, tags, labels = matrices()
    sio.savemat(tmp_path / "a.mat", {"XAll": tags * 0.5, "LAll": labels * 2.0})
    with pytest.raises(InputError, match="cannot tell which variable holds the"):
        load_mirflickr(tmp_path / "a.mat")


def test_object_arrays_in_mat_files_do_not_matter_unless_needed(tmp_path):
    images, tags, labels = matrices()
    cells = np.empty((40, 1), dtype=object)
    cells[:, 0] = "im.jpg"
    sio.savemat(tmp_path / "a.mat", {"IAll": images, "YAll": tags, "LAll": labels, "FAll": cells})
    check(load_mirflickr(tmp_path / "a.mat", pca=None, size=SIZE), images, tags, labels)


# --- the real features -----------------------------------------------------------------------------------------


@pytest.mark.skipif(not SHARED.is_file(), reason="the real MIRFlickr features are not here")
def test_pca_on_the_real_tags_sees_training_rows_only():
    data = load_arrays(SHARED, views={"image": "gist", "text": "tags"}).split("mirflickr", seed=0)
    frequent = np.argsort(-data.views["text"].sum(axis=0), kind="stable")[:300]  # enough, and quick
    data = replace(data, views={"text": data.views["text"][:, np.sort(frequent)]})
    assert len(data.splits["query"]) == 1001
    pipeline = FeaturePipeline({"text": PCA(20)})
    before = pipeline.fit_transform(data)
    query = int(data.splits["query"][17])
    changed = data.views["text"].tolil(copy=True)
    changed[query] = 0
    changed[query, [0, 5, 200]] = 1
    other = Dataset({**data.views, "text": changed.tocsr()}, labels=data.labels, splits=data.splits)
    after = pipeline.fit_transform(other)
    rows = np.arange(len(data)) != query
    np.testing.assert_array_equal(before.views["text"][rows], after.views["text"][rows])
    assert np.abs(before.views["text"][query] - after.views["text"][query]).max() > 0.1
    # and the opposite, so that the test can fail: a changed training row changes the others
    changed[int(data.splits["train"][3])] = 1
    other = Dataset({**data.views, "text": changed.tocsr()}, labels=data.labels, splits=data.splits)
    assert (pipeline.fit_transform(other).views["text"][rows] != before.views["text"][rows]).any()
