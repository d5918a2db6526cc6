"""GIST against its definition, written out slowly; independence of batches and workers."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from modalhash.exceptions import InputError
from modalhash.features import GIST, CorruptImageWarning, LazyImages, gabor_filters, grey_square


def slow_gist(image, orientations=(8, 8, 8, 8), blocks=4):
    """Oliva and Torralba's descriptor step by step, in double precision, one filter at a time, nothing left out."""
    size = image.shape[0]
    x = image.astype(np.float64)
    x = x - x.min()
    x = 255 * x / x.max()
    # whitening: 5 pixels of mirrored border, frequencies below 4 cycles per image removed, local contrast divided out
    cut_off = 4 / np.sqrt(np.log(2))
    x = np.pad(np.log(x + 1), 5, mode="symmetric")
    odd = x.shape[0] % 2
    x = np.pad(x, ((0, odd), (0, odd)), mode="symmetric")
    n = x.shape[0]
    fx, fy = np.meshgrid(np.arange(-n // 2, n // 2), np.arange(-n // 2, n // 2))
    low = np.fft.fftshift(np.exp(-(fx**2 + fy**2) / cut_off**2))
    x = x - np.real(np.fft.ifft2(np.fft.fft2(x) * low))
    x = x / (0.2 + np.sqrt(np.abs(np.fft.ifft2(np.fft.fft2(x**2) * low))))
    x = x[5 : 5 + size, 5 : 5 + size]
    # filters: 32 pixels of mirrored border
    x = np.pad(x, 32, mode="symmetric")
    odd = x.shape[0] % 2
    x = np.pad(x, ((0, odd), (0, odd)), mode="symmetric")
    n = x.shape[0]
    fx, fy = np.meshgrid(np.arange(-n // 2, n // 2), np.arange(-n // 2, n // 2))
    radius = np.fft.fftshift(np.sqrt(fx**2 + fy**2))
    angle = np.fft.fftshift(np.angle(fx + 1j * fy))
    F = np.fft.fft2(x)
    edges = np.fix(np.linspace(0, size, blocks + 1)).astype(int)
    out = []
    for scale, m in enumerate(orientations):
        for j in range(m):
            turned = angle + np.pi / m * j
            turned = turned + 2 * np.pi * (turned < -np.pi) - 2 * np.pi * (turned > np.pi)
            G = np.exp(
                -10 * 0.35 * (radius / n / (0.3 / 1.85**scale) - 1) ** 2 - 2 * (16 * m**2 / 32**2) * np.pi * turned**2
            )
            answer = np.abs(np.fft.ifft2(F * G))[32 : 32 + size, 32 : 32 + size]
            for column in range(blocks):
                for row in range(blocks):
                    out.append(answer[edges[row] : edges[row + 1], edges[column] : edges[column + 1]].mean())
    return np.array(out)


@pytest.mark.parametrize(
    ("size", "orientations", "blocks"),
    [(128, (8, 8, 8, 8), 4), (256, (8, 8, 8, 8), 4), (64, (8, 6, 4), 4), (50, (4, 4), 3), (33, (8, 8), 2)],
)
def test_equals_the_definition(rng, size, orientations, blocks):
    ramp = np.add.outer(np.arange(size), 2 * np.arange(size)) % 256
    spot = np.zeros((size, size))
    spot[size // 3, size // 2] = 255
    pictures = [rng.integers(0, 256, (size, size), dtype=np.uint8), ramp.astype(np.uint8), spot]
    fast = GIST(size=size, orientations=orientations, blocks=blocks).fit_transform(pictures)
    slow = np.array([slow_gist(picture, orientations, blocks) for picture in pictures])
    assert fast.shape == (3, sum(orientations) * blocks**2)
    np.testing.assert_allclose(fast, slow, rtol=0, atol=1e-5)
    assert slow.max() > 0.05  # so that 1e-5 means something


def test_does_not_depend_on_the_batch_or_the_workers(rng):
    pictures = [rng.integers(0, 256, (40, 50, 3), dtype=np.uint8) for _ in range(21)]
    whole = GIST(size=32, n_jobs=1).transform(pictures)
    np.testing.assert_array_equal(GIST(size=32, n_jobs=3).transform(pictures), whole)
    one_by_one = np.concatenate([GIST(size=32).transform([picture]) for picture in pictures])
    np.testing.assert_array_equal(one_by_one, whole)


def test_direction_and_place_are_told_apart():
    """Stripes answer to the filters of their direction; a stripe on the left answers in the left blocks."""
    y, x = np.mgrid[:128, :128]
    vertical = 127 + 100 * np.sin(2 * np.pi * 0.15 * x)
    features = GIST(blocks=4).transform([vertical, vertical.T]).reshape(2, 4, 8, 4, 4)
    strength = features.sum(axis=(3, 4))
    # 0.15 cycles a pixel is nearest to the second scale (0.3 / 1.85 = 0.162)
    assert strength[0, 1].argmax() == 0  # along x: direction 0
    assert strength[1, 1].argmax() == 4  # along y: a quarter turn further
    left = np.where(x < 32, vertical, 127)
    blocks = GIST(blocks=4).transform([left]).reshape(4, 8, 4, 4)[1, 0]
    assert blocks[0].min() > 2 * blocks[2:].max()  # blocks are counted column by column
    assert y.shape == (128, 128)


def test_a_flat_picture_has_no_answer():
    np.testing.assert_allclose(GIST(size=32).transform([np.full((32, 32), 77, np.uint8)]), 0, atol=1e-5)


def test_brightness_and_contrast_do_not_matter(rng):
    picture = rng.integers(0, 100, (32, 32)).astype(np.float32)
    a, b = GIST(size=32).transform([picture, 2 * picture + 10])
    np.testing.assert_allclose(a, b, atol=1e-5)


def test_filters_are_one_sided():
    bank = gabor_filters(64, (8,))
    assert bank.shape == (8, 64, 64)
    # direction 0 lives at positive horizontal frequencies
    assert bank[0, 0, 19] > 0.9
    assert bank[0, 0, 64 - 19] < 1e-6


def test_pictures_of_every_kind_give_the_same(tmp_path, rng):
    pixels = rng.integers(0, 256, (40, 60, 3), dtype=np.uint8)
    path = tmp_path / "a.png"
    Image.fromarray(pixels).save(path)
    kinds = [pixels, path, str(path), path.read_bytes(), Image.fromarray(pixels)]
    features = GIST(size=32).transform(kinds)
    for row in features[1:]:
        np.testing.assert_array_equal(row, features[0])


def test_corrupt_pictures_are_listed_and_missing(tmp_path, rng):
    good = tmp_path / "good.jpg"
    Image.fromarray(rng.integers(0, 256, (40, 60, 3), dtype=np.uint8)).save(good)
    cut = tmp_path / "cut.jpg"
    cut.write_bytes(good.read_bytes()[:300])
    paths = [good, cut, tmp_path / "none.jpg", good]
    step = GIST(size=32)
    with pytest.warns(CorruptImageWarning, match=r"2 of 4 images could not be read.*cut\.jpg.*none\.jpg"):
        features = step.transform(paths)
    assert np.isnan(features[[1, 2]]).all()
    np.testing.assert_array_equal(features[0], features[3])
    assert [(row, name) for row, name, _ in step.failed_] == [(1, str(cut)), (2, str(tmp_path / "none.jpg"))]


def test_long_lists_of_corrupt_pictures_are_cut():
    with pytest.warns(CorruptImageWarning, match="; and 4 more"):
        GIST(size=32).transform([b"no"] * 9)


def test_progress_reaches_the_end(rng):
    seen = []
    GIST(size=16, progress=lambda done, total: seen.append((done, total))).transform([rng.random((16, 16))] * 20)
    assert seen == [(8, 20), (16, 20), (20, 20)]


def test_a_stop_is_a_stop():
    """When the hook raises (or Ctrl-C comes), the pictures that wait are not described first."""
    opened = []

    def stop(done, total):
        raise KeyboardInterrupt

    def make(i):
        opened.append(i)
        return np.zeros((16, 16))

    with pytest.raises(KeyboardInterrupt):
        GIST(size=16, n_jobs=1, progress=stop).transform(LazyImages(range(10_000), make))
    assert len(opened) < 1000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 8}, "size must be a whole number of at least 16"),
        ({"blocks": 0}, "blocks"),
        ({"orientations": ()}, "orientations must not be empty"),
        ({"orientations": (8, 0)}, "each of orientations"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"blocks": 200}, "blocks at most size"),
    ],
)
def test_nonsense_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        GIST(**options).fit([]).transform([np.eye(16)])


def test_a_single_path_is_not_a_list(tmp_path):
    with pytest.raises(InputError, match="Put it into a list"):
        GIST().transform(tmp_path / "a.jpg")


def test_state_round_trip(rng):
    step = GIST(size=32, orientations=(4, 4), n_jobs=1)
    arrays, config = step.get_state()
    again = GIST.from_state(arrays, config)
    picture = rng.random((32, 32))
    np.testing.assert_array_equal(again.transform([picture]), step.transform([picture]))
    assert len(step.get_feature_names_out()) == 8 * 16


# --- grey squares ----------------------------------------------------------------------------------------------


def test_the_square_is_the_middle():
    picture = np.random.default_rng(0).random((20, 40), dtype=np.float32)
    # the definition scales the whole picture and then cuts
    whole = np.asarray(Image.fromarray(picture).resize((20, 10), Image.Resampling.BILINEAR))
    np.testing.assert_allclose(grey_square(picture, 10), whole[:, 5:15], atol=1e-6)
    np.testing.assert_allclose(grey_square(picture.T, 10), whole[:, 5:15].T, atol=1e-6)


def test_grey_is_the_mean_of_the_channels():
    picture = np.zeros((8, 8, 3), np.uint8)
    picture[..., 0], picture[..., 2] = 30, 60
    assert (grey_square(picture, 8) == 30).all()


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "L", "CMYK", "1"])
def test_modes_of_pictures(tmp_path, mode):
    Image.new(mode, (20, 20)).save(tmp_path / ("a.tif" if mode == "CMYK" else "a.png"))
    grey = grey_square(next(tmp_path.iterdir()), 16)
    white = mode in ("RGBA", "LA")  # transparent: the paper shows through
    assert (grey == (255 if white or mode == "CMYK" else 0)).all()


def test_transparent_arrays_become_white():
    picture = np.zeros((8, 8, 4), np.uint8)
    assert (grey_square(picture, 8) == 255).all()


@pytest.mark.parametrize("bad", [np.zeros(3), np.zeros((2, 2, 2)), np.zeros((0, 4)), np.array([["a"]])])
def test_arrays_that_are_no_picture(bad):
    with pytest.raises(InputError, match="image array must"):
        grey_square(bad, 8)
