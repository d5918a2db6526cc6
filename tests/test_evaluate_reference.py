"""MAP computed by the compared methods' own programs (GNU Octave) on their own codes, to the last digits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from modalhash.codes import pack
from modalhash.evaluation import evaluate

GOLDEN = Path(__file__).parent / "golden" / "evaluate_reference_map.npz"
SHARED = Path(__file__).parents[2] / "shared" / "reference"

RUNS = [
    # method, data, query codes, database codes, the program's MAP, database rule
    ("cvh_wiki_8", "wiki", "Bqi", "Bt", "i2t", "encoded"),
    ("cvh_wiki_8", "wiki", "Bqt", "Bi", "t2i", "encoded"),
    ("scm-seq_synth_16", "synth", "Bqi", "Bt", "i2t", "encoded"),
    ("scm-seq_synth_16", "synth", "Bqt", "Bi", "t2i", "encoded"),
    ("mdbe_wiki_16", "wiki", "Bqi", "Bd", "i2t", "label"),
    ("mdbe_wiki_16", "wiki", "Bqt", "Bd", "t2i", "label"),
    ("mdbe_wiki_16", "wiki", "Bqi", "Bt", "i2t_f", "encoded"),
    ("mdbe_wiki_16", "wiki", "Bqt", "Bi", "t2i_f", "encoded"),
]


def measure(method, data, query, database, order=None, **options):
    with np.load(GOLDEN, allow_pickle=False) as file:
        codes, labels = file[f"{method}/{database}"], file[f"{data}/database_labels"]
        order = np.arange(codes.shape[0]) if order is None else order(labels)
        return evaluate(
            file[f"{method}/{query}"],
            codes[order],
            query_labels=np.unpackbits(file[f"{data}/query_labels"], axis=1, bitorder="little"),
            database_labels=np.unpackbits(labels[order], axis=1, bitorder="little"),
            n_bits=int(file[f"{method}/n_bits"]),
            **options,
        )


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run[0]}-{run[4]}")
def test_map_of_the_original_programs(run):
    method, data, query, database, key, rule = run
    report = measure(method, data, query, database, metrics="MAP[ties=id]", database_rule=rule)
    with np.load(GOLDEN, allow_pickle=False) as file:
        assert report["MAP"] == pytest.approx(float(file[f"{method}/{key}"]), abs=1e-12)


def by_first_label(labels):
    return np.argsort(np.unpackbits(labels, axis=1, bitorder="little").argmax(axis=1), kind="stable")


def test_the_numbers_of_the_protocol_page():
    """What docs/protocol.md says about ties, on 16-bit codes of SCM."""
    run, policies = ("scm-seq_synth_16", "synth", "Bqi", "Bt"), ["expected", "id", "best", "worst"]
    stored = measure(*run, metrics="MAP", ties=policies)
    assert [round(stored[f"MAP[ties={policy}]"], 4) for policy in policies] == [0.7179, 0.7180, 0.7524, 0.6878]
    ahead = measure(*run, by_first_label, metrics="MAP")
    back = measure(*run, lambda labels: by_first_label(labels)[::-1], metrics="MAP")
    assert round(ahead["MAP[ties=id]"], 4) == 0.7353
    assert round(back["MAP[ties=id]"], 4) == 0.7000
    for other in (ahead, back):
        assert other["MAP[ties=expected]"] == pytest.approx(stored["MAP[ties=expected]"], abs=1e-12)
    label, encoded = (measure("mdbe_wiki_16", "wiki", "Bqt", b, metrics="MAP[ties=id]") for b in ("Bd", "Bi"))
    assert (round(label["MAP"], 4), round(encoded["MAP"], 4)) == (0.6815, 0.2291)


@pytest.mark.skipif(not SHARED.exists(), reason="the folder of reference outputs is not beside this checkout")
def test_map_of_every_reference_file():
    checked = 0
    for path in sorted(SHARED.glob("*_*.npz")):
        if path.name.startswith("data_"):
            continue
        with (
            np.load(path, allow_pickle=False) as z,
            np.load(SHARED / f"data_{path.stem.split('_')[1 + path.stem.startswith('seph')]}.npz") as data,
        ):
            joint = "Bd" in z
            pairs = [("Bqi", "Bd" if joint else "Bt", "i2t"), ("Bqt", "Bd" if joint else "Bi", "t2i")]
            pairs += [("Bqi", "Bt", "i2t_f"), ("Bqt", "Bi", "t2i_f")] if joint and "i2t_f" in z else []
            for query, database, key in pairs:
                report = evaluate(
                    pack(z[query]),
                    pack(z[database]),
                    query_labels=data["L_te"],
                    database_labels=data["L_tr"],
                    n_bits=z[query].shape[1],
                    metrics="MAP[ties=id]",
                    diagnostics=False,
                )
                assert report["MAP"] == pytest.approx(float(z[key]), abs=1e-9), (path.name, key)
                checked += 1
    assert checked > 40
