"""CVH, SCM, MDBE and CMFH against outputs of their authors' own programs.

The outputs are in tests/golden (see make_golden.py there); the inputs are too large to keep and are read from
``../shared/reference``. Without them these tests are skipped, and the literal versions in test_methods_*.py remain.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import modalhash as mh
from modalhash.codes import unpack

GOLDEN = Path(__file__).parent / "golden"
REFERENCE = Path(__file__).parents[2] / "shared" / "reference"

needs_inputs = pytest.mark.skipif(
    not (REFERENCE / "data_synth.npz").is_file(), reason="needs the inputs in ../shared/reference"
)

# method, data, bits -> MAP image-text, text-image of the authors' outputs
PUBLISHED = {
    ("cvh", "synth", 16): (0.556056, 0.547744),
    ("cvh", "synth", 32): (0.496166, 0.490598),
    ("cvh", "wiki", 8): (0.189284, 0.186350),
    ("scm-orth", "synth", 8): (0.613453, 0.610933),
    ("scm-orth", "synth", 10): (0.590306, 0.585065),
    ("scm-orth", "wiki", 8): (0.176322, 0.179550),
    ("scm-seq", "synth", 16): (0.717979, 0.718171),
    ("scm-seq", "synth", 32): (0.747470, 0.753125),
    ("scm-seq", "wiki", 16): (0.234122, 0.225686),
    ("scm-seq", "wiki", 32): (0.241035, 0.245901),
    ("mdbe", "synth", 16): (0.701785, 0.668564),
    ("mdbe", "synth", 32): (0.690647, 0.669073),
    ("mdbe", "wiki", 16): (0.340519, 0.681476),
    ("mdbe", "wiki", 32): (0.359449, 0.741748),
    ("cmfh-2013", "synth", 16): (0.512167, 0.594443),
    ("cmfh-2013", "synth", 32): (0.605569, 0.710738),
    ("cmfh-2013", "wiki", 16): (0.222592, 0.502825),
    ("cmfh-2013", "wiki", 32): (0.224746, 0.513219),
    ("cmfh-2015", "synth", 16): (0.476079, 0.555092),
    ("cmfh-2015", "synth", 32): (0.536613, 0.634275),
    ("cmfh-2015", "wiki", 16): (0.206365, 0.477350),
    ("cmfh-2015", "wiki", 32): (0.225626, 0.519225),
}


def _inputs(data):
    with np.load(REFERENCE / f"data_{data}.npz", allow_pickle=False) as d:
        train = {"image": d["I_tr"], "text": d["T_tr"]}
        query = {"image": d["I_te"], "text": d["T_te"]}
        return train, query, d["L_tr"].astype(np.uint8), d["L_te"].astype(np.uint8)


def _golden(method, data, bits):
    with np.load(GOLDEN / f"methods_{method}_{data}.npz", allow_pickle=False) as g:
        return {key.split("_", 1)[1]: g[key] for key in g.files if key.startswith(f"{bits}_")}


def _cmfh_start(data, bits, form):
    version, names = ("v1", ("P10", "P20")) if form == "2013" else ("v2", ("W10", "W20"))
    with np.load(REFERENCE / f"cmfh_{data}_{version}_{bits}.npz", allow_pickle=False) as d:
        start = [d[names[0]], d[names[1]], d["Y0"]]
    image, text, factor = (z.T for z in start) if form == "2013" else start
    return {"init": {"image": image, "text": text}, "init_factor": factor}


def _hasher(method, data, bits, golden):
    if method == "cvh":
        return mh.CVH(bits, affinity="pairs")
    if method.startswith("scm"):
        return mh.SCM(bits, variant=method.removeprefix("scm-"))
    if method == "mdbe":
        return mh.MDBE(bits, init={"image": golden["P10"].T, "text": golden["P20"].T})
    form = method.removeprefix("cmfh-")
    return mh.CMFH(bits, form=form, **_cmfh_start(data, bits, form))


def _map(query, database, query_labels, database_labels, bits):
    report = mh.evaluate(
        query,
        database,
        query_labels=query_labels,
        database_labels=database_labels,
        n_bits=bits,
        metrics="MAP[ties=id]",
    )
    return report["MAP[ties=id]"]


def _aligned(found, golden, bits):
    """Our bits in the columns' order and signs of the golden ones: one order and one sign for all four sets."""
    ours = {key: unpack(codes, bits) for key, codes in found.items()}
    theirs = {key: unpack(golden[key], bits) for key in found}
    differ = (ours["Bi"][:, :, None] != theirs["Bi"][:, None, :]).mean(axis=0)  # (our column, their column)
    order = np.minimum(differ, 1 - differ).argmin(axis=0)
    assert sorted(order) == list(range(bits))
    flip = differ[order, np.arange(bits)] > 0.5
    return {key: B[:, order] ^ flip for key, B in ours.items()}, theirs, order


@needs_inputs
@pytest.mark.filterwarnings("ignore::modalhash.exceptions.RankWarning")
@pytest.mark.parametrize(("method", "data", "bits"), list(PUBLISHED))
def test_equals_the_authors_program(method, data, bits):
    train, query, L, Lq = _inputs(data)
    golden = _golden(method, data, bits)
    hasher = _hasher(method, data, bits, golden).fit(train, labels=L)
    found = {
        "Bi": hasher.encode("image", train["image"]),
        "Bt": hasher.encode("text", train["text"]),
        "Bqi": hasher.encode("image", query["image"]),
        "Bqt": hasher.encode("text", query["text"]),
    }
    learned = "Bd" in golden
    if learned:  # a random start is given: signs are determined too
        found["Bd"] = hasher.train_codes_
        for key, codes in found.items():
            np.testing.assert_array_equal(codes, golden[key], err_msg=key)
    else:
        ours, theirs, order = _aligned(found, golden, bits)
        for key in found:
            np.testing.assert_array_equal(ours[key], theirs[key], err_msg=key)
        if (method, data) != ("cvh", "wiki"):  # there the original's eigensolver does not sort its columns
            np.testing.assert_array_equal(order, np.arange(bits))
    maps = {
        "i2t": _map(found["Bqi"], found["Bd" if learned else "Bt"], Lq, L, bits),
        "t2i": _map(found["Bqt"], found["Bd" if learned else "Bi"], Lq, L, bits),
    }
    if learned:
        maps["i2t_f"] = _map(found["Bqi"], found["Bt"], Lq, L, bits)
        maps["t2i_f"] = _map(found["Bqt"], found["Bi"], Lq, L, bits)
    for key, value in maps.items():
        assert value == pytest.approx(float(golden[key][0]), abs=1e-6), key
    assert (maps["i2t"], maps["t2i"]) == pytest.approx(PUBLISHED[method, data, bits], abs=1e-6)
    if "nit" in golden:
        assert hasher.n_iter_ == golden["nit"][0]
    if "obj" in golden:
        np.testing.assert_allclose(hasher.objective_, golden["obj"], rtol=1e-9)


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("methods_*.npz")), ids=lambda p: p.stem)
def test_goldens_are_small_and_say_where_they_come_from(file):
    assert file.stat().st_size < 300_000
    with np.load(file, allow_pickle=False) as g:
        assert "authors" in str(g["provenance"][0])
