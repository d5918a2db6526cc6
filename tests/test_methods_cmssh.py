"""CMSSH against outputs of the simplified form's program, and against a literal version of the boosted form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import modalhash as mh
from modalhash.codes import unpack
from modalhash.exceptions import InputError
from modalhash.linalg import CentredMatrix
from modalhash.methods.cmssh import best_threshold, leading_pairs, pair_moments, sample_pairs
from modalhash.similarity import relevance

GOLDEN = Path(__file__).parent / "golden"
REFERENCE = Path(__file__).parents[2] / "shared" / "reference"
needs_inputs = pytest.mark.skipif(
    not (REFERENCE / "data_synth.npz").is_file(), reason="needs the inputs in ../shared/reference"
)


def up_to_sign(ours, theirs):
    """Whether two 0/1 matrices are equal, columns flipped where that helps; and which were flipped."""
    flipped = (ours != theirs).mean(axis=0) > 0.5
    return np.array_equal(ours ^ flipped, theirs.astype(bool)), flipped


OUTPUTS = {"Bi": ("image", "I_tr"), "Bt": ("text", "T_tr"), "Bqi": ("image", "I_te"), "Bqt": ("text", "T_te")}


@needs_inputs
@pytest.mark.parametrize("data", ["synth", "wiki"])
@pytest.mark.parametrize("n_bits", [16, 32])
def test_positive_pairs_equal_the_reference(data, n_bits):
    """Every bit up to a column's sign, and MAP to 1e-6."""
    with np.load(GOLDEN / f"methods_cmssh_{data}.npz", allow_pickle=False) as g:
        theirs = {key.removeprefix(f"{n_bits}_"): g[key] for key in g.files if key.startswith(f"{n_bits}_")}
    with np.load(REFERENCE / f"data_{data}.npz", allow_pickle=False) as d:
        inputs = dict(d)
    hasher = mh.CMSSH(n_bits, variant="positive-pairs").fit({"image": inputs["I_tr"], "text": inputs["T_tr"]})
    codes = {key: hasher.encode(view, inputs[part]) for key, (view, part) in OUTPUTS.items()}
    flips = {}
    for key in codes:
        equal, flips[key] = up_to_sign(unpack(codes[key], n_bits), unpack(theirs[key], n_bits))
        assert equal, f"{key} differs"
    for key in ("Bt", "Bqi", "Bqt"):  # one sign per bit, the same for both views and for queries
        np.testing.assert_array_equal(flips[key], flips["Bi"])
    for query, database, name in (("Bqi", "Bt", "i2t"), ("Bqt", "Bi", "t2i")):
        report = mh.evaluate(
            codes[query],
            codes[database],
            query_labels=inputs["L_te"],
            database_labels=inputs["L_tr"],
            n_bits=n_bits,
            metrics="MAP[ties=id]",
        )
        assert report["MAP[ties=id]"] == pytest.approx(theirs[name][0], abs=1e-6)


def literal_boosting(X, Y, pairs, n_bits, thresholds):
    """The steps of the module's docstring, pair by pair: no sparse matrix, every threshold tried."""
    X, Y = X - X.mean(axis=0), Y - Y.mean(axis=0)
    i, j, s = pairs.T
    share = {sign: 1 / len(set(s.tolist())) for sign in set(s.tolist())}
    w = np.array([share[sign] / (s == sign).sum() for sign in s])
    sgn = lambda z: np.where(z > 0, 1.0, -1.0)  # noqa: E731
    edge = lambda h, g: float((w * s * h[i] * g[j]).sum())  # noqa: E731
    cuts = lambda z: [-(u + v) / 2 for u, v in zip(np.unique(z)[:-1], np.unique(z)[1:], strict=True)]  # noqa: E731
    bits, edges, loss = [], [], []
    margin = np.zeros(len(s))
    for _ in range(n_bits):
        C = sum(w[m] * s[m] * np.outer(X[i[m]], Y[j[m]]) for m in range(len(s)))
        U, _, Vt = np.linalg.svd(C)
        x, y, a, b, r = X @ U[:, 0], Y @ Vt[0], 0.0, 0.0, -np.inf
        if thresholds:
            g = sgn(y)
            while True:
                a_new = max(cuts(x), key=lambda t: edge(sgn(x + t), g))
                b_new = max(cuts(y), key=lambda t: edge(sgn(x + a_new), sgn(y + t)))
                r_new = edge(sgn(x + a_new), sgn(y + b_new))
                if r_new <= r + 1e-12:
                    break
                r, a, b, g = r_new, a_new, b_new, sgn(y + b_new)
        else:
            r = edge(sgn(x), sgn(y))
        alpha = 0.5 * np.log((1 + r) / (1 - r)) if thresholds else 1.0
        h, g = sgn(x + a), sgn(y + b)
        margin += alpha * s * h[i] * g[j]
        w = w * np.exp(-alpha * s * h[i] * g[j])
        for sign in share:
            w[s == sign] *= share[sign] / w[s == sign].sum()
        bits.append((h > 0, g > 0))
        edges.append(r)
        loss.append(np.mean([np.exp(-margin[s == sign]).mean() for sign in share]))
    return bits, edges, loss


def small_problem(seed):
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=(30, 3))
    X = latent @ rng.normal(size=(3, 6)) + 0.3 * rng.normal(size=(30, 6)) + 2
    Y = np.tanh(latent @ rng.normal(size=(3, 4))) + 0.3 * rng.normal(size=(30, 4)) - 1
    L = (latent > 0.5).astype(int)
    L[~L.any(axis=1), 0] = 1
    i, j = rng.integers(30, size=(2, 120))
    return X, Y, L, np.stack([i, j, np.where((L[i] & L[j]).any(axis=1), 1, -1)], axis=1)


@pytest.mark.parametrize("seed", range(3))
def test_boosting_equals_the_literal_version(seed):
    X, Y, _, pairs = small_problem(seed)
    hasher = mh.CMSSH(5, pairs=pairs).fit({"image": X, "text": Y})
    bits, edges, loss = literal_boosting(X, Y, pairs, 5, thresholds=True)
    np.testing.assert_allclose(hasher.edges_, edges, rtol=1e-9)
    np.testing.assert_allclose(hasher.objective_, loss, rtol=1e-9)
    np.testing.assert_allclose(hasher.bit_weights_, np.arctanh(edges), rtol=1e-9)  # 1/2 log((1+r)/(1-r)) = artanh r
    for view, Z in ((0, X), (1, Y)):
        name = ("image", "text")[view]
        theirs = np.stack([bit[view] for bit in bits], axis=1)
        assert up_to_sign(unpack(hasher.encode(name, Z), 5), theirs)[0]


def test_positive_pairs_equal_the_literal_version():
    X, Y, _, _ = small_problem(7)
    own = np.stack([np.arange(30), np.arange(30), np.ones(30, dtype=int)], axis=1)
    hasher = mh.CMSSH(6, variant="positive-pairs").fit({"image": X, "text": Y})
    bits, _, loss = literal_boosting(X, Y, own, 6, thresholds=False)
    np.testing.assert_allclose(hasher.objective_, loss, rtol=1e-9)
    assert up_to_sign(unpack(hasher.encode("image", X), 6), np.stack([bit[0] for bit in bits], axis=1))[0]


def test_more_directions_never_make_the_first_bit_worse(small):
    edges = [
        mh.CMSSH(1, n_pairs=3000, n_directions=k, random_state=0).fit(small.views, labels=small.labels).edges_[0]
        for k in (1, 4, 1000)
    ]
    assert edges[0] <= edges[1] <= edges[2]


def test_the_loss_falls_and_the_callback_sees_it(small):
    seen = []
    hasher = mh.CMSSH(12, n_pairs=5000, random_state=0, callback=lambda *state: seen.append(state))
    hasher.fit(small.views, labels=small.labels)
    assert (np.diff(hasher.objective_) < 0).all()
    assert hasher.objective_[0] < 1
    assert seen == [(t + 1, 12, loss) for t, loss in enumerate(hasher.objective_)]
    assert hasher.n_iter_ == 12


def test_fewer_bits_are_a_prefix_of_more(small):
    a, b = (mh.CMSSH(k, n_pairs=3000, random_state=0).fit(small.views, labels=small.labels) for k in (5, 9))
    np.testing.assert_array_equal(a.weights_["text"], b.weights_["text"][:, :5])


def test_labels_help(small):
    """Codes learned with labels find neighbours better than those of the items' own pairs."""
    train, query = small.take(np.arange(100, 400)), small.take(np.arange(100))
    values = []
    for labels in (train.labels, None):
        hasher = mh.CMSSH(16, n_pairs=20_000, random_state=0).fit(train.views, labels=labels)
        report = mh.evaluate(
            hasher.encode("image", query.views["image"]),
            hasher.encode("text", train.views["text"]),
            query_labels=query.labels,
            database_labels=train.labels,
            n_bits=16,
            metrics="MAP[ties=id]",
        )
        values.append(report["MAP[ties=id]"])
    chance = relevance(query.labels, train.labels).mean()
    assert values[0] > values[1] > chance + 0.05


def test_train_size_is_honoured(small):
    seen = mh.CMSSH(4, n_pairs=500, train_size=50, random_state=3).fit(small.views, labels=small.labels)
    rows = np.sort(np.random.default_rng(3).choice(400, size=50, replace=False))
    np.testing.assert_allclose(seen.means_["text"], small.views["text"][rows].mean(axis=0), rtol=1e-5, atol=1e-6)
    assert mh.CMSSH().train_size == 10_000


# ------------------------------------------------------------------------------------------------ its parts


def test_sampled_pairs_have_the_sign_they_say(rng):
    L = (rng.random((60, 5)) < 0.3).astype(np.uint8)
    for form in (L, sparse.csr_array(L)):
        i, j, s = sample_pairs(form, 500, np.random.default_rng(0))
        assert (s == 1).sum() == (s == -1).sum() == 500
        np.testing.assert_array_equal(relevance(L, L)[i, j], s > 0)


def test_few_pairs_are_taken_whole(rng):
    L = np.array([[1, 0], [1, 0], [0, 1]])
    i, j, s = sample_pairs(L, 100, rng)
    assert sorted(zip(i[s > 0], j[s > 0], strict=True)) == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 2)]
    assert sorted(zip(i[s < 0], j[s < 0], strict=True)) == [(0, 2), (1, 2), (2, 0), (2, 1)]


def test_pairs_are_drawn_evenly_over_blocks(monkeypatch, rng):
    """All 16 + 4 alike pairs of two classes (4 and 2 rows), each with probability 1/20; blocks of two rows."""
    from modalhash import views

    monkeypatch.setattr(views, "_BLOCK_BYTES", 2 * 6 * 16)
    L = np.repeat(np.eye(2, dtype=np.uint8), [4, 2], axis=0)
    drawn = np.zeros((6, 6))
    for _ in range(2000):
        i, j, s = sample_pairs(L, 10, rng)
        np.add.at(drawn, (i[s > 0], j[s > 0]), 1)
    expected = 20_000 / 20
    assert (drawn[relevance(L, L)] > 0.85 * expected).all()
    assert (drawn[relevance(L, L)] < 1.15 * expected).all()
    assert not drawn[~relevance(L, L)].any()


def test_pair_moments_equal_the_sum_over_pairs(rng):
    X, Y = rng.normal(size=(20, 3)) + 4, rng.normal(size=(20, 5)) * (rng.random((20, 5)) < 0.4)
    i, j = rng.integers(20, size=(2, 40))
    w = rng.normal(size=40)
    S = sparse.csr_array((w, (i, j)), shape=(20, 20))
    expected = sum(w[m] * np.outer(X[i[m]] - X.mean(axis=0), Y[j[m]] - Y.mean(axis=0)) for m in range(40))
    for x in (X, sparse.csr_array(X)):
        for y in (Y, sparse.csr_array(Y)):
            C = pair_moments(CentredMatrix(x, X.mean(axis=0)), S, CentredMatrix(y, Y.mean(axis=0)))
            np.testing.assert_allclose(C, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("shape", [(4, 7), (7, 4)])
def test_leading_pairs_are_those_of_the_svd(rng, shape):
    C = rng.normal(size=shape)
    U, s, Vt = np.linalg.svd(C)
    for t, (p, q) in enumerate(leading_pairs(C, 3)):
        assert p @ C @ q == pytest.approx(s[t])
        assert abs(p @ U[:, t]) == pytest.approx(1)
        assert abs(q @ Vt[t]) == pytest.approx(1)
    assert len(leading_pairs(np.outer(C[:, 0], C[0]), 4)) == 1  # rank 1


def test_best_threshold_is_the_best_of_all(rng):
    for _ in range(50):
        z, v = rng.integers(-3, 4, size=9).astype(float), rng.normal(size=9)
        value, a = best_threshold(z, v)
        splits = [-(u + w) / 2 for u, w in zip(np.unique(z)[:-1], np.unique(z)[1:], strict=True)]
        assert value == pytest.approx(max((v * np.where(z + t > 0, 1, -1)).sum() for t in splits))
        assert value == pytest.approx((v * np.where(z + a > 0, 1, -1)).sum())


def test_equal_scores_are_not_split():
    # all scores equal: the only code is the constant one, and it is told as it is
    value, a = best_threshold(np.array([2.0, 2.0]), np.array([1.0, 3.0]))
    assert (value, a) == (-4.0, -2.0)
    # neighbours in floating point: no number lies between them, and z + a still tells them apart
    z = np.array([1.0, np.nextafter(1.0, 2.0)])
    value, a = best_threshold(z, np.array([-1.0, 1.0]))
    assert value == 2.0
    assert (z + a > 0).tolist() == [False, True]


# ---------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"variant": "negative"}, "variant must be one of boosted, positive-pairs; got 'negative'"),
        ({"n_pairs": 0}, "n_pairs must be a whole number of at least 1; got 0"),
        ({"n_directions": 1.5}, "n_directions must be a whole number of at least 1; got 1.5"),
        ({"train_size": 1}, "train_size must be a whole number of at least 2; got 1"),
        ({"variant": "positive-pairs", "pairs": [[0, 1, 1]]}, "pairs= goes with variant"),
        ({"pairs": [[0, 1]]}, r"pairs must be whole numbers of shape \(m, 3\)"),
        ({"pairs": [[0.5, 1, 1]]}, r"pairs must be whole numbers of shape \(m, 3\)"),
        ({"pairs": [[0, 400, 1], [0, 1, -1]]}, "pairs must name rows 0 to 399; got 0 to 400"),
        ({"pairs": [[0, 1, 1], [1, 2, 1]]}, "must hold 1 .alike. and -1 .unlike., and both must occur"),
        ({"pairs": np.zeros((0, 3), dtype=int)}, "both must occur"),
    ],
)
def test_bad_parameters(small, parameters, message):
    with pytest.raises(InputError, match=message):
        mh.CMSSH(4, **parameters).fit(small.views, labels=small.labels)


def test_labels_that_all_rows_share_leave_nothing_unlike(small):
    with pytest.raises(InputError, match=r"no unlike pairs.*positive-pairs"):
        mh.CMSSH(4).fit(small.views, labels=np.zeros(400, dtype=int))
    with pytest.raises(InputError, match="constant"):  # a single row
        mh.CMSSH(4).fit({name: X[:1] for name, X in small.views.items()})


def test_labels_must_be_whole_or_absent(small):
    labels = small.labels.copy()
    labels[5] = 0
    with pytest.raises(InputError, match="1 of 400 rows have no label"):
        mh.CMSSH(4).fit(small.views, labels=labels)


def test_a_constant_view_is_refused_and_a_constant_column_is_not(small):
    constant = {"image": small.views["image"], "text": np.full((400, 3), 0.1)}
    for variant in ("boosted", "positive-pairs"):
        with pytest.raises(InputError, match="view 'text' is constant"):
            mh.CMSSH(4, variant=variant).fit(constant, labels=small.labels)
    padded = {"image": small.views["image"], "text": np.c_[small.views["text"], np.full(400, 7.0)]}
    hasher = mh.CMSSH(4, n_pairs=500, random_state=0).fit(padded, labels=small.labels)
    assert np.abs(hasher.weights_["text"][-1]).max() < 1e-9


def test_pairs_that_cancel_are_refused():
    """x y' sums to zero over the four alike pairs, and over the four unlike ones."""
    z = np.array([[-1.0], [1.0]])
    pairs = [[i, j, s] for i in (0, 1) for j in (0, 1) for s in (1, -1)]
    with pytest.raises(InputError, match="no covariance over the pairs"):
        mh.CMSSH(2, pairs=pairs).fit({"image": z, "text": z})


def test_two_views_exactly(small):
    with pytest.raises(InputError, match="needs 2 view"):
        mh.CMSSH(4).fit({"image": small.views["image"]}, labels=small.labels)


def test_pairs_that_one_bit_separates(rng):
    """r = 1: alpha stays finite."""
    y = np.repeat([-1.0, 1.0], 10)[:, None]
    hasher = mh.CMSSH(3, n_pairs=100, random_state=0).fit({"image": y, "text": 2 * y}, labels=(y[:, 0] > 0).astype(int))
    assert hasher.edges_[0] == pytest.approx(1)
    assert np.isfinite(hasher.bit_weights_).all()
    assert np.isfinite(hasher.objective_).all()
    np.testing.assert_array_equal(hasher.encode("image", y), hasher.encode("text", 2 * y))
