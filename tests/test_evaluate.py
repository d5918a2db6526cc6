from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from scipy import sparse

import modalhash as mh
from modalhash.codes import hamming, pack
from modalhash.evaluation import DEFAULT_METRICS, distance_counts, evaluate
from modalhash.exceptions import InputError, MissingExtraError
from modalhash.similarity import shared_labels


@pytest.fixture(scope="module")
def case():
    """70 queries (more than a thread's task) and 9,001 items (more than two blocks), 70 bits (two words)."""
    rng = np.random.default_rng(3)
    centres = rng.integers(0, 2, (4, 70))
    of = rng.integers(0, 4, 9071)
    codes = pack(centres[of] ^ (rng.random((9071, 70)) < 0.12))
    labels = ((rng.random((9071, 5)) < 0.1) | np.eye(5, dtype=bool)[of]).astype(np.uint8)
    return {
        "query_codes": codes[:70],
        "database_codes": codes[70:],
        "query_labels": labels[:70],
        "database_labels": labels[70:],
        "n_bits": 70,
    }


def run(case, **options):
    return evaluate(**{**case, "diagnostics": False, **options})


def test_several_blocks_of_database_and_queries(case):
    distance = hamming(case["query_codes"], case["database_codes"])
    grade = shared_labels(case["query_labels"], case["database_labels"])
    report = run(case, metrics=["MAP[ties=id]", "P[ties=id]@500", "F1@r"], radius=10, per_query=True)
    order = np.argsort(distance, axis=1, kind="stable")
    hits = np.take_along_axis(grade > 0, order, axis=1)
    precision = np.cumsum(hits, axis=1) / np.arange(1, 9002)
    ap = (precision * hits).sum(axis=1) / hits.sum(axis=1)
    np.testing.assert_allclose(report.per_query["MAP[ties=id]"], ap)
    np.testing.assert_allclose(report.per_query["P[ties=id]@500"], hits[:, :500].mean(axis=1))
    ball = distance <= 10
    f1 = 2 * (ball & (grade > 0)).sum(axis=1) / (ball.sum(axis=1) + (grade > 0).sum(axis=1))
    np.testing.assert_allclose(report.per_query["F1@r10"], f1)


def test_counts_of_several_blocks(case):
    counts = distance_counts(**case, graded=True)
    distance = hamming(case["query_codes"], case["database_codes"])
    grade = shared_labels(case["query_labels"], case["database_labels"])
    slow = np.zeros_like(counts)
    for i in range(70):
        np.add.at(slow[i], (distance[i], grade[i]), 1)
    np.testing.assert_array_equal(counts, slow)


@pytest.mark.parametrize("change", [{"threads": 1}, {"threads": 3}, {"block_bytes": 1}, {"block_bytes": 200_000}])
def test_threads_and_blocks_change_nothing(case, change):
    ties = ["expected", "id", "best", "worst"]
    whole, other = run(case, ties=ties, threads=2), run(case, ties=ties, **change)
    assert other.values == whole.values
    for name, curve in whole.curves.items():
        np.testing.assert_allclose(other.curves[name]["precision"], curve["precision"], rtol=1e-14)


def test_head_alone_equals_head_of_the_whole_walk(case):
    """Without MAP the walk stops at the distance where k is reached."""
    alone = run(case, metrics=["P@k", "NDCG@k"], ties="id", k=[7, 300])
    along = run(case, metrics=["MAP", "P@k", "NDCG@k", "PR11"], ties="id", k=[7, 300])
    assert alone.values == {name: along.values[name] for name in alone.values}


def test_ties_by_id_follow_the_database_order(case):
    """Reordering the database moves the value by id, and leaves the expected one alone."""
    order = np.random.default_rng(0).permutation(9001)
    other = {**case, "database_codes": case["database_codes"][order], "database_labels": case["database_labels"][order]}
    first, second = run(case, metrics="MAP"), run(other, metrics="MAP")
    assert first["MAP[ties=expected]"] == second["MAP[ties=expected]"]
    assert first["MAP[ties=id]"] != second["MAP[ties=id]"]


def test_labels_in_every_form_give_the_same(case):
    dense = run(case)
    both = ("query_labels", "database_labels")
    assert run({**case, **{side: sparse.csr_array(case[side]) for side in both}}).values == dense.values
    ids = {side: case[side].argmax(axis=1) for side in both}
    names = {side: [["abcde"[i]] for i in ids[side]] for side in both}
    one_hot = {side: np.eye(5, dtype=int)[ids[side]] for side in both}
    assert run({**case, **ids}).values == run({**case, **names}).values == run({**case, **one_hot}).values


def test_inputs_are_left_alone(case):
    frozen = {name: value.copy() for name, value in case.items() if name != "n_bits"}
    for value in frozen.values():
        value.flags.writeable = False
    assert run({**frozen, "n_bits": 70}).values == run(case).values
    for name, value in frozen.items():
        np.testing.assert_array_equal(value, case[name])


def test_perfect_and_useless_codes():
    codes = pack(np.repeat([[0, 0, 0], [1, 1, 1]], 4, axis=0))
    labels = np.repeat([0, 1], 4)
    options = {"query_labels": labels, "database_labels": labels, "n_bits": 3, "diagnostics": False}
    perfect = evaluate(codes, codes, **options, k=4)
    expected = dict.fromkeys(perfect.values, 1.0)
    assert perfect.values == pytest.approx(expected)
    same = np.zeros_like(codes)
    useless = evaluate(same, same, **options, metrics=["MAP", "P@k"], ties=["expected", "best", "worst"], k=8)
    # All tied, half relevant: every order is possible.
    assert useless["MAP[ties=best]"] == 1
    # Worst: hits at ranks 5..8: (1/5 + 2/6 + 3/7 + 4/8) / 4.
    assert useless["MAP[ties=worst]"] == pytest.approx((1 / 5 + 2 / 6 + 3 / 7 + 4 / 8) / 4)
    assert useless["P[ties=expected]@8"] == 0.5


def test_defaults_state_k_and_fit_small_databases(case):
    report = run(case)
    assert "P[ties=expected]@100" in report.values
    small = evaluate(
        pack([[0, 1]]), pack([[0, 1], [1, 1]]), query_labels=[0], database_labels=[0, 1], n_bits=2, metrics="P@k"
    )
    assert list(small.values) == ["P[ties=expected]@2", "P[ties=id]@2"]
    assert {metric.split("@")[0] for metric in DEFAULT_METRICS} == {"MAP", "P", "R", "NDCG", "F1", "PR11", "PR"}


def change(case, **changes):
    return {**case, **changes}


BAD = {
    "other width": (lambda c: change(c, query_codes=c["query_codes"][:, :4]), "query_codes have 4 bytes per code; 70"),
    "wrong n_bits": (lambda c: change(c, n_bits=64), "9 bytes per code; 64 bits need 8"),
    "padding": (lambda c: change(c, n_bits=65), "bits set beyond bit 65"),
    "not packed": (lambda c: change(c, query_codes=c["query_codes"].astype(float)), "must be packed codes"),
    "query rows": (
        lambda c: change(c, query_labels=c["query_labels"][1:]),
        "query_labels have 69 rows and query_codes 70",
    ),
    "database rows": (
        lambda c: change(c, database_labels=c["database_labels"][:-2]),
        "database_labels have 8999 rows and database_codes 9001",
    ),
    "label columns": (lambda c: change(c, query_labels=c["query_labels"][:, :4]), "4 columns and database labels 5"),
    "empty queries": (
        lambda c: change(c, query_codes=c["query_codes"][:0], query_labels=c["query_labels"][:0]),
        "query_codes are empty",
    ),
    "empty database": (
        lambda c: change(c, database_codes=c["database_codes"][:0], database_labels=c["database_labels"][:0]),
        "database_codes are empty",
    ),
    "nothing relevant": (
        lambda c: change(c, query_labels=np.zeros_like(c["query_labels"])),
        "none of the 70 queries shares a label with any database item",
    ),
    "k too large": (lambda c: change(c, k=9002), "needs at least k database items; there are 9001"),
    "k of zero": (lambda c: change(c, k=0), "k must be one or several whole numbers of at least 1"),
    "unknown metric": (lambda c: change(c, metrics="accuracy"), "'accuracy' is not known"),
    "no threads": (lambda c: change(c, threads=0), "threads must be"),
    "no memory": (lambda c: change(c, block_bytes=0), "block_bytes must be"),
    "no rule": (lambda c: change(c, database_rule=""), "database_rule must be a word"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(case, name):
    make, message = BAD[name]
    with pytest.raises(InputError, match=message):
        evaluate(**make(case))


def test_report_says_what_it_measured(case):
    report = run(case, metrics=["MAP", "F1@r"], database_rule="learned")
    text = str(report)
    assert "70 queries against 9001 codes of 70 bits; 0 queries left out" in text
    assert "database rule: learned; ties: expected, id" in text
    for name, value in report.values.items():
        assert f"{name}" in text
        assert f"{value:.4f}" in text
    assert "learned" in repr(report)
    assert "database rule: learned" in report._repr_html_()
    assert "<td>MAP[ties=id]</td>" in report._repr_html_()
    assert str(run(case, metrics="MAP")).count("unnamed") == 1


def test_values_by_short_name(case):
    report = run(case, metrics=["MAP", "P@k", "F1@r"], ties="id", k=[10, 20])
    assert report["map"] == report["MAP[ties=id]"]
    assert report["P@10"] == report.values["P[ties=id]@10"]
    assert report["F1@r"] == report["F1@r2"]
    with pytest.raises(InputError, match=r"could be P\[ties=id\]@10, P\[ties=id\]@20; give the whole name"):
        report["P@k"]
    with pytest.raises(InputError, match="was not measured; this report has"):
        report["R@10"]
    with pytest.raises(InputError, match="is not known"):
        report["accuracy"]


def test_json_holds_everything(case):
    report = run(case, per_query=True, diagnostics=True)
    found = json.loads(report.to_json())
    assert found["values"] == report.values
    assert found["n_without_relevant"] == 0
    assert found["metrics"]["F1@r2"] == {"family": "F1", "radius": 2}
    assert found["ties"].keys() == {"expected", "id"}
    assert len(found["per_query"]["MAP[ties=id]"]) == 70
    assert len(found["curves"]["PR@r"]["f1"]) == 71
    assert found["bits"]["database"]["n"] == 9001
    assert len(found["bits"]["query"]["balance"]) == 70


def test_json_writes_a_left_out_query_as_null(case):
    labels = case["query_labels"].copy()
    labels[3] = 0
    found = json.loads(run(case, query_labels=labels, metrics="F1@r", per_query=True).to_json(indent=None))
    assert found["per_query"]["F1@r2"][3] is None
    assert found["n_without_relevant"] == 1


def test_frames(case):
    pytest.importorskip("pandas")
    report = run(case, metrics=["MAP", "P@k", "F1@r", "PR@r"], per_query=True, database_rule="encoded")
    frame = report.to_frame()
    assert frame["metric"].tolist() == list(report.values)
    assert frame.set_index("metric")["value"].to_dict() == report.values
    assert set(frame["database_rule"]) == {"encoded"}
    assert frame["radius"].tolist()[-1] == 2
    table = report.to_frame(per_query=True)
    assert table.shape == (70, 5)
    assert table["F1@r2"].mean() == pytest.approx(report["F1@r2"])
    with pytest.raises(InputError, match="evaluate with per_query=True"):
        run(case, metrics="MAP").to_frame(per_query=True)


def test_curves_are_drawn(case, tmp_path):
    pytest.importorskip("matplotlib")
    report = run(case, database_rule="encoded")
    ax = report.plot_pr_curve()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "encoded: PR11[ties=expected]",
        "encoded: PR11[ties=id]",
        "encoded: PR@r",
    ]
    np.testing.assert_allclose(ax.lines[2].get_ydata(), report.curves["PR@r"]["precision"])
    ax.figure.savefig(tmp_path / "pr.svg")
    assert (tmp_path / "pr.svg").stat().st_size > 1000
    assert report.plot_pr_curve(ax, label="again") is ax
    assert len(ax.lines) == 6
    with pytest.raises(InputError, match="holds no curve"):
        run(case, metrics="MAP").plot_pr_curve()


@pytest.mark.parametrize(
    ("module", "call"),
    [("pandas", lambda report: report.to_frame()), ("matplotlib.figure", lambda report: report.plot_pr_curve())],
)
def test_a_missing_extra_says_the_pip_line(case, monkeypatch, module, call):
    report = run(case, metrics=["MAP", "PR@r"])
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'modalhash\["):
        call(report)


def test_the_package_exports_the_function_not_a_module():
    import modalhash.evaluation

    assert mh.evaluate is evaluate is modalhash.evaluation.evaluate
    assert callable(mh.evaluate)


def test_kernels_compile_where_nothing_can_be_cached(monkeypatch):
    from modalhash import _popcount

    calls = []

    def njit(function, **options):
        calls.append(options)
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return "compiled"

    monkeypatch.setattr(_popcount.numba, "njit", njit)
    assert _popcount.compiled(len) == "compiled"
    assert [options.get("cache", False) for options in calls] == [True, False]
