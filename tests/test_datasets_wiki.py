"""Wiki, from the file that papers pass on and from the original ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import io as sio

from modalhash.datasets import load_wiki
from modalhash.datasets.wiki import CATEGORIES
from modalhash.exceptions import InputError, ModelFormatError

RNG = np.random.default_rng(0)
N_TRAIN, N_TEST = 30, 12
PARTS = {
    "I_tr": RNG.random((N_TRAIN, 8)),
    "I_te": RNG.random((N_TEST, 8)),
    "T_tr": RNG.random((N_TRAIN, 10)),
    "T_te": RNG.random((N_TEST, 10)),
}
CLASS = {"tr": 1 + np.arange(N_TRAIN) % 10, "te": 1 + np.arange(N_TEST) % 10}


def one_hot(ids):
    return (ids[:, None] == np.arange(1, 11)).astype(float)


LABELS = {
    "column": {p: ids[:, None].astype(float) for p, ids in CLASS.items()},
    "row": {p: ids[None, :].astype(float) for p, ids in CLASS.items()},
    "one-hot": {p: one_hot(ids) for p, ids in CLASS.items()},
}


def write_lists(folder):
    for part, name in (("tr", "trainset"), ("te", "testset")):
        rows = [f"text{i}-1\timage{part}{i}\t{c}" for i, c in enumerate(CLASS[part])]
        (folder / f"{name}_txt_img_cat.list").write_text("\r\n".join(rows) + "\r\n")


def check(data):
    assert data.splits["train"].tolist() == list(range(N_TRAIN)) == data.splits["database"].tolist()
    assert data.splits["query"].tolist() == list(range(N_TRAIN, N_TRAIN + N_TEST))
    np.testing.assert_allclose(data.rows("query").views["image"], PARTS["I_te"], rtol=1e-6)
    np.testing.assert_allclose(data.rows("train").views["text"], PARTS["T_tr"], rtol=1e-6)
    assert data.labels.tolist() == one_hot(np.concatenate([CLASS["tr"], CLASS["te"]])).tolist()
    assert data.label_names == list(CATEGORIES)


@pytest.mark.parametrize("form", LABELS)
@pytest.mark.parametrize("name", ["wikiData.mat", "x.mat"])
def test_one_file(tmp_path, form, name):
    sio.savemat(tmp_path / name, {**PARTS, **{f"L_{p}": v for p, v in LABELS[form].items()}})
    check(load_wiki(tmp_path / name))
    check(load_wiki(tmp_path))


def test_the_original_files(tmp_path):
    sio.savemat(tmp_path / "raw_features.mat", PARTS)
    write_lists(tmp_path)
    data = load_wiki(tmp_path)
    check(data)
    assert data.ids[0] == "imagetr0"


def test_other_names_can_be_told(tmp_path):
    odd = {f"one_{p}": PARTS[f"I_{p}"] for p in ("tr", "te")} | {f"two_{p}": PARTS[f"T_{p}"] for p in ("tr", "te")}
    odd |= {f"three_{p}": v for p, v in LABELS["column"].items()}
    sio.savemat(tmp_path / "a.mat", odd)
    with pytest.raises(InputError, match="cannot tell images and labels among the training and test pairs 'one'"):
        load_wiki(tmp_path / "a.mat")
    check(load_wiki(tmp_path / "a.mat", views={"image": "one", "text": "two", "labels": "three"}))


def test_missing_files_are_named(tmp_path):
    with pytest.raises(InputError, match=r"raw_features\.mat \(or the original"):
        load_wiki(tmp_path / "none")
    with pytest.raises(InputError, match=r"a \.mat file"):
        load_wiki(tmp_path)
    sio.savemat(tmp_path / "raw_features.mat", PARTS)
    with pytest.raises(InputError, match=r"trainset_txt_img_cat\.list, testset_txt_img_cat\.list"):
        load_wiki(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text image\n", "line 1: 'text image class'"),
        ("text image 11\n", "line 1: .* class from 1 to 10"),
        ("text image 1\n", f"line 1: 1 pairs; the features have {N_TEST} rows"),
    ],
)
def test_a_broken_list_names_file_and_line(tmp_path, content, message):
    sio.savemat(tmp_path / "raw_features.mat", PARTS)
    write_lists(tmp_path)
    (tmp_path / "testset_txt_img_cat.list").write_text(content)
    with pytest.raises(ModelFormatError, match=rf"testset_txt_img_cat\.list, {message}"):
        load_wiki(tmp_path)


def test_rows_that_do_not_match(tmp_path):
    labels = {f"L_{p}": v for p, v in LABELS["column"].items()}
    sio.savemat(tmp_path / "a.mat", {**PARTS, **labels, "T_te": PARTS["T_te"][:-1]})
    with pytest.raises(InputError, match="different numbers of rows"):
        load_wiki(tmp_path / "a.mat")
    sio.savemat(tmp_path / "b.mat", {**PARTS, **labels, "T_te": PARTS["T_te"][:, :-1]})
    with pytest.raises(InputError, match="same number of columns"):
        load_wiki(tmp_path / "b.mat")
