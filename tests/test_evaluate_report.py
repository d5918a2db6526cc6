from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

import modalhash as mh
from modalhash.codes import pack, pack_scores
from modalhash.evaluation import evaluate
from modalhash.exceptions import InputError, LabelsRequiredError, MissingExtraError, UnknownViewError
from modalhash.report import CrossModalReport, cross_modal_report


class Signs:
    """The least a hasher can be: a view's scores are its features; the joint codes come from the labels."""

    n_bits = 4
    view_names_ = ("image", "text")
    database_rules = ("encoded", "learned")

    def __init__(self):
        self.calls = []

    def project(self, view, X):
        return np.asarray(X.todense() if sparse.issparse(X) else X, dtype=float)[:, :4]

    def encode(self, view, X):
        return pack_scores(self.project(view, X))

    def database_codes(self, views, labels=None, *, rule, view=None):
        self.calls.append((rule, view, sorted(views), labels is not None))
        return self.encode(view, views[view]) if rule == "encoded" else pack(np.asarray(labels)[:, :4] > 0)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    labels = (rng.random((60, 4)) < 0.4).astype(int)
    labels[:3] = 0  # three queries without a label
    signs = 2.0 * labels - 1
    views = {
        "image": signs + rng.normal(0, 0.8, (60, 4)),
        "text": np.hstack([signs + rng.normal(0, 1.2, (60, 4)), rng.normal(size=(60, 2))]),
    }
    rows = np.arange(60)
    return SimpleNamespace(
        views=views, labels=labels, splits={"query": rows[:12], "train": rows[12:30], "database": rows[12:]}
    )


RUNS = [
    ("image", "text", "encoded"),
    ("text", "image", "encoded"),
    ("image", "image", "encoded"),
    ("text", "text", "encoded"),
    ("image", "all", "learned"),
    ("text", "all", "learned"),
]


def test_every_direction_under_every_rule(data):
    hasher = Signs()
    report = cross_modal_report(hasher, data)
    assert list(report.reports) == RUNS
    assert hasher.calls == [
        ("encoded", "image", ["image", "text"], True),
        ("encoded", "text", ["image", "text"], True),
        ("learned", None, ["image", "text"], True),
    ]
    query, stored = data.splits["query"], data.splits["database"]
    for query_view, database_view, rule in RUNS:
        X = data.labels[stored] - 0.5 if database_view == "all" else data.views[database_view][stored]
        direct = evaluate(
            hasher.encode(query_view, data.views[query_view][query]),
            hasher.encode(database_view, X),
            query_labels=data.labels[query],
            database_labels=data.labels[stored],
            n_bits=4,
            metrics=["MAP", "P@k", "F1@r"],
        )
        found = report[query_view, database_view, rule]
        assert found.values == direct.values
        assert found.database_rule == rule
        assert found.n_without_relevant == 3
    # Labels make the better database.
    assert report["image", "all", "learned"]["MAP[ties=id]"] > report["image", "text", "encoded"]["MAP[ties=id]"]


def test_explicit_arguments_equal_the_data_set(data):
    query, stored = data.splits["query"], data.splits["database"]
    explicit = cross_modal_report(
        Signs(),
        query_views={name: X[query] for name, X in data.views.items()},
        query_labels=data.labels[query],
        database_views={name: sparse.csr_array(X[stored]) for name, X in data.views.items()},
        database_labels=data.labels[stored],
    )
    whole = cross_modal_report(Signs(), data)
    assert {run: found.values for run, found in explicit.reports.items()} == {
        run: found.values for run, found in whole.reports.items()
    }


def test_choices(data):
    assert list(cross_modal_report(Signs(), data, within=False).reports) == [RUNS[0], RUNS[1], RUNS[4], RUNS[5]]
    only = cross_modal_report(Signs(), data, rules="learned", metrics="MAP@k", k=3, denominator="retrieved", ties="id")
    assert list(only.reports) == RUNS[4:]
    assert list(only[RUNS[4]].values) == ["MAP[ties=id]@3[denominator=retrieved]"]
    assert cross_modal_report(Signs(), data, per_query=True)[RUNS[0]].per_query is not None
    data.views["sound"] = np.ones((60, 2))
    assert list(cross_modal_report(Signs(), data).reports) == RUNS
    del data.splits["database"]
    assert cross_modal_report(Signs(), data)[RUNS[0]].n_database == 18


def test_no_line_without_its_rule(data):
    text = str(cross_modal_report(Signs(), data))
    lines = [line for line in text.splitlines() if "->" in line and not line.startswith("query")]
    assert len(lines) == 6
    for line, (query, database, rule) in zip(lines, RUNS, strict=True):
        assert line.split()[:4] == [query, "->", database, rule]
    assert "Signs: 12 queries against 48 items, 4 bits; 3 queries left out" in text
    assert "learned: joint codes" in text
    assert "text [encoded]: 4 bits of 48 codes" in text
    # With many metrics the table continues below, each line again with its rule.
    wide = str(cross_modal_report(Signs(), data, metrics=["MAP", "MAP@k", "NDCG@k", "P@r", "F1@r"], k=[1, 2]))
    again = [line for line in wide.splitlines() if line.startswith("image -> text")]
    assert len(again) > 1
    assert all("encoded" in line for line in again)
    assert all(len(line) <= 120 for line in wide.splitlines() if "->" in line)


def test_bits_of_the_database(data):
    report = cross_modal_report(Signs(), data, link="linear")
    assert list(report.bits) == [("image", "encoded"), ("text", "encoded"), ("all", "learned")]
    scores = data.views["image"][data.splits["database"]]
    error = np.square(scores - np.where(scores > 0, 1, -1)).mean()
    assert report.bits["image", "encoded"].quantisation_error == pytest.approx(error)
    assert report.bits["all", "learned"].quantisation_error is None
    assert cross_modal_report(Signs(), data, diagnostics=False).bits == {}


def test_other_forms(data):
    report = cross_modal_report(Signs(), data)
    found = json.loads(report.to_json())
    assert [(run["query_view"], run["database_view"], run["database_rule"]) for run in found["runs"]] == RUNS
    assert found["runs"][0]["values"] == report[RUNS[0]].values
    assert found["rules"].keys() == {"encoded", "learned"}
    assert [entry["database_rule"] for entry in found["bits"]] == ["encoded", "encoded", "learned"]
    assert "rules: encoded, learned" in repr(report)
    assert report._repr_html_().count("<td>encoded</td>") == 4
    pytest.importorskip("pandas")
    frame = report.to_frame()
    assert len(frame) == 6 * 5
    assert frame.columns.tolist()[:5] == ["query_view", "database_view", "database_rule", "metric", "value"]
    picked = frame[(frame.query_view == "text") & (frame.database_view == "all") & (frame.metric == "F1@r2")]
    assert picked["value"].tolist() == [report["text", "all", "learned"]["F1@r2"]]


def test_curves_carry_their_rule(data, monkeypatch):
    pytest.importorskip("matplotlib")
    report = cross_modal_report(Signs(), data)
    ax = report.plot_pr_curves()
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == [f"{query} -> {database} [{rule}]" for query, database, rule in RUNS]
    np.testing.assert_allclose(ax.lines[0].get_ydata(), report[RUNS[0]].curves["PR11[ties=expected]"]["precision"])
    with pytest.raises(InputError, match="was not measured"):
        report.plot_pr_curves(curve="PR11[ties=best]")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"modalhash\[plot\]"):
        report.plot_pr_curves()


class Nameless(Signs):
    database_rules = ("encoded", "unnamed")


def without_query(data):
    data.splits = {"train": data.splits["train"]}


def overlapping(data):
    data.splits["query"] = data.splits["database"][:2]


def unlabelled(data):
    data.labels = None


@pytest.mark.parametrize(
    ("hasher", "spoil", "options", "error", "message"),
    [
        (Signs, without_query, {}, InputError, "needs splits 'query' and 'database'.*it has train"),
        (Signs, overlapping, {}, InputError, "2 rows are both query and database"),
        (Signs, unlabelled, {}, LabelsRequiredError, "has no labels"),
        (Signs, None, {"rules": "fused"}, InputError, "Signs, which has encoded, learned; got 'fused'"),
        (Signs, None, {"rules": []}, InputError, "rules must be among"),
        (Nameless, None, {}, InputError, "rules must be among"),
        (Signs, None, {"query_labels": [1]}, InputError, "either a data set, or all of"),
        (Signs, None, {"metrics": "accuracy"}, InputError, "'accuracy' is not known"),
    ],
)
def test_bad_input(data, hasher, spoil, options, error, message):
    if spoil:
        spoil(data)
    with pytest.raises(error, match=message):
        cross_modal_report(hasher(), data, **options)


def test_bad_explicit_arguments(data):
    good = {
        "query_views": {"image": data.views["image"][:12]},
        "query_labels": data.labels[:12],
        "database_views": {"image": data.views["image"][12:]},
        "database_labels": data.labels[12:],
    }
    assert len(cross_modal_report(Signs(), **good, rules="encoded").reports) == 1
    with pytest.raises(InputError, match="one view alone"):
        cross_modal_report(Signs(), **good, rules="encoded", within=False)
    with pytest.raises(UnknownViewError, match=r"query_views must hold views .*\(image, text\); got 'sound'"):
        cross_modal_report(Signs(), **{**good, "query_views": {"sound": np.ones((12, 4))}})
    with pytest.raises(UnknownViewError, match=r"database_views must hold views .* got none"):
        cross_modal_report(Signs(), **{**good, "database_views": {}})
    with pytest.raises(InputError, match="either a data set, or all of"):
        cross_modal_report(Signs(), **{**good, "database_labels": None})
    with pytest.raises(InputError, match="either a data set, or all of"):
        cross_modal_report(Signs())


def test_unknown_runs_are_named(data):
    report = cross_modal_report(Signs(), data)
    with pytest.raises(InputError, match=r"was not measured; there are \('image', 'text', 'encoded'\)"):
        report["image", "text", "learned"]


def test_a_fitted_model_and_its_data_set():
    data = mh.datasets.make_synthetic(n=400, random_state=0).split("mirflickr", seed=0)
    train = data.rows("train")
    hasher = mh.DMH(n_bits=8, random_state=0).fit(train.views, labels=train.labels)
    report = cross_modal_report(hasher, data)
    assert isinstance(report, CrossModalReport)
    assert report.rules == hasher.database_rules
    for (_, _, rule), found in report.reports.items():
        assert found.database_rule == rule
        assert 0.3 < found["MAP[ties=expected]"] <= 1
