from __future__ import annotations

import numpy as np
import pytest

import modalhash as mh
from modalhash.codes import unpack


@pytest.mark.parametrize("degrees", [15, 60, 90, 150])
def test_bits_agree_as_often_as_the_angle_says(degrees):
    # Four points: +-a and +-b, a and b at a known angle; their mean is zero, so centring leaves the angle alone.
    angle = np.deg2rad(degrees)
    a, b = np.array([1.0, 0.0, 0.0]), np.array([np.cos(angle), np.sin(angle), 0.0])
    X = np.stack([a, b, -a, -b])
    bits = unpack(mh.LSH(20_000, random_state=0).fit({"v": X}).encode("v", X), 20_000)
    # 20,000 draws of chance p deviate by 4 sqrt(p (1 - p) / 20000) <= 0.0142 once in sixteen thousand times.
    assert (bits[0] == bits[1]).mean() == pytest.approx(1 - degrees / 180, abs=0.0142)
    assert (bits[0] != bits[2]).all()


def test_views_have_nothing_in_common():
    X = np.random.default_rng(0).normal(size=(50, 6))
    hasher = mh.LSH(4000, random_state=0).fit({"a": X, "b": X})
    bits = {name: unpack(hasher.encode(name, X), 4000) for name in "ab"}
    assert (bits["a"] == bits["b"]).mean() == pytest.approx(0.5, abs=0.03)


def test_seed_decides():
    X = np.random.default_rng(0).normal(size=(50, 6))
    a, b, c = (mh.LSH(64, random_state=s).fit({"v": X}).weights_["v"] for s in (0, 0, 1))
    np.testing.assert_array_equal(a, b)
    assert (a != c).any()
