"""Saving and loading: whole or not at all, whatever happens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from modalhash import HammingIndex
from modalhash.codes import pack
from modalhash.exceptions import ModelFormatError
from modalhash.indexing import storage
from modalhash.indexing.storage import FILE, read_index, write_index


def some_codes(n, n_bits, seed=0):
    return pack(np.random.default_rng(seed).integers(0, 2, (n, n_bits)))


@pytest.fixture
def saved(tmp_path):
    index = HammingIndex(70).add(
        some_codes(300, 70), ids=np.arange(300) * 2, payload={"title": [f"ö{i}" for i in range(300)]}
    )
    index.remove([0, 598]).save(tmp_path / "index")
    return index, tmp_path / "index"


@pytest.mark.parametrize("n_bits", [1, 12, 32, 33, 64, 65, 200])
@pytest.mark.parametrize("n", [0, 1, 257])
def test_round_trip(tmp_path, n_bits, n):
    index = HammingIndex(n_bits).add(some_codes(n, n_bits))
    loaded = HammingIndex.load(index.save(tmp_path / "deep" / "index"))
    assert (loaded.n_bits, loaded.kind, len(loaded)) == (n_bits, "flat", n)
    queries = some_codes(4, n_bits, seed=1)
    for a, b in (
        (index.search(queries), loaded.search(queries)),
        (index.lookup(queries, 2), loaded.lookup(queries, 2)),
    ):
        np.testing.assert_array_equal(a.ids, b.ids)
        np.testing.assert_array_equal(a.distances, b.distances)


def test_payload_and_next_id_come_back_and_the_loaded_index_grows(saved):
    index, path = saved
    loaded = HammingIndex.load(path, threads=1)
    assert loaded.payload([2, 596]) == {"title": ["ö1", "ö298"]}
    loaded.add(some_codes(1, 70, seed=5), payload={"title": ["neu"]})
    assert loaded.ids[-1] == 599  # 598 was used before it was removed
    assert len(loaded.remove([2, 4])) == len(index) - 1
    np.testing.assert_array_equal(HammingIndex.load(path).ids, index.ids)  # the file is as it was


def test_codes_and_ids_are_mapped_not_copied(saved):
    _, path = saved
    _, arrays = read_index(path)
    for name in ("ids", "words", "text0", "ends0"):
        base = arrays[name]
        while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
            base = base.base
        assert isinstance(base, np.memmap), name
    records = HammingIndex.load(path)._state.records
    assert not records.words.data.flags.owndata
    assert not records.ids.flags.owndata


def test_saving_over_a_mapped_index_leaves_its_readers_alone(saved):
    index, path = saved
    reader = HammingIndex.load(path, verify=False)
    HammingIndex(70).add(some_codes(3, 70, seed=9)).save(path)
    np.testing.assert_array_equal(reader.codes(index.ids), index.codes(index.ids))
    assert len(HammingIndex.load(path)) == 3


def test_any_safetensors_reader_can_open_it(saved):
    from safetensors.numpy import load_file

    index, path = saved
    arrays = load_file(path / FILE)
    np.testing.assert_array_equal(arrays["ids"], index.ids)
    assert arrays["words"].shape == (2, 298)


def test_damage_anywhere_is_found_or_harmless(saved):
    index, path = saved
    whole = (path / FILE).read_bytes()
    begin = int.from_bytes(whole[:8], "little") + 8
    arrays = {name: x for name, x in json.loads(whole[8:begin]).items() if not name.startswith("_")}
    data = [begin + i for x in arrays.values() for i in range(*x["data_offsets"])]
    rng = np.random.default_rng(0)
    found = 0
    for place in [0, 5, 9, begin - 1, *rng.integers(8, begin, 60).tolist(), *rng.choice(data, 60).tolist()]:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        (path / FILE).write_bytes(damaged)
        try:
            loaded = HammingIndex.load(path)
        except ModelFormatError:
            found += 1
            continue
        assert place < begin, "damaged data went unnoticed"  # in the header, unused padding may change
        np.testing.assert_array_equal(loaded.ids, index.ids)
        np.testing.assert_array_equal(loaded.codes(index.ids), index.codes(index.ids))
        assert loaded.payload(index.ids) == index.payload(index.ids)
    assert found > 100


@pytest.mark.parametrize("keep", [0, 3, 8, 200, 0.5, 0.99])
def test_a_file_cut_short_is_refused(saved, keep):
    _, path = saved
    whole = (path / FILE).read_bytes()
    (path / FILE).write_bytes(whole[: int(keep * len(whole)) if isinstance(keep, float) else keep])
    for verify in (True, False):
        with pytest.raises(ModelFormatError, match="cannot be used"):
            HammingIndex.load(path, verify=verify)


def test_header_that_promises_terabytes_is_refused(saved):
    _, path = saved
    whole = (path / FILE).read_bytes()
    (path / FILE).write_bytes((2**62).to_bytes(8, "little") + whole[8:])
    with pytest.raises(ModelFormatError, match="no header"):
        HammingIndex.load(path)
    write_index(path, {"n_bits": 8}, {"ids": np.arange(3)})
    text = (path / FILE).read_bytes().replace(b'"shape": [3]', b'"shape": [9]')
    (path / FILE).write_bytes(text)
    with pytest.raises(ModelFormatError, match="contradicts itself"):
        read_index(path)


def test_other_versions_and_contents_are_named(tmp_path, monkeypatch):
    with pytest.raises(ModelFormatError, match="there is no such folder"):
        HammingIndex.load(tmp_path / "nowhere")
    with pytest.raises(ModelFormatError, match=f"it has no {FILE}"):
        HammingIndex.load(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(ModelFormatError, match="is a file; an index is saved as a folder"):
        HammingIndex(8).save(tmp_path / "file")
    write_index(tmp_path, {"n_bits": 8}, {"ids": np.arange(3)})
    with pytest.raises(ModelFormatError, match="no usable index: 'words'"):
        HammingIndex.load(tmp_path)
    rest = {"kind": "flat", "effort": None, "next_id": 3, "columns": []}
    write_index(tmp_path, {"n_bits": 8, **rest}, {"ids": np.arange(3), "words": np.zeros((1, 2), np.uint32)})
    with pytest.raises(ModelFormatError, match="not one code per id"):
        HammingIndex.load(tmp_path)
    write_index(tmp_path, {"n_bits": 8, **rest}, {"ids": np.array([2, 1]), "words": np.zeros((1, 2), np.uint32)})
    with pytest.raises(ModelFormatError, match="ids do not ascend"):
        HammingIndex.load(tmp_path)
    write_index(
        tmp_path,
        {"n_bits": 8, **rest, "columns": ["title"]},
        {
            "ids": np.arange(2),
            "words": np.zeros((1, 2), np.uint32),
            "text0": np.zeros(5, np.uint8),
            "ends0": np.arange(2),
        },
    )
    with pytest.raises(ModelFormatError, match="does not fit its text"):
        HammingIndex.load(tmp_path)
    monkeypatch.setattr(storage, "FORMAT_VERSION", 99)
    HammingIndex(8).save(tmp_path)
    monkeypatch.undo()
    with pytest.raises(ModelFormatError, match="format version 99; this modalhash reads version 1"):
        HammingIndex.load(tmp_path)


def test_what_a_killed_save_left_is_cleared_once_it_is_old(saved):
    index, path = saved
    old, new = path / f".{FILE}.aaa.tmp", path / f".{FILE}.bbb.tmp"
    old.write_bytes(b"x")
    new.write_bytes(b"x")
    os.utime(old, (1, 1))
    index.save(path)
    assert not old.exists()
    assert new.exists()


FULL_DISK = """
import resource, signal, sys
import numpy as np
from modalhash import HammingIndex
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    HammingIndex(64).add(np.zeros((100_000, 8), np.uint8)).save(sys.argv[1])
except OSError as error:
    print("refused", error.errno)
"""


def test_a_full_disk_leaves_the_old_index(saved):
    index, path = saved
    # A limit on the size of files stands for the full disk: write() fails in the middle.
    out = subprocess.run([sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True, check=True)
    assert out.stdout.startswith("refused")
    assert [p.name for p in path.iterdir()] == [FILE]
    np.testing.assert_array_equal(HammingIndex.load(path).ids, index.ids)


SAVE_FOR_EVER = """
import sys
import numpy as np
from modalhash import HammingIndex
versions = [HammingIndex(64).add(np.full((200_000, 8), fill, np.uint8)) for fill in (1, 2)]
versions[0].save(sys.argv[1])
print("ready", flush=True)
while True:
    for version in (versions[1], versions[0]):
        version.save(sys.argv[1])
"""


@pytest.mark.slow
def test_kill_9_in_the_middle_of_a_save_leaves_the_old_or_the_new(tmp_path):
    rng, seen = np.random.default_rng(0), set()
    interrupted = 0
    for _ in range(12):
        child = subprocess.Popen(
            [sys.executable, "-c", SAVE_FOR_EVER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        try:
            assert child.stdout.readline() == "ready\n"
            time.sleep(float(rng.uniform(0.0, 0.2)))
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait()
            child.stdout.close()
        left = list(tmp_path.glob(".*.tmp*"))
        interrupted += bool(left)
        for file in left:
            file.unlink()
        loaded = HammingIndex.load(tmp_path)
        codes = np.unique(loaded.codes(loaded.ids))
        assert len(loaded) == 200_000
        assert codes.tolist() in ([1], [2])
        seen.add(int(codes[0]))
    assert interrupted > 0, "no kill fell into a save; the test shows nothing"
