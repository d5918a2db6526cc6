"""Views that stay on disk: what is read, that nothing is read whole, and that the result is that of memory."""

from __future__ import annotations

import mmap
import sys
import tracemalloc

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import modalhash as mh
from modalhash.datasets import make_synthetic
from modalhash.datasets.rowsource import ArrayRows, MappedRows, ParquetRows, RowSource, as_rows, open_rows
from modalhash.exceptions import InputError, MissingExtraError, ModelFormatError
from modalhash.views import ViewTransform, check_view

pytestmark = pytest.mark.filterwarnings("ignore::modalhash.exceptions.ConstantBitsWarning")


def _parquet(path, X, group, lists=True):
    if lists:
        column = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), X.shape[1])
        table = pa.table({"vector": column, "name": pa.array([str(i) for i in range(len(X))])})
    else:
        table = pa.table({f"c{j}": X[:, j] for j in range(X.shape[1])})
    pq.write_table(table, path, row_group_size=group)
    return path


@pytest.fixture
def matrix(rng):
    return rng.normal(size=(103, 7)).astype(np.float32)


@pytest.fixture(params=["npy", "parquet lists", "parquet columns", "hdf5", "slice of a map"])
def source(request, tmp_path, matrix):
    if request.param == "npy":
        np.save(tmp_path / "a.npy", matrix)
        yield open_rows(tmp_path / "a.npy")
    elif request.param == "parquet lists":
        yield open_rows(_parquet(tmp_path / "a.parquet", matrix, 10), "vector")
    elif request.param == "parquet columns":
        yield open_rows(_parquet(tmp_path / "a.parquet", matrix, 10, lists=False))
    elif request.param == "hdf5":
        with h5py.File(tmp_path / "a.h5", "w") as file:
            yield as_rows(file.create_dataset("x", data=matrix, chunks=(16, 7)))
    else:
        wide = np.zeros((120, 9), dtype=np.float32)
        wide[5:108, 1:8] = matrix
        np.save(tmp_path / "a.npy", wide)
        yield as_rows(np.load(tmp_path / "a.npy", mmap_mode="r")[5:108, 1:8])


def test_slices_of_rows_are_those_of_the_matrix(source, matrix):
    assert isinstance(source, RowSource)
    assert source.shape == matrix.shape
    assert len(source) == 103
    for rows in (slice(0, 3), slice(7, 34), slice(100, None), slice(None), slice(50, 50), slice(-5, -1)):
        got = source[rows]
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, matrix[rows])
    np.testing.assert_array_equal(source.astype("float64")[3:9], matrix[3:9].astype(np.float64))
    assert source.astype("float32") is source
    assert source.identity()["shape"] == [103, 7]
    with pytest.raises(InputError, match="consecutive rows"):
        source[::2]


def test_types_become_floating(tmp_path):
    for dtype, expected in (("u1", "f4"), ("i4", "f8"), ("f2", "f4"), ("f8", "f8"), ("?", "f4")):
        np.save(tmp_path / "a.npy", np.ones((4, 2), dtype=dtype))
        assert open_rows(tmp_path / "a.npy")[:2].dtype == np.dtype(expected)


def test_pages_that_were_read_are_given_back(tmp_path):
    """Read 64 MB through a map: without dropping pages all of it would be resident afterwards."""

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * mmap.PAGESIZE

    np.save(tmp_path / "a.npy", np.ones((65_536, 256), dtype=np.float32))
    rows = open_rows(tmp_path / "a.npy")
    rows[:100]
    before = resident()
    for start in range(0, len(rows), 4096):
        rows[start : start + 4096]
    assert resident() - before < 16e6


def test_a_private_copy_on_write_is_not_dropped(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((3000, 4), dtype=np.float32))
    changed = np.load(tmp_path / "a.npy", mmap_mode="c")
    changed[1500] = 7
    rows = MappedRows(changed)
    rows[:]
    assert rows[1500:1501].tolist() == [[7.0] * 4]


def test_what_is_no_source(tmp_path):
    assert as_rows(np.ones((3, 2))) is None
    assert as_rows([[1.0]]) is None
    with pytest.raises(InputError, match=r"no\.npy does not exist"):
        open_rows(tmp_path / "no.npy")
    (tmp_path / "a.csv").write_text("1,2")
    with pytest.raises(InputError, match="is none of these"):
        open_rows(tmp_path / "a.csv")
    np.save(tmp_path / "a.npy", np.ones(4))
    with pytest.raises(InputError, match=r"must be a matrix \(n, d\); got shape \(4,\)"):
        open_rows(tmp_path / "a.npy")
    np.save(tmp_path / "b.npy", np.array([["a", "b"]]))
    with pytest.raises(InputError, match="must hold real numbers"):
        open_rows(tmp_path / "b.npy")
    with pytest.raises(InputError, match="has no column of numbers 'nothing'"):
        ParquetRows(_parquet(tmp_path / "a.parquet", np.ones((4, 2)), 2), "nothing")
    with h5py.File(tmp_path / "a.h5", "w") as file, pytest.raises(InputError, match="must be a matrix"):
        ArrayRows(file.create_dataset("x", data=np.ones(4)))


def test_empty_cells_of_parquet_are_refused(tmp_path):
    pq.write_table(pa.table({"a": pa.array([1.0, None])}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="empty cells"):
        open_rows(tmp_path / "a.parquet")[:]


def test_zarr(tmp_path, matrix, monkeypatch):
    (tmp_path / "a.zarr").mkdir()
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(MissingExtraError, match=r"modalhash\[dask\]"):
        open_rows(tmp_path / "a.zarr")
    monkeypatch.undo()
    zarr = pytest.importorskip("zarr")
    with pytest.raises((ModelFormatError, InputError)):
        open_rows(tmp_path / "a.zarr")
    made = zarr.open_array(str(tmp_path / "b.zarr"), mode="w", shape=matrix.shape, chunks=(10, 7), dtype="f4")
    made[:] = matrix
    rows = open_rows(tmp_path / "b.zarr")
    assert rows.group == 10
    np.testing.assert_array_equal(rows[5:37], matrix[5:37])
    np.testing.assert_array_equal(as_rows(made)[5:37], matrix[5:37])


def test_the_gate_finds_moments_and_missing_rows_in_one_pass(tmp_path, matrix):
    gaps = matrix.copy()
    gaps[[4, 60]] = np.nan
    np.save(tmp_path / "a.npy", gaps)
    view = check_view(open_rows(tmp_path / "a.npy"), "image", stream=True)
    assert isinstance(view.X, RowSource)
    assert np.flatnonzero(~np.isin(np.arange(103), view.rows)).tolist() == [4, 60]
    there = np.delete(matrix, [4, 60], axis=0)
    found = ViewTransform.fit(view.X, center=True, scale="auto")
    expected = ViewTransform.fit(there, center=True, scale="auto")
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12)
    assert found.scale == pytest.approx(expected.scale, rel=1e-12)
    gaps[70, 3] = np.inf
    np.save(tmp_path / "b.npy", gaps)
    with pytest.raises(InputError, match="infinity at row 70, column 3"):
        check_view(open_rows(tmp_path / "b.npy"), "image", stream=True)
    everything = check_view(open_rows(tmp_path / "a.npy"), "image")  # a method that does not stream reads it whole
    assert isinstance(everything.X, np.ndarray)


@pytest.fixture(scope="module")
def fitted():
    data = make_synthetic(n=500, n_image=20, n_text=10, random_state=0)
    return data, mh.DMH(16, n_iter=20, random_state=0).fit(data.views, labels=data.labels)


def test_encoding_streams(fitted, tmp_path, monkeypatch):
    data, hasher = fitted
    X = data.views["image"].astype(np.float32)
    np.save(tmp_path / "a.npy", X)
    _parquet(tmp_path / "a.parquet", X, 37)
    monkeypatch.setattr("modalhash.views._BLOCK_BYTES", 100 * 20 * 8)  # blocks of 100 rows
    expected = hasher.encode("image", X)
    for X_disk in (np.load(tmp_path / "a.npy", mmap_mode="r"), open_rows(tmp_path / "a.parquet", "vector")):
        np.testing.assert_array_equal(hasher.encode("image", X_disk), expected)
    blocks = hasher.encode_blocks("image", open_rows(tmp_path / "a.npy"), start=230)
    assert next(blocks) == 500
    assert [rows.start for rows, _ in blocks] == [230, 330, 430]
    bad = X.copy()
    bad[412, 3] = np.nan
    np.save(tmp_path / "bad.npy", bad)
    with pytest.raises(InputError, match="NaN at row 412, column 3"):
        hasher.encode("image", open_rows(tmp_path / "bad.npy"))
    bad[412] = np.nan
    np.save(tmp_path / "bad.npy", bad)
    with pytest.raises(InputError, match="encoding needs every view of every row"):
        hasher.encode("image", open_rows(tmp_path / "bad.npy"))
    with pytest.raises(InputError, match="has 19 columns; the model was fitted with 20"):
        hasher.encode("image", np.load(tmp_path / "a.npy", mmap_mode="r")[:, :19])


def test_other_methods_take_a_source_too(tmp_path):
    data = make_synthetic(n=200, random_state=0)
    for name, X in data.views.items():
        np.save(tmp_path / f"{name}.npy", X)
    disk = {name: open_rows(tmp_path / f"{name}.npy") for name in data.views}
    for make in (lambda: mh.MDBE(8, random_state=0), lambda: mh.SCM(8)):
        a, b = (make().fit(views, labels=data.labels) for views in (data.views, disk))
        np.testing.assert_array_equal(a.encode("text", data.views["text"]), b.encode("text", disk["text"]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
def test_a_mapped_view_is_never_copied_whole(tmp_path, rng, dtype, monkeypatch):
    """30 MB of float32 on disk (60 and 7.5 in the other types); buffers are 2 MB here, blocks of the moments 1 MB."""
    monkeypatch.setattr("modalhash.views._BLOCK_BYTES", 2**20)
    monkeypatch.setattr("modalhash.solvers.shuffle.BUFFER_BYTES", 2 * 2**20)
    monkeypatch.setattr("modalhash.solvers.shuffle._BLOCK_BYTES", 2**17)
    n, d = 15_000, 500
    np.save(tmp_path / "a.npy", (rng.random((n, d), dtype=np.float32) * 200).astype(dtype))
    labels = rng.integers(0, 5, n)
    X = np.load(tmp_path / "a.npy", mmap_mode="r")
    hasher = mh.DMH(16, solver="minibatch", batch_size=256, n_epochs=1, random_state=0)
    hasher.fit({"image": X[:2000]}, labels=labels[:2000])
    tracemalloc.start()
    codes = hasher.fit({"image": X}, labels=labels).encode("image", X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert codes.shape == (n, 2)
    assert peak < 12e6, f"{peak / 1e6:.1f} MB"
