"""Metrics against slow, exact versions written straight from the definitions, on random rankings with ties."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from modalhash.codes import hamming, pack
from modalhash.evaluation import distance_counts, evaluate
from modalhash.metric_names import DENOMINATORS
from modalhash.metrics import (
    average_precision,
    discounted_gain,
    interpolated_precision,
    precision_at,
    recall_at,
    within_radius,
)
from modalhash.similarity import relevance, shared_labels

# Groups of a ranking: (items, relevant ones), small enough to try every order.
groups = st.lists(st.integers(0, 4).flatmap(lambda m: st.tuples(st.just(m), st.integers(0, m))), min_size=1, max_size=4)


def all_orders(parts):
    """Every ranking (tuple of 0/1) that the tied groups allow; all equally likely."""
    each = []
    for m, r in parts:
        each.append([tuple(int(i in hits) for i in range(m)) for hits in combinations(range(m), r)])
    for choice in product(*each):
        yield tuple(bit for part in choice for bit in part)


def slow_ap(ranking, k, denominator):
    head = ranking if k is None else ranking[:k]
    total = sum(Fraction(sum(head[: i + 1]), i + 1) for i in range(len(head)) if head[i])
    relevant = sum(ranking)
    if k is None or denominator == "relevant":
        return total / relevant
    if denominator == "retrieved":
        return total / sum(head) if sum(head) else Fraction(0)
    return total / min(k, relevant)


def mean(values):
    values = list(values)
    return float(sum(values) / len(values))


@given(groups, st.none() | st.integers(1, 12), st.sampled_from(list(DENOMINATORS)))
@settings(max_examples=300)
def test_expected_ap_is_the_mean_over_all_orders(parts, k, denominator):
    assume(sum(r for _, r in parts) > 0)
    total, relevant = np.array([parts]).transpose(2, 0, 1)
    exact = mean(slow_ap(ranking, k, denominator) for ranking in all_orders(parts))
    found = average_precision(total, relevant, k=k, denominator=denominator)[0]
    assert found == pytest.approx(exact, abs=1e-13)
    assert -1e-13 <= found <= 1 + 1e-13


@given(groups, st.integers(1, 12))
def test_expected_precision_recall_and_gain_are_means_over_all_orders(parts, k):
    n_relevant = sum(r for _, r in parts)
    assume(n_relevant > 0)
    total, relevant = np.array([parts]).transpose(2, 0, 1)
    orders = list(all_orders(parts))
    hits = mean(Fraction(sum(ranking[:k])) for ranking in orders)
    assert precision_at(total, relevant, k=k)[0] == pytest.approx(hits / k, abs=1e-13)
    assert recall_at(total, relevant, k=k)[0] == pytest.approx(hits / n_relevant, abs=1e-13)
    dcg = mean(sum(bit / math.log2(i + 2) for i, bit in enumerate(ranking[:k])) for ranking in orders)
    assert discounted_gain(total, relevant, k=k)[0] == pytest.approx(dcg, abs=1e-13)


@given(groups)
def test_balls_follow_the_definitions(parts):
    n_relevant = sum(r for _, r in parts)
    assume(n_relevant > 0)
    precision, recall, f1 = (x[0] for x in within_radius(*np.array([parts]).transpose(2, 0, 1)))
    returned = hits = 0
    for radius, (m, r) in enumerate(parts):
        returned, hits = returned + m, hits + r
        p = hits / returned if returned else 0.0
        rec = hits / n_relevant
        assert precision[radius] == pytest.approx(p)
        assert recall[radius] == pytest.approx(rec)
        assert f1[radius] == pytest.approx(2 * p * rec / (p + rec) if p + rec else 0.0)


@given(groups, st.sampled_from([2, 3, 11]))
def test_interpolated_precision_follows_the_expected_counts(parts, points):
    n_relevant = sum(r for _, r in parts)
    assume(n_relevant > 0)
    along, returned, hits = [], 0, Fraction(0)
    for m, r in parts:
        for _ in range(m):
            returned, hits = returned + 1, hits + Fraction(r, m)
            along.append((hits / n_relevant, hits / returned))
    exact = [float(max(p for recall, p in along if recall >= Fraction(level, points - 1))) for level in range(points)]
    found = interpolated_precision(*np.array([parts]).transpose(2, 0, 1), points=points)[0]
    np.testing.assert_allclose(found, exact, atol=1e-13)


@given(st.lists(st.booleans(), min_size=1, max_size=30), st.integers(1, 30), st.sampled_from(list(DENOMINATORS)))
def test_without_ties_ap_is_the_textbook_one(ranking, k, denominator):
    assume(any(ranking))
    hits = np.array([ranking], dtype=int)
    found = average_precision(np.ones_like(hits), hits, k=k, denominator=denominator)[0]
    assert found == pytest.approx(float(slow_ap(tuple(map(int, ranking)), k, denominator)), abs=1e-13)


def test_ap_is_the_mean_over_thousands_of_random_orders(rng):
    total = rng.integers(0, 40, size=(1, 17))
    relevant = rng.binomial(total, np.linspace(0.7, 0.1, 17))
    distance = np.repeat(np.arange(17), total[0])
    hit = np.concatenate([np.arange(m) < r for m, r in zip(total[0], relevant[0], strict=True)])
    n_relevant, rank = int(relevant.sum()), np.arange(1, hit.size + 1)
    whole, cut = [], []
    for _ in range(5000):
        order = np.lexsort((rng.random(hit.size), distance))
        ranked = hit[order]
        precision = np.cumsum(ranked) / rank * ranked
        whole.append(precision.sum() / n_relevant)
        cut.append(precision[:50].sum() / max(1, ranked[:50].sum()))
    for values, k in ((whole, None), (cut, 50)):
        found = average_precision(total, relevant, k=k, denominator="retrieved")[0]
        error = np.std(values) / math.sqrt(len(values))
        assert 0 < error < 2e-3
        assert abs(found - np.mean(values)) < 4 * error


def test_closed_form_keeps_its_digits_on_ten_million_items():
    # One group of a single item far down: its precision is (R + 1) / (N + 1), no digits lost to logarithms.
    total, relevant = [[10_000_000, 1]], [[10, 1]]
    first = average_precision([[10_000_000]], [[10]], n_relevant=[11])[0]
    last = average_precision(total, relevant)[0] - first
    assert last == pytest.approx(11 / 10_000_001 / 11, rel=1e-6)
    # A group of m items that are all relevant in front: AP is exactly 1.
    assert average_precision([[5_000_000, 5_000_000]], [[5_000_000, 0]])[0] == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("start", [0, 1, 20, 31, 32, 33, 100, 5000])
@pytest.mark.parametrize("count", [1, 2, 12, 31, 200, 3000])
def test_sums_of_reciprocals_are_exact(start, count):
    # start items without a hit, then one group of count items with a single hit, which is at each place with equal
    # chance: the expected precision is the mean of 1/(start + i).
    exact = math.fsum(1 / (start + i) for i in range(1, count + 1)) / count
    assert average_precision([[start, count]], [[0, 1]])[0] == pytest.approx(exact, rel=1e-14)


def slow_by_id(distance, grade, name, k):
    """One query, ranked by a stable sort on distance."""
    ranked = grade[np.argsort(distance, kind="stable")]
    hits = ranked > 0
    precision = np.cumsum(hits) / np.arange(1, hits.size + 1)
    relevant = hits.sum()
    if name == "MAP":
        return (precision * hits).sum() / relevant
    if name in DENOMINATORS:
        divisor = {"retrieved": max(1, hits[:k].sum()), "relevant": relevant, "min(k, relevant)": min(k, relevant)}
        return (precision * hits)[:k].sum() / divisor[name]
    if name == "P":
        return hits[:k].mean()
    if name == "R":
        return hits[:k].sum() / relevant
    discount = 1 / np.log2(np.arange(2, k + 2))
    return ((2.0 ** ranked[:k] - 1) @ discount) / ((2.0 ** np.sort(grade)[::-1][:k] - 1) @ discount)


@given(
    st.integers(1, 130),
    st.integers(1, 5),
    st.integers(1, 40),
    st.sampled_from([1, 3, 70]),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=60)
def test_evaluate_equals_the_stable_sort(n_bits, n_queries, n, n_labels, seed):
    rng = np.random.default_rng(seed)
    # Few distinct codes, so that there are many ties.
    centres = rng.integers(0, 2, (3, n_bits))
    queries, database = (centres[rng.integers(0, 3, m)] ^ (rng.random((m, n_bits)) < 0.1) for m in (n_queries, n))
    query_labels, labels = ((rng.random((m, n_labels)) < 0.3).astype(int) for m in (n_queries, n))
    grade = shared_labels(query_labels, labels)
    distance = hamming(pack(queries), pack(database))
    assume((grade > 0).any())
    k = int(rng.integers(1, n + 1))
    names = {
        "MAP[ties=id]": "MAP",
        f"P[ties=id]@{k}": "P",
        f"R[ties=id]@{k}": "R",
        f"NDCG[ties=id]@{k}[gain=exponential]": "NDCG",
        **{f"MAP[ties=id]@{k}[denominator={d}]": d for d in DENOMINATORS},
    }
    options = {"query_labels": query_labels, "database_labels": labels, "n_bits": n_bits, "diagnostics": False}
    report = evaluate(pack(queries), pack(database), **options, metrics=[*names, "PR11[ties=id]"], per_query=True)
    known = (grade > 0).any(axis=1)
    assert report.n_evaluated == known.sum()
    for full, short in names.items():
        exact = [slow_by_id(distance[i], grade[i], short, k) for i in np.flatnonzero(known)]
        np.testing.assert_allclose(report.per_query[full][known], exact, atol=1e-12)
        assert np.isnan(report.per_query[full][~known]).all()
        assert report[full] == pytest.approx(np.mean(exact))
    # The 11-point curve, from its definition.
    curve = np.zeros(11)
    for i in np.flatnonzero(known):
        hits = np.cumsum(grade[i][np.argsort(distance[i], kind="stable")] > 0)
        precision = hits / np.arange(1, n + 1)
        curve += [precision[10 * hits >= level * hits[-1]].max() for level in range(11)]
    np.testing.assert_allclose(report.curves["PR11[ties=id]"]["precision"], curve / known.sum(), atol=1e-12)
    # Policies bound each other.
    both = evaluate(pack(queries), pack(database), **options, metrics="MAP", ties=["best", "expected", "id", "worst"])
    best, expected, by_id, worst = (both[f"MAP[ties={policy}]"] for policy in ("best", "expected", "id", "worst"))
    assert worst - 1e-12 <= min(expected, by_id)
    assert max(expected, by_id) <= best + 1e-12


@given(
    st.integers(1, 130), st.integers(1, 4), st.integers(1, 50), st.sampled_from([2, 64, 65]), st.integers(0, 2**32 - 1)
)
@settings(max_examples=60)
def test_counts_equal_the_definition(n_bits, n_queries, n, n_labels, seed):
    rng = np.random.default_rng(seed)
    q, d = (pack(rng.integers(0, 2, (m, n_bits))) for m in (n_queries, n))
    ql, dl = ((rng.random((m, n_labels)) < 0.4).astype(int) for m in (n_queries, n))
    counts = distance_counts(q, d, query_labels=ql, database_labels=dl, n_bits=n_bits, graded=True)
    distance, grade = hamming(q, d), shared_labels(ql, dl)
    slow = np.zeros_like(counts)
    for i in range(n_queries):
        np.add.at(slow[i], (distance[i], grade[i]), 1)
    np.testing.assert_array_equal(counts, slow)
    binary = distance_counts(q, d, query_labels=ql, database_labels=dl, n_bits=n_bits)
    np.testing.assert_array_equal(binary[:, :, 0], counts[:, :, 0])
    assert binary[:, :, 1].sum() == relevance(ql, dl).sum()
