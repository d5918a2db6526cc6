"""Matrices from files: every format, and every reason to refuse one."""

from __future__ import annotations

import io
import pickle
import zipfile

import h5py
import numpy as np
import pytest
from scipy import io as sio
from scipy import sparse

from modalhash.datasets import Dataset, declared, list_arrays, load_arrays, read_array, read_matrix
from modalhash.datasets.arrays import parse_reference
from modalhash.exceptions import InputError, ModelFormatError

X = np.arange(12, dtype=np.float64).reshape(4, 3)
S = sparse.csr_array(np.array([[0, 1, 0], [2, 0, 0], [0, 0, 0], [0, 0, 3]], dtype=np.float64))


def write_npz(path):
    np.savez(
        path,
        image=X,
        tags_data=S.data,
        tags_indices=S.indices,
        tags_indptr=S.indptr,
        tags_shape=np.array(S.shape),
        labels=np.array([0, 1, 1, 0]),
        names=np.array(["sky", "sea"]),
    )
    return path


def write_v5(path):
    sio.savemat(path, {"image": X, "tags": sparse.csc_matrix(S), "labels": np.array([[0], [1], [1], [0]])})
    return path


def write_v73(path, extra=None):
    """As MATLAB writes it: every matrix transposed, sparse as compressed columns, a class on each."""
    with h5py.File(path, "w", userblock_size=512) as file:
        file["image"] = X.T
        file["image"].attrs["MATLAB_class"] = np.bytes_("double")
        csc = S.tocsc()
        group = file.create_group("tags")
        group.attrs["MATLAB_class"] = np.bytes_("double")
        group.attrs["MATLAB_sparse"] = np.uint64(S.shape[0])
        group["data"] = csc.data
        group["ir"] = csc.indices.astype(np.uint64)
        group["jc"] = csc.indptr.astype(np.uint64)
        file["labels"] = np.array([[0, 1, 1, 0]], dtype=np.uint8)
        file["labels"].attrs["MATLAB_class"] = np.bytes_("logical")
        for name, value in (extra or {}).items():
            file[name] = value
    with path.open("r+b") as stream:
        stream.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")
    return path


WRITERS = {"a.npz": write_npz, "a.mat": write_v5, "b.mat": write_v73}


@pytest.mark.parametrize("name", WRITERS)
def test_the_same_matrices_from_every_format(tmp_path, name):
    path = WRITERS[name](tmp_path / name)
    assert read_matrix(path, "image").tolist() == X.tolist()
    tags = read_matrix(path, "tags")
    assert isinstance(tags, sparse.csr_array)
    assert tags.toarray().tolist() == S.toarray().tolist()
    assert np.ravel(read_array(path, "labels")).tolist() == [0, 1, 1, 0]
    shapes = list_arrays(path)
    assert shapes["image"] == (4, 3)
    assert shapes["tags"] == (4, 3)


def test_npy_is_mapped_read_only(tmp_path):
    np.save(tmp_path / "a.npy", np.asfortranarray(X))
    mapped = read_matrix(tmp_path / "a.npy")
    assert isinstance(mapped, np.memmap)
    assert mapped.tolist() == X.tolist()
    assert not mapped.flags.writeable
    assert list_arrays(tmp_path / "a.npy") == {"": (4, 3)}
    with pytest.raises(InputError, match="leave ':key' out"):
        read_matrix(tmp_path / "a.npy", "key")


def test_empty_npy(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((0, 3)))
    assert read_matrix(tmp_path / "a.npy").shape == (0, 3)


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_scipys_own_npz(tmp_path, form):
    sparse.save_npz(tmp_path / "a.npz", sparse.csr_array(S).asformat(form))
    assert list_arrays(tmp_path / "a.npz") == {"": (4, 3)}
    assert read_matrix(tmp_path / "a.npz").toarray().tolist() == S.toarray().tolist()


def test_scipys_other_forms_say_what_to_do(tmp_path):
    sparse.save_npz(tmp_path / "a.npz", sparse.coo_array(S))
    with pytest.raises(InputError, match="in 'coo' form; save it as CSR"):
        read_matrix(tmp_path / "a.npz", "")


def test_hdf5_of_python_is_not_transposed(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["X"] = X
    assert read_matrix(tmp_path / "a.h5").tolist() == X.tolist()


def test_v73_text_and_empty(tmp_path):
    path = write_v73(tmp_path / "a.mat")
    with h5py.File(path, "r+") as file:
        file["word"] = np.array([[ord(c)] for c in "sky"], dtype=np.uint16)
        file["word"].attrs["MATLAB_class"] = np.bytes_("char")
        file["nothing"] = np.array([0, 0], dtype=np.uint64)
        file["nothing"].attrs["MATLAB_class"] = np.bytes_("double")
        file["nothing"].attrs["MATLAB_empty"] = 1
        zero = file.create_group("zero")
        zero.attrs["MATLAB_sparse"] = np.uint64(2)
        zero["jc"] = np.zeros(4, dtype=np.uint64)
    assert read_array(path, "word").tolist() == ["sky"]
    assert list_arrays(path)["nothing"] == (0, 0)
    assert read_matrix(path, "zero").shape == (2, 3)
    assert read_matrix(path, "zero").nnz == 0


def test_parquet(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(
        {
            "a": [1.0, 2.0],
            "name": ["x", "y"],
            "b": [3, 4],
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(6, dtype=np.float32)), 3),
            "gap": pa.array([1.0, None]),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    assert list_arrays(tmp_path / "a.parquet") == {"": (2, 3), "vector": (2, 3)}
    assert read_matrix(tmp_path / "a.parquet", "vector").tolist() == [[0, 1, 2], [3, 4, 5]]
    assert read_matrix(tmp_path / "a.parquet", "b").tolist() == [[3], [4]]
    with pytest.raises(InputError, match="empty cells in 'gap'"):
        read_matrix(tmp_path / "a.parquet", "")
    with pytest.raises(InputError, match="other columns, which are not read: name"):
        read_matrix(tmp_path / "a.parquet", "name")
    pq.write_table(table.drop(["gap", "vector"]), tmp_path / "b.parquet")
    assert read_matrix(tmp_path / "b.parquet").tolist() == [[1.0, 3.0], [2.0, 4.0]]


# --- refusals --------------------------------------------------------------------------------------------------


def object_npz(tmp_path):
    np.savez(tmp_path / "o.npz", bad=np.array([{"a": 1}], dtype=object), good=X)
    return tmp_path / "o.npz", "bad"


def object_npy(tmp_path):
    np.save(tmp_path / "o.npy", np.array([[1, "a"]], dtype=object))
    return tmp_path / "o.npy", None


def cell_v5(tmp_path):
    cells = np.empty((1, 2), dtype=object)
    cells[0, :] = ["a", "b"]
    sio.savemat(tmp_path / "o.mat", {"bad": cells, "good": X})
    return tmp_path / "o.mat", "bad"


def struct_v5(tmp_path):
    sio.savemat(tmp_path / "s.mat", {"bad": {"field": X}})
    return tmp_path / "s.mat", "bad"


def cell_v73(tmp_path):
    path = write_v73(tmp_path / "o.mat")
    with h5py.File(path, "r+") as file:
        inner = file.create_group("#refs#")
        inner["a"] = X
        cells = file.create_dataset("bad", (1, 1), dtype=h5py.ref_dtype)
        cells[0, 0] = inner["a"].ref
        cells.attrs["MATLAB_class"] = np.bytes_("cell")
    return path, "bad"


def struct_v73(tmp_path):
    path = write_v73(tmp_path / "o.mat")
    with h5py.File(path, "r+") as file:
        file.create_group("bad")["field"] = X
    return path, "bad"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (object_npz, "array of Python objects, which is stored as a pickle. A pickle can run any program"),
        (object_npy, "array of Python objects"),
        (cell_v5, "is a MATLAB cell, which has no plain form as numbers"),
        (struct_v5, "is a MATLAB struct"),
        (cell_v73, "is a MATLAB cell"),
        (struct_v73, "is a MATLAB struct"),
    ],
)
def test_objects_are_refused_with_the_reason(tmp_path, make, reason):
    path, key = make(tmp_path)
    with pytest.raises(InputError, match=reason):
        read_array(path, key)
    if key is not None:
        assert "bad" not in list_arrays(path)


@pytest.mark.parametrize("name", ["a.pkl", "a.pickle", "a.joblib", "a.npy", "a.npz", "a.mat"])
def test_a_pickle_is_never_read(tmp_path, name):
    class Planted:
        def __reduce__(self):
            return (pytest.fail, ("the pickle was executed",))

    (tmp_path / name).write_bytes(pickle.dumps(Planted()))
    with pytest.raises(InputError, match="pickle"):
        read_array(tmp_path / name)


def member(shape, body, dtype="<f8"):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": dtype, "fortran_order": False, "shape": shape})
    return stream.getvalue() + body


def test_a_declared_shape_of_terabytes_is_refused_before_allocating(tmp_path):
    # 700,000 x 700,000 doubles are 3.6 TiB; the file holds 16 bytes
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("X.npy", member((700_000, 700_000), b"\0" * 16))
    with pytest.raises(
        ModelFormatError, match=r"declares shape \(700000, 700000\) of float64 \(3\.6 TiB\) but holds 16"
    ):
        read_matrix(tmp_path / "a.npz")
    (tmp_path / "a.npy").write_bytes(member((700_000, 700_000), b"\0" * 16))
    with pytest.raises(ModelFormatError, match=r"3\.6 TiB"):
        read_matrix(tmp_path / "a.npy")


def test_v73_of_terabytes_is_refused_before_allocating(tmp_path):
    path = write_v73(tmp_path / "a.mat")
    with h5py.File(path, "r+") as file:
        file.create_dataset("huge", (700_000, 700_000), dtype="f4", chunks=(1000, 1000))  # nothing is stored
    with pytest.raises(InputError, match=r"declares 1\.8 TiB, more than this machine's memory"):
        read_matrix(path, "huge")


def test_more_than_the_memory_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(declared.os, "sysconf", lambda name: 10)
    with pytest.raises(InputError, match="more than this machine's memory of 100 bytes"):
        read_matrix(write_npz(tmp_path / "a.npz"), "image")


def test_sparse_parts_must_fit_together(tmp_path):
    def save(**changes):
        parts = {"data": S.data, "indices": S.indices, "indptr": S.indptr, "shape": np.array(S.shape)} | changes
        np.savez(tmp_path / "a.npz", **{f"T_{k}": v for k, v in parts.items()})
        return tmp_path / "a.npz"

    with pytest.raises(ModelFormatError, match="needs 1000000000001 row pointers; it has 5"):
        read_matrix(save(shape=np.array([10**12, 3])), "T")
    with pytest.raises(ModelFormatError, match="not a whole sparse matrix"):
        read_matrix(save(shape=np.array([4, 2])), "T")
    with pytest.raises(ModelFormatError, match="not a whole sparse matrix"):
        read_matrix(save(data=S.data[:1]), "T")
    with pytest.raises(ModelFormatError, match="not a whole sparse matrix"):
        read_matrix(save(indptr=np.array([0, 2, 1, 2, 3])), "T")


@pytest.mark.parametrize("name", ["a.npz", "a.mat", "b.mat", "a.npy"])
def test_truncated_files_are_named(tmp_path, name):
    if name == "a.npy":
        np.save(tmp_path / name, X)
    else:
        WRITERS[name](tmp_path / name)
    raw = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(raw[: len(raw) * 2 // 3])
    with pytest.raises(ModelFormatError, match=name.replace(".", r"\.")):
        read_matrix(tmp_path / name, "" if name == "a.npy" else "tags")


def test_wrong_names_and_kinds(tmp_path):
    path = write_npz(tmp_path / "a.npz")
    with pytest.raises(InputError, match="no array 'nothing'; it has 'image', 'tags', 'labels', 'names'"):
        read_matrix(path, "nothing")
    with pytest.raises(InputError, match=r"4 arrays \('image', 'tags', 'labels', 'names'\); name the one to read"):
        read_array(path)
    with pytest.raises(InputError, match="must be a matrix"):
        read_matrix(path, "names")
    with pytest.raises(InputError, match="no variable 'nothing'; it has 'image'"):
        read_matrix(write_v5(tmp_path / "a.mat"), "nothing")
    with pytest.raises(InputError, match="no variable 'nothing'"):
        read_matrix(write_v73(tmp_path / "b.mat"), "nothing")
    with pytest.raises(InputError, match="does not exist"):
        read_matrix(tmp_path / "no.npz")
    with pytest.raises(InputError, match="is a folder"):
        read_matrix(tmp_path)
    (tmp_path / "a.csv").write_text("1")
    with pytest.raises(InputError, match=r"modalhash reads \.npz"):
        read_matrix(tmp_path / "a.csv")
    (tmp_path / "c.npy").write_bytes(b"hello, this is text")
    with pytest.raises(ModelFormatError, match=r"not a \.npy array: it starts with b'hello,'"):
        read_matrix(tmp_path / "c.npy")


def test_complex_numbers_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((2, 2), dtype=complex))
    with pytest.raises(InputError, match="reads real numbers and strings"):
        read_matrix(tmp_path / "a.npy")


# --- load_arrays -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WRITERS)
def test_one_file_of_arrays(tmp_path, name):
    data = load_arrays(WRITERS[name](tmp_path / name))
    assert sorted(data.views) == ["image", "tags"]
    assert data.labels.tolist() == [[1, 0], [0, 1], [0, 1], [1, 0]]


def test_a_file_per_view(tmp_path):
    np.save(tmp_path / "a.npy", X)
    write_v5(tmp_path / "b.mat")
    data = load_arrays(
        views={"image": str(tmp_path / "a.npy"), "text": f"{tmp_path}/b.mat:tags"}, labels=f"{tmp_path}/b.mat:labels"
    )
    assert sparse.issparse(data.views["text"])
    assert data.labels.shape == (4, 2)
    assert data.provenance["files"] == {"image": "a.npy", "text": "b.mat:tags"}


def test_names_and_ids_are_taken(tmp_path):
    np.savez(
        tmp_path / "a.npz",
        gist=X,
        labels=np.array([[1, 0], [0, 1], [1, 1], [1, 0]]),
        label_names=np.array(["sky", "sea"]),
        ids=np.array([7, 8, 9, 10]),
        vocab=np.array(["a"]),
    )
    data = load_arrays(tmp_path / "a.npz", views={"image": "gist"})
    assert (data.label_names, data.ids.tolist(), list(data.views)) == (["sky", "sea"], [7, 8, 9, 10], ["image"])


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_a_saved_data_set_comes_back_whole(tmp_path, suffix):
    data = Dataset({"image": X, "text": S}, labels=[0, 1, 1, 0], splits={"query": [0]}, ids=[4, 3, 2, 1])
    path = data.save(tmp_path / f"a{suffix}")
    assert load_arrays(path).split_hash == data.split_hash
    renamed = load_arrays(path, views={"picture": "image"})
    assert list(renamed.views) == ["picture"]
    assert renamed.split_hash == data.split_hash
    with pytest.raises(InputError, match="no view 'none'"):
        load_arrays(path, views={"picture": "none"})
    with pytest.raises(InputError, match="its labels are under 'labels'"):
        load_arrays(path, labels="other")


def test_load_arrays_says_what_is_wrong(tmp_path):
    path = write_npz(tmp_path / "a.npz")
    with pytest.raises(InputError, match="got neither"):
        load_arrays()
    with pytest.raises(InputError, match=r"no array 'none' for view 'image'; it has 'image' \(4, 3\)"):
        load_arrays(path, views={"image": "none"})
    np.savez(tmp_path / "b.npz", labels=np.array([1, 0]))
    with pytest.raises(InputError, match="no matrix to use as a view"):
        load_arrays(tmp_path / "b.npz")


def test_references(tmp_path):
    (tmp_path / "a:b.npy").write_bytes(b"")
    assert parse_reference(tmp_path / "a:b.npy") == (tmp_path / "a:b.npy", None)
    assert parse_reference("x.mat:K") == (parse_reference("x.mat")[0], "K")
    assert parse_reference("x.mat:") == (parse_reference("x.mat")[0], None)
