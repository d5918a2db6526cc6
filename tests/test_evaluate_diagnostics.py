from __future__ import annotations

import json
import math
import sys

import numpy as np
import pytest

from modalhash import diagnostics
from modalhash.codes import pack, pack_scores
from modalhash.diagnostics import bit_diagnostics, quantisation_error
from modalhash.exceptions import InputError, MissingExtraError


def test_by_hand():
    # Bits of four codes: 0 1 0 1 | 0 1 0 1 | 0 0 0 1 | 1 1 1 1.
    bits = bit_diagnostics(pack([[0, 0, 0, 1], [1, 1, 0, 1], [0, 0, 0, 1], [1, 1, 1, 1]]), n_bits=4)
    assert bits.balance.tolist() == [0.5, 0.5, 0.25, 1.0]
    # Entropy of 1/4: 1/4 * 2 + 3/4 * log2(4/3).
    np.testing.assert_allclose(bits.entropy, [1, 1, 0.5 + 0.75 * math.log2(4 / 3), 0])
    # Bits 0 and 2: covariance 1/4 - 1/8 = 1/8, standard deviations 1/2 and sqrt(3)/4: 1/sqrt(3).
    np.testing.assert_allclose(bits.correlation[0], [1, 1, 1 / math.sqrt(3), math.nan])
    assert bits.mean_abs_correlation == pytest.approx((1 + 2 / math.sqrt(3)) / 3)
    assert (bits.distinct_codes, bits.constant_bits, bits.constant_share) == (3, 1, 0.25)
    assert bits.quantisation_error is None


@pytest.mark.parametrize("n_bits", [1, 9, 64, 65, 130])
def test_equals_numpy_over_several_blocks(monkeypatch, rng, n_bits):
    monkeypatch.setattr(diagnostics, "_ROWS", 100)
    raw = rng.integers(0, 2, (350, 3))[:, rng.integers(0, 3, n_bits)] ^ (rng.random((350, n_bits)) < 0.2)
    raw[:50] = raw[50:100]
    bits = bit_diagnostics(pack(raw), n_bits)
    np.testing.assert_allclose(bits.balance, raw.mean(axis=0))
    np.testing.assert_allclose(bits.correlation, np.corrcoef(raw.T).reshape(n_bits, n_bits), atol=1e-12)
    assert bits.distinct_codes == len(np.unique(raw, axis=0))


def test_fewer_than_two_varying_bits_have_no_correlation():
    bits = bit_diagnostics(pack([[0, 1], [1, 1]]), n_bits=2)
    assert math.isnan(bits.mean_abs_correlation)
    assert "mean |correlation| not defined" in str(bits)
    assert bits.summary()["mean_abs_correlation"] is None
    found = json.loads(json.dumps(bits.to_dict(correlation=True), allow_nan=False))
    assert found["correlation"] == [[1.0, None], [None, None]]
    assert "correlation" not in bits.to_dict()


def test_quantisation_error_by_hand():
    scores = [[0.0, 2.0], [-1.0, 0.5]]
    # Linear, sign(0) = -1: 1 + 1 + 0 + 0.25.
    assert quantisation_error(scores, link="linear") == pytest.approx(2.25 / 4)
    # Sigmoid: 0 is 0.5 from its bit; the others 1/(1 + e^|s|) from theirs.
    far = [0.5, 1 / (1 + math.exp(2)), 1 / (1 + math.exp(1)), 1 / (1 + math.exp(0.5))]
    assert quantisation_error(scores) == pytest.approx(sum(x * x for x in far) / 4)
    # Against codes of other bits: 1, 1, 0, 1 in place of 0, 1, 0, 1.
    codes = pack([[1, 1], [0, 1]])
    assert quantisation_error(scores, codes=codes, link="linear") == pytest.approx((1 + 1 + 0 + 0.25) / 4)
    bits = bit_diagnostics(pack_scores(scores), 2, scores=scores, link="linear")
    assert bits.quantisation_error == pytest.approx(2.25 / 4)
    assert "quantisation error 0.5625 (linear)" in str(bits)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bit_diagnostics(pack([[0, 1]])[:0], 2), "no codes to look at"),
        (lambda: bit_diagnostics(pack([[0, 1]]), 9), "1 bytes per code; 9 bits need 2"),
        (lambda: quantisation_error([[1.0]], link="tanh"), "link must be one of"),
        (lambda: quantisation_error([1.0]), "must be a matrix"),
        (lambda: quantisation_error([["a"]]), "must be a matrix"),
        (lambda: quantisation_error([[math.nan]]), "NaN or infinity"),
        (
            lambda: quantisation_error([[1.0]], codes=pack([[1], [0]])),
            "scores have 1 rows of 1 and codes 2 rows of 1 bytes",
        ),
        (lambda: bit_diagnostics(pack([[0, 1]]), 2, scores=[[1.0]]), "another shape than 1 codes of 2 bits"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_heat_map(tmp_path, rng, monkeypatch):
    pytest.importorskip("matplotlib")
    raw = rng.integers(0, 2, (60, 12))
    raw[:, 4] = 1
    bits = bit_diagnostics(pack(raw), 12)
    ax = bits.plot_heat_map()
    shown = ax.images[0].get_array()
    np.testing.assert_allclose(shown.filled(np.nan), np.abs(bits.correlation))
    assert shown.mask[4].all()
    assert ax.get_title() == "60 codes of 12 bits"
    ax.figure.savefig(tmp_path / "bits.svg")
    assert (tmp_path / "bits.svg").stat().st_size > 1000
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match="pip install"):
        bits.plot_heat_map()
