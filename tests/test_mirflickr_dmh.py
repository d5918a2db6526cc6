"""DMH on the real MIRFlickr-25K features, where they are at hand: the floors that a change must not fall below."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import modalhash as mh
from modalhash.datasets import load_arrays
from modalhash.exceptions import ConstantBitsWarning
from modalhash.features import PCA, FeaturePipeline

FILE = Path(__file__).parents[2] / "shared" / "data" / "mirflickr25k.npz"
FLOORS = {  # bits: MAP image-text learned, text-image learned, image-text encoded, text-image encoded
    16: (0.703, 0.762, None, None),
    64: (0.730, 0.810, 0.656, 0.645),
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FILE.exists(), reason="the MIRFlickr features are not at hand"),
]


def _fit(bits, seed, views, labels):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantBitsWarning)
        return mh.DMH(bits, random_state=seed).fit(views, labels=labels)


@pytest.fixture(scope="module")
def splits():
    whole = load_arrays(FILE, views={"image": "gist", "text": "tags"})
    assert len(whole) == 20_015
    return [FeaturePipeline({"text": PCA(500)}).fit_transform(whole.split("mirflickr", seed=seed)) for seed in range(3)]


@pytest.mark.parametrize("bits", list(FLOORS))
def test_map_over_three_seeds(splits, bits):
    found = []
    for seed, data in enumerate(splits):
        train, query = data.rows("train"), data.rows("query")
        assert len(query) == 1001
        hasher = _fit(bits, seed, train.views, train.labels)
        row = []
        for rule in ("learned", "encoded"):
            for source, target in (("image", "text"), ("text", "image")):
                database = hasher.train_codes_ if rule == "learned" else hasher.encode(target, train.views[target])
                report = mh.evaluate(
                    hasher.encode(source, query.views[source]),
                    database,
                    query_labels=query.labels,
                    database_labels=train.labels,
                    n_bits=bits,
                    metrics="MAP[ties=id]",
                    database_rule=rule,
                    diagnostics=False,
                )
                row.append(report["MAP[ties=id]"])
        found.append(row)
    for mean, floor in zip(np.mean(found, axis=0), FLOORS[bits], strict=True):
        assert floor is None or mean >= floor


def test_sparse_tags_and_dense_tags_give_the_same_codes():
    data = load_arrays(FILE, views={"image": "gist", "text": "tags"}).split("mirflickr", seed=0).rows("train")
    sparse = _fit(32, 0, data.views, data.labels)
    dense = _fit(32, 0, {**data.views, "text": data.views["text"].toarray()}, data.labels)
    for a, b in (
        (sparse.train_codes_, dense.train_codes_),
        (sparse.encode("text", data.views["text"]), dense.encode("text", data.views["text"])),
    ):
        assert np.unpackbits(a ^ b).mean() < 1e-4
