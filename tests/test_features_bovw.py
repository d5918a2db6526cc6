"""Bag of visual words."""

from __future__ import annotations

import numpy as np
import pytest

from modalhash.exceptions import InputError, MissingExtraError, NotFittedError
from modalhash.features import BagOfVisualWords, CorruptImageWarning

pytest.importorskip("cv2")


def textures(n, seed=0):
    """Pictures of two kinds: blobs, and crosses."""
    rng = np.random.default_rng(seed)
    out = []
    y, x = np.mgrid[:96, :96]
    for i in range(n):
        picture = np.full((96, 96), 128.0)
        for _ in range(12):
            cy, cx = rng.integers(10, 86, 2)
            if i % 2:
                picture += 100 * np.exp(-((y - cy) ** 2 + (x - cx) ** 2) / 30)
            else:
                picture[cy - 8 : cy + 8, cx] = 0
                picture[cy, cx - 8 : cx + 8] = 255
        out.append(np.clip(picture, 0, 255).astype(np.uint8))
    return out


@pytest.fixture(scope="module")
def fitted():
    return BagOfVisualWords(n_words=12, n_jobs=1, random_state=0).fit(textures(12))


def test_counts_are_counts(fitted):
    H = fitted.transform(textures(6, seed=1))
    assert H.shape == (6, 12)
    assert (np.floor(H) == H).all()
    assert (H.sum(axis=1) > 0).all()
    assert H.sum(axis=1).max() <= 500


def test_kinds_are_told_apart(fitted):
    H = fitted.transform(textures(12, seed=1))
    H = H / np.linalg.norm(H, axis=1, keepdims=True)
    S = H @ H.T
    np.fill_diagonal(S, -1)
    assert ((np.arange(12) - S.argmax(axis=1)) % 2 == 0).mean() > 0.9


def test_does_not_depend_on_workers_or_batches(fitted):
    pictures = textures(10, seed=2)
    two = BagOfVisualWords.from_state(*fitted.get_state()).set_params(n_jobs=2)
    np.testing.assert_array_equal(two.transform(pictures), fitted.transform(pictures))
    again = BagOfVisualWords(n_words=12, n_jobs=2, random_state=0).fit(textures(12))
    np.testing.assert_allclose(again.codebook_, fitted.codebook_, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize(("norm", "total"), [("l1", 1), ("l2", None)])
def test_norms(fitted, norm, total):
    step = BagOfVisualWords.from_state(*fitted.get_state()).set_params(norm=norm)
    H = step.transform(textures(3))
    size = H.sum(axis=1) if total else np.linalg.norm(H, axis=1)
    np.testing.assert_allclose(size, 1, rtol=1e-6)


def test_a_flat_picture_has_no_words(fitted):
    assert fitted.transform([np.full((64, 64), 9, np.uint8)]).tolist() == [[0] * 12]


def test_large_colour_pictures_are_shrunk(fitted):
    small = textures(1)[0]
    large = np.repeat(np.repeat(small, 8, axis=0), 8, axis=1)
    colour = np.repeat(large[..., None], 3, axis=2).astype(np.float64)
    assert fitted.transform([colour]).sum() > 0


def test_corrupt_pictures_are_listed(fitted):
    with pytest.warns(CorruptImageWarning, match="1 of 2"):
        H = fitted.transform([textures(1)[0], b"no picture"])
    assert np.isnan(H[1]).all()
    assert [row for row, _, _ in fitted.failed_] == [1]


def test_nonsense_is_refused(monkeypatch):
    with pytest.raises(InputError, match=r"2 training pictures gave .* 5000 words need at least as many"):
        BagOfVisualWords(n_words=5000).fit(textures(2))
    with pytest.raises(InputError, match="norm"):
        BagOfVisualWords(norm="l3").fit(textures(2))
    with pytest.raises(InputError, match="n_words"):
        BagOfVisualWords(n_words=0).fit(textures(2))
    with pytest.raises(NotFittedError):
        BagOfVisualWords().transform(textures(1))
    monkeypatch.setitem(__import__("sys").modules, "cv2", None)
    with pytest.raises(MissingExtraError, match=r"modalhash\[features\]"):
        BagOfVisualWords(n_words=2).fit(textures(2))
