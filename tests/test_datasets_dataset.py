"""Dataset: checks, splits by protocol, saving and loading."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from modalhash.datasets import PROTOCOLS, Dataset, checksum, make_synthetic, storage
from modalhash.exceptions import InputError, ModelFormatError


def full_dataset(rng):
    return Dataset(
        {
            "image": rng.random((40, 5), dtype=np.float32),
            "text": sparse.random(40, 9, density=0.2, format="csr", rng=rng),
            "half": rng.random((40, 2)).astype(np.float16),
            "count": rng.integers(0, 9, (40, 3)),
        },
        labels=[["a", "b"] if i % 3 else ["c"] for i in range(40)],
        ids=np.array([f"im{i}" for i in range(40)]),
        provenance={"source": "test", "n": np.int64(40), "list": (1, 2)},
        feature_names={"text": [f"w{j}" for j in range(9)]},
        columns={"title": [f"Bild {i} 北京\x00" for i in range(40)]},
        name="full",
    ).split("mirflickr", seed=3)


def assert_same(a, b):
    assert list(a.views) == list(b.views)
    assert a.checksums() == b.checksums()
    assert a.label_names == b.label_names
    assert a.ids.tolist() == b.ids.tolist()
    assert a.split_hash == b.split_hash
    assert a.columns == b.columns
    assert a.feature_names == b.feature_names
    assert a.name == b.name


# --- the object ------------------------------------------------------------------------------------------------


def test_labels_of_any_form_become_a_matrix():
    data = Dataset({"image": np.eye(3)}, labels=[["sky"], ["sea", "sky"], []])
    assert data.label_names == ["sea", "sky"]
    assert data.labels.tolist() == [[0, 1], [1, 1], [0, 0]]


def test_repr_names_the_parts(rng):
    assert repr(full_dataset(rng)) == (
        "<Dataset 'full': 40 items; image (40, 5), text (40, 9) sparse, half (40, 2), count (40, 3); 3 labels, "
        "query 2, train 38, database 38>"
    )


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"views": {}}, "neither"),
        ({"views": {"image": np.eye(3), "text": np.eye(2)}}, "view 'text' has 2 rows; the others have 3"),
        ({"views": {"image": np.ones(3)}}, r"must be a matrix \(n, d\)"),
        ({"views": {"image": np.array([["a"]])}}, "of numbers"),
        ({"views": {"labels": np.eye(3)}}, "name"),
        ({"views": {"a/b": np.eye(3)}}, "without '/'"),
        ({"views": {"image": np.eye(3)}, "labels": [0, 1]}, "labels have 2 rows"),
        ({"views": {"image": np.eye(3)}, "label_names": ["a"]}, "without labels"),
        ({"views": {"image": np.eye(3)}, "ids": [1, 2]}, "ids must be 3"),
        ({"views": {"image": np.eye(3)}, "ids": [1.0, 2.0, 3.0]}, "whole numbers or strings"),
        ({"views": {"image": np.eye(3)}, "splits": {"query": [3]}}, "between 0 and 2"),
        ({"views": {"image": np.eye(3)}, "splits": {"query": [0, 0]}}, "different row numbers"),
        ({"views": {"image": np.eye(3)}, "splits": {"query": [[0]]}}, "list of row numbers"),
        ({"views": {"image": np.eye(3)}, "feature_names": {"image": ["a"]}}, "name each column"),
        ({"views": {"image": np.eye(3)}, "columns": {"title": ["a"]}}, "has 1 entries"),
    ],
)
def test_what_does_not_fit_is_refused(parts, message):
    with pytest.raises(InputError, match=message):
        Dataset(**parts)


def test_a_memory_map_stays_one(tmp_path):
    np.save(tmp_path / "a.npy", np.eye(4))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    assert isinstance(Dataset({"image": mapped}).views["image"], np.memmap)


def test_take_keeps_rows_together(rng):
    data = full_dataset(rng)
    part = data.take([5, 2])
    assert part.ids.tolist() == ["im5", "im2"]
    assert part.views["text"].toarray().tolist() == data.views["text"].toarray()[[5, 2]].tolist()
    assert part.labels.tolist() == data.labels[[5, 2]].tolist()
    assert part.columns["title"] == ["Bild 5 北京\x00", "Bild 2 北京\x00"]
    assert part.splits == {}
    assert data.take(np.arange(40) < 2).ids.tolist() == ["im0", "im1"]
    with pytest.raises(InputError, match="mask"):
        data.take(np.array([True]))


def test_drop_keeps_the_other_rows_of_each_split(rng):
    data = full_dataset(rng)
    gone = [int(data.splits["query"][0]), int(data.splits["train"][3])]
    left = data.drop(gone)
    assert len(left) == 38
    for name in data.splits:
        before = [data.ids[i] for i in data.splits[name] if i not in gone]
        assert left.rows(name).ids.tolist() == before
    with pytest.raises(InputError, match="no row is left"):
        data.drop(range(40))


# --- splits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "protocol", "options", "sizes"),
    [
        (20_015, "mirflickr", {}, (1001, 19_014, 19_014)),
        (20_015, "paper-5%", {}, (1001, 19_014, 19_014)),
        (186_577, "nuswide", {}, (1866, 184_711, 184_711)),
        (186_577, "paper-1%", {}, (1866, 184_711, 184_711)),
        (20_015, "deep", {}, (2000, 5000, 18_015)),
        (20_015, "deep", {"n_train": 10_000}, (2000, 10_000, 18_015)),
        (195_834, "deep", {"n_query": 2100, "n_train": 10_500}, (2100, 10_500, 193_734)),
        (1000, "held-out", {}, (50, 475, 475)),
        (1000, "held-out", {"n_query": 100, "n_train": 200}, (100, 200, 700)),
        # 1 % of 700 is exactly 7; in floating point 0.01 * 700 is 7.000000000000001, which would round up to 8
        (700, "nuswide", {}, (7, 693, 693)),
    ],
)
def test_sizes_of_the_protocols(n, protocol, options, sizes):
    data = Dataset({"image": np.zeros((n, 1), np.uint8)}).split(protocol, seed=1, **options)
    assert tuple(len(data.splits[name]) for name in ("query", "train", "database")) == sizes


@given(n=st.integers(40, 400), seed=st.integers(0, 2**31), protocol=st.sampled_from(["mirflickr", "deep", "held-out"]))
def test_splits_cover_and_do_not_leak(n, seed, protocol):
    options = {"n_query": 7, "n_train": 11} if protocol == "deep" else {}
    splits = Dataset({"image": np.zeros((n, 1))}).split(protocol, seed=seed, **options).splits
    query, train, database = (set(splits[name].tolist()) for name in ("query", "train", "database"))
    assert not query & train
    assert not query & database
    assert query | train | database == set(range(n))
    if protocol == "mirflickr":
        assert train == database
    elif protocol == "deep":
        assert train < database
    else:
        assert not train & database


def test_same_seed_same_split_and_the_hash_is_stable():
    data = Dataset({"image": np.zeros((100, 1))})
    assert data.split(seed=5).split_hash == data.split(seed=5).split_hash
    assert data.split(seed=5).split_hash != data.split(seed=6).split_hash
    # fixed for ever: a saved result may be compared with it years from now
    assert data.split("mirflickr", seed=0).split_hash == "34de56673c52df63"
    assert data.split("mirflickr", seed=0).splits["query"].tolist() == [5, 20, 36, 82, 93]


def test_the_hash_sees_names_rows_and_size():
    def of(n, **splits):
        return Dataset({"image": np.zeros((n, 1))}, splits=splits).split_hash

    hashes = {of(3, query=[0]), of(3, train=[0]), of(3, query=[1]), of(4, query=[0]), of(3, query=[0], train=[1])}
    assert len(hashes) == 5
    assert of(3, query=[2, 0]) == of(3, query=[0, 2])


@pytest.mark.parametrize(
    ("protocol", "options", "message"),
    [
        ("best", {}, "must be one of mirflickr"),
        ("deep", {}, "2000 queries and 5000 training rows; the data set has 50"),
        ("mirflickr", {"n_train": 5}, "leave n_train out"),
        ("mirflickr", {"n_query": 0}, "n_query must be a whole number of at least 1"),
        ("mirflickr", {"n_query": 50}, "smaller"),
        ("held-out", {"n_query": 10, "n_train": 40}, "smaller"),
    ],
)
def test_impossible_splits_are_refused(protocol, options, message):
    with pytest.raises(InputError, match=message):
        Dataset({"image": np.eye(50)}).split(protocol, **options)


def test_an_unknown_split_names_those_there_are():
    data = Dataset({"image": np.eye(50)})
    with pytest.raises(InputError, match=r"call split\(\.\.\.\) first"):
        data.rows("train")
    with pytest.raises(InputError, match="it has query, train, database"):
        data.split().rows("test")


def test_every_protocol_is_described_and_works():
    data = Dataset({"image": np.zeros((8000, 1))})
    for protocol, text in PROTOCOLS.items():
        assert text
        assert data.split(protocol).provenance["split"]["protocol"] == protocol


# --- on disk ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_round_trip(tmp_path, rng, suffix):
    data = full_dataset(rng)
    path = data.save(tmp_path / f"data{suffix}")
    back = Dataset.load(path)
    assert_same(data, back)
    assert {name: X.dtype for name, X in back.views.items()} == {name: X.dtype for name, X in data.views.items()}
    assert back.provenance["n"] == 40
    assert back.provenance["list"] == [1, 2]
    assert back.provenance["split"]["seed"] == 3


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_round_trip_of_odd_ones(tmp_path, suffix):
    bare = Dataset({"file": np.zeros((3, 2), dtype=bool)})  # a name that numpy.savez could not take
    assert_same(bare, Dataset.load(bare.save(tmp_path / f"bare{suffix}")))
    many = Dataset({"image": np.eye(300)}, labels=list(range(300)))
    assert sparse.issparse(many.labels)
    assert_same(many, Dataset.load(many.save(tmp_path / f"many{suffix}")))


def test_compressed_is_smaller_and_equal(tmp_path):
    data = Dataset({"image": np.zeros((100, 100))})
    plain, packed = data.save(tmp_path / "a.npz"), data.save(tmp_path / "b.npz", compress=True)
    assert packed.stat().st_size < plain.stat().st_size / 5
    assert_same(Dataset.load(plain), Dataset.load(packed))


def test_the_same_data_gives_the_same_bytes(tmp_path, rng):
    data = full_dataset(rng)
    assert data.save(tmp_path / "a.npz").read_bytes() == data.save(tmp_path / "b.npz").read_bytes()


def test_plain_numpy_reads_it(tmp_path, rng):
    data = full_dataset(rng)
    with np.load(data.save(tmp_path / "a.npz"), allow_pickle=False) as archive:
        assert archive["image"].tolist() == data.views["image"].tolist()
        assert archive["text_shape"].tolist() == [40, 9]
        assert archive["label_names"].tolist() == ["a", "b", "c"]


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path, rng, monkeypatch):
    data = full_dataset(rng)
    path = data.save(tmp_path / "a.npz")
    old = path.read_bytes()

    def half(target, arrays, compress):
        target.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(storage, "_write_npz", half)
    with pytest.raises(KeyboardInterrupt):
        data.save(path)
    assert path.read_bytes() == old
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]


def test_saving_says_what_is_wrong(tmp_path):
    data = Dataset({"image": np.eye(3)})
    with pytest.raises(InputError, match=r"saved as \.npz or \.parquet"):
        data.save(tmp_path / "a.pkl")
    with pytest.raises(InputError, match="Make it first"):
        data.save(tmp_path / "no" / "a.npz")
    with pytest.raises(InputError, match="two arrays would be called 'ids'"):
        Dataset({"ids": np.eye(3)}).save(tmp_path / "a.npz")


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_damage_is_found(tmp_path, rng, suffix):
    path = full_dataset(rng).save(tmp_path / f"a{suffix}")
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(ModelFormatError, match="not a whole"):
        Dataset.load(path)


def rewrite(path, change):
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def edit_meta(path, **changes):
    def change(members):
        with zipfile.ZipFile(path) as archive, archive.open("modalhash_dataset.npy") as stream:
            meta = json.loads(np.lib.format.read_array(stream).tobytes())
        meta.update(changes)
        np.save(path.parent / "meta.npy", np.frombuffer(json.dumps(meta).encode(), np.uint8))
        members["modalhash_dataset.npy"] = (path.parent / "meta.npy").read_bytes()

    rewrite(path, change)


def test_a_changed_number_is_found_by_its_checksum(tmp_path, rng):
    path = full_dataset(rng).save(tmp_path / "a.npz")

    def change(members):
        content = bytearray(members["image.npy"])
        content[-1] ^= 1
        members["image.npy"] = bytes(content)

    rewrite(path, change)
    with pytest.raises(ModelFormatError, match="'image' differs from its recorded checksum"):
        Dataset.load(path)


def test_versions_and_missing_parts_are_named(tmp_path, rng):
    path = full_dataset(rng).save(tmp_path / "a.npz")
    edit_meta(path, version=2)
    with pytest.raises(ModelFormatError, match="version 2 of the data format; this modalhash reads version 1"):
        Dataset.load(path)
    path = full_dataset(rng).save(tmp_path / "b.npz")
    rewrite(path, lambda members: members.pop("ids.npy"))
    with pytest.raises(ModelFormatError, match="no array 'ids'"):
        Dataset.load(path)
    np.savez(tmp_path / "c.npz", image=np.eye(2))
    with pytest.raises(ModelFormatError, match="load_arrays"):
        Dataset.load(tmp_path / "c.npz")
    with pytest.raises(InputError, match=r"\.npz or \.parquet file"):
        Dataset.load(tmp_path / "c.mat")
    with pytest.raises(InputError, match="does not exist"):
        Dataset.load(tmp_path / "none.parquet")


# --- checksums and the synthetic set ---------------------------------------------------------------------------


def test_checksum_sees_type_shape_and_values(rng):
    X = rng.random((6, 4))
    others = [X.astype(np.float32), X.reshape(4, 6), X + 1e-9, sparse.csr_array(X)]
    assert len({checksum(X), *(checksum(Y) for Y in others)}) == 5
    assert checksum(X) == checksum(np.asfortranarray(X)) == checksum(X[::-1][::-1])


def test_checksum_of_sparse_ignores_how_it_is_stored():
    A = sparse.csr_array((np.ones(2), np.array([2, 0]), np.array([0, 2])), shape=(1, 3))
    B = sparse.csr_array((np.ones(2), np.array([0, 2]), np.array([0, 2], dtype=np.int64)), shape=(1, 3))
    assert checksum(A) == checksum(B)


@pytest.mark.parametrize("sparse_text", [False, True])
def test_synthetic_is_what_it_says(sparse_text):
    data = make_synthetic(n=300, n_classes=7, sparse_text=sparse_text, random_state=4)
    assert data.labels.sum(axis=1).min() == 1
    assert data.labels.sum(axis=1).max() == 3
    assert data.checksums() == make_synthetic(n=300, n_classes=7, sparse_text=sparse_text, random_state=4).checksums()
    assert data.checksums() != make_synthetic(n=300, n_classes=7, sparse_text=sparse_text, random_state=5).checksums()
    assert data.views["image"].max() > 100 * data.views["text"].max() * 0.5  # the scales differ
    assert sparse.issparse(data.views["text"]) == sparse_text
    assert len(data.splits["query"]) == 15


def test_synthetic_without_noise_is_a_function_of_the_labels():
    data = make_synthetic(n=300, n_classes=4, noise=0, random_state=0)
    for X in data.views.values():
        seen = {}
        for row, label in zip(X, data.labels, strict=True):
            seen.setdefault(tuple(label), row)
            np.testing.assert_allclose(row, seen[tuple(label)], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("view", ["image", "text"])
def test_synthetic_neighbours_share_a_label(view):
    data = make_synthetic(n=600, random_state=1)
    X = data.views[view].astype(np.float64)
    norms = (X**2).sum(axis=1)
    distance = norms[:, None] + norms[None, :] - 2 * X @ X.T
    np.fill_diagonal(distance, np.inf)
    nearest = distance.argmin(axis=1)
    shared = (data.labels & data.labels[nearest]).any(axis=1).mean()
    chance = ((data.labels.astype(int) @ data.labels.T) > 0).mean()
    assert shared > 0.95 > 0.5 > chance


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 1}, "n must be"),
        ({"n_classes": 0}, "n_classes"),
        ({"max_labels": 11}, "max_labels"),
        ({"noise": -1}, "noise"),
        ({"n_text": 2.5}, "n_text"),
    ],
)
def test_synthetic_refuses_nonsense(options, message):
    with pytest.raises(InputError, match=message):
        make_synthetic(**options)


def test_replace_checks_again(rng):
    with pytest.raises(InputError, match="rows"):
        replace(full_dataset(rng), views={"image": np.eye(3)})


def test_a_new_split_of_fitted_features_warns():
    data = make_synthetic(n=100)
    fitted = replace(data, provenance={"fitted": {"text": {}}})
    with pytest.warns(UserWarning, match="'text' was fitted on the training rows of another split"):
        fitted.split(seed=9)
    fitted.rows("train").split(seed=9)  # a validation split inside the training rows does not
