"""The other solvers: momentum, and batches from memory and from disk, with partial_fit."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import modalhash as mh
from modalhash import DMH
from modalhash.checks import CHECKS, check_hasher
from modalhash.datasets import make_synthetic
from modalhash.datasets.rowsource import open_rows
from modalhash.exceptions import ConvergenceWarning, InputError
from modalhash.linalg import CentredMatrix
from modalhash.solvers.minibatch import Minibatch, codes_by_blocks
from modalhash.solvers.momentum import MomentumDescent
from modalhash.solvers.objective import KINDS, Part, ReferenceEngine, unified_codes
from modalhash.solvers.shuffle import Batch, Plan, batches, feeds_of
from modalhash.views import ViewTransform

pytestmark = pytest.mark.filterwarnings("ignore::modalhash.exceptions.ConstantBitsWarning")


def _parts(rng, n=60, c=5):
    parts = []
    for name, X, alpha in (
        ("a", rng.normal(size=(n, 7)), 1.0),
        ("b", sparse.csr_array(rng.random((n, 9)) * (rng.random((n, 9)) < 0.3)), 2.0),
    ):
        W, v = rng.normal(0, 0.1, (X.shape[1], c)), rng.normal(0, 0.1, c)
        parts.append(Part(name, CentredMatrix(X, np.asarray(X.mean(axis=0)).ravel(), 3.0), W, v, alpha, 0.2))
    return parts


# ------------------------------------------------------------------------------------------- momentum


def test_momentum_by_hand():
    """One bit, one column. By hand: W steps by dt * 0.1 * sign(dW), then by dt * (0.9 * 0.1 + 0.1) = dt * 0.19."""
    part = Part("x", CentredMatrix(np.array([[1.0], [2.0]])), np.array([[0.5]]), np.zeros(1), 1.0, 0.0)
    with ReferenceEngine([part], 2, None) as engine:  # both scores are positive, B = 1, so dE/dW < 0
        MomentumDescent(engine, [0.1, 0.1], True).advance(0, 2)
    assert part.W[0, 0] == pytest.approx(0.5 + 0.1 * 0.1 + 0.1 * 0.19, rel=1e-12)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_momentum_reaches_the_papers_objective_in_a_third_of_the_iterations(seed):
    data = make_synthetic(n=200, n_image=30, n_text=20, random_state=seed)
    paper = DMH(16, random_state=seed).fit(data.views, labels=data.labels)
    fast = DMH(16, solver="momentum", random_state=seed).fit(data.views, labels=data.labels)
    assert (paper.n_iter_, fast.n_iter_) == (400, 133)
    assert fast.objective_.min() <= paper.objective_[-1]
    assert fast.objective_[0] == paper.objective_[0]  # the same start


def test_momentum_without_normalising_is_a_heavy_ball(small):
    hasher = DMH(8, solver="momentum", normalize_gradient=False, step_start=1e-6, step_end=1e-6, random_state=0)
    hasher.fit(small.views, labels=small.labels)
    assert hasher.objective_[-1] < hasher.objective_[0]


# ------------------------------------------------------------------------------------------- which rows


@given(
    n=st.integers(1, 300),
    size=st.integers(1, 60),
    epochs=st.integers(1, 3),
    group=st.integers(1, 20),
    width=st.sampled_from([1, 2**14, 2**20, 2**23]),
    start=st.integers(0, 40),
)
def test_every_pass_takes_every_row_once_and_can_be_entered_anywhere(n, size, epochs, group, width, start):
    plan = Plan(n, size, epochs, 7, width, group)

    def rows(first):
        out = []
        for ranges, drawn, _ in plan.pieces(first):
            ids = np.concatenate([np.arange(a, b) for a, b in ranges])
            out += [ids[places] for places in drawn]
        return out

    whole = rows(0)
    assert len(whole) == plan.total
    assert sorted(np.concatenate(whole).tolist()) == sorted(list(range(n)) * epochs)
    later = rows(start)
    assert len(later) == max(0, plan.total - start)
    for a, b in zip(whole[start:], later, strict=True):
        np.testing.assert_array_equal(a, b)


def test_blocks_are_whole_row_groups():
    plan = Plan(1000, 10, 1, 0, width=2**15, group=70)  # 4 MB are 128 rows: two groups of 70
    assert plan.block == 140
    assert plan.per_buffer == 29


def test_rows_of_a_large_set_are_mixed_from_afar():
    plan = Plan(100_000, 500, 1, 0, width=2**15)
    ranges, drawn, _ = next(iter(plan.pieces(0)))
    ids = np.concatenate([np.arange(a, b) for a, b in ranges])
    spread = np.ptp(ids[drawn[0]])
    assert spread > 60_000


# ------------------------------------------------------------------------------------------- steps


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_of_all_rows_is_a_full_step(rng, kind):
    """The first batch's Gram matrix has weight 1, so one batch of everything is one iteration of momentum."""
    one, two = _parts(np.random.default_rng(1)), _parts(np.random.default_rng(1))
    with ReferenceEngine(one, 60, kind) as engine:
        expected = MomentumDescent(engine, [0.01], True).advance(0, 1)[0]
    terms = Minibatch(two, kind, True).step(Batch([(part.X.X, None) for part in two], 60, 0.0), 0.01)
    np.testing.assert_allclose(terms, [float(t) for t in expected], rtol=1e-12)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a.W, b.W, rtol=1e-10)
        np.testing.assert_allclose(a.v, b.v, rtol=1e-10)


def test_the_gram_matrix_is_a_running_mean_over_batches(rng):
    """With W fixed (steps of 0) it comes near C'C / n of all rows, nearer than that of any one batch."""
    parts = _parts(rng, n=400)
    C = parts[0].embed()
    truth = C.T @ C / 400
    solver = Minibatch(parts, "paper", True)
    for batch in batches(feeds_of(parts, 400), Plan(400, 20, 2, 3, width=100)):
        solver.step(batch, 0.0)
    error = np.abs(solver.grams[0] - truth).max()
    single = [np.abs(C[i : i + 20].T @ C[i : i + 20] / 20 - truth).max() for i in range(0, 400, 20)]
    assert error < 0.5 * np.mean(single)


def test_terms_estimate_the_objective_of_all_rows(rng):
    parts = _parts(rng, n=300)
    with ReferenceEngine(parts, 300, None) as engine:
        truth = sum(float(g[2]) for g in engine.gradients())
    solver = Minibatch(parts, None, True)
    found = [sum(solver.step(b, 0.0)) for b in batches(feeds_of(parts, 300), Plan(300, 30, 1, 0, width=100))]
    assert np.mean(found) == pytest.approx(truth, rel=1e-9)  # batches of equal size: their mean is exact


def test_codes_by_blocks_are_the_unified_codes(rng, monkeypatch):
    parts = _parts(rng, n=50)
    parts[1] = Part(
        "b",
        CentredMatrix(parts[1].X.X[::2], parts[1].X.mean, 3.0),
        parts[1].W,
        parts[1].v,
        2.0,
        0.1,
        np.arange(0, 50, 2),
    )
    expected = mh.codes.pack_scores(unified_codes(parts, [part.embed() for part in parts], 50))
    np.testing.assert_array_equal(codes_by_blocks(parts, 50), expected)


# ------------------------------------------------------------------------------------------- fits


class _Batches(DMH):
    def __init__(self, n_bits=64, *, random_state=None, dtype="float32"):
        super().__init__(n_bits, solver="minibatch", batch_size=64, random_state=random_state, dtype=dtype)


class _Momentum(DMH):
    def __init__(self, n_bits=64, *, random_state=None, dtype="float32"):
        super().__init__(n_bits, solver="momentum", random_state=random_state, dtype=dtype)


_OF_THE_CONSTRUCTOR = ("init_only_stores", "clone", "save_and_load")  # these two classes fix parameters on purpose


@pytest.mark.parametrize("check", [name for name in CHECKS if name not in _OF_THE_CONSTRUCTOR])
@pytest.mark.parametrize("cls", [_Batches, _Momentum])
def test_the_contract_holds_for_every_solver(cls, check):
    assert check_hasher(cls, only=[check]) == [check]


@pytest.mark.parametrize("solver", ["momentum", "minibatch"])
def test_saving_keeps_the_solver(small, tmp_path, solver):
    extra = {"batch_size": 100, "n_epochs": 3} if solver == "minibatch" else {"n_iter": 9}
    hasher = DMH(8, solver=solver, step_start=0.03, random_state=0, **extra).fit(small.views, labels=small.labels)
    again = mh.load(hasher.save(tmp_path / "model"))
    assert again.get_params() == hasher.get_params()
    assert again.n_iter_ == (12 if solver == "minibatch" else 9)
    np.testing.assert_array_equal(again.encode("text", small.views["text"]), hasher.encode("text", small.views["text"]))
    np.testing.assert_array_equal(again.train_codes_, hasher.train_codes_)
    codes = hasher.database_codes(small.views, small.labels, rule="learned")
    np.testing.assert_array_equal(codes, hasher.train_codes_)


def test_passes_follow_from_iterations_and_the_callback_sees_each_batch(small, caplog):
    seen = []
    hasher = DMH(8, solver="minibatch", batch_size=100, n_iter=10, random_state=0, verbose=4)
    hasher.set_params(callback=lambda k, K, value: seen.append((k, K, value)))
    with caplog.at_level(logging.INFO, logger="modalhash"):
        hasher.fit(small.views, labels=small.labels)  # 400 rows: 4 batches a pass, 10 batches are 3 passes
    assert [(k, K) for k, K, _ in seen] == [(k, 12) for k in range(1, 13)]
    np.testing.assert_allclose([value for _, _, value in seen], hasher.objective_)
    assert set(hasher.objective_parts_) >= {"quantization.image", "decorrelation.labels"}
    assert sum("of 12: objective" in record.message for record in caplog.records) == 3


def test_tolerance_compares_passes(small):
    hasher = DMH(8, solver="minibatch", batch_size=100, n_epochs=60, tol=0.02, random_state=0)
    hasher.fit(small.views, labels=small.labels)
    assert 8 <= hasher.n_iter_ < 240
    assert hasher.n_iter_ % 4 == 0
    with pytest.warns(ConvergenceWarning, match="did not reach tol"):
        DMH(8, solver="minibatch", batch_size=100, n_epochs=2, tol=1e-9, random_state=0).fit(small.views, small.labels)


@pytest.mark.parametrize("buffer", [128 * 2**20, 2**14])  # one buffer holds all rows; many buffers
def test_where_a_view_lives_does_not_change_the_result(tmp_path, monkeypatch, buffer):
    monkeypatch.setattr("modalhash.solvers.shuffle.BUFFER_BYTES", buffer)
    monkeypatch.setattr("modalhash.solvers.shuffle._BLOCK_BYTES", 2**11)
    data = make_synthetic(n=500, n_image=16, n_text=12, random_state=0)
    views = {name: X.astype(np.float32) for name, X in data.views.items()}
    views["text"][::7] = np.nan  # some lack the text
    labels = data.labels.copy()
    labels[100:150] = 0
    for name, X in views.items():
        np.save(tmp_path / f"{name}.npy", X)
    make = lambda: DMH(16, solver="minibatch", batch_size=50, n_epochs=4, random_state=0)  # noqa: E731
    memory = make().fit(views, labels=labels)
    mapped = {name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in views}
    some = {"image": mapped["image"], "text": views["text"]}
    for other in (mapped, {name: open_rows(tmp_path / f"{name}.npy") for name in views}, some):
        disk = make().fit(other, labels=labels)
        for name in memory.weights_:
            np.testing.assert_array_equal(memory.weights_[name], disk.weights_[name])
            np.testing.assert_array_equal(memory.biases_[name], disk.biases_[name])
        np.testing.assert_array_equal(memory.train_codes_, disk.train_codes_)


def test_sorted_data_on_disk_is_learned_as_well_as_shuffled(tmp_path, monkeypatch):
    """Rows sorted by class, buffers of a twentieth of them: batches are still mixed enough."""
    monkeypatch.setattr("modalhash.solvers.shuffle.BUFFER_BYTES", 2**14)
    monkeypatch.setattr("modalhash.solvers.shuffle._BLOCK_BYTES", 2**10)
    data = make_synthetic(n=2000, n_classes=4, max_labels=1, noise=0.3, n_image=16, n_text=12, random_state=0)
    order = np.argsort(data.labels.argmax(axis=1), kind="stable")
    for name, X in data.views.items():
        np.save(tmp_path / f"{name}.npy", X[order])
    disk = {name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in data.views}
    labels = data.labels[order]
    hasher = DMH(16, solver="minibatch", batch_size=64, n_epochs=4, random_state=0).fit(disk, labels=labels)
    report = mh.evaluate(
        hasher.encode("text", data.views["text"][:200]),
        hasher.encode("image", data.views["image"][200:]),
        query_labels=data.labels[:200],
        database_labels=data.labels[200:],
        n_bits=16,
        metrics="MAP[ties=id]",
    )
    assert report["MAP[ties=id]"] > 0.9


# ------------------------------------------------------------------------------------------- partial_fit


def _stream(data, k=4):
    for rows in np.array_split(np.arange(len(data)), k):
        yield {name: X[rows] for name, X in data.views.items()}, data.labels[rows]


def test_partial_fit_learns(small):
    hasher = DMH(16, solver="minibatch", batch_size=50, n_iter=60, random_state=0)
    for _ in range(8):
        for views, labels in _stream(small):
            hasher.partial_fit(views, labels)
    assert hasher.n_iter_ == len(hasher.objective_) == 64
    assert hasher.training_["n_rows"] == 3200
    assert not hasattr(hasher, "train_codes_")
    assert hasher.objective_[-8:].mean() < 0.5 * hasher.objective_[:4].mean()
    report = mh.evaluate(
        hasher.encode("text", small.views["text"]),
        hasher.encode("image", small.views["image"]),
        query_labels=small.labels,
        database_labels=small.labels,
        n_bits=16,
        metrics="MAP[ties=id]",
    )
    whole = DMH(16, random_state=0).fit(small.views, labels=small.labels)
    full = mh.evaluate(
        whole.encode("text", small.views["text"]),
        whole.encode("image", small.views["image"]),
        query_labels=small.labels,
        database_labels=small.labels,
        n_bits=16,
        metrics="MAP[ties=id]",
    )
    assert report["MAP[ties=id]"] > full["MAP[ties=id]"] - 0.08  # 8 passes in batches of 50 against 400 full ones


def test_partial_fit_goes_on_after_saving_and_after_fit(small, tmp_path):
    calls = list(_stream(small))
    one = DMH(8, solver="minibatch", batch_size=50, random_state=0)
    for call in calls:
        one.partial_fit(*call)
    two = DMH(8, solver="minibatch", batch_size=50, random_state=0)
    for i, call in enumerate(calls):
        two.partial_fit(*call)
        two = mh.load(two.save(tmp_path / f"model{i}"))
    for name in one.weights_:
        np.testing.assert_array_equal(one.weights_[name], two.weights_[name])
    fitted = DMH(8, solver="minibatch", n_epochs=5, random_state=0).fit(small.views, labels=small.labels)
    means, before = fitted.means_["image"].copy(), fitted.weights_["image"].copy()
    fitted.partial_fit(*calls[0])
    np.testing.assert_array_equal(fitted.means_["image"], means)
    assert 0 < np.abs(fitted.weights_["image"] - before).max() < 0.1
    paper = DMH(8, n_iter=20, random_state=0).fit(small.views, labels=small.labels)
    paper.set_params(solver="minibatch").partial_fit(*calls[0])
    assert paper.n_iter_ == 21


def test_the_first_call_may_be_told_what_the_rows_do_not_show(small):
    views = {name: X[:30] for name, X in small.views.items()}
    given = ViewTransform(np.zeros(small.views["image"].shape[1]), 2.5)
    hasher = DMH(8, solver="minibatch", random_state=0)
    hasher.partial_fit(views, [3] * 30, classes=[1, 3, 5], transforms={"image": given})
    assert hasher.label_names_ == [1, 3, 5]
    assert hasher.scales_["image"] == 2.5
    assert hasher.scales_["text"] != 2.5
    hasher.partial_fit(views, [1] * 30)
    before = hasher.weights_["labels"].copy()
    hasher.partial_fit(views)  # rows without labels move the views; the label part has nothing new
    assert hasher.weights_["labels"].shape == before.shape
    with pytest.raises(InputError, match="label 2 at row 0 is not one the model knows"):
        hasher.partial_fit(views, [2] * 30)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda h, v, y: h.set_params(solver="paper").partial_fit(v, y), 'needs solver="minibatch"'),
        (lambda h, v, y: h.partial_fit({"image": v["image"]}, y), "the model has the views image, text; got image"),
        (lambda h, v, y: h.partial_fit({**v, "text": v["text"][:, :3]}, y), "has 3 columns; the model was fitted with"),
        (lambda h, v, y: h.partial_fit(v, y, classes=[1]), "are for the first call"),
        (lambda h, v, y: h.partial_fit(v, y[:3]), "labels have 3 rows"),
        (lambda h, v, y: DMH(8, solver="minibatch").partial_fit(v, 0 * y), "no row of the first call has a label"),
        (
            lambda h, v, y: DMH(8, solver="minibatch").partial_fit(v).partial_fit(v, y),
            "the model was fitted without labels",
        ),
        (
            lambda h, v, y: DMH(8, solver="minibatch").partial_fit(v, y, transforms={"sound": None}),
            "transforms names view 'sound'",
        ),
        (
            lambda h, v, y: DMH(8, solver="minibatch").partial_fit(
                v, y, transforms={"image": ViewTransform(np.zeros(2), 1.0)}
            ),
            "the mean of view 'image' must have",
        ),
    ],
)
def test_bad_calls_of_partial_fit(small, call, message):
    hasher = DMH(8, solver="minibatch", random_state=0).partial_fit(small.views, small.labels)
    with pytest.raises(InputError, match=message):
        call(hasher, small.views, small.labels)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"solver": "newton"}, "solver must be one of paper, momentum, minibatch; got 'newton'"),
        ({"solver": "minibatch", "batch_size": 0}, "batch_size must be a whole number of at least 1"),
        ({"solver": "minibatch", "n_epochs": 0}, "n_epochs must be a whole number of at least 1"),
        ({"solver": "minibatch", "n_epochs": 2, "n_iter": 9}, "n_epochs goes with"),
        ({"n_epochs": 2}, "n_epochs goes with"),
        ({"solver": "minibatch", "device": "cuda"}, "computes in NumPy"),
        ({"solver": "momentum", "step_start": 0}, "step_start must be positive"),
    ],
)
def test_bad_parameters(small, parameters, message):
    with pytest.raises(InputError, match=message):
        DMH(8, **parameters).fit(small.views, labels=small.labels)


@pytest.mark.torch
def test_torch_tensors(small):
    torch = pytest.importorskip("torch")
    tensors = {name: torch.from_numpy(X.copy()) for name, X in small.views.items()}
    a, b = (DMH(8, solver="minibatch", random_state=0).fit(v, labels=small.labels) for v in (small.views, tensors))
    np.testing.assert_array_equal(a.train_codes_, b.train_codes_)
    a, b = (
        DMH(8, solver="momentum", n_iter=30, random_state=0, dtype="float64").fit(v, labels=small.labels)
        for v in (small.views, tensors)
    )
    np.testing.assert_array_equal(a.train_codes_, b.train_codes_)
