"""Metrics worked by hand. One query, six database items; the arithmetic stands beside each number.

item       0  1  2  3  4  5
distance   1  0  1  2  1  3
grade      1  0  2  1  0  0      relevant: 0, 2 and 3

Ranked by distance, ties by id: items 1 | 0 2 4 | 3 | 5, hits at ranks 2, 3 and 5.
The two hits of the tied group may lie at ranks (2, 3), (2, 4) or (3, 4), each with chance 1/3.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from modalhash.codes import pack
from modalhash.evaluation import distance_counts, evaluate
from modalhash.exceptions import InputError
from modalhash.metrics import (
    average_precision,
    discounted_gain,
    grade_gains,
    interpolated_precision,
    precision_at,
    recall_at,
    split_ties,
    within_radius,
)

QUERY = pack([[0, 0, 0, 0]])
DATABASE = pack([[1, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [1, 1, 1, 0]])
LABELS = {
    "query_labels": [["a", "b"]],
    "database_labels": [["a"], ["c"], ["a", "b"], ["b"], ["c"], []],
    "n_bits": 4,
}
LOG3 = math.log2(3)

GOLDEN = {
    # (1/2 + 2/3 + 3/5) / 3
    "MAP[ties=id]": (1 / 2 + 2 / 3 + 3 / 5) / 3,
    # the tied group gives 1/2 + 2/3, 1/2 + 2/4 or 1/3 + 2/4: 7/6, 1, 5/6, mean 1; then 3/5
    "MAP[ties=expected]": (1 + 3 / 5) / 3,
    "MAP[ties=best]": (7 / 6 + 3 / 5) / 3,
    "MAP[ties=worst]": (5 / 6 + 3 / 5) / 3,
    # first three by id: hits at 2 and 3, sum 7/6
    "MAP[ties=id]@3[denominator=retrieved]": 7 / 6 / 2,
    "MAP[ties=id]@3[denominator=min(k, relevant)]": 7 / 6 / 3,
    "MAP[ties=id]@3[denominator=relevant]": 7 / 6 / 3,
    # first two by id: one hit at 2, sum 1/2; retrieved 1, min(2, 3) = 2, relevant 3
    "MAP[ties=id]@2[denominator=retrieved]": 1 / 2,
    "MAP[ties=id]@2[denominator=min(k, relevant)]": 1 / 4,
    "MAP[ties=id]@2[denominator=relevant]": 1 / 6,
    # first three, the orders in turn: sums 7/6 (2 hits), 1/2 (1 hit), 1/3 (1 hit)
    "MAP[ties=expected]@3[denominator=retrieved]": (7 / 12 + 1 / 2 + 1 / 3) / 3,
    "MAP[ties=expected]@3[denominator=relevant]": (7 / 6 + 1 / 2 + 1 / 3) / 3 / 3,
    # one place holds item 1 only: no hit
    "MAP[ties=id]@1[denominator=retrieved]": 0.0,
    "MAP[ties=expected]@1[denominator=retrieved]": 0.0,
    # hits among the first three: 2 by id; 2, 1, 1 over the orders
    "P[ties=id]@3": 2 / 3,
    "P[ties=expected]@3": 4 / 3 / 3,
    "P[ties=best]@3": 2 / 3,
    "P[ties=worst]@3": 1 / 3,
    "R[ties=id]@3": 2 / 3,
    "R[ties=expected]@3": 4 / 3 / 3,
    "R[ties=id]@5": 1.0,
    # grades by rank 0 1 2 0 1 0; ideal 2 1 1. Gain 2^g - 1: DCG@3 = 1/log2(3) + 3/2, ideal 3 + 1/log2(3) + 1/2
    "NDCG[ties=id]@3[gain=exponential]": (1 / LOG3 + 3 / 2) / (3 + 1 / LOG3 + 1 / 2),
    "NDCG[ties=id]@3[gain=linear]": (1 / LOG3 + 2 / 2) / (2 + 1 / LOG3 + 1 / 2),
    # the tied group's gains 1 + 3 + 0 spread evenly: 4/3 at each of ranks 2 and 3
    "NDCG[ties=expected]@3[gain=exponential]": (4 / 3) * (1 / LOG3 + 1 / 2) / (3 + 1 / LOG3 + 1 / 2),
    # best puts grade 2, 1, 0 at ranks 2, 3, 4
    "NDCG[ties=best]@3[gain=linear]": (2 / LOG3 + 1 / 2) / (2 + 1 / LOG3 + 1 / 2),
    # radius 0: item 1 alone; radius 1: four items, two hits; radius 2: five items, three hits
    "P@r0": 0.0,
    "R@r0": 0.0,
    "F1@r0": 0.0,
    "P@r1": 2 / 4,
    "R@r1": 2 / 3,
    "F1@r1": 2 * (2 / 4) * (2 / 3) / (2 / 4 + 2 / 3),
    "P@r2": 3 / 5,
    "R@r2": 1.0,
    "F1@r2": 2 * (3 / 5) / (3 / 5 + 1),
    # beyond n_bits the ball is everything
    "F1@r9": 2 * (3 / 6) / (3 / 6 + 1),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_by_hand(name):
    report = evaluate(QUERY, DATABASE, **LABELS, metrics=name, diagnostics=False)
    assert list(report.values) == [name]
    assert report[name] == pytest.approx(GOLDEN[name], abs=1e-14)


def test_all_at_once_gives_the_same():
    report = evaluate(QUERY, DATABASE, **LABELS, metrics=list(GOLDEN))
    assert report.values == pytest.approx(GOLDEN, abs=1e-14)


def test_curves_by_hand():
    report = evaluate(QUERY, DATABASE, **LABELS, metrics=["PR11", "PR@r"], ties=["id", "expected", "best", "worst"])
    # By id: precision 1/2 at recall 1/3, 2/3 at 2/3, 3/5 at 1: the best from recall 0.7 on is 3/5.
    by_id = [2 / 3] * 7 + [3 / 5] * 4
    np.testing.assert_allclose(report.curves["PR11[ties=id]"]["precision"], by_id)
    # Best order: the same here. Worst order: hits at ranks 3, 4, 5 with precision 1/3, 2/4, 3/5.
    np.testing.assert_allclose(report.curves["PR11[ties=best]"]["precision"], by_id)
    np.testing.assert_allclose(report.curves["PR11[ties=worst]"]["precision"], [3 / 5] * 11)
    # Expected hits at ranks 2, 3, 4: 2/3, 4/3, 2, precision 1/3, 4/9, 1/2; then 3/5.
    np.testing.assert_allclose(report.curves["PR11[ties=expected]"]["precision"], [3 / 5] * 11)
    np.testing.assert_allclose(report.curves["PR11[ties=id]"]["recall"], np.linspace(0, 1, 11))
    curve = report.curves["PR@r"]
    assert curve["radius"].tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(curve["precision"], [0, 2 / 4, 3 / 5, 3 / 6, 3 / 6])
    np.testing.assert_allclose(curve["recall"], [0, 2 / 3, 1, 1, 1])
    np.testing.assert_allclose(curve["f1"], [0, 4 / 7, 6 / 8, 6 / 9, 6 / 9])


def test_interpolation_inside_a_tied_group():
    # Two items tied in front, one a hit; then 8 tied, 2 hits. Expected hits 1/2, 1, then 1/4 more per place.
    # Recall 1/3 is reached at rank 2 (precision 1/2); recall 2/3 needs 2 hits: place 4 of the group, 2/6;
    # recall 1: 3/10.
    found = interpolated_precision([[2, 8]], [[1, 2]], points=4)
    np.testing.assert_allclose(found, [[1 / 2, 1 / 2, 2 / 6, 3 / 10]])


def test_counts_of_the_example():
    counts = distance_counts(QUERY, DATABASE, **LABELS, graded=True)
    assert counts.tolist() == [[[1, 0, 0], [1, 1, 1], [0, 1, 0], [1, 0, 0], [0, 0, 0]]]
    assert distance_counts(QUERY, DATABASE, **LABELS).tolist() == [[[1, 0], [1, 2], [0, 1], [1, 0], [0, 0]]]


def test_queries_without_a_relevant_item_are_left_out_and_counted():
    labels = {**LABELS, "query_labels": [["a", "b"], ["z"], []]}
    names = ["MAP", "P@k", "NDCG@k", "F1@r", "PR@r", "PR11"]
    report = evaluate(np.repeat(QUERY, 3, axis=0), DATABASE, **labels, metrics=names, k=3, per_query=True)
    assert (report.n_queries, report.n_evaluated, report.n_without_relevant) == (3, 1, 2)
    assert report["MAP[ties=id]"] == pytest.approx(GOLDEN["MAP[ties=id]"])
    assert report["F1@r2"] == pytest.approx(GOLDEN["F1@r2"])
    assert report.curves["PR@r"]["recall"][-1] == 1
    for values in report.per_query.values():
        assert np.isnan(values).tolist() == [False, True, True]


def test_an_empty_ball_counts_as_zero_in_the_mean():
    # Items at distances 1 and 0 from the first query, both relevant: F1 = 1. At 4 and 3 from the second, one of them
    # relevant: nothing lies within radius 1, F1 = 0, and the query still counts.
    queries = np.concatenate([QUERY, pack([[0, 1, 1, 1]])])
    labels = {"query_labels": [["a", "b"], ["b"]], "database_labels": [["b"], ["a"]], "n_bits": 4}
    report = evaluate(queries, DATABASE[:2], **labels, metrics=["P@r1", "F1@r1"], per_query=True)
    assert report.per_query["F1@r1"].tolist() == [1.0, 0.0]
    assert report["F1@r1"] == report["P@r1"] == 0.5


def test_the_ball_of_all_bits_holds_everything():
    # One bit, the only item at distance 1.
    names = [f"R@r{radius}" for radius in (0, 1, 5)]
    report = evaluate(pack([[0]]), pack([[1]]), query_labels=[0], database_labels=[0], n_bits=1, metrics=names)
    assert list(report.values.values()) == [0.0, 1.0, 1.0]


def test_groups_of_one_item_are_a_ranking_without_ties():
    ones = np.ones((1, 6))
    hits = [[0, 1, 1, 0, 1, 0]]
    assert average_precision(ones, hits)[0] == pytest.approx((1 / 2 + 2 / 3 + 3 / 5) / 3)
    assert precision_at(ones, hits, k=2)[0] == 1 / 2
    assert recall_at(ones, hits, k=2)[0] == pytest.approx(1 / 3)
    assert discounted_gain(ones, hits, k=2)[0] == pytest.approx(1 / LOG3)


def test_split_ties_orders_by_grade():
    assert split_ties([[[1, 1, 1]]], "worst").tolist() == [[[1, 0, 0], [0, 1, 0], [0, 0, 1]]]
    assert split_ties([[[1, 1, 1]]], "best").tolist() == [[[0, 0, 1], [0, 1, 0], [1, 0, 0]]]


def test_no_relevant_item_gives_nan():
    assert np.isnan(average_precision([[3]], [[0]])).all()
    assert np.isnan(average_precision([[3]], [[0]], k=2, denominator="retrieved")).all()
    assert np.isnan(precision_at([[3]], [[0]], k=1)).all()
    assert np.isnan(np.concatenate(within_radius([[3]], [[0]]))).all()
    assert np.isnan(interpolated_precision([[3]], [[0]])).all()


def test_recall_beyond_the_groups_has_precision_zero():
    # Two relevant in all, one within the groups given: recall 1 is never reached.
    assert interpolated_precision([[1]], [[1]], n_relevant=[2], points=3).tolist() == [[1.0, 1.0, 0.0]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: average_precision([[1]], [[2]]), "0 <= relevant <= total"),
        (lambda: average_precision([1], [1]), "must be matrices"),
        (lambda: average_precision([[1, 2]], [[1]]), "must be matrices"),
        (lambda: average_precision([[2]], [[2]], n_relevant=[1]), "n_relevant must hold"),
        (lambda: average_precision([[1]], [[1]], k=0), "k must be at least 1"),
        (lambda: average_precision([[1]], [[1]], k=1, denominator="k"), "denominator must be one of"),
        (lambda: interpolated_precision([[1]], [[1]], points=1), "points must be at least 2"),
        (lambda: discounted_gain([[1]], [[1, 2]]), "one shape"),
        (lambda: discounted_gain([[1]], [[1]], k=0), "k must be at least 1"),
        (lambda: grade_gains(3, "square"), "gain must be one of"),
        (lambda: split_ties([[[1]]], "id"), "order must be"),
        (lambda: split_ties([[1]], "best"), "shape"),
    ],
)
def test_bad_counts_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
