"""The published numbers: read, checked against the constructors, and the same settings that the plan uses."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest

import modalhash as mh
from modalhash.exceptions import InputError, MissingExtraError
from modalhash.experiments import load_papers, plan, published
from modalhash.report import RULES

FILES = sorted((Path(published.__file__).parent / "papers").glob("*.yaml"))
PAPER = Path(__file__).parents[2] / "shared" / "paper" / "decorrelated-hashing.tex"


def test_every_compared_method_has_a_file():
    papers = load_papers()
    assert set(papers) == set(plan.METHODS)
    assert set(papers) <= set(mh.methods.__all__)
    for method, paper in papers.items():
        assert paper.key == method.lower()
        assert {(t.dataset, t.metric) for t in paper.tables} == {
            (d, m) for d in ("mirflickr", "nuswide") for m in ("MAP", "seconds")
        }
        assert paper.omitted


@pytest.mark.parametrize("method", plan.METHODS)
def test_numbers_and_names(method):
    paper, cls = load_papers()[method], getattr(mh.methods, method)
    known = set(inspect.signature(cls.__init__).parameters)
    assert {*paper.settings, *paper.ours["parameters"]} <= known
    for table in paper.tables:
        assert table.rule in cls.database_rules
        assert table.rule in RULES
        assert table.bits == ([16, 32, 64, 96, 128] if table.metric == "MAP" else [32])
        for numbers in table.values.values():
            assert len(numbers) == len(table.bits)
            assert all(0 < x < (1 if table.metric == "MAP" else 1e4) for x in numbers)


@pytest.mark.parametrize("method", plan.METHODS)
def test_the_plan_runs_what_the_file_says(method):
    """The table in Python stands in for the YAML where that cannot be read; the two must not drift apart."""
    ours = load_papers()[method].ours
    assert (ours["constructor"], ours["parameters"]) == plan.SETTINGS.get(method, (method, {}))
    for dataset in ("mirflickr", "nuswide"):
        own = ours.get("datasets", {}).get(dataset, {})
        assert own == plan.DATASET_PARAMETERS.get((method, dataset), {})
        _, _, preset = ours["constructor"].partition(".")
        cls = getattr(mh.methods, method)
        seeded = {"random_state": 5} if "random_state" in inspect.signature(cls.__init__).parameters else {}
        by_hand = (getattr(cls, preset) if preset else cls)(24, **seeded).set_params(**ours["parameters"], **own)
        assert plan.build(method, dataset, 24, 5).get_params() == by_hand.get_params()


def test_the_paper_compares_the_rule_that_is_scored():
    from modalhash.experiments.run import joint_rule

    for method, paper in load_papers().items():
        assert {table.rule for table in paper.tables} == {joint_rule(method) or "encoded"}


@pytest.mark.skipif(not PAPER.exists(), reason="the paper's source is not at hand")
def test_every_number_is_printed_in_the_paper():
    """Row by row: the cells of a method's two rows per data set, and its row of seconds."""
    rows = []
    for line in PAPER.read_text(encoding="utf-8", errors="replace").splitlines():
        cells = [c.replace("\\bf", "").replace("\\\\", "").replace("\\hline", "").strip() for c in line.split("&")]
        rows.append([c for c in cells if c])
    for method, paper in load_papers().items():
        printed = [row[row.index(method) + 1 :] for row in rows if method in row]
        maps = [[float(x) for x in row] for row in printed if len(row) == 5]
        expected = [paper.find(d, "MAP").values[v] for d in ("mirflickr", "nuswide") for v in published.DIRECTIONS]
        assert maps == expected
        times = next([float(x) for x in row] for row in printed if len(row) == 4)
        found = [paper.find(d, "seconds").values for d in ("mirflickr", "nuswide")]
        assert times == pytest.approx([x for f in found for x in (f["fit"][0], f["encode_per_query"][0] * 1e5)])


GOOD = FILES[0].read_text(encoding="utf-8")  # cmssh


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("verdict: within", "verdict: nearly", "verdict must be one of at least, within"),
        ("tolerance: 0.02", "tolerance: 2", "tolerance from 0 to 1"),
        ("tolerance: 0.02", "", "lacks tolerance"),
        ("tolerance: 0.02", "tolerance: 0.02\nsurprise: 1", "has entries of no meaning: surprise"),
        ("metric: MAP", "metric: MOP", "'MOP' by rule 'encoded' is not known"),
        ("rule: encoded", "rule: guessed", "by rule 'guessed' is not known"),
        ("0.5966, ", "", "image>text has 4 numbers for 5 lengths"),
        ("0.5966", "5966", "MAP image>text has a number that cannot be one"),
        ("fit: [69.7]", "fit: [-1]", "seconds fit has a number that cannot be one"),
        ("text>image: [0.6613", "text>sound: [0.6613", "values of MAP must be image>text, text>image"),
        ("constructor: CMSSH", "constructor: CMSSH.best", "no constructor 'CMSSH.best' of the method 'CMSSH'"),
        ("method: CMSSH", "method: CMSH", "of the method 'CMSH'"),
        ("parameters: {}", "parameters: {pears: 3}", "CMSSH has no parameter pears"),
        ("train_size: 10000", "size: 10000", "CMSSH has no parameter size"),
        ("table: MAP results", "page: 3", "is not of the right form"),
        ("tables:", "tables: [", "is not YAML"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, old, new, message):
    assert old in GOOD
    path = tmp_path / "cmssh.yaml"
    path.write_text(GOOD.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(InputError, match=message) as error:
        published.read_paper(path)
    assert "cmssh.yaml" in str(error.value)


def test_without_pyyaml(monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingExtraError, match=r"needs pyyaml.*modalhash\[plot\]"):
        load_papers()
    assert plan.make_plan("mirflickr", seeds=1)  # planning does without


def test_the_files_are_package_data():
    """hatch packs every file of the package's folder; a build that leaves these out is of no use."""
    import tomllib

    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel == {"packages": ["src/modalhash"]}
    assert len(FILES) == 6
