"""The report: from score files and published numbers to a page; every verdict is computed."""

from __future__ import annotations

import csv
import json
import math
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from modalhash.exceptions import InputError, MissingExtraError
from modalhash.experiments.claims import ask_claims
from modalhash.experiments.evidence import Evidence
from modalhash.experiments.page import Bullets, Entry, Section, Table, Text, to_csv, to_html, to_markdown
from modalhash.experiments.plots import Series, draw_heat_map, draw_lines
from modalhash.experiments.provenance import missing_runs
from modalhash.experiments.published import load_papers
from modalhash.experiments.records import STUDIES, bundle_scores, read_bundle, read_scores, select
from modalhash.experiments.report import docs_pages, write_docs, write_report
from modalhash.experiments.settings import parameter_value
from modalhash.experiments.verdicts import Printed, effect, judge, paired, signed, summarise

pytest.importorskip("matplotlib")
pytest.importorskip("yaml")

DOCS = Path(__file__).parent.parent / "docs" / "results"
DIRECTIONS = ("image>text", "text>image")
RULE = {"DMH": "learned", "MDBE": "label", "SePH": "fused"}
PAPERS = load_papers()
STEP = {"step_start": 0.003, "step_end": 0.0015}


def score(
    method="DMH", bits=32, seed=0, *, varied=None, studies=("table-map", "fig-f1"), dataset="mirflickr", **changed
):
    """One score file's content: the printed MAP (0.6 where none is printed) plus `shift`, the same under every rule."""
    varied = varied or {}
    shift = changed.pop("shift", 0.0)
    f1 = changed.pop("f1", 0.1)
    correlation = changed.pop("correlation", 0.05)
    table = PAPERS[method].find("mirflickr", "MAP") if method in PAPERS else None
    scores: dict[str, dict] = {}
    for rule in dict.fromkeys([RULE.get(method, "encoded"), "encoded"]):
        for direction in DIRECTIONS:
            base = table.values[direction][table.bits.index(bits)] if table and bits in table.bits else 0.6
            value = base + shift - (0.08 if rule == "encoded" and method in RULE else 0)
            scores.setdefault(rule, {})[direction] = {
                "MAP": value, "MAP(ties)": value - 0.001, "precision@r2": 0.8, "recall@r2": f1 / 2, "F1@r2": f1,
                "pr": [[r / 16, 1 - 0.4 * r / 16 - 0.02 * seed] for r in range(17)],
            }  # fmt: skip
    label = ",".join([method, *(f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in varied.items())])
    matrix = (
        [[1.0 if i == j else correlation for j in range(bits)] for i in range(bits)] if "ladder" in studies else None
    )
    content = {
        "dataset": dataset, "method": method, "label": label, "varied": varied, "bits": bits, "seed": seed,
        "parameters": {"label_weight": 10.0, "scale": 255.0, "decorrelation": 0.001, "init_scale": 0.002, **varied},
        "studies": list(studies),
        "split": {"hash": f"abc{seed}", "train": 19014, "database": 19014, "queries": 1001},
        "seconds": {"fit": 8.0, "cpu_fit": 15.0, "encode_per_query": {"image": 1e-5, "text": 3e-5}},
        "objective": [1.0 / (1 + k / 20) for k in range(400)] if method == "DMH" else None,
        "n_iter": 400 if method == "DMH" else None, "version": "0.1.0", "commit": "0123456789abcdef",
        "machine": {"cpu": "Processor X", "cores": 2, "device": "cpu", "python": "3.11.9", "numpy": "2.4.6"},
        "finished": f"2026-01-0{seed + 1}T00:00:00Z", "scores": scores,
        "bit_correlation": {RULE.get(method, "encoded"): {"mean_abs": correlation, "max_abs": 0.5, "matrix": matrix}},
    }  # fmt: skip
    return content | changed


def full(seeds=3):
    """What a whole run leaves, small: every study, with noise that depends on method, length and seed."""
    rng = np.random.default_rng(0)
    found = []
    for seed in range(seeds):
        for bits in (16, 32, 64, 96, 128):
            for method in ("CMSSH", "CVH", "SCM", "SePH", "MDBE", "DMH"):
                studies = ["table-map", "fig-f1"] + (["table-time"] if bits == 32 else [])
                studies += ["fig-convergence"] if method == "DMH" else []
                studies += ["fig-parameters"] if method == "DMH" and bits == 32 else []
                shift = rng.normal(0.004, 0.006) - (0.02 if method == "DMH" and bits == 128 else 0)
                f1 = (0.3 if method == "DMH" else 0.1) * 16 / bits
                found.append(score(method, bits, seed, studies=studies, shift=shift, f1=f1))
            found.append(
                score("DMH", bits, seed, varied=STEP, studies=["table-map", "fig-f1", "fig-convergence"], shift=-0.01)
            )
        varied = [{"label_weight": float(a)} for a in (1, 2, 5, 15, 20, 25)] + [
            {"scale_bits": b} for b in (1, 2, 4, 6, 9)
        ]
        varied += [{"decorrelation": 10.0**g} for g in (-5, -4, -2, -1, 0, 1)]
        varied += [{"init_scale": x} for x in (0.0003, 0.02, 0.1)]
        for one in varied:
            f1 = 0.5 if one.get("decorrelation", 0) > 0.5 or one.get("label_weight") == 1 else rng.uniform(0.1, 0.15)
            low = -0.15 if f1 == 0.5 else -0.01
            found.append(score("DMH", 32, seed, varied=one, studies=["fig-parameters"], shift=low, f1=f1))
    for seed in range(5):
        for bits in (32, 64):
            for method, one, c in (
                ("MultiViewITQ", {}, 0.02), ("MultiViewLinear", {}, 0.2), ("DMH", {"decorrelation_kind": None}, 0.12),
                ("DMH", {"decorrelation_kind": "weights"}, 0.11), ("DMH", {"decorrelation_kind": "centered"}, 0.06),
                ("DMH", STEP | {"decorrelation_kind": None}, 0.4),
            ):  # fmt: skip
                shift = rng.normal(0.0, 0.003)
                found.append(score(method, bits, seed, varied=one, studies=["ladder"], shift=shift, correlation=c))
            if seed < seeds:
                base = next(s for s in found if (s["label"], s["bits"], s["seed"]) == ("DMH", bits, seed))
                base["studies"].append("ladder")
                base["bit_correlation"] = score("DMH", bits, seed, studies=["ladder"])["bit_correlation"]
            else:
                found.append(score("DMH", bits, seed, studies=["ladder"], shift=rng.normal(0.002, 0.003)))
    return found


def write(folder, contents):
    for content in contents:
        safe = re.sub(r"[^A-Za-z0-9=,._-]", "_", content["label"])
        file = folder / "scores" / content["dataset"] / safe / f"{content['bits']:03d}-s{content['seed']}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content), encoding="utf-8")
    return folder


def evidence(tmp_path, contents, dataset="mirflickr"):
    return Evidence(dataset, read_scores(write(tmp_path, contents)), PAPERS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A whole report, written once."""
    folder = write(tmp_path_factory.mktemp("results"), full())
    return folder, write_report(folder)


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_mean_and_deviation():
    # 0.70, 0.72, 0.77: mean 0.73; squares 0.0009 + 0.0001 + 0.0016 = 0.0026, over 2: 0.0013, root 0.036056
    found = summarise([0.70, None, 0.72, 0.77])
    assert (found.n, found.mean) == (3, pytest.approx(0.73))
    assert found.sd == pytest.approx(0.0360555, abs=1e-6)
    assert summarise([None]) is None
    assert math.isnan(summarise([0.5]).sd)
    assert str(summarise([0.5])) == "0.5000"


def test_interval_by_hand():
    # 1..5 hundredths: mean 0.03, sd 0.0158114, t(4) = 2.776445; half = 2.776445 * 0.0158114 / sqrt(5) = 0.0196324
    found = effect([0.01, 0.02, 0.03, 0.04, 0.05])
    assert found.n == 5
    assert (found.low, found.high) == (pytest.approx(0.0103676, abs=1e-6), pytest.approx(0.0496324, abs=1e-6))
    assert found.verdict == "higher"
    # 1..3 hundredths: t(2) = 4.302653, half = 4.302653 * 0.01 / sqrt(3) = 0.0248414: covers 0
    assert effect([0.01, 0.02, 0.03]).low == pytest.approx(-0.0048414, abs=1e-6)
    assert effect([0.01, 0.02, 0.03]).verdict == "no effect seen"
    assert effect([-0.01, -0.02, -0.03, -0.04, -0.05]).verdict == "lower"
    assert effect([0.0, 0.0]).verdict == "no effect seen"
    assert effect([0.1]).verdict == "one pair, no interval"
    assert effect([]).verdict == "no pairs"
    assert str(effect([])) == "–"


def test_pairs_share_seed_length_and_split(tmp_path):
    with_ = [score(seed=s, shift=0.01 * s, studies=["ladder"]) for s in range(3)]
    without = [score(seed=s, varied={"decorrelation_kind": None}, studies=["ladder"]) for s in range(3)]
    without[2]["split"] = {"hash": "another"}
    found = evidence(tmp_path, with_ + without)
    assert found.pairs == [("DMH", "DMH,decorrelation_kind=None")]
    change = paired(*(found.rung(x) for x in found.pairs[0]), lambda s: s.value("learned", "image>text", "MAP"))
    assert (change.n, change.mean) == (2, pytest.approx(0.005))  # (0.00 + 0.01) / 2; seed 2 has another split


@pytest.mark.parametrize(
    ("mean", "judged", "verdict"),
    [
        (0.70, "at least", "above"),
        (0.69996, "at least", "above"),  # 0.7000 as shown
        (0.6951, "at least", "within"),
        (0.6899, "at least", "below"),
        (0.9, "at least", "above"),
        (0.71, "within", "within"),
        (0.69, "within", "within"),
        (0.7101, "within", "higher"),
        (0.6899, "within", "below"),
    ],
)
def test_verdict_of_a_cell(mean, judged, verdict):
    number = Printed("d", "DMH", "t", "MAP", "learned", "image>text", 16, 0.70, 0.01, judged)
    assert judge(summarise([mean]), number) == verdict
    assert judge(None, number) == judge(summarise([mean]), None) == ""


def test_signs():
    assert [signed(x) for x in (0.01, -0.01, 0.0, -0.00004)] == ["+0.0100", "−0.0100", "0.0000", "0.0000"]
    assert signed(3.26, 1) == "+3.3"


def test_further_settings_are_rows_of_their_own(tmp_path):
    found = evidence(tmp_path, [*table({"DMH": 0.01}), *table({"DMH": -0.03}, varied=STEP)])
    label = "DMH,step_start=0.003,step_end=0.0015"
    assert found.labels("table-map")[-2:] == ["DMH", label]
    assert {c.difference for c in found.cells("DMH")} == {0.01}
    assert {c.difference for c in found.cells(label)} == {-0.03}
    assert found.mean("DMH", "image>text", 16) == pytest.approx(0.7112)
    text = write_report(tmp_path, studies=["table-map"])[1].read_text(encoding="utf-8")
    assert "at or above the printed MAP in 10 of 10 cells" in text
    assert "- With step_start=0.003, step_end=0.0015: 0 of 10 cells." in text


def test_a_rung_is_compared_with_its_own_setting_unregularised(tmp_path):
    none = {"decorrelation_kind": None}
    settings = [{}, none, STEP, STEP | none, {"decorrelation": 0.1}, none | {"label_weight": 5.0}]
    contents = [score(varied=v, studies=["ladder"]) for v in settings] + [score("MultiViewITQ", studies=["ladder"])]
    found = evidence(tmp_path, contents)
    step = "DMH,step_start=0.003,step_end=0.0015"
    base = "DMH,decorrelation_kind=None"
    assert found.unregularised == base
    assert {label: found.reference(label) for label in found.rungs} == {
        "DMH": base,
        base: None,
        step: f"{step},decorrelation_kind=None",
        f"{step},decorrelation_kind=None": None,
        "DMH,decorrelation=0.1": base,
        "DMH,decorrelation_kind=None,label_weight=5": None,
        "MultiViewITQ": base,
    }
    assert found.pairs == [("DMH", base), (step, f"{step},decorrelation_kind=None")]


def test_only_numbers_of_one_rule_are_compared(tmp_path):
    bad = score("DMH", 16)
    del bad["scores"]["learned"]  # the rule of the paper's row
    found = evidence(tmp_path, [bad])
    assert found.rule("DMH") == "encoded"
    assert found.cells("DMH") == []


def test_beta_is_read_from_its_exponent(tmp_path):
    runs = [score(varied=v, studies=["fig-parameters"]) for v in ({}, {"scale_bits": 4}, {"decorrelation": 1.0})]
    names = ("scale_bits", "scale")
    values = [parameter_value(s, names) for s in read_scores(write(tmp_path, runs))]
    assert values == [255.0, None, 15.0]  # by label: DMH, DMH,decorrelation=1, DMH,scale_bits=4


# --- claims -----------------------------------------------------------------------------------------------------------


def claims(tmp_path, contents, dataset="mirflickr"):
    return {claim.id: claim for claim in ask_claims(evidence(tmp_path, contents, dataset))}


def table(shifts, seeds=1, **changed):
    """The MAP table with a shift for each method."""
    return [
        score(method, bits, seed, shift=shift, **changed)
        for method, shift in shifts.items()
        for bits in (16, 32, 64, 96, 128)
        for seed in range(seeds)
    ]


def test_without_runs_nothing_is_tested(tmp_path):
    found = claims(tmp_path, [score("CVH", studies=[])])
    assert {c.verdict for c in found.values()} == {"not tested"}
    assert set(found) >= {c["id"] for c in PAPERS["DMH"].claims}


def test_the_printed_table_itself_holds(tmp_path):
    found = claims(tmp_path, table(dict.fromkeys(PAPERS, 0.0)))
    assert {found[k].verdict for k in ("printed", "others", "map-best", "mdbe", "map-grows")} == {"held"}
    assert "10 of 10" in found["printed"].numbers
    assert "+0.1 %" in found["map-gain"].numbers  # 0.7057 / 0.7050 at 32 bits


def test_below_the_printed_table(tmp_path):
    found = claims(tmp_path, table({"DMH": -0.05, "MDBE": 0.05}))
    assert found["printed"].verdict == "not held"
    assert found["printed"].numbers.startswith("0 of 10 cells are at or above the paper (rule: learned)")
    assert found["others"].verdict == "not held"
    assert "MDBE 0 of 10 within 0.02 (+0.0500 to +0.0500)" in found["others"].numbers
    assert found["map-best"].verdict == "not held"


def test_some_cells_below(tmp_path):
    contents = table({"DMH": 0.001})
    contents[0] = score("DMH", 16, 0, shift=-0.002)
    found = claims(tmp_path, contents)
    assert found["printed"].verdict == "held in part"
    assert "8 of 10" in found["printed"].numbers  # 16 bits, both directions
    assert "16 bits, −0.0020" in found["printed"].numbers


def test_lookup_claim(tmp_path):
    lead = [score(m, 32, studies=["fig-f1"], f1=f1) for m, f1 in (("DMH", 0.2), ("MDBE", 0.1))]
    assert claims(tmp_path / "a", lead)["f1-best"].verdict == "held"
    near = [score(m, 32, studies=["fig-f1"], f1=f1) for m, f1 in (("DMH", 0.11), ("MDBE", 0.1))]
    assert claims(tmp_path / "b", near)["f1-best"].verdict == "held in part"  # ahead, by less than 30 %
    behind = [score(m, 32, studies=["fig-f1"], f1=f1) for m, f1 in (("DMH", 0.1), ("MDBE", 0.2))]
    found = claims(tmp_path / "c", behind)["f1-best"]
    assert (found.verdict, "0.50 to 0.50" in found.numbers) == ("not held", True)


@pytest.mark.parametrize(("gain", "verdict"), [(0.01, "held"), (0.0, "not held"), (-0.01, "not held")])
def test_regulariser_claim(tmp_path, gain, verdict):
    noise = (0.001, -0.001, 0.002, -0.002, 0.0)
    contents = [score(seed=s, shift=gain + noise[s], studies=["ladder"], correlation=0.05 - gain) for s in range(5)]
    none = {"decorrelation_kind": None}
    contents += [
        score(seed=s, varied=none, studies=["ladder"], correlation=0.05 + 0.0001 * (-1) ** s) for s in range(5)
    ]
    found = claims(tmp_path, contents)
    assert found["mcr-map"].verdict == verdict
    assert "n = 5" in found["mcr-map"].numbers
    assert ("no effect seen" in found["mcr-map"].numbers) == (gain == 0)
    assert found["mcr-bits"].verdict == ("held" if gain > 0 else "not held")


def test_parameter_claims(tmp_path):
    study = ["fig-parameters"]
    contents = [score(studies=study, f1=0.1)]
    contents += [score(varied={"label_weight": 1.0}, shift=-0.1, f1=0.3, studies=study)]
    contents += [score(varied={"label_weight": 25.0}, shift=-0.01, studies=study)]
    contents += [score(varied={"scale_bits": 1}, shift=-0.2, studies=study, f1=0.01)]
    contents += [score(varied={"decorrelation": 10.0}, shift=-0.2, f1=0.5, studies=study)]
    found = claims(tmp_path / "a", contents)
    assert {k: found[k].verdict for k in ("alpha", "beta", "gamma")} == {
        "alpha": "held",
        "beta": "held in part",  # F1 is highest at 255; MAP ranges over 0.2
        "gamma": "held",
    }
    assert "MAP is highest (0.7057) at γ = 0.001" in found["gamma"].numbers
    contents[-1] = score(varied={"decorrelation": 10.0}, shift=0.1, f1=0.05, studies=study)
    assert claims(tmp_path / "b", contents)["gamma"].verdict == "not held"


def test_convergence_claim(tmp_path):
    found = claims(tmp_path / "a", [score(studies=["fig-convergence"])])["convergence"]
    # 1/(1 + k/20): 1 at the first, 1/(1 + 99/20) = 0.16807 at the 100th, 1/(1 + 399/20) = 0.04773 at the 400th
    # (1 - 0.16807) / (1 - 0.04773) = 0.8736
    assert (found.verdict, found.numbers[:9]) == ("held", "DMH: 87 %")
    slow = score(studies=["fig-convergence"], objective=[1 - k / 400 for k in range(400)])
    assert claims(tmp_path / "b", [slow])["convergence"].verdict == "held in part"  # slow, but never rising
    slow["objective"][200] = 2.0
    assert claims(tmp_path / "c", [slow])["convergence"].verdict == "not held"


def test_time_claim(tmp_path):
    def timed(method, fit, encode):
        seconds = {"fit": fit, "encode_per_query": {"image": encode, "text": encode}}
        return score(method, studies=["table-time"], seconds=seconds)

    paper = {"CVH": 0.9, "SCM": 1.3, "MDBE": 25.0, "DMH": 29.8, "CMSSH": 69.7, "SePH": 4711.2}
    found = claims(tmp_path / "a", [timed(m, fit, 1e-5) for m, fit in paper.items()])["time"]
    assert found.verdict == "held"
    found = claims(tmp_path / "b", [timed("DMH", 1.0, 1e-5), timed("MDBE", 2.0, 1e-6)])["time"]
    assert (found.verdict, "10.00 times" in found.numbers) == ("not held", True)


def test_start_claim(tmp_path):
    contents = [score(studies=["ladder"]), score(varied={"init_scale": 0.1}, shift=-0.2, studies=["ladder"])]
    found = claims(tmp_path, contents)["start"]
    assert found.verdict == "not held"
    assert "0.7057 at 0.002, 0.5057 at 0.1" in found.numbers


# --- what is missing --------------------------------------------------------------------------------------------------


def test_missing_runs_are_listed(tmp_path):
    contents = [*table({"DMH": 0.0}, seeds=2), score("CVH", 16, 0)]
    contents = [c for c in contents if (c["method"], c["bits"], c["seed"]) != ("DMH", 64, 1)]
    found = evidence(tmp_path, contents)
    lines = missing_runs(found, ["table-map", "ladder"])
    assert "table-map, DMH: 64 bits (seed 1)" in lines
    assert "table-map, CVH: 16 bits (seed 1), 32 bits, 64 bits, 96 bits, 128 bits" in lines
    assert "table-map, SePH: 16 bits, 32 bits, 64 bits, 96 bits, 128 bits" in lines
    assert "ladder: not run" in lines
    assert missing_runs(evidence(tmp_path / "b", table(dict.fromkeys(PAPERS, 0.0))), ["table-map"]) == []


def test_partial_results_render(tmp_path):
    paths = write_report(write(tmp_path, [score("DMH", 16)]))
    page, text = (paths[i].read_text(encoding="utf-8") for i in (0, 1))
    assert "at or above the printed MAP in 2 of 2 cells" in page
    assert "8 of DMH&#x27;s printed cells are not measured." in page
    assert "| image>text | CVH | encoded | – (paper 0.6591) |" in text
    assert "- table-map, CVH: 16 bits, 32 bits" in text
    assert "- fig-parameters: not run" in text


def test_a_data_set_without_printed_numbers(tmp_path):
    contents = [score(m, b, dataset="icons") for m in ("DMH", "CVH") for b in (16, 32)]
    text = write_report(write(tmp_path, contents), studies=["table-map"])[1].read_text(encoding="utf-8")
    assert "icons: the paper prints no numbers for this data set" in text
    assert "(paper" not in text
    assert "SePH" not in text.split("## MAP")[1].split("###")[0]


def test_two_data_sets_have_a_chapter_each(tmp_path):
    contents = [score("DMH", 16), score("DMH", 16, dataset="nuswide")]
    text = write_report(write(tmp_path, contents), studies=["table-map"])[1].read_text(encoding="utf-8")
    assert "\n## MIRFlickr\n" in text
    assert "\n## NUS-WIDE\n" in text
    assert "What reproduces, and what does not (NUS-WIDE)" in text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ("[1]", "is not a score file: dataset, method"),
        (json.dumps({**score(), "bits": "32"}), "is not a score file: bits is missing or of another type"),
    ],
)
def test_bad_score_files_are_named(tmp_path, content, message):
    file = write(tmp_path, [score()]) / "scores" / "mirflickr" / "bad.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=rf"mirflickr/bad.json {message}"):
        write_report(tmp_path)


def test_nothing_to_report(tmp_path):
    with pytest.raises(InputError, match=r"no score file .* Run the score step first"):
        write_report(tmp_path)
    with pytest.raises(InputError, match=r"studies must be among table-map, .*; got 'table-mao'"):
        write_report(write(tmp_path, [score()]), studies=["table-mao"])
    with pytest.raises(InputError, match="no scores of 'nuswide'"):
        write_docs(tmp_path, tmp_path / "docs", dataset="nuswide")


def test_missing_matplotlib_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"modalhash\[plot\]"):
        write_report(write(tmp_path, [score()]))


# --- the page ---------------------------------------------------------------------------------------------------------


class Checker(HTMLParser):
    """Tags that are closed, names that are used once, and everything that would be loaded."""

    VOID = frozenset({"meta", "br", "img", "link", "input", "hr"})

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.loaded, self.tags, self.links = [], [], [], set(), []

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        named = dict(attrs)
        self.tags.add(tag)
        self.ids += [named["id"]] if "id" in named else []
        self.loaded += [v for k, v in attrs if k in ("src", "href", "xlink:href", "srcset") and v and v[0] != "#"]
        self.links += [v[1:] for k, v in attrs if k in ("href", "xlink:href") and v and v[0] == "#"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_page_is_whole_and_needs_nothing_else(whole):
    _, paths = whole
    page = Checker()
    text = paths[0].read_text(encoding="utf-8")
    page.feed(text)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert set(page.links) <= set(page.ids)
    assert all(x.startswith("data:image/png;base64,") for x in page.loaded)
    assert not page.tags & {"script", "link", "img", "iframe", "object"}
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert text.count("<svg") == len([p for p in paths if p.suffix == ".svg"]) > 10
    assert "currentColor" in text  # figures follow the page's colours, dark ones too


def test_every_study_is_on_the_page(whole):
    _, paths = whole
    text = paths[1].read_text(encoding="utf-8")
    for title in ("MAP", "Lookup within radius 2", "Parameters", "Convergence", "Time", "The ladder, and what MCR does",
                  "What reproduces, and what does not", "Where the numbers come from"):  # fmt: skip
        assert f"\n## {title}\n" in text
    assert "\n### Missing runs\n\nNone.\n" in text
    assert "Processor X, 2 cores" in text
    assert "abc4" in text
    assert "0123456789abcdef" in text
    for figure in re.findall(r"\]\((figures/[^)]+)\)", text):
        assert (paths[1].parent / figure).exists()


def test_same_scores_same_bytes(tmp_path):
    contents = [score(bits=16, studies=["ladder", "fig-convergence"]), score(bits=16, studies=["fig-parameters"])]
    contents[1] |= {"label": "DMH,decorrelation=1", "varied": {"decorrelation": 1.0}}
    first = write_report(write(tmp_path / "a", contents), studies=["fig-convergence", "ladder"])
    again = write_report(write(tmp_path / "b", reversed(contents)), studies=["ladder", "fig-convergence"])
    assert [p.relative_to(tmp_path / "a") for p in first] == [p.relative_to(tmp_path / "b") for p in again]
    assert {"index.html", "mirflickr-bits-dmh.svg", "mirflickr-convergence.svg"} <= {p.name for p in first}
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in again]


def test_table_of_the_cells(whole):
    folder, _ = whole
    text = (folder / "report/tables/mirflickr-map.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert len(rows) == 70  # six methods and a further setting, five lengths, two directions
    own = next(r for r in rows if (r["method"], r["direction"], r["bits"]) == ("DMH", "text>image", "128"))
    assert own["printed"] == "0.8470"
    assert own["rule"] == "learned"
    assert float(own["difference"]) == pytest.approx(round(float(own["mean"]), 4) - 0.8470, abs=1e-9)
    assert own["verdict"] == ("above" if float(own["difference"]) >= 0 else "below")
    assert own["seeds"] == "3"


def test_everything_is_escaped(tmp_path):
    evil = "<script>alert(1)</script>|`*_[x](javascript:1)"
    bad = score("DMH", varied={}, studies=["ladder"], machine={"cpu": evil, "cores": 1}, version=evil, commit=evil)
    bad["label"] = bad["split"]["hash"] = evil
    paths = write_report(write(tmp_path, [bad, score("DMH", varied={"decorrelation_kind": None}, studies=["ladder"])]))
    page, text = (paths[i].read_text(encoding="utf-8") for i in (0, 1))
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "\\<script>" in text
    assert "<script" not in text.replace("\\<script", "")
    assert "](javascript" not in text.replace("\\[x](javascript", "")
    widths = [len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line.startswith("| Proc")]
    assert len(set(widths)) <= 1
    Checker().feed(page)


def test_markdown_says_what_is_meant():
    cases = {
        "0.7 ± 0.1": "0.7 ± 0.1",
        "1. first": "1\\. first",
        "- item": "\\- item",
        "+0.01 [−0.01, 0.02]": "+0.01 [−0.01, 0.02]",
        "label_weight": "label_weight",
        "_x_": "\\_x\\_",
        "a & b < c": "a &amp; b \\< c",
        "image>text": "image>text",
    }
    for text, expected in cases.items():
        assert to_markdown(Section("t", [Text(text)])).splitlines()[2] == expected


def test_entries_in_each_form():
    entry = Entry("0.7", "paper 0.6", "+0.1 at or above", "up")
    made = Table("t", "Caption", ["m", "v"], [["DMH", entry], ["CVH", Entry("–", tone="missing")]])
    page = to_html(Section("R", [made, Bullets(["one"])]))
    assert '0.7<small>paper 0.6</small><span class="delta up">+0.1 at or above</span>' in page
    assert '<span class="missing">–</span>' in page
    assert "| DMH | 0.7 (paper 0.6; +0.1 at or above) |" in to_markdown(Section("R", [made]))
    assert to_csv(made) == "m,v\nDMH,0.7 (paper 0.6; +0.1 at or above)\nCVH,–\n"


# --- figures ----------------------------------------------------------------------------------------------------------


def test_figures_are_small_well_formed_and_labelled(whole):
    from xml.etree import ElementTree

    _, paths = whole
    for path in (p for p in paths if p.suffix == ".svg"):
        content = path.read_text(encoding="utf-8")
        assert ElementTree.fromstring(content).tag.endswith("svg")
        assert len(content) < 60_000
        assert "<dc:date>" not in content
    texts = {p.stem: p.read_text(encoding="utf-8") for p in paths if p.suffix == ".svg"}
    gamma = texts["mirflickr-gamma-map"]
    assert all(f">{tick}<" in gamma for tick in ("1e-5", "1e-4", "0.001", "0.01", "0.1", "1", "10"))
    assert "γ, the weight of the regulariser (logarithmic)" in gamma
    assert "code length, bits" in texts["mirflickr-f1-r2-image-text"]
    assert "mean |r| 0.120" in texts["mirflickr-bits-dmh-decorrelation-kind-none"]


def test_figures_refuse_what_cannot_be_drawn():
    with pytest.raises(InputError, match="nothing to draw"):
        draw_lines([Series("a", [], [])], title="t", x_label="x", y_label="y")
    with pytest.raises(InputError, match="square matrix"):
        draw_heat_map([[1.0, 0.5]], title="t", limit=1)
    assert "<image" in draw_heat_map([[1.0, None], [None, 1.0]], title="t", limit=1)


# --- the documentation's pages ----------------------------------------------------------------------------------------


def test_bundle_keeps_what_is_shown(tmp_path):
    contents = [*table({"DMH": 0.01}, seeds=2), *(score(seed=s, studies=["ladder"], bits=64) for s in (7, 8))]
    contents.append(score("CVH", 64, studies=["table-map"]))
    scores = read_scores(write(tmp_path, contents))
    again = read_bundle(bundle_scores(scores, pr_bits=64, matrices=[7]))
    for old, new in zip(scores, again, strict=True):
        assert (old.label, old.bits, old.seed, old.studies, old.split) == (
            new.label,
            new.bits,
            new.seed,
            new.studies,
            new.split,
        )
        for rule in old.scores:
            for direction in DIRECTIONS:
                for metric in ("MAP", "F1@r2", "MAP(ties)", "recall@r2")[: 4 if "table-map" in old.studies else 2]:
                    assert new.value(rule, direction, metric) == pytest.approx(
                        old.value(rule, direction, metric), abs=1e-5
                    )
        has_curve = "pr" in new.scores[old_rule(old)]["image>text"]
        assert has_curve == (old.bits == 64 and "table-map" in old.studies)
        assert bool(new.bit_correlation["learned" if old.method == "DMH" else "encoded"].get("matrix")) == (
            new.seed == 7
        )
    kept = next(s for s in again if s.seed == 7).bit_correlation["learned"]["matrix"]
    assert kept == [[1.0 if i == j else 0.05 for j in range(64)] for i in range(64)]


def old_rule(score):
    return next(iter(score.scores))


def test_bundle_of_another_kind_is_refused():
    for text in ("{", "[]", '{"bundle": 99}'):
        with pytest.raises(InputError, match="bundle of scores"):
            read_bundle(text)


def test_docs_follow_from_the_bundle(tmp_path):
    contents = [*table({"DMH": 0.01}), score(studies=["ladder"], seed=4)]
    paths = write_docs(write(tmp_path, contents), tmp_path / "docs")
    assert paths[0] == tmp_path / "docs" / "mirflickr.json"
    bundle = paths[0].read_text(encoding="utf-8")
    for name, page in docs_pages(bundle).items():
        assert (tmp_path / "docs" / name).read_text(encoding="utf-8") == to_markdown(page)
    text = (tmp_path / "docs" / "README.md").read_text(encoding="utf-8")
    assert text.startswith("# Results on MIRFlickr\n")
    assert all((tmp_path / "docs" / f).exists() for f in re.findall(r"\]\((figures/[^)]+)\)", text))
    assert ">>>" not in text
    claims = (tmp_path / "docs" / "what-reproduces.md").read_text(encoding="utf-8")
    assert claims.startswith("# What reproduces, and what does not\n")
    assert "10 of 10 cells" in claims
    with pytest.raises(InputError, match="no scores of 'nuswide'"):
        docs_pages(bundle, "nuswide")


def test_bundle_of_a_whole_run_is_small(whole):
    scores = read_scores(whole[0])
    assert len(bundle_scores(scores, pr_bits=64, matrices=[0])) < 300_000


def test_markdown_needs_no_matplotlib(tmp_path, monkeypatch):
    bundle = bundle_scores(read_scores(write(tmp_path, [score(), score(studies=["ladder"], seed=1)])))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "![MAP by code length" in to_markdown(docs_pages(bundle)["README.md"])


@pytest.mark.skipif(not (DOCS / "mirflickr.json").exists(), reason="docs/results is not in this tree")
def test_committed_pages_follow_from_committed_scores():
    bundle = (DOCS / "mirflickr.json").read_text(encoding="utf-8")
    for name, page in docs_pages(bundle).items():
        assert (DOCS / name).read_text(encoding="utf-8") == to_markdown(page), (
            f"docs/results/{name} is not what follows"
        )


def test_studies_are_those_of_the_plan():
    from modalhash.experiments.plan import STUDIES as PLANNED

    assert tuple(PLANNED) == STUDIES


@pytest.mark.skipif(not (DOCS / "mirflickr.json").exists(), reason="docs/results is not in this tree")
def test_the_table_of_the_readme_follows_from_committed_scores():
    scores = read_bundle((DOCS / "mirflickr.json").read_text(encoding="utf-8"))
    printed = load_papers()["DMH"].find("mirflickr", "MAP")
    readme = (DOCS.parents[1] / "README.md").read_text(encoding="utf-8")
    table, reached = re.findall(r"^\| (\d+) \| (.+) \|$", readme, re.M), 0
    assert [int(bits) for bits, _ in table] == printed.bits
    for place, (bits, cells) in enumerate(table):
        expected = []
        for direction in ("image>text", "text>image"):
            expected.append(f"{printed.values[direction][place]:.3f}")
            for rule in ("learned", "encoded"):
                runs = select(scores, label="DMH", bits=int(bits), study="table-map")
                found = summarise([run.value(rule, direction, "MAP") for run in runs])
                expected.append(f"{found.mean:.3f} ± {found.sd:.3f}")
                reached += rule == "learned" and round(found.mean, 4) >= printed.values[direction][place]
        assert cells.split(" | ") == expected
    assert f"{['Seven', 'Eight', 'Nine', 'Ten'][reached - 7]} of ten cells are at or above" in readme
