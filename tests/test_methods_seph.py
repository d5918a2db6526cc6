"""SePH against outputs of the authors' program, and against a literal version of its codes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import modalhash as mh
from modalhash.codes import pack, pack_scores, unpack
from modalhash.exceptions import InputError, LabelsRequiredError, ModelFormatError
from modalhash.kernels import mean_squared_distance, rbf_kernel
from modalhash.methods import seph

GOLDEN = Path(__file__).parent / "golden"
REFERENCE = Path(__file__).parents[2] / "shared" / "reference"
needs_inputs = pytest.mark.skipif(
    not (REFERENCE / "data_synth.npz").is_file(), reason="needs the inputs in ../shared/reference"
)


def golden(data, run):
    with np.load(GOLDEN / f"methods_seph_{data}.npz", allow_pickle=False) as g:
        found = {key.removeprefix(f"{run}_"): g[key] for key in g.files if key.startswith(f"{run}_")}
        return {**found, "L_tr": g["L_tr"]} if "L_tr" in g.files else found


def test_codes_equal_the_authors_from_their_start():
    """H and the objective follow from labels and start alone: this golden needs no other input."""
    G = golden("synth", "16b")
    n = len(G["L_tr"])
    rng = np.random.default_rng(0)
    hasher = mh.SePH(16, init=G["C0"], anchors="random", n_anchors=2, n_logistic_iter=1, random_state=0)
    hasher.fit({"image": rng.normal(size=(n, 2))}, labels=G["L_tr"])
    np.testing.assert_array_equal(hasher.train_codes_, G["H"])
    assert hasher.objective_[-1] == hasher.objective_.min() == pytest.approx(G["obj"][0], rel=1e-6)
    np.testing.assert_array_equal(hasher.train_rows_, np.arange(n))


@needs_inputs
@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "run"), [("synth", "16b"), ("synth", "32b"), ("wiki", "16b"), ("wiki", "16a")], ids=str
)
def test_the_whole_method_reaches_the_authors_map(data, run):
    """Their start, their anchors: H every bit, objective to 6 digits, widths, MAP of both directions within .005."""
    G, n_bits, version = golden(data, run), int(run[:2]), run[2]
    with (
        np.load(REFERENCE / f"data_{data}.npz", allow_pickle=False) as d,
        np.load(REFERENCE / f"data_{data}_km500.npz", allow_pickle=False) as centres,
        np.load(REFERENCE / f"seph-km_v2015{version}_{data}_{n_bits}.npz", allow_pickle=False) as r,
    ):
        train, query = ({"image": d[f"I_{part}"], "text": d[f"T_{part}"]} for part in ("tr", "te"))
        labels, query_labels, start = d["L_tr"].astype(np.uint8), d["L_te"].astype(np.uint8), r["C0"]
        # theirs are centres of centred views; a kernel does not change when both sides move
        anchors = {view: centres[f"cent_{view[0].upper()}"] + X.mean(axis=0) for view, X in train.items()}
    hasher = mh.SePH(n_bits, version=version, init=start, anchors=anchors).fit(train, labels=labels)
    np.testing.assert_array_equal(hasher.train_codes_, G["H"])
    assert hasher.objective_.min() == pytest.approx(G["obj"][0], rel=1e-6)
    assert hasher.kernel_widths_["image"] == pytest.approx(G["sig1"][0], rel=1e-9)
    assert hasher.kernel_widths_["text"] == pytest.approx(G["sig2"][0], rel=1e-9)
    fused = hasher.database_codes(train, rule="fused")
    assert (unpack(fused, n_bits) == unpack(G["Bd"], n_bits)).mean() > 0.98
    for view, name in (("image", "i2t"), ("text", "t2i")):
        report = mh.evaluate(
            hasher.encode(view, query[view]),
            fused,
            query_labels=query_labels,
            database_labels=labels,
            n_bits=n_bits,
            metrics="MAP[ties=id]",
        )
        assert report["MAP[ties=id]"] == pytest.approx(G[name][0], abs=0.005)


def literal_codes(L, Y, n_iter, step, momentum, exaggeration):
    """The iteration with P and Q held whole, floored as the authors do; momentum and exaggeration by iteration."""
    n, k = Y.shape
    tiny = np.finfo(float).tiny
    cosine = np.array([[u @ v / np.sqrt((u @ u) * (v @ v)) for v in L] for u in L])
    np.fill_diagonal(cosine, 0)
    P = np.maximum((cosine + cosine.T) / (cosine + cosine.T).sum(), tiny)
    a = 0.01 / (k * n)
    increment, gain = np.zeros_like(Y), np.ones_like(Y)
    best, kept, curve = np.inf, None, []
    for t in range(n_iter):
        N = 1 / (1 + ((Y[:, None] - Y[None]) ** 2).sum(axis=2) / 4)
        np.fill_diagonal(N, 0)
        Q = np.maximum(N / N.sum(), tiny)
        M = (exaggeration(t) * P - Q) * N
        gradient = (np.diag(M.sum(axis=1)) - M) @ Y + 2 * a * (np.abs(Y) - 1) * np.sign(Y)
        for i in range(n):
            for b in range(k):
                same = np.sign(gradient[i, b]) == np.sign(increment[i, b])
                gain[i, b] = max(gain[i, b] * 0.8 if same else gain[i, b] + 0.2, 0.01)
        increment = momentum(t) * increment - step * gain * gradient
        Y = Y + increment
        Y = Y - Y.mean(axis=0)
        curve.append((P * np.log(P / Q)).sum() + a * ((np.abs(Y) - 1) ** 2).sum())
        if curve[-1] < best:
            best, kept = curve[-1], Y
    return kept > 0, curve


@pytest.mark.parametrize("version", ["a", "b"])
def test_codes_equal_the_literal_version(version, rng, monkeypatch):
    L = np.eye(4, dtype=np.uint8)[rng.integers(4, size=60)] | (rng.random((60, 4)) < 0.2)
    start = 1e-4 * rng.normal(size=(60, 3))
    # on so few rows the steps overshoot and rounding grows: 30 iterations, "a" with its changes brought forward
    monkeypatch.setitem(seph.VERSIONS, "a", (1000, 100.0, 20.0, 10))
    schedule = {
        "b": (500.0, lambda t: 0.5, lambda t: 1.0),
        "a": (100.0, lambda t: 0.5 if t < 20 else 0.8, lambda t: 4.0 if t < 10 else 1.0),
    }
    hasher = mh.SePH(3, version=version, n_iter=30, init=start, n_anchors=5, random_state=0)
    hasher.fit({"image": rng.normal(size=(60, 2))}, labels=L)
    H, curve = literal_codes(L.astype(float), start, 30, *schedule[version])
    np.testing.assert_allclose(hasher.objective_, curve, rtol=1e-6)
    np.testing.assert_array_equal(hasher.train_codes_, pack(H))


def test_the_schedules_are_the_authors():
    """Of the two versions: iterations, step, momentum 0.5 until, exaggeration until."""
    assert {"a": (1000, 100.0, 250.0, 100), "b": (100, 500.0, np.inf, 0)} == seph.VERSIONS


def test_defaults_are_the_papers():
    hasher = mh.SePH()
    assert (hasher.version, hasher.anchors, hasher.n_anchors, hasher.train_size) == ("b", "kmeans", 500, 10_000)


def test_projection_is_the_kernel_machine(small):
    hasher = mh.SePH(6, n_anchors=30, n_iter=20, random_state=0).fit(small.views, labels=small.labels)
    for view, X in small.views.items():
        width = mean_squared_distance(X)
        assert hasher.kernel_widths_[view] == width
        K = rbf_kernel(X, hasher.anchors_[view], width)
        assert K.shape == (400, 30)
        np.testing.assert_allclose(hasher.project(view, X), K @ hasher.kernel_weights_[view], rtol=1e-12)


def test_fused_codes_are_the_signs_of_the_joint_odds(small):
    """sgn(p1 p2 - (1 - p1)(1 - p2)) as the paper has it, p the logistic outputs."""
    hasher = mh.SePH(12, n_anchors=50, n_iter=30, random_state=0).fit(small.views, labels=small.labels)
    p, q = (1 / (1 + np.exp(-hasher.project(view, X))) for view, X in sorted(small.views.items()))
    np.testing.assert_array_equal(
        hasher.database_codes(small.views, rule="fused"), pack_scores(p * q - (1 - p) * (1 - q))
    )


def test_three_views_and_one(small):
    three = {**small.views, "sound": small.views["image"][:, :40]}
    hasher = mh.SePH(8, n_anchors=50, n_iter=20, random_state=0).fit(three, labels=small.labels)
    total = sum(hasher.project(view, X) for view, X in three.items())
    np.testing.assert_array_equal(hasher.database_codes(three, rule="fused"), pack_scores(total))
    only = hasher.database_codes({"text": three["text"]}, rule="fused")
    np.testing.assert_array_equal(only, hasher.encode("text", three["text"]))


def test_train_size_is_honoured(small):
    hasher = mh.SePH(8, train_size=60, n_anchors=20, n_iter=10, random_state=5).fit(small.views, labels=small.labels)
    assert hasher.train_rows_.shape == (60,)
    assert (np.diff(hasher.train_rows_) > 0).all()
    assert hasher.train_codes_.shape == (60, 1)
    rows = hasher.train_rows_
    assert hasher.kernel_widths_["text"] == mean_squared_distance(small.views["text"][rows])
    # those rows alone, from the same start and anchors, give the same model
    start = 1e-4 * np.random.default_rng(0).normal(size=(60, 8))
    settings = {"anchors": hasher.anchors_, "n_iter": 10, "init": start}
    a = mh.SePH(8, train_size=60, random_state=5, **settings).fit(small.views, labels=small.labels)
    b = mh.SePH(8, **settings).fit({v: X[rows] for v, X in small.views.items()}, labels=small.labels[rows])
    np.testing.assert_array_equal(a.train_rows_, rows)
    np.testing.assert_array_equal(a.encode("text", small.views["text"]), b.encode("text", small.views["text"]))


@pytest.mark.parametrize("kind", ["kmeans", "random"])
def test_anchors_by_kind(small, kind):
    hasher = mh.SePH(4, anchors=kind, n_anchors=25, n_iter=5, random_state=0).fit(small.views, labels=small.labels)
    A = hasher.anchors_["text"]
    assert A.shape == (25, 100)
    are_rows = [(row.astype(np.float32) == small.views["text"]).all(axis=1).any() for row in A]
    assert all(are_rows) == (kind == "random")


def test_fewer_rows_than_anchors_makes_every_row_an_anchor(small):
    hasher = mh.SePH(4, n_iter=5, random_state=0).fit(small.views, labels=small.labels)
    np.testing.assert_array_equal(hasher.anchors_["text"].astype(np.float32), small.views["text"])


def test_longer_logistic_search_comes_nearer_to_the_codes(small):
    """Of the learned codes H, the classifiers reproduce more bits of the training rows as the search goes on."""
    agreement = []
    for steps in (1, 10, 100):
        hasher = mh.SePH(16, n_anchors=100, n_logistic_iter=steps, random_state=0)
        hasher.fit(small.views, labels=small.labels)
        bits = unpack(hasher.encode("image", small.views["image"]), 16) == unpack(hasher.train_codes_, 16)
        agreement.append(bits.mean())
    assert agreement[0] < agreement[1] < agreement[2]


def test_the_objective_falls_and_the_callback_sees_it(small):
    seen = []
    hasher = mh.SePH(8, n_anchors=20, random_state=0, callback=lambda *state: seen.append(state))
    hasher.fit(small.views, labels=small.labels)
    assert hasher.n_iter_ == 100
    assert hasher.objective_[-1] < 0.5 * hasher.objective_[0]
    assert seen == [(t + 1, 100, value) for t, value in enumerate(hasher.objective_)]


def test_sparse_text_is_never_densified(small, monkeypatch):
    text = sparse.csr_array(np.where(small.views["text"] > 0.5, small.views["text"], 0).astype(np.float64))
    views = {"image": small.views["image"], "text": text}
    dense = {"image": small.views["image"], "text": text.toarray()}
    settings = {"anchors": "random", "n_anchors": 40, "n_iter": 20, "random_state": 0}
    expected = mh.SePH(8, **settings).fit(dense, labels=small.labels)
    whole = sparse.csr_array.toarray

    def toarray(self, *args, **kwargs):
        assert self.shape[0] <= 40, f"a sparse matrix of shape {self.shape} was made dense"
        return whole(self, *args, **kwargs)

    monkeypatch.setattr(sparse.csr_array, "toarray", toarray)
    hasher = mh.SePH(8, **settings).fit(views, labels=small.labels)
    np.testing.assert_array_equal(hasher.encode("text", text), expected.encode("text", dense["text"]))


def test_many_sparse_labels(rng):
    """Names become a sparse label matrix; the codes are those of the dense one."""
    classes = rng.integers(300, size=600)
    views = {"image": rng.normal(size=(600, 3))}
    start = 1e-4 * rng.normal(size=(600, 4))
    settings = {"anchors": "random", "n_anchors": 10, "n_iter": 10, "init": start, "random_state": 0}
    by_name = mh.SePH(4, **settings).fit(views, labels=[[f"class {c}"] for c in classes])
    by_matrix = mh.SePH(4, **settings).fit(views, labels=np.eye(300, dtype=int)[classes])
    np.testing.assert_array_equal(by_name.train_codes_, by_matrix.train_codes_)


def test_nothing_of_n_by_n_is_held():
    """6,000 rows: one n x n matrix of doubles is 288 MB; everything together stays below 120 MB."""
    import tracemalloc

    data = mh.datasets.make_synthetic(n=6000, random_state=0)
    tracemalloc.start()
    mh.SePH(16, n_iter=2, anchors="random", n_anchors=200, n_logistic_iter=3, random_state=0).fit(
        data.views, labels=data.labels
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 120e6, f"SePH allocated {peak / 1e6:.0f} MB"


# ---------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"version": "c"}, "version must be one of a, b; got 'c'"),
        ({"anchors": "grid"}, "anchors must be one of kmeans, random or a dict; got 'grid'"),
        ({"n_anchors": 0}, "n_anchors must be a whole number of at least 1; got 0"),
        ({"n_iter": 0}, "n_iter must be a whole number of at least 1; got 0"),
        ({"train_size": 1.5}, "train_size must be a whole number of at least 2; got 1.5"),
        ({"n_logistic_iter": True}, "n_logistic_iter must be a whole number of at least 1; got True"),
        ({"ridge": 0.0}, "ridge must be positive"),
        ({"quantization_weight": -1.0}, "quantization_weight must not be negative"),
        ({"init": np.zeros((3, 4))}, r"init must be finite, of shape \(400, 4\); got shape \(3, 4\)"),
        ({"init": np.full((400, 4), np.nan)}, r"init must be finite, of shape \(400, 4\)"),
        ({"anchors": {"image": np.zeros((2, 128))}}, "anchors has none for view 'text'; it has 'image'"),
        ({"anchors": {"image": np.zeros((2, 5)), "text": np.zeros((2, 100))}}, r"anchors\['image'\] must be finite"),
    ],
)
def test_bad_parameters(small, parameters, message):
    with pytest.raises(InputError, match=message):
        mh.SePH(4, **parameters).fit(small.views, labels=small.labels)


def test_labels_are_needed_of_every_row(small):
    with pytest.raises(LabelsRequiredError, match="SePH learns from labels and none were given"):
        mh.SePH(4).fit(small.views)
    labels = small.labels.copy()
    labels[:3] = 0
    with pytest.raises(InputError, match="3 of 400 rows have no label"):
        mh.SePH(4).fit(small.views, labels=labels)


def test_labels_that_no_two_rows_share(small):
    views = {name: X[:10] for name, X in small.views.items()}
    with pytest.raises(InputError, match="no two rows share a label"):
        mh.SePH(4).fit(views, labels=np.arange(10))
    with pytest.raises(InputError, match="constant"):
        mh.SePH(4).fit({name: X[:1] for name, X in views.items()}, labels=[0])


def test_a_constant_view_is_refused_and_a_constant_column_is_not(small):
    with pytest.raises(InputError, match="view 'text' is constant"):
        mh.SePH(4).fit({"image": small.views["image"], "text": np.full((400, 3), 0.1)}, labels=small.labels)
    settings = {"n_anchors": 20, "anchors": "random", "n_iter": 10, "random_state": 0}
    padded = np.c_[small.views["text"].astype(np.float64), np.full(400, 7.0)]
    a = mh.SePH(4, **settings).fit({"text": padded}, labels=small.labels)
    b = mh.SePH(4, **settings).fit({"text": padded[:, :-1]}, labels=small.labels)
    np.testing.assert_array_equal(a.encode("text", padded), b.encode("text", padded[:, :-1]))


def test_a_model_whose_parts_do_not_fit_is_refused(small, tmp_path):
    hasher = mh.SePH(4, n_anchors=20, n_iter=5, random_state=0).fit(small.views, labels=small.labels)
    good = hasher.kernel_weights_["text"]
    hasher.kernel_weights_["text"] = good[:, :3]
    with pytest.raises(ModelFormatError, match="view 'text' has anchors of shape"):
        mh.load(hasher.save(tmp_path / "weights"))
    hasher.kernel_weights_["text"], hasher.kernel_widths_["text"] = good, -1.0
    with pytest.raises(ModelFormatError, match=r"kernel width of view 'text' is -1\.0"):
        mh.load(hasher.save(tmp_path / "width"))
