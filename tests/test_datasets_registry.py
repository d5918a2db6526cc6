"""The data sets by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from modalhash import datasets
from modalhash.datasets import DatasetInfo, info, list_datasets, prepare
from modalhash.exceptions import InputError


@pytest.mark.parametrize("about", list_datasets(), ids=lambda about: about.name)
def test_everything_is_described(about):
    assert isinstance(about, DatasetInfo)
    assert about.summary
    assert about.size
    assert about.reference
    assert callable(about.load)
    assert about.load.__doc__
    assert info(about.name) is about
    assert about.files or about.name in ("arrays", "synthetic")
    for file in about.files:
        assert file.path in str(file)
    if about.needs_source:
        with pytest.raises(InputError, match=f"{about.name} needs a folder or file"):
            prepare(about.name)


def test_loaders_tell_where_to_get_their_files():
    for name in ("mirflickr", "nuswide", "wiki", "icons"):
        assert any("http" in file.url for file in info(name).files)
        assert any(file.size for file in info(name).files)


def test_prepare_passes_options(tmp_path):
    data = prepare("synthetic", n=50, n_classes=4, sparse_text=True)
    assert data.labels.shape == (50, 4)
    assert prepare("arrays", data.save(tmp_path / "a.npz")).checksums() == data.checksums()


def test_seed_and_progress_go_where_they_belong(tmp_path):
    assert prepare("synthetic", n=50, seed=3).checksums() == prepare("synthetic", n=50, random_state=3).checksums()
    path = prepare("synthetic", n=50).save(tmp_path / "a.npz")
    assert len(prepare("arrays", path, seed=0, progress=print)) == 50
    with pytest.raises(InputError, match="arrays does not draw a split; leave the seed out"):
        prepare("arrays", path, seed=1)


def test_prepare_refuses_what_it_does_not_know(tmp_path):
    with pytest.raises(InputError, match="no data set 'imagenet'; known: mirflickr, nuswide"):
        prepare("imagenet")
    with pytest.raises(InputError, match="synthetic has no option rows; it has n, n_classes"):
        prepare("synthetic", rows=3)
    with pytest.raises(InputError, match="is made, not read"):
        prepare("synthetic", tmp_path)


def test_every_public_name_is_there():
    for name in datasets.__all__:
        assert getattr(datasets, name) is not None
        assert name in dir(datasets)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        datasets.nothing


def test_import_loads_nothing_heavy():
    code = (
        "import sys, modalhash.datasets as d; d.list_datasets(); d.make_synthetic(n=20);"
        "heavy = ('pandas', 'h5py', 'sklearn', 'pyarrow', 'PIL', 'cv2', 'torch', 'yaml');"
        "print([m for m in heavy if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
