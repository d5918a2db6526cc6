"""How fast GIST is: images per second from JPEG files, against a plain loop over images and filters in the same run.

    python benchmarks/gist.py [--images 200] [--jobs 2]

The floor: 25,000 photographs (MIRFlickr-25K) at 128 pixels in under six minutes on two cores, that is 70 images/s.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

from modalhash.features import GIST, gabor_filters, grey_square

PHOTOGRAPHS = 25_000
FLOOR = PHOTOGRAPHS / 360


def plain_loop(path: Path, filters: np.ndarray, low: np.ndarray) -> np.ndarray:
    """GIST of one image as the definition reads: double precision, one whole transform per filter."""
    x = grey_square(path, 128).astype(np.float64)
    x = 255 * (x - x.min()) / (x.max() - x.min())
    x = np.pad(np.log(x + 1), 5, mode="symmetric")
    x = x - np.fft.ifft2(np.fft.fft2(x) * low).real
    x = x / (0.2 + np.sqrt(np.abs(np.fft.ifft2(np.fft.fft2(x**2) * low))))
    F = np.fft.fft2(np.pad(x[5:-5, 5:-5], 32, mode="symmetric"))
    out = []
    for G in filters:
        strength = np.abs(np.fft.ifft2(F * G))[32:-32, 32:-32]
        out.append(strength.reshape(4, 32, 4, 32).mean(axis=(1, 3)).T)
    return np.concatenate([block.ravel() for block in out])


def write_photographs(folder: Path, n: int) -> list[Path]:
    """JPEG files of 500 x 375 pixels, as Flickr's are, with structure at every scale."""
    rng = np.random.default_rng(0)
    paths = []
    for i in range(n):
        pixels = np.zeros((375, 500, 3))
        for size in (4, 16, 64):
            coarse = rng.integers(0, 256, (size, size, 3), dtype=np.uint8)
            pixels += np.asarray(Image.fromarray(coarse).resize((500, 375), Image.Resampling.BICUBIC))
        paths.append(folder / f"im{i}.jpg")
        Image.fromarray((pixels / 3).astype(np.uint8)).save(paths[-1], quality=90)
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    low_grid = np.fft.fftfreq(138) * 138
    low = np.exp(-(low_grid[:, None] ** 2 + low_grid[None, :] ** 2) * np.log(2) / 16)
    filters = gabor_filters(192, (8, 8, 8, 8))
    with tempfile.TemporaryDirectory() as folder:
        paths = write_photographs(Path(folder), arguments.images)
        step = GIST(n_jobs=arguments.jobs)
        step.transform(paths[:4])  # fills the caches of filters

        start, cpu = time.perf_counter(), time.process_time()
        fast = step.transform(paths)
        fast_s, fast_cpu = time.perf_counter() - start, time.process_time() - cpu

        sample = paths[: max(8, arguments.images // 8)]
        start, cpu = time.perf_counter(), time.process_time()
        slow = np.array([plain_loop(path, filters, low) for path in sample])
        slow_s, slow_cpu = time.perf_counter() - start, time.process_time() - cpu

    rate, slow_rate = len(paths) / fast_s, len(sample) / slow_s
    busy = os.getloadavg()[0]
    print(
        f"GIST, 128 px, {arguments.jobs} threads: {rate:.1f} images/s ({1e3 * fast_cpu / len(paths):.1f} CPU-ms each)"
    )
    print(f"plain loop, 1 thread:       {slow_rate:.1f} images/s ({1e3 * slow_cpu / len(sample):.1f} CPU-ms each)")
    print(f"ratio {rate / slow_rate:.1f} in time, {slow_cpu / len(sample) / (fast_cpu / len(paths)):.1f} in CPU time")
    print(f"largest difference {np.abs(fast[: len(sample)] - slow).max():.1e}")
    idle = PHOTOGRAPHS * fast_cpu / len(paths) / arguments.jobs / 60
    print(f"25,000 photographs: {PHOTOGRAPHS / rate / 60:.1f} minutes (floor 6.0; load average now {busy:.1f})")
    print(f"  by CPU time, on {arguments.jobs} cores with nothing else to do: {idle:.1f} minutes")
    print("holds" if rate >= FLOOR else "DOES NOT HOLD")


if __name__ == "__main__":
    main()
