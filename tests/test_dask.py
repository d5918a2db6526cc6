"""Partitions, files of codes and encoding on Dask: a killed worker, a NaN row, a second run, bad input."""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from itertools import pairwise

import numpy as np
import pytest

import modalhash as mh
from modalhash.datasets import make_synthetic
from modalhash.engines.codefiles import (
    MANIFEST,
    checked_part,
    read_codes,
    read_manifest,
    write_manifest,
    write_part,
)
from modalhash.engines.partitions import plan
from modalhash.exceptions import InputError, MissingExtraError, ModalHashError, ModelFormatError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytestmark = [
    pytest.mark.filterwarnings("ignore::modalhash.exceptions.ConstantBitsWarning"),
    pytest.mark.filterwarnings("ignore:Sending large graph:UserWarning"),
]


@pytest.fixture(scope="module")
def data():
    return make_synthetic(n=3000, sparse_text=True, random_state=0)


@pytest.fixture(scope="module")
def hasher(data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return mh.DMH(20, n_iter=20, random_state=0).fit(data.views, labels=data.labels)


def folder_of_pairs(folder, data, files=6):
    folder.mkdir()
    bounds = np.linspace(0, len(data), files + 1).astype(int)
    for i, (start, stop) in enumerate(pairwise(bounds)):
        data.take(np.arange(start, stop)).save(folder / f"pairs-{i}.parquet")
    return folder


def everything(folder):
    ids, codes = zip(*read_codes(folder), strict=True)
    return np.concatenate(ids), np.concatenate(codes)


# Files of codes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [np.arange(10, 15), np.array(["a", "é", "", "b\nc", "d"])])
def test_codes_come_back_as_they_were(tmp_path, rng, ids):
    codes = mh.codes.pack(rng.integers(0, 2, (5, 12)))
    part = write_part(tmp_path / "part-00000.parquet", [(ids[:2], codes[:2]), (ids[2:], codes[2:])], 12, {"a": 1})
    write_manifest(tmp_path, [part], 12, {"view": "image"})
    found, back = everything(tmp_path)
    np.testing.assert_array_equal(found, ids)
    np.testing.assert_array_equal(back, codes)
    assert checked_part(tmp_path / "part-00000.parquet", 12, {"a": 1}) == part
    assert checked_part(tmp_path / "part-00000.parquet", 12, {"a": 2}) is None
    assert checked_part(tmp_path / "part-00001.parquet", 12, {"a": 1}) is None


def test_a_part_that_was_damaged_is_noticed(tmp_path, rng):
    codes = mh.codes.pack(rng.integers(0, 2, (5000, 64)))
    file = tmp_path / "part-00000.parquet"
    part = write_part(file, [(np.arange(5000), codes)], 64, {})
    write_manifest(tmp_path, [part], 64, {})
    raw = bytearray(file.read_bytes())
    at = raw.find(codes[2500:2502].tobytes())
    assert at > 0, "codes are not stored as they are"
    raw[at] ^= 1
    file.write_bytes(bytes(raw))
    with pytest.raises(ModelFormatError, match="not a whole file of codes"):
        everything(tmp_path)
    assert checked_part(file, 64, {}) is None
    file.write_bytes(bytes(raw[:1000]))
    assert checked_part(file, 64, {}) is None


def test_a_folder_without_manifest_is_not_read(tmp_path, rng):
    write_part(tmp_path / "part-00000.parquet", [(np.arange(1), np.zeros((1, 1), np.uint8))], 8, {})
    with pytest.raises(ModelFormatError, match="Run the same encode again to finish"):
        next(read_codes(tmp_path))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, "version 99"),
        ({"n_bits": 0}, "damaged"),
        ({"parts": [{"file": "../x.parquet", "rows": 1, "sha256": ""}]}, "outside the folder"),
        ({"parts": None}, "damaged"),
    ],
)
def test_a_wrong_manifest_is_named(tmp_path, change, message):
    part = write_part(tmp_path / "part-00000.parquet", [(np.arange(1), np.zeros((1, 1), np.uint8))], 8, {})
    write_manifest(tmp_path, [part], 8, {})
    content = json.loads((tmp_path / MANIFEST).read_text())
    (tmp_path / MANIFEST).write_text(json.dumps({**content, **change}))
    with pytest.raises(ModelFormatError, match=message):
        read_manifest(tmp_path)


def test_a_part_of_another_run_is_not_taken_for_this_one(tmp_path):
    first = write_part(tmp_path / "part-00000.parquet", [(np.arange(1), np.zeros((1, 1), np.uint8))], 8, {})
    write_manifest(tmp_path, [first], 8, {})
    write_part(tmp_path / "part-00000.parquet", [(np.arange(1), np.ones((1, 1), np.uint8))], 8, {})
    with pytest.raises(ModelFormatError, match="not the part that"):
        everything(tmp_path)


def test_a_part_without_rows_leaves_nothing(tmp_path):
    with pytest.raises(InputError, match="no rows"):
        write_part(tmp_path / "part-00000.parquet", [], 8, {})
    assert list(tmp_path.iterdir()) == []


# Partitions --------------------------------------------------------------------------------------------------------


def matrix_of(parts):
    ids, blocks = zip(*(batch for part in parts for batch in part.batches()), strict=True)
    dense = [block.toarray() if hasattr(block, "toarray") else block for block in blocks]
    return np.concatenate(ids), np.concatenate(dense)


@pytest.mark.parametrize("view", ["image", "text"])
def test_parquet_by_row_groups(tmp_path, data, view):
    folder = folder_of_pairs(tmp_path / "pairs", data, files=2)
    table = pq.read_table(folder / "pairs-1.parquet")
    pq.write_table(table, folder / "pairs-1.parquet", row_group_size=400)
    width = data.views[view].shape[1]
    parts = plan(folder, view, width, rows=1000)
    assert [part.rows for part in parts] == [1500, 800, 700]  # one row group; then two and two of 400 and less
    ids, X = matrix_of(parts)
    np.testing.assert_array_equal(ids, np.arange(3000))
    expected = data.views[view]
    np.testing.assert_array_equal(X, expected.toarray() if view == "text" else expected)
    by_column, _ = matrix_of(plan(folder, view, width, ids="ids", rows=1000))
    np.testing.assert_array_equal(by_column, data.ids)


def test_parquet_of_plain_columns_and_of_lists(tmp_path, rng):
    X = rng.normal(size=(30, 3))
    columns = {f"x{j}": X[:, j] for j in range(3)}
    pq.write_table(pa.table({**columns, "name": [f"n{i}" for i in range(30)]}), tmp_path / "plain.parquet")
    ids, found = matrix_of(plan(tmp_path / "plain.parquet", "image", 3, ids="name"))
    np.testing.assert_array_equal(found, X)
    assert ids[7] == "n7"
    pq.write_table(pa.table({"image": pa.array(list(X))}), tmp_path / "lists.parquet")
    _, found = matrix_of(plan(tmp_path / "lists.parquet", "image", 3))
    np.testing.assert_array_equal(found, X)


def test_npy_and_zarr(tmp_path, rng):
    zarr = pytest.importorskip("zarr")
    X = rng.normal(size=(70, 4)).astype(np.float32)
    np.save(tmp_path / "image.npy", X)
    zarr.create_array(str(tmp_path / "image.zarr"), data=X, chunks=(16, 4))
    zarr.create_group(str(tmp_path / "group.zarr")).create_array("image", data=X, chunks=(16, 2))
    for source in ("image.npy", "image.zarr", "group.zarr:image"):
        parts = plan(tmp_path / source, "image", 4, rows=40)
        assert [part.rows for part in parts] == ([40, 30] if source == "image.npy" else [32, 32, 6])
        ids, found = matrix_of(parts)
        np.testing.assert_array_equal(found, X)
        np.testing.assert_array_equal(ids, np.arange(70))


def test_the_stamp_changes_with_the_file(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((3, 2)))
    before = plan(tmp_path / "a.npy", "image", 2)[0]
    np.save(tmp_path / "a.npy", np.ones((3, 2)))
    os.utime(tmp_path / "a.npy", ns=(1, 1))
    assert plan(tmp_path / "a.npy", "image", 2)[0].identity() != before.identity()


def test_bad_sources(tmp_path, rng):
    np.save(tmp_path / "a.npy", np.zeros((3, 2)))
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.txt").write_text("x")
    pq.write_table(pa.table({"image": [[1.0, 2.0], [3.0]]}), tmp_path / "ragged.parquet")
    pq.write_table(pa.table({"image": [[1.0, 2.0], None, [1.0, 2.0]]}), tmp_path / "hole.parquet")
    pq.write_table(pa.table({"image": [[1.0, 2.0], [1.0, None]]}), tmp_path / "cell.parquet")
    sparse_columns = {"t.indices": [[0, 5]], "t.values": [[1.0, 2.0]]}
    pq.write_table(pa.table(sparse_columns), tmp_path / "wide.parquet")
    pq.write_table(pa.table({**sparse_columns, "t.values": [[1.0]]}), tmp_path / "odd.parquet")

    def read(name, view="image", width=2, **more):
        return matrix_of(plan(tmp_path / name, view, width, **more))

    for arguments, message in (
        (("none.parquet",), "does not exist"),
        (("empty",), "a folder without .parquet files"),
        (("a.txt",), "neither Parquet"),
        (("a.npy", "image", 3), "has 2 columns; the model was fitted with 3"),
        (("ragged.parquet",), r"ragged.parquet, row 1: view 'image' has 1 numbers"),
        (("hole.parquet",), r"hole.parquet, row 1: 'image' is empty"),
        (("cell.parquet",), r"cell.parquet, row 1: 'image' is empty"),
        (("ragged.parquet", "text"), "no column 'text'"),
        (("wide.parquet", "t"), "must lie below 2"),
        (("odd.parquet", "t"), "as many indices as values"),
    ):
        with pytest.raises(InputError, match=message):
            read(*arguments)
    with pytest.raises(InputError, match="no column 'key' for ids"):
        read("ragged.parquet", ids="key")
    with pytest.raises(InputError, match="ids by column are for Parquet"):
        read("a.npy", ids="key")
    with pytest.raises(InputError, match="at least 1; got 0"):
        read("a.npy", rows=0)


@pytest.mark.parametrize("package", ["dask", "distributed"])
def test_without_the_extra_the_pip_line_is_named(monkeypatch, hasher, tmp_path, package):
    from modalhash.engines import dask

    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'modalhash\[dask\]'"):
        dask.encode(hasher, tmp_path, tmp_path / "codes", view="image")
    with pytest.raises(MissingExtraError, match=r"pip install 'modalhash\[dask\]'"), dask.connect():
        pass


def test_zarr_without_its_package(monkeypatch, tmp_path):
    (tmp_path / "a.zarr").mkdir()
    (tmp_path / "a.zarr" / "zarr.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'modalhash\[dask\]'"):
        plan(tmp_path / "a.zarr", "image", 2)


# On two workers ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client():
    pytest.importorskip("distributed")
    from modalhash.engines import dask

    with dask.connect(workers=2) as client:
        yield client


@pytest.fixture
def encode(client):
    from modalhash.engines import dask

    return lambda *arguments, **more: dask.encode(*arguments, client=client, **more)


@pytest.mark.service
@pytest.mark.parametrize("view", ["image", "text"])
def test_codes_are_those_of_one_process(encode, hasher, data, tmp_path, view):
    folder = folder_of_pairs(tmp_path / "pairs", data)
    calls = []
    out = encode(hasher, folder, tmp_path / "codes", view=view, progress=lambda *done: calls.append(done))
    ids, codes = everything(out)
    np.testing.assert_array_equal(ids, np.arange(3000))
    np.testing.assert_array_equal(codes, hasher.encode(view, data.views[view]))
    assert calls == [(i, 6) for i in range(1, 7)]
    manifest = read_manifest(out)
    assert (manifest["rows"], manifest["view"], manifest["n_bits"]) == (3000, view, 20)
    assert hasattr(hasher, "train_codes_")


@pytest.mark.service
def test_dask_arrays_and_frames(encode, hasher, data, tmp_path):
    import dask.array
    import dask.dataframe
    import pandas as pd

    X = data.views["image"]
    expected = hasher.encode("image", X)
    array = dask.array.from_array(X, chunks=(700, 50))
    ids, codes = everything(encode(hasher, array, tmp_path / "array", view="image"))
    np.testing.assert_array_equal(codes, expected)
    np.testing.assert_array_equal(ids, np.arange(3000))
    frame = pd.DataFrame(X).rename(columns=str).assign(key=[f"k{i}" for i in range(3000)])
    frames = dask.dataframe.from_pandas(frame, npartitions=3, sort=False)
    ids, codes = everything(encode(hasher, frames, tmp_path / "keys", view="image", ids="key"))
    np.testing.assert_array_equal(codes, expected)
    assert ids[2999] == "k2999"
    ids, codes = everything(encode(hasher, frames.drop(columns="key"), tmp_path / "rows", view="image"))
    np.testing.assert_array_equal(codes, expected)
    np.testing.assert_array_equal(ids, np.arange(3000))
    some = frames[frames["0"] >= float(X[:, 0].max())]  # two of three partitions become empty
    assert len(everything(encode(hasher, some, tmp_path / "some", view="image", ids="key"))[0]) == 1
    with pytest.raises(InputError, match="no rows to encode"):
        encode(hasher, frames[frames["0"] > float(X[:, 0].max())], tmp_path / "none", view="image", ids="key")
    pq.write_table(pa.table({"image": pa.array(list(X[:100]))}), tmp_path / "lists.parquet")
    lists = dask.dataframe.read_parquet(tmp_path / "lists.parquet")
    _, codes = everything(encode(hasher, lists, tmp_path / "lists", view="image"))
    np.testing.assert_array_equal(codes, expected[:100])
    words = dask.dataframe.from_pandas(pd.DataFrame({"image": ["a", "b"]}), npartitions=1)
    with pytest.raises(InputError, match="partition 0, row 0: view 'image' must be lists of 128 numbers"):
        encode(hasher, words, tmp_path / "words", view="image")


@pytest.mark.service
def test_a_second_run_keeps_what_is_whole(encode, hasher, data, tmp_path):
    folder = folder_of_pairs(tmp_path / "pairs", data)
    out = encode(hasher, folder, tmp_path / "codes", view="image")
    before = {file.name: file.stat().st_mtime_ns for file in out.glob("part-*")}
    (out / MANIFEST).unlink()
    (out / "part-00002.parquet").write_bytes(b"half")
    (out / ".part-00003.parquet.x.tmp.parquet").write_bytes(b"of a lost worker")
    (out / "part-00099.parquet").write_bytes(b"of a longer run")
    encode(hasher, folder, out, view="image")
    after = {file.name: file.stat().st_mtime_ns for file in out.iterdir() if file.name != MANIFEST}
    assert {name for name in before if before[name] != after[name]} == {"part-00002.parquet"}
    assert set(after) == set(before)
    np.testing.assert_array_equal(everything(out)[1], hasher.encode("image", data.views["image"]))
    other = mh.DMH(20, n_iter=3, random_state=5).fit(data.views)
    encode(other, folder, out, view="image")  # another model: nothing is kept
    np.testing.assert_array_equal(everything(out)[1], other.encode("image", data.views["image"]))


@pytest.mark.service
def test_a_row_of_nan_is_named_and_the_rest_is_kept(encode, hasher, data, tmp_path):
    folder = folder_of_pairs(tmp_path / "pairs", data)
    X = data.views["image"][1000:1500].copy()
    X[123, 7] = np.nan
    bad = mh.datasets.Dataset({"image": X})
    good = (folder / "pairs-2.parquet").read_bytes()
    bad.save(folder / "pairs-2.parquet")
    encode(hasher, folder / "pairs-0.parquet", tmp_path / "codes", view="image")
    with pytest.raises(
        InputError, match=r"pairs-2\.parquet, row 123: view 'image': it holds NaN or infinity"
    ) as raised:
        encode(hasher, folder, tmp_path / "codes", view="image")
    assert "The other partitions are written" in str(raised.value)
    left = sorted(file.name for file in (tmp_path / "codes").iterdir())
    assert left == [f"part-{i:05d}.parquet" for i in (0, 1, 3, 4, 5)]  # and no manifest
    with pytest.raises(ModelFormatError, match="Run the same encode again"):
        everything(tmp_path / "codes")
    (folder / "pairs-2.parquet").write_bytes(good)
    out = encode(hasher, folder, tmp_path / "codes", view="image")
    np.testing.assert_array_equal(everything(out)[1], hasher.encode("image", data.views["image"]))


@pytest.mark.service
def test_a_worker_killed_in_the_middle(encode, client, hasher, data, tmp_path):
    X = np.tile(data.views["image"], (40, 1))
    np.save(tmp_path / "image.npy", X)
    pids = sorted(client.run(os.getpid).values())
    killed = []

    def kill_one(done, total):
        if done == 5:
            os.kill(pids[0], signal.SIGKILL)
            killed.append(total - done)

    source = tmp_path / "image.npy"
    out = encode(hasher, source, tmp_path / "codes", view="image", partition_rows=1500, progress=kill_one)
    assert killed == [75]
    ids, codes = everything(out)
    np.testing.assert_array_equal(ids, np.arange(120_000))  # nothing lost, nothing double
    np.testing.assert_array_equal(codes, np.tile(hasher.encode("image", data.views["image"]), (40, 1)))
    names = {part["file"] for part in read_manifest(out)["parts"]}
    assert names == {file.name for file in out.iterdir()} - {MANIFEST}
    assert len(names) == 80


@pytest.mark.service
def test_bad_input(encode, hasher, data, tmp_path, client):
    import dask.array

    from modalhash.engines import dask as engine

    X = dask.array.from_array(data.views["image"][:50], chunks=(25, 128))
    for arguments, more, message in (
        ((hasher, X), {}, "say which view the data is"),
        ((hasher, X), {"view": "sound"}, "unknown view 'sound'"),
        ((hasher, X[:, :5]), {"view": "image"}, r"shape \(n, 128\)"),
        ((hasher, X[X[:, 0] > 0]), {"view": "image"}, "compute_chunk_sizes"),
        ((hasher, X), {"view": "image", "ids": "key"}, "ids by column are for"),
        ((hasher, 5), {"view": "image"}, "got int"),
        ((hasher, tmp_path / "none"), {"view": "image"}, "does not exist"),
    ):
        with pytest.raises(InputError, match=message):
            encode(*arguments, tmp_path / "codes", **more)
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="is a file; codes are written as a folder"):
        encode(hasher, X, tmp_path / "file", view="image")
    with pytest.raises(InputError, match="has its own"), engine.connect("127.0.0.1:1", workers=2):
        pass
    with engine.connect(client.scheduler.address.replace("tcp", "dask")) as second:
        out = engine.encode(hasher, X, tmp_path / "codes", view="image", client=second)
    assert read_manifest(out)["rows"] == 50


@pytest.mark.service
def test_no_scheduler_answers(monkeypatch):
    import dask

    from modalhash.engines import dask as engine

    with (
        dask.config.set({"distributed.comm.timeouts.connect": "500ms"}),
        pytest.raises(ModalHashError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"),
        engine.connect("127.0.0.1:9"),
    ):
        pass


@pytest.mark.service
def test_on_the_command_line(hasher, data, tmp_path, capsys, client, monkeypatch):
    from modalhash.cli import main

    folder = folder_of_pairs(tmp_path / "pairs", data, files=2)
    hasher.save(tmp_path / "model")
    address = client.scheduler.address.replace("tcp", "dask")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["modalhash", "encode", str(tmp_path / "model"), *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, capsys.readouterr()

    output = tmp_path / "codes"
    code, printed = run(folder, "--use", "text", "-o", output, "--engine", address, "--ids", "ids", "--json")
    assert code == 0
    assert json.loads(printed.out)["rows"] == 3000
    np.testing.assert_array_equal(everything(output)[1], hasher.encode("text", data.views["text"]))
    for arguments, message in (
        ((folder, "--engine", "spark"), "--engine takes dask"),
        ((folder, "-o", "a.npz", "--engine", "dask"), "Pass -o FOLDER"),
        (("--engine", "dask", "-o", output), "pass a file or folder"),
        ((folder, "--workers", "2"), "go with --engine dask"),
    ):
        code, printed = run(*arguments)
        assert code == 2
        assert message in printed.err
