from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modalhash.codes import as_words, check_codes, hamming, n_bytes, pack, pack_scores, unpack
from modalhash.exceptions import InputError


@given(st.integers(1, 130), st.integers(0, 7), st.integers(0, 2**32 - 1))
def test_pack_round_trip(n_bits, n, seed):
    bits = np.random.default_rng(seed).integers(0, 2, (n, n_bits)).astype(bool)
    codes = pack(bits)
    assert codes.dtype == np.uint8
    assert codes.shape == (n, n_bytes(n_bits))
    np.testing.assert_array_equal(unpack(codes, n_bits), bits)


@given(st.integers(1, 130), st.integers(0, 2**32 - 1))
def test_hamming_is_the_number_of_differing_bits(n_bits, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 2, (3, n_bits)), rng.integers(0, 2, (4, n_bits))
    expected = [[sum(x != y for x, y in zip(p, q, strict=True)) for q in b] for p in a]
    assert hamming(pack(a), pack(b)).tolist() == expected


def test_layout_by_hand():
    # bits 0, 3 and 9: byte 0 = 1 + 8 = 9, byte 1 = 2 (bit 9 is bit 1 of byte 1); the other six bits are padding
    bits = np.zeros((1, 10), dtype=int)
    bits[0, [0, 3, 9]] = 1
    assert pack(bits).tolist() == [[9, 2]]
    assert as_words(pack(bits)).tolist() == [[9 + 2 * 256]]


def test_layout_is_what_faiss_expects(rng):
    faiss = pytest.importorskip("faiss")
    bits = rng.integers(0, 2, (50, 64))
    index = faiss.IndexBinaryFlat(64)
    index.add(pack(bits))
    distances, ids = index.search(pack(bits[:5]), 50)
    np.testing.assert_array_equal(np.sort(distances), np.sort(hamming(pack(bits[:5]), pack(bits))))
    assert ids[:, 0].tolist() == [0, 1, 2, 3, 4]


def test_a_score_of_zero_gives_a_zero_bit():
    assert unpack(pack_scores([[0.0, -0.0, 1e-30, -1e-30]]), 4).tolist() == [[False, False, True, False]]


def test_words_are_a_view_where_rows_are_whole_words(rng):
    codes = rng.integers(0, 256, (4, 16)).astype(np.uint8)
    assert np.shares_memory(as_words(codes), codes)


@pytest.mark.parametrize("n_bits", [0, -1, 1.5, True, "8"])
def test_n_bits_must_be_a_positive_whole_number(n_bits):
    with pytest.raises(InputError, match="n_bits must be a whole number"):
        n_bytes(n_bits)


def test_bad_codes():
    with pytest.raises(InputError, match="0 or 1"):
        pack([[1, 2]])
    with pytest.raises(InputError, match="0 or 1"):
        pack([[-1, 1]])
    with pytest.raises(InputError, match="matrix"):
        pack([1, 0])
    with pytest.raises(InputError, match="uint8"):
        check_codes(np.zeros((2, 2)))
    with pytest.raises(InputError, match="need 2"):
        check_codes(np.zeros((2, 1), np.uint8), n_bits=12)
    with pytest.raises(InputError, match="padding"):
        check_codes(np.array([[0, 16]], np.uint8), n_bits=12)
    with pytest.raises(InputError, match="cannot be compared"):
        hamming(np.zeros((1, 1), np.uint8), np.zeros((1, 2), np.uint8))


@pytest.mark.torch
@pytest.mark.parametrize("n_bits", [1, 7, 8, 13, 64])
def test_a_tensor_packs_as_an_array_does(rng, n_bits):
    torch = pytest.importorskip("torch")
    scores = rng.normal(size=(20, n_bits))
    scores[0] = 0
    np.testing.assert_array_equal(pack_scores(torch.from_numpy(scores)), pack_scores(scores))
