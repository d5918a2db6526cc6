from __future__ import annotations

import numpy as np
import pytest

import modalhash as mh
from modalhash.exceptions import InputError


def test_the_whole_ranking_of_the_index(rng):
    """The same order as the index gives over all items, scored by hand."""
    codes = mh.codes.pack(rng.integers(0, 2, (60, 12)))
    scores = rng.normal(size=(5, 12)).astype(np.float32)
    labels, asked = rng.integers(0, 3, 60), rng.integers(0, 3, 5)
    report = mh.evaluate_asymmetric(
        scores, codes, query_labels=asked, database_labels=labels, n_bits=12, database_rule="encoded"
    )
    queries = mh.codes.pack_scores(scores)
    found = mh.HammingIndex(n_bits=12).add(codes).search(queries, 60, scores=scores)
    expected = []
    for i in range(5):
        hits = np.flatnonzero(labels[found.ids[i]] == asked[i])
        expected.append(np.mean([(r + 1) / (place + 1) for r, place in enumerate(hits)]))
    assert report.values["MAP[ranking=asymmetric, ties=id]"] == pytest.approx(np.mean(expected), abs=0.01)
    assert report.database_rule == "encoded"
    assert "asymmetric" in str(report)


def test_by_hand():
    # tanh(2), tanh(-0.1): item 1 (bits 1, 0) agrees with both, item 0 with the sure one, item 2 with the unsure one;
    # the only relevant item is the second in that order: AP = 1/2
    codes = mh.codes.pack([[1, 1], [1, 0], [0, 0]])
    report = mh.evaluate_asymmetric([[2.0, -0.1]], codes, query_labels=[1], database_labels=[1, 0, 0], n_bits=2)
    assert report.values == {"MAP[ranking=asymmetric, ties=id]": 0.5}


def test_bad_input():
    codes = mh.codes.pack([[1, 1], [1, 0]])
    with pytest.raises(InputError, match="have 1 rows and database_codes 2"):
        mh.evaluate_asymmetric([[1.0, 1.0]], codes, query_labels=[1], database_labels=[1], n_bits=2)
    with pytest.raises(InputError, match="nothing can be measured"):
        mh.evaluate_asymmetric([[1.0, 1.0]], codes, query_labels=[3], database_labels=[1, 2], n_bits=2)
    with pytest.raises(InputError, match="scores"):
        mh.evaluate_asymmetric([[1.0]], codes, query_labels=[1], database_labels=[1, 2], n_bits=2)
