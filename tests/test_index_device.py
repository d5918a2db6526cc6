"""Exact search on a torch device gives the answers of the CPU's."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from modalhash import HammingIndex  # noqa: E402
from modalhash.exceptions import InputError  # noqa: E402
from modalhash.indexing import device as module  # noqa: E402

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]
pytestmark = pytest.mark.torch


def random_codes(rng, n, bits):
    codes = rng.integers(0, 256, (n, -(-bits // 8)), dtype=np.uint8)
    if bits % 8:
        codes[:, -1] &= (1 << bits % 8) - 1
    return codes


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bits", [1, 8, 12, 64, 200, 256])
@pytest.mark.parametrize("block", [100, 1 << 18])
def test_equal_to_the_cpu(rng, monkeypatch, device, bits, block):
    """Few bits make many ties, and blocks of 100 make them meet across blocks; ids descend as rows ascend."""
    monkeypatch.setattr(module, "_BLOCK", block)
    codes, ids = random_codes(rng, 1003, bits), np.arange(2000, 997, -1)
    queries = np.concatenate([codes[:20], random_codes(rng, 20, bits)])
    plain, moved = HammingIndex(bits).add(codes, ids), HammingIndex(bits, device=device).add(codes, ids)
    for k in (1, 7, 150, 5000):
        expected, found = plain.search(queries, k), moved.search(queries, k)
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_array_equal(found.distances, expected.distances)


@pytest.mark.parametrize("device", DEVICES)
def test_changes_are_seen(rng, device):
    codes = random_codes(rng, 50, 16)
    index = HammingIndex(16, device=device).add(codes)
    assert index.search(codes[3:4], 1).ids.tolist() == [[3]]
    index.remove([3]).add(codes[3:4], ids=[99])
    assert index.search(codes[3:4], 1).ids.tolist() == [[99]]
    assert index.search(codes[:2], 3, within=[5, 6]).ids.shape == (2, 2)
    assert index.search(codes[:0], 3).ids.shape == (0, 3)
    assert HammingIndex(16, device=device).search(codes[:2], 3).ids.shape == (2, 0)


def test_loaded_on_a_device(rng, tmp_path):
    codes = random_codes(rng, 50, 16)
    HammingIndex(16).add(codes).save(tmp_path / "index")
    loaded = HammingIndex.load(tmp_path / "index", device="cpu")
    np.testing.assert_array_equal(loaded.search(codes, 3).ids, HammingIndex(16).add(codes).search(codes, 3).ids)


def test_bad_devices():
    with pytest.raises(InputError, match="device is for the kind 'flat'"):
        HammingIndex(16, kind="ivf", device="cpu")
    with pytest.raises(InputError, match="cannot be used here"):
        HammingIndex(16, device="abacus")
