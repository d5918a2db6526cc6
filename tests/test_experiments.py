"""Planning, fitting, resuming and scoring the studies, on small made-up data."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import modalhash as mh
from modalhash.datasets import Dataset, make_synthetic
from modalhash.exceptions import InputError
from modalhash.experiments import files, make_plan, run, score_runs, sources
from modalhash.experiments import score as scoring
from modalhash.experiments.estimate import Estimate, cost
from modalhash.experiments.plan import BITS, METHODS, PRINTED, STUDIES, build

SHORT = {"DMH": {"n_iter": 15}}


@pytest.fixture(scope="module")
def data():
    return make_synthetic(n=240, random_state=0)


def plan(methods=("CVH", "MDBE"), studies=("table-map",), bits=(8,), seeds=1, **options):
    return make_plan("synthetic", methods=methods, studies=studies, bits=bits, seeds=seeds, parameters=SHORT, **options)


@pytest.fixture
def fits(monkeypatch):
    """Count the fits, by method."""
    count = Counter()
    whole = run.fit_run
    monkeypatch.setattr(run, "fit_run", lambda one, *a, **k: (count.update([one.method]), whole(one, *a, **k))[1])
    return count


# --- the plan ------------------------------------------------------------------------------------------------------


def test_the_whole_plan():
    runs = make_plan("mirflickr")
    assert len({(one.label, one.bits, one.seed) for one in runs}) == len(runs)
    by = {study: [one for one in runs if study in one.studies] for study in STUDIES}
    cells = {(one.label, one.bits, one.seed) for one in by["table-map"] if not one.varied}
    assert cells == {(m, b, s) for m in METHODS for b in BITS for s in range(3)}
    assert by["table-map"] == by["fig-f1"]
    assert {one.bits for one in by["fig-parameters"]} == {32}
    assert {one.bits for one in by["ladder"]} == {32, 64}
    assert {one.seed for one in by["ladder"]} == set(range(5))
    assert {one.method for one in by["table-time"]} == set(METHODS)
    assert [one.alone for one in runs] == sorted(one.alone for one in runs)  # alone last
    assert sum(one.alone for one in runs) == len(by["table-time"])
    # alpha 10, beta 255 and gamma 0.001 are the setting itself: one run, not four
    varied = [one for one in by["fig-parameters"] if one.seed == 0]
    assert Counter(next(iter(one.varied), None) for one in varied) == {
        None: 1, "label_weight": 6, "scale_bits": 5, "decorrelation": 6, "init_scale": 4
    }  # fmt: skip


def test_paired_runs_share_split_and_start():
    one, other = build("DMH", "mirflickr", 32, 3), build("DMH", "mirflickr", 32, 3, varied={"decorrelation_kind": None})
    assert one.random_state == other.random_state == 3
    changed = {k for k, v in one.get_params().items() if v != other.get_params()[k]}
    assert changed == {"decorrelation_kind"}


def test_settings_by_data_set():
    assert build("DMH", "mirflickr", 16, 0).scale == 255.0
    assert build("DMH", "nuswide", 16, 0).scale == {"image": 1.0, "text": 255.0}
    assert build("DMH", "nuswide", 16, 0, varied={"scale_bits": 8}).scale["image"] == 1.0
    assert build("DMH", "own", 16, 0).scale == "auto"
    printed = build("DMH", "mirflickr", 16, 0, varied=PRINTED).get_params()
    steps = ("n_iter", "step_start", "step_end")
    assert [printed[name] for name in steps] == [400, 0.003, 0.0015]  # K, k_s and k_e as the paper prints them
    rest = mh.DMH.paper(16, random_state=0).get_params()
    assert {k: v for k, v in printed.items() if k not in steps} == {k: v for k, v in rest.items() if k not in steps}


def test_fewer_methods_and_lengths():
    assert {one.method for one in plan(methods=("CVH",), studies=tuple(STUDIES), bits=(8, 16))} == {"CVH"}
    assert {one.bits for one in plan(methods=("DMH",), studies=("ladder",), bits=(8, 16))} == {16}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"studies": ["table-mop"]}, "unknown study: 'table-mop'; there are table-map"),
        ({"studies": []}, "unknown study: none"),
        ({"methods": ["LSH"]}, "unknown method: 'LSH'"),
        ({"bits": []}, "bits must be whole numbers"),
        ({"bits": [0]}, "bits must be whole numbers"),
        ({"seeds": 0}, "seeds must be a whole number of at least 1; got 0"),
        ({"parameters": {"DMH": {"steps": 3}}}, "DMH has no parameter 'steps'"),
    ],
)
def test_plans_that_cannot_be(options, message):
    with pytest.raises(InputError, match=message):
        make_plan("mirflickr", **options)


def test_estimate():
    runs = make_plan("mirflickr", studies=["table-map"], seeds=1)
    assert all(cost(one, 19_014) > 0 for one in runs)
    left = Estimate({0: ("DMH", 10.0), 1: ("DMH", 10.0), 2: ("CVH", 5.0), 3: ("CVH", 5.0)})
    assert left.seconds() == 30
    left.finish(0, 20.0)  # twice the table's time: for CVH too, as long as nothing else is known of it
    assert left.seconds() == 2 * (10 + 5 + 5)
    left.finish(2, 1.0)  # a fifth
    assert left.seconds() == 2 * 10 + 5 / 5
    left.drop(1)
    assert left.seconds() == 1


# --- running -------------------------------------------------------------------------------------------------------


def test_what_a_run_stores(data, tmp_path):
    runs = plan(methods=("DMH", "CVH"))
    run.execute(runs, {"synthetic": data}, tmp_path)
    for one in runs:
        arrays, meta = files.read_run(files.run_path(tmp_path, one))
        own = {"db_learned"} if one.method == "DMH" else set()
        curve = {"objective"} if one.method == "DMH" else set()
        names = {f"{side}_{view}" for side in ("query", "db_encoded") for view in ("image", "text")}
        assert set(arrays) == names | own | curve | {"query_ids", "database_ids"}
        assert arrays["query_image"].shape == (12, 1)
        assert arrays["db_encoded_text"].shape == (228, 1)
        assert not set(arrays["query_ids"]) & set(arrays["database_ids"])
        assert meta["split"] == {"hash": sources.split_data(data, 0).split_hash[:12], "train": 228,
                                 "database": 228, "queries": 12}  # fmt: skip
        assert meta["seconds"]["fit"] > 0
        assert meta["machine"]["device"] == "cpu"
        assert len(meta["source"]) == 12
    assert [p.name for p in tmp_path.rglob("*") if ".tmp" in p.name] == []


def test_resuming_after_a_kill(data, tmp_path, fits):
    runs = plan(seeds=3)
    assert len(runs) == 6

    class Killed(BaseException):
        pass

    def kill(outcome):
        if outcome.fitted == 2:
            raise Killed

    with pytest.raises(Killed):
        run.execute(runs, {"synthetic": data}, tmp_path, progress=kill)
    assert fits.total() == 2
    seen = []
    outcome = run.execute(runs, {"synthetic": data}, tmp_path, progress=lambda o: seen.append((o.done, o.total)))
    assert (outcome.skipped, outcome.fitted, outcome.failed) == (2, 4, {})
    assert fits.total() == 6  # nothing was fitted twice
    assert seen == [(2, 6), (3, 6), (4, 6), (5, 6), (6, 6)]
    assert run.execute(runs, {"synthetic": data}, tmp_path).skipped == 6
    assert fits.total() == 6


def test_other_parameters_and_other_data_are_run_again(data, tmp_path, fits):
    one = plan(methods=("DMH",), studies=("fig-f1",))[:1]
    run.execute(one, {"synthetic": data}, tmp_path)
    longer = [replace(one[0], parameters={**one[0].parameters, "n_iter": 16})]
    assert run.execute(longer, {"synthetic": data}, tmp_path).fitted == 1
    assert run.execute(longer, {"synthetic": data}, tmp_path).fitted == 0
    changed = replace(data, views={**data.views, "image": data.views["image"] + 1})
    assert run.execute(longer, {"synthetic": changed}, tmp_path).fitted == 1
    assert fits.total() == 3


@pytest.mark.parametrize("damage", ["cut", "byte", "empty", "no meta", "text"])
def test_a_damaged_file_is_made_again(data, tmp_path, fits, damage):
    runs = plan(methods=("CVH",))
    run.execute(runs, {"synthetic": data}, tmp_path)
    path = files.run_path(tmp_path, runs[0])
    whole, raw = path.read_bytes(), bytearray(path.read_bytes())
    if damage == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif damage == "byte":
        place = whole.index(b"db_encoded_image.npy") + 150  # inside a compressed array
        raw[place] ^= 0xFF
        path.write_bytes(bytes(raw))
    elif damage == "no meta":
        np.savez(path, query_image=np.zeros(3))
    else:
        path.write_bytes(b"" if damage == "empty" else b"not an archive")
    assert files.read_run(path) is None
    assert run.execute(runs, {"synthetic": data}, tmp_path).fitted == 1
    assert fits.total() == 2
    before, after = np.load(path), files.read_run(path)[0]
    assert all((before[name] == after[name]).all() for name in after)


def test_times_are_of_runs_alone(data, tmp_path, fits):
    together = plan(methods=("CVH",))
    run.execute(together, {"synthetic": data}, tmp_path)
    timed = plan(methods=("CVH",), studies=("table-map", "table-time"))
    assert timed[0].alone
    assert run.execute(timed, {"synthetic": data}, tmp_path).fitted == 1  # the first was perhaps not alone
    assert run.execute(together, {"synthetic": data}, tmp_path).fitted == 0
    assert files.read_run(files.run_path(tmp_path, timed[0]))[1]["alone"] is True


def test_a_run_that_cannot_be_done_does_not_stop_the_others(data, tmp_path):
    narrow = replace(data, views={"image": data.views["image"], "text": data.views["text"][:, :6]}, feature_names={})
    outcome = run.execute(plan(), {"synthetic": narrow}, tmp_path)
    assert outcome.fitted == 1
    assert list(outcome.failed) == ["synthetic CVH, 8 bits, seed 0"]
    assert "at most as many bits as the narrowest view" in outcome.failed["synthetic CVH, 8 bits, seed 0"]


@pytest.mark.parametrize("method", [*METHODS, "MultiViewITQ", "MultiViewLinear"])
def test_nothing_is_learned_from_queries(method, monkeypatch):
    """Other features and labels of the query rows change no code of the database, in any method."""
    monkeypatch.setattr(sources, "_WORDS", 6)
    words = [f"{' '.join(f'w{(i * k) % 17}' for k in range(1, 6))}" for i in range(200)]
    plain = make_synthetic(n=200, random_state=1)
    data = Dataset({"image": plain.views["image"]}, labels=plain.labels, columns={"text": words}, name="synthetic")
    query = data.split("mirflickr", seed=0).splits["query"]
    image, labels, other = data.views["image"].copy(), data.labels.copy(), list(words)
    image[query] = 1e3
    labels[query] = 1 - labels[query]
    for row in query:
        other[row] = "w1 w2 w3 unseen"
    changed = replace(data, views={"image": image}, labels=labels, columns={"text": other})
    one = replace(plan(methods=("MDBE",))[0], method=method)
    hasher = build(method, "synthetic", 4, 0, parameters={"CMSSH": {"n_pairs": 300}, "DMH": {"n_iter": 10}}.get(method))
    one = replace(one, parameters=hasher._plain_params(), bits=4)
    found = []
    for each in (data, changed):
        arrays, _ = run.fit_run(one, sources.split_data(each, 0))
        found.append(arrays)
    stored = [name for name in found[0] if name.startswith("db_") or name == "objective"]
    assert len(stored) >= 2
    for name in stored:
        assert np.array_equal(found[0][name], found[1][name]), name
    assert not np.array_equal(found[0]["query_image"], found[1]["query_image"])


@pytest.mark.parametrize("jobs", [0, True, 1.5])
def test_jobs_that_cannot_be(data, tmp_path, jobs):
    with pytest.raises(InputError, match="jobs must be a whole number of at least 1"):
        run.execute(plan(), {"synthetic": data}, tmp_path, jobs=jobs)


@pytest.mark.slow
def test_several_processes_make_the_same_codes(data, tmp_path):
    runs = plan(methods=("DMH", "CVH", "MDBE"), studies=("table-map", "table-time"), bits=(8, 16), seeds=2)
    seen = []
    outcome = run.execute(
        runs, {"synthetic": data}, tmp_path / "two", jobs=2, progress=lambda o: seen.append(o.seconds_left)
    )
    assert outcome.fitted == len(runs)
    assert seen[0] > 0
    assert seen[-1] == 0
    run.execute(runs, {"synthetic": data}, tmp_path / "one")
    for one in runs:
        a, b = (files.read_run(files.run_path(tmp_path / name, one))[0] for name in ("one", "two"))
        assert all(np.array_equal(a[name], b[name]) for name in a if name != "objective")
    assert not [p for p in (tmp_path / "two").iterdir() if p.name.startswith(".")]


# --- scoring -------------------------------------------------------------------------------------------------------


def test_scores_equal_evaluate(data, tmp_path):
    runs = plan(methods=("DMH", "MDBE", "CVH"))
    run.execute(runs, {"synthetic": data}, tmp_path)
    assert score_runs(runs, {"synthetic": data}, tmp_path) == (4, 0, [])
    split = sources.split_data(data, 0)
    train, query = split.rows("train"), split.rows("query")
    hasher = build("DMH", "synthetic", 8, 0, parameters=SHORT["DMH"]).fit(train.views, labels=train.labels)
    expected = mh.evaluate(
        hasher.encode("text", query.views["text"]), hasher.train_codes_, query_labels=query.labels,
        database_labels=train.labels, n_bits=8, metrics=["MAP", "P@r2", "R@r2", "F1@r2"],
    )  # fmt: skip
    by_label = {one.label: files.read_score(files.score_path(tmp_path, one)) for one in runs}
    found = by_label["DMH"]["scores"]["learned"]["text>image"]
    assert found["MAP"] == pytest.approx(expected["MAP[ties=id]"], abs=1e-6)
    assert found["MAP(ties)"] == pytest.approx(expected["MAP[ties=expected]"], abs=1e-6)
    assert found["F1@r2"] == pytest.approx(expected["F1@r2"], abs=1e-6)
    assert len(found["pr"]) == 9
    assert found["pr"][-1][0] == 1
    assert {label: (one["rule"], set(one["scores"])) for label, one in by_label.items() if "=" not in label} == {
        "DMH": ("learned", {"learned", "encoded"}),
        "MDBE": ("label", {"label", "encoded"}),
        "CVH": ("encoded", {"encoded"}),
    }
    assert len(by_label["DMH"]["objective"]) == 15
    assert by_label["CVH"]["bit_correlation"]["encoded"]["mean_abs"] < 1


def test_scores_are_kept_until_the_run_or_its_studies_change(data, tmp_path):
    first = plan(methods=("CVH", "MDBE"))
    run.execute(first, {"synthetic": data}, tmp_path)
    assert score_runs(first[:1], {"synthetic": data}, tmp_path)[:2] == (1, 0)
    assert score_runs(first[:1], {"synthetic": data}, tmp_path)[:2] == (0, 1)
    more = plan(methods=("CVH", "MDBE"), studies=("fig-f1",))
    assert score_runs(more[:1], {"synthetic": data}, tmp_path)[:2] == (1, 0)
    path = files.score_path(tmp_path, first[0])
    assert files.read_score(path)["studies"] == ["table-map", "fig-f1"]
    assert score_runs(first[:1], {"synthetic": data}, tmp_path)[:2] == (0, 1)
    path.write_text("{")  # torn by something else than us
    assert score_runs(first[:1], {"synthetic": data}, tmp_path)[:2] == (1, 0)
    files.run_path(tmp_path, first[1]).unlink()
    assert score_runs(first, {"synthetic": data}, tmp_path) == (0, 1, [first[1]])


def test_a_run_made_alone_later_stays_in_its_studies(data, tmp_path):
    first, timed = plan(methods=("CVH",)), plan(methods=("CVH",), studies=("table-time",))
    for runs in (first, timed):
        run.execute(runs, {"synthetic": data}, tmp_path)
        assert score_runs(runs, {"synthetic": data}, tmp_path)[:2] == (1, 0)
    found = files.read_score(files.score_path(tmp_path, first[0]))
    assert (found["studies"], found["alone"]) == (["table-map", "table-time"], True)
    other = [
        replace(first[0], parameters={**first[0].parameters, "ridge": 0.5})
    ]  # another setting: not the old studies
    run.execute(other, {"synthetic": data}, tmp_path)
    score_runs(other, {"synthetic": data}, tmp_path)
    assert files.read_score(files.score_path(tmp_path, first[0]))["studies"] == ["table-map"]


def test_the_ladder_keeps_one_matrix_per_rung(data, tmp_path):
    runs = [one for one in plan(methods=("DMH",), studies=("ladder",), bits=(4, 8)) if one.seed < 2]
    runs = [one for one in runs if one.label in ("DMH", "DMH,decorrelation_kind=None")]
    run.execute(runs, {"synthetic": data}, tmp_path)
    score_runs(runs, {"synthetic": data}, tmp_path)
    for one in runs:
        found = files.read_score(files.score_path(tmp_path, one))["bit_correlation"]["learned"]
        if one.seed == 0 and one.bits == 8:
            assert np.array(found["matrix"], dtype=float).shape == (8, 8)
        else:
            assert found["matrix"] is None


def test_constant_bits_are_not_numbers():
    codes = np.array([[1], [1], [3]], dtype=np.uint8)  # bit 0 is always 1, bit 1 varies
    found = scoring._correlation([codes], 2, matrix=True)
    assert found == {"mean_abs": None, "max_abs": None, "constant_bits": 1, "matrix": [[None, None], [None, 1.0]]}
    json.dumps(found, allow_nan=False)


# --- sources -------------------------------------------------------------------------------------------------------


def test_sources_of_several_forms(tmp_path):
    data = make_synthetic(n=60, sparse_text=True, random_state=0)
    data.save(tmp_path / "saved.npz")
    text = data.views["text"].tocsr()
    parts = {f"tags_{k}": getattr(text, k) for k in ("data", "indices", "indptr")}
    np.savez(tmp_path / "plain.npz", gist=data.views["image"], labels=data.labels, tags_shape=text.shape, **parts)
    for name in ("saved", "plain"):
        found = sources.read_source("own", tmp_path / f"{name}.npz")
        assert found.name == "own"
        assert list(found.views) == ["image", "text"]
        assert found.splits == {}
        assert (found.views["text"] != text).nnz == 0
    assert sources.data_hash(found) == sources.data_hash(sources.read_source("own", tmp_path / "saved.npz"))


def test_mirflickr_tags_become_components_of_the_training_rows(monkeypatch):
    monkeypatch.setattr(sources, "_COMPONENTS", 7)
    data = replace(make_synthetic(n=100, sparse_text=True, random_state=0), name="mirflickr", splits={})
    split = sources.split_data(data, 2)
    assert split.views["text"].shape == (100, 7)
    train = split.rows("train").views["text"]
    np.testing.assert_allclose(train.mean(axis=0), 0, atol=1e-5)  # centred on the training rows, not on all
    assert np.abs(split.views["text"].mean(axis=0)).max() > 1e-4


def test_sources_that_cannot_be(tmp_path):
    with pytest.raises(InputError, match="does not exist; --data own=PATH"):
        sources.read_source("own", tmp_path / "none.npz")
    with pytest.raises(InputError, match="is a folder, which only mirflickr and nuswide have"):
        sources.read_source("own", tmp_path)
    np.savez(tmp_path / "a.npz", image=np.eye(4), text=np.eye(4))
    with pytest.raises(InputError, match="lacks labels"):
        sources.read_source("own", tmp_path / "a.npz")
    from modalhash.features import PCA, FeaturePipeline

    fitted = FeaturePipeline({"text": PCA(3)}).fit_transform(make_synthetic(n=50, random_state=0))
    fitted.save(tmp_path / "fitted.npz")
    with pytest.raises(InputError, match=r"\(text\) were fitted on the training rows of one split"):
        sources.read_source("own", tmp_path / "fitted.npz")


def test_the_demo_without_its_extra(monkeypatch):
    from modalhash.exceptions import MissingExtraError

    def absent(*_, **__):
        raise MissingExtraError("fontawesomefree", "demo")

    monkeypatch.setattr(mh.datasets, "prepare", absent, raising=False)
    data, why = sources.demo_source()
    assert data.name == "synthetic"
    assert "fontawesomefree" in why
