"""DMH: gradients, Algorithms 1 and 2 against a literal version, missing data, semi-supervision, determinism."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from modalhash import DMH
from modalhash.codes import unpack
from modalhash.datasets import make_synthetic
from modalhash.exceptions import ConstantBitsWarning, ConvergenceWarning, InputError, LabelsRequiredError
from modalhash.linalg import CentredMatrix
from modalhash.solvers.objective import KINDS, Part, gradient, unified_codes

# Short fits on few rows leave a dead bit now and then; what that warning says is tested on its own below.
pytestmark = pytest.mark.filterwarnings("ignore::modalhash.exceptions.ConstantBitsWarning")


def _objective(part, B, kind):
    """The objective of one view, written out from READING of Eq. (model)."""
    C = part.embed()
    n, c = C.shape
    fit = ((B - C) ** 2).sum()
    if kind == "paper":
        penalty = part.gamma / (2 * n) * np.linalg.norm(C.T @ C) ** 2
    elif kind == "centered":
        S = 2 * C - 1
        penalty = part.gamma / (2 * n) * np.linalg.norm(S.T @ S) ** 2
    elif kind == "weights":
        penalty = part.gamma * n / 2 * np.linalg.norm(part.W.T @ part.W - np.eye(c)) ** 2
    else:
        penalty = 0.0
    return part.alpha * (fit + penalty)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), as_sparse=st.booleans())
def test_gradients_equal_finite_differences(kind, seed, as_sparse):
    rng = np.random.default_rng(seed)
    n, d, c = 7, 4, 3
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7)
    B = rng.integers(0, 2, (n, c)).astype(float)
    M = CentredMatrix(sparse.csr_array(X) if as_sparse else X, X.mean(axis=0), 1.7)
    part = Part("x", M, rng.normal(size=(d, c)), rng.normal(size=c), alpha=2.5, gamma=0.3)
    dW, dv, fit, penalty = gradient(part, part.embed(), B, kind)
    assert fit + penalty == pytest.approx(_objective(part, B, kind), rel=1e-10)
    eps = 1e-6
    for parameter, analytical in ((part.W, dW), (part.v, dv)):
        numerical = np.zeros_like(analytical)
        for at in np.ndindex(parameter.shape):
            kept = parameter[at]
            parameter[at] = kept + eps
            up = _objective(part, B, kind)
            parameter[at] = kept - eps
            down = _objective(part, B, kind)
            parameter[at] = kept
            numerical[at] = (up - down) / (2 * eps)
        np.testing.assert_allclose(analytical, numerical, rtol=1e-5, atol=1e-6)


def _literal(X, T, L, c, K, seed, *, normalize, gamma=0.001, ks=0.003, ke=0.0015):
    """Algorithm 2 (or 1) in plain NumPy, with explicit copies, centring and A = exp(-Z) as printed."""
    rng = np.random.default_rng(seed)
    views = []
    for M, center, alpha in ((X, True, 1.0), (T, True, 1.0), (L * 255.0, False, 10.0)):
        M = M.astype(float)
        if center:
            M = M - M.mean(axis=0)
            M = M * 400 / np.sqrt((M**2).sum(axis=1).mean())
        views.append([M, rng.normal(0, 0.002, (M.shape[1], c)), rng.normal(0, 0.002, c), alpha])
    n = len(X)
    for k in range(K):
        dt = ks - (ks - ke) * k / K
        Cs = [1 / (1 + np.exp(-(M @ W + v))) for M, W, v, _ in views]
        B = np.round(sum(view[3] * C for view, C in zip(views, Cs, strict=True)) / 12.0)
        for view, C in zip(views, Cs, strict=True):
            M, W, v, alpha = view
            A = np.exp(-(M @ W + v))
            inner = (C - B + gamma / n * C @ C.T @ C) * (A / (1 + A) ** 2)
            dW = 2 * alpha * M.T @ inner
            view[2] = v - dt * 2 * alpha / n * inner.sum(axis=0)
            view[1] = W - dt * (dW / np.linalg.norm(dW) if normalize else dW)
    return views


@pytest.mark.parametrize("normalize", [True, False])
def test_the_algorithms_as_printed(normalize):
    data = make_synthetic(n=60, n_image=12, n_text=9, n_classes=4, random_state=3)
    steps = {"ks": 0.003, "ke": 0.0015} if normalize else {"ks": 1e-6, "ke": 5e-7}
    expected = _literal(data.views["image"], data.views["text"], data.labels, 5, 30, 7, normalize=normalize, **steps)
    hasher = DMH(
        5,
        n_iter=30,
        normalize_gradient=normalize,
        random_state=7,
        dtype="float64",
        step_start=steps["ks"],
        step_end=steps["ke"],
    ).fit(data.views, labels=data.labels)
    for name, (_, W, v, _) in zip(("image", "text", "labels"), expected, strict=True):
        np.testing.assert_allclose(hasher.weights_[name], W, rtol=1e-6, atol=1e-10)
        np.testing.assert_allclose(hasher.biases_[name], v, rtol=1e-6, atol=1e-10)


def test_objective_is_recorded_with_its_parts(small):
    seen = []
    hasher = DMH(8, n_iter=60, random_state=0, callback=lambda k, K, value: seen.append((k, K, value)))
    hasher.fit(small.views, labels=small.labels)
    assert hasher.n_iter_ == 60
    assert hasher.objective_.shape == (60,)
    assert set(hasher.objective_parts_) == {
        f"{what}.{view}" for what in ("quantization", "decorrelation") for view in ("image", "text", "labels")
    }
    np.testing.assert_allclose(sum(hasher.objective_parts_.values()), hasher.objective_, rtol=1e-9)
    assert hasher.objective_[-1] < 0.9 * hasher.objective_[0]
    assert [k for k, _, _ in seen] == list(range(1, 61))
    np.testing.assert_allclose([value for _, _, value in seen], hasher.objective_, rtol=1e-6)


def test_sparse_and_dense_input_give_the_same_codes():
    data = make_synthetic(n=400, sparse_text=True, random_state=1)
    dense = {"image": data.views["image"], "text": data.views["text"].toarray()}
    for dtype in ("float32", "float64"):
        a = DMH(32, n_iter=100, random_state=0, dtype=dtype).fit(data.views, labels=data.labels)
        b = DMH(32, n_iter=100, random_state=0, dtype=dtype).fit(dense, labels=data.labels)
        np.testing.assert_array_equal(a.train_codes_, b.train_codes_)
        np.testing.assert_array_equal(a.encode("text", data.views["text"]), b.encode("text", dense["text"]))


def test_learned_codes_are_a_function_of_the_model_and_the_rows(small):
    hasher = DMH(16, n_iter=50, random_state=0).fit(small.views, labels=small.labels)
    codes = hasher.database_codes(small.views, small.labels, rule="learned")
    np.testing.assert_array_equal(codes, hasher.train_codes_)
    some = {name: X[5:9] for name, X in small.views.items()}
    np.testing.assert_array_equal(
        hasher.database_codes(some, small.labels[5:9], rule="learned"), hasher.train_codes_[5:9]
    )
    fused = hasher.database_codes(small.views, rule="fused")
    assert not (fused == codes).all()
    with pytest.raises(LabelsRequiredError, match="learned rule"):
        hasher.database_codes(small.views, rule="learned")
    with pytest.raises(InputError, match="labels have 3 rows"):
        hasher.database_codes(some, small.labels[:3], rule="learned")


def test_missing_views_are_fitted_on_what_is_there(small):
    """Marking missing rows by NaN or by a mask is the same, and what lies under the mask is never read."""
    lost = np.zeros(400, bool)
    lost[::3] = True
    text = small.views["text"].copy()
    text[lost] = np.nan
    by_nan = DMH(16, n_iter=40, random_state=0).fit({**small.views, "text": text}, labels=small.labels)
    junk = np.where(lost[:, None], 1e9, small.views["text"])
    by_mask = DMH(16, n_iter=40, random_state=0).fit(
        {**small.views, "text": junk}, labels=small.labels, present={"text": ~lost}
    )
    np.testing.assert_array_equal(by_nan.train_codes_, by_mask.train_codes_)
    np.testing.assert_array_equal(by_nan.weights_["text"], by_mask.weights_["text"])
    whole = DMH(16, n_iter=40, random_state=0).fit(small.views, labels=small.labels)
    assert not (whole.weights_["text"] == by_nan.weights_["text"]).all()
    codes = by_nan.database_codes({**small.views, "text": junk}, small.labels, rule="learned", present={"text": ~lost})
    np.testing.assert_array_equal(codes, by_nan.train_codes_)


def test_codes_average_over_present_views_only():
    """Two views, weights 1 and 3; row 1 lacks the second. By hand: row 0 (0.9 + 3 * 0.2) / 4 = 0.375, row 1 0.9."""
    z = np.log(np.array([[0.9 / 0.1]]))
    first = Part("a", CentredMatrix(np.ones((2, 1))), z, np.zeros(1), 1.0, 0.0)
    second = Part(
        "b", CentredMatrix(np.ones((1, 1))), np.log(np.array([[0.2 / 0.8]])), np.zeros(1), 3.0, 0.0, np.array([0])
    )
    for parts in ([first, second], [second, first]):
        B = unified_codes(parts, [part.embed() for part in parts], 2)
        assert B.tolist() == [[0.0], [1.0]]


def test_without_labels(small):
    with pytest.warns(ConstantBitsWarning, match=r"\d+ of 16 bits have the same value .* carry no information"):
        hasher = DMH(16, n_iter=20, random_state=0, center=False).fit(small.views)
    assert (unpack(hasher.train_codes_, 16).mean(axis=0) % 1 == 0).any()
    assert "labels" not in hasher.weights_
    assert hasher.label_names_ is None


def test_semi_supervised(small):
    """Rows without a label are fitted on their views; more labels give other codes, and the labelled part decides."""
    labels = small.labels.copy()
    labels[100:] = 0
    hasher = DMH(16, n_iter=100, random_state=0).fit(small.views, labels=labels)
    assert hasher.train_codes_.shape == (400, 2)
    only = DMH(16, n_iter=100, random_state=0).fit({k: X[:100] for k, X in small.views.items()}, labels=labels[:100])
    assert not np.array_equal(hasher.weights_["image"], only.weights_["image"])
    # the unlabelled rows' learned codes follow from their views alone
    fused = hasher.database_codes(small.views, rule="fused")
    np.testing.assert_array_equal(hasher.train_codes_[100:], fused[100:])


def test_tolerance(small):
    hasher = DMH(8, n_iter=400, tol=1e-3, random_state=0).fit(small.views, labels=small.labels)
    assert hasher.n_iter_ < 400
    with pytest.warns(ConvergenceWarning, match="did not reach tol"):
        DMH(8, n_iter=3, tol=1e-12, random_state=0).fit(small.views, labels=small.labels)


def test_one_view_and_three(small):
    assert DMH(8, n_iter=20, random_state=0).fit({"a": small.views["image"]}, labels=small.labels).view_names_ == ["a"]
    three = {**small.views, "sound": small.views["image"][:, :5]}
    hasher = DMH(8, n_iter=20, random_state=0).fit(three, labels=small.labels)
    assert hasher.encode("sound", three["sound"]).shape == (400, 1)


def test_presets():
    assert DMH.paper(32, random_state=1).get_params()["scale"] == 255.0
    literal = DMH.paper_literal(32)
    assert (literal.scale, literal.center, literal.init_scale) == (255.0, False, 0.01)


def test_by_view_parameters(small):
    hasher = DMH(
        8,
        n_iter=5,
        scale={"image": 1.0, "text": 255, "labels": 100},
        center={"image": False},
        decorrelation={"labels": 0.0},
        view_weights={"text": 2.0},
        random_state=0,
    ).fit(small.views, labels=small.labels)
    assert hasher.scales_ == {"image": 1.0, "text": 255.0, "labels": 100.0}
    assert set(hasher.means_) == {"text"}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_bits": 0}, "n_bits must be a whole number of at least 1; got 0"),
        ({"decorrelation_kind": "strong"}, "decorrelation_kind must be one of"),
        ({"n_iter": 0}, "n_iter must be"),
        ({"dtype": "int8"}, "dtype must be"),
        ({"label_weight": 0}, "label_weight must be positive"),
        ({"init_scale": -1}, "init_scale must be positive"),
        ({"step_end": -1}, "must not be negative"),
        ({"view_weights": {"txet": 2}}, "view_weights names view 'txet'"),
        ({"view_weights": {"text": -2}}, "weight must be positive"),
        ({"scale": "large"}, 'scale must be "auto"'),
        ({"random_state": "x"}, "random_state must be"),
        ({"random_state": -1}, "random_state must not be negative"),
    ],
)
def test_bad_parameters(small, parameters, message):
    with pytest.raises(InputError, match=message):
        DMH(**{"n_iter": 2, **parameters}).fit(small.views, labels=small.labels)


def test_memory_is_a_handful_of_n_by_c(rng):
    """Peak beyond the views: a few n x c arrays, never a copy of a wide view and nothing n x n."""
    n, d, c = 4000, 600, 16
    views = {
        "image": rng.random((n, d), dtype=np.float32),
        "text": sparse.random(n, d, 0.01, "csr", np.float32, rng=rng),
    }
    labels = np.eye(5, dtype=np.uint8)[rng.integers(0, 5, n)]
    DMH(c, n_iter=1, random_state=0).fit(views, labels=labels)
    tracemalloc.start()
    DMH(c, n_iter=2, random_state=0).fit(views, labels=labels)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * n * c * 4 + 8 * n * d  # one block of the moments in float64 is at most 32 MB; here n x d
    assert peak < n * n * 4


def test_bits_of_a_fit_are_not_all_alike(small):
    hasher = DMH(16, n_iter=100, random_state=0).fit(small.views, labels=small.labels)
    balance = unpack(hasher.train_codes_, 16).mean(axis=0)
    assert (np.abs(balance - 0.5) < 0.45).sum() >= 10


@pytest.mark.torch
@pytest.mark.parametrize("kind", KINDS)
def test_torch_takes_the_same_body(small, kind):
    torch = pytest.importorskip("torch")
    tensors = {name: torch.from_numpy(X.copy()) for name, X in small.views.items()}
    a = DMH(16, n_iter=50, random_state=0, dtype="float64", decorrelation_kind=kind)
    b = DMH(16, n_iter=50, random_state=0, dtype="float64", decorrelation_kind=kind)
    a.fit(small.views, labels=small.labels)
    b.fit(tensors, labels=torch.from_numpy(small.labels.copy()))
    np.testing.assert_array_equal(a.train_codes_, b.train_codes_)
    for view in a.weights_:
        assert isinstance(b.weights_[view], np.ndarray)
        np.testing.assert_allclose(a.weights_[view], b.weights_[view], rtol=1e-8, atol=1e-12)
    np.testing.assert_array_equal(b.encode("image", tensors["image"]), a.encode("image", small.views["image"]))


@pytest.mark.torch
def test_torch_sparse_and_missing_rows():
    torch = pytest.importorskip("torch")
    data = make_synthetic(n=200, sparse_text=True, random_state=2)
    present = {"text": np.arange(200) % 4 != 0}
    a = DMH(16, n_iter=30, random_state=0, dtype="float64").fit(data.views, labels=data.labels, present=present)
    mixed = {"image": torch.from_numpy(data.views["image"]), "text": data.views["text"]}
    b = DMH(16, n_iter=30, random_state=0, dtype="float64").fit(mixed, labels=data.labels, present=present)
    np.testing.assert_array_equal(a.train_codes_, b.train_codes_)


@pytest.mark.torch
def test_a_device_that_is_not_there(small):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(InputError, match="device 'cuda' cannot be used here"):
        DMH(8, device="cuda").fit(small.views, labels=small.labels)
    with pytest.raises(InputError, match="device 'gpu' cannot be used here"):
        DMH(8, device="gpu").fit(small.views, labels=small.labels)
