"""Our metrics against ir_measures (trec_eval), scikit-learn and ranx, wherever the definitions coincide."""

from __future__ import annotations

import numpy as np
import pytest

from modalhash.codes import hamming, pack
from modalhash.evaluation import evaluate
from modalhash.similarity import shared_labels

pytestmark = pytest.mark.comparison

N_QUERIES, N, N_BITS, K = 12, 300, 24, 20


@pytest.fixture(scope="module")
def data():
    """Random codes near three centres (many ties) and labels; every query has 10 to 290 relevant items."""
    rng = np.random.default_rng(7)
    centres = rng.integers(0, 2, (3, N_BITS))
    of = rng.integers(0, 3, N_QUERIES + N)
    codes = pack(centres[of] ^ (rng.random((N_QUERIES + N, N_BITS)) < 0.15))
    labels = (rng.random((N_QUERIES + N, 6)) < 0.2) | (
        np.eye(6, dtype=bool)[of] & (rng.random((N_QUERIES + N, 1)) < 0.8)
    )
    labels[:N_QUERIES, 0] = True
    q, d = labels[:N_QUERIES].astype(int), labels[N_QUERIES:].astype(int)
    grade, distance = shared_labels(q, d), hamming(codes[:N_QUERIES], codes[N_QUERIES:])
    assert ((grade > 0).sum(axis=1) >= 10).all()
    return {"codes": (codes[:N_QUERIES], codes[N_QUERIES:]), "labels": (q, d), "grade": grade, "distance": distance}


def ours(data, metrics, **options):
    report = evaluate(
        *data["codes"],
        query_labels=data["labels"][0],
        database_labels=data["labels"][1],
        n_bits=N_BITS,
        metrics=metrics,
        per_query=True,
        diagnostics=False,
        **options,
    )
    return report


def places(data):
    """Place of every item in the ranking by distance, ties by id: 1 is first."""
    order = np.argsort(data["distance"], axis=1, kind="stable")
    return np.argsort(order, axis=1) + 1


def trec(data, measures, scores=None):
    """Values per query from ir_measures; the ranking is handed over without ties unless scores are given."""
    ir_measures = pytest.importorskip("ir_measures", reason="ir-measures is not installed (dev extra)")
    scores = -places(data).astype(float) if scores is None else scores
    qrels = [
        ir_measures.Qrel(f"q{i}", f"d{j}", int(g)) for i, row in enumerate(data["grade"]) for j, g in enumerate(row)
    ]
    run = [
        ir_measures.ScoredDoc(f"q{i}", f"d{j}", float(s))
        for i, row in enumerate(scores)
        for j, s in enumerate(row)
        if np.isfinite(s)
    ]
    parsed = [ir_measures.parse_measure(name) for name in measures]
    out = {name: np.full(N_QUERIES, np.nan) for name in measures}
    for value in ir_measures.iter_calc(parsed, qrels, run):
        out[str(value.measure)][int(value.query_id[1:])] = value.value
    return out


@pytest.mark.parametrize(
    ("theirs", "name"),
    [
        ("AP", "MAP[ties=id]"),
        (f"AP@{K}", f"MAP[ties=id]@{K}[denominator=relevant]"),
        (f"P@{K}", f"P[ties=id]@{K}"),
        (f"R@{K}", f"R[ties=id]@{K}"),
        (f"nDCG@{K}", f"NDCG[ties=id]@{K}[gain=linear]"),
        ("nDCG", "NDCG[ties=id][gain=linear]"),
    ],
)
def test_trec_eval_agrees(data, theirs, name):
    found = ours(data, name).per_query[name]
    np.testing.assert_allclose(found, trec(data, [theirs])[theirs], atol=1e-9)


def test_trec_eval_agrees_on_the_eleven_points(data):
    names = [f"IPrec@{level / 10}" for level in range(11)]
    theirs = trec(data, names)
    curve = ours(data, "PR11[ties=id]").curves["PR11[ties=id]"]
    np.testing.assert_allclose(curve["precision"], [theirs[name].mean() for name in names], atol=1e-9)


@pytest.mark.parametrize("radius", [2, 5, 9])
def test_trec_eval_agrees_within_a_radius(data, radius):
    inside = np.where(data["distance"] <= radius, 1.0, -np.inf)
    theirs = trec(data, ["SetP", "SetR", "SetF"], scores=inside)
    report = ours(data, ["P@r", "R@r", "F1@r"], radius=radius)
    for measure, family in (("SetP", "P"), ("SetR", "R"), ("SetF", "F1")):
        expected = np.nan_to_num(theirs[measure])  # a query without any result is not in their output
        np.testing.assert_allclose(report.per_query[f"{family}@r{radius}"], expected, atol=1e-9)


def test_scikit_learn_agrees_on_average_precision(data):
    from sklearn.metrics import average_precision_score

    theirs = [
        average_precision_score(grade > 0, -place)
        for grade, place in zip(data["grade"], places(data).astype(float), strict=True)
    ]
    np.testing.assert_allclose(ours(data, "MAP[ties=id]").per_query["MAP[ties=id]"], theirs)


def test_scikit_learn_agrees_on_ndcg_with_ties(data):
    """Scikit-learn averages over tied scores as well: the expected NDCG, straight from distances."""
    from sklearn.metrics import ndcg_score

    for gain, worth in (("linear", data["grade"]), ("exponential", 2 ** data["grade"] - 1)):
        name = f"NDCG[ties=expected]@{K}[gain={gain}]"
        theirs = [
            ndcg_score(w[None], -d[None].astype(float), k=K) for w, d in zip(worth, data["distance"], strict=True)
        ]
        np.testing.assert_allclose(ours(data, name).per_query[name], theirs)


def test_scikit_learn_agrees_on_the_curve_over_radii(data):
    from sklearn.metrics import precision_recall_curve

    curve = ours(data, "PR@r").curves["PR@r"]
    precision, recall = np.zeros(N_BITS + 1), np.zeros(N_BITS + 1)
    for grade, distance in zip(data["grade"], data["distance"], strict=True):
        p, r, scores = precision_recall_curve(grade > 0, -distance.astype(float))
        at = {int(-score): (p[i], r[i]) for i, score in enumerate(scores)}
        value = (0.0, 0.0)  # nothing returned yet
        for radius in range(N_BITS + 1):
            value = at.get(radius, value)
            precision[radius] += value[0]
            recall[radius] += value[1]
    np.testing.assert_allclose(curve["precision"], precision / N_QUERIES)
    np.testing.assert_allclose(curve["recall"], recall / N_QUERIES)


def test_expected_ap_lies_between_the_extremes_of_trec_eval(data):
    """Ties shown to trec_eval in the order of names give one of the orders we average over."""
    policies = ["best", "expected", "worst"]
    best, expected, worst = (ours(data, "MAP", ties=p).per_query[f"MAP[ties={p}]"] for p in policies)
    theirs = trec(data, ["AP"], scores=-data["distance"].astype(float))["AP"]
    assert (worst < expected).all()
    assert (expected < best).all()
    assert ((worst <= theirs) & (theirs <= best)).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # its own and its compiler's
def test_ranx_agrees(data):
    ranx = pytest.importorskip("ranx", reason="ranx is not installed; it is no part of the dev extra")
    qrels = ranx.Qrels(
        {f"q{i}": {f"d{j}": int(g) for j, g in enumerate(row) if g} for i, row in enumerate(data["grade"])}
    )
    run = ranx.Run(
        {f"q{i}": {f"d{j}": float(N + 1 - p) for j, p in enumerate(row)} for i, row in enumerate(places(data))}
    )
    pairs = {
        "map": "MAP[ties=id]",
        f"map@{K}": f"MAP[ties=id]@{K}[denominator=relevant]",
        f"precision@{K}": f"P[ties=id]@{K}",
        f"recall@{K}": f"R[ties=id]@{K}",
        f"ndcg@{K}": f"NDCG[ties=id]@{K}[gain=linear]",
        f"ndcg_burges@{K}": f"NDCG[ties=id]@{K}[gain=exponential]",
    }
    theirs = ranx.evaluate(qrels, run, list(pairs))
    report = ours(data, list(pairs.values()))
    assert {name: report[pairs[name]] for name in pairs} == pytest.approx({k: float(v) for k, v in theirs.items()})
