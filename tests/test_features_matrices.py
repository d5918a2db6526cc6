"""PCA, RBF anchors, tags and the pipeline."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.decomposition import PCA as SklearnPCA  # noqa: N811  (a class, not a constant)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from modalhash.datasets import Dataset, make_synthetic
from modalhash.exceptions import InputError, ModelFormatError, NotFittedError, UnknownViewError
from modalhash.features import GIST, PCA, STEPS, FeaturePipeline, RBFAnchors, TagVectorizer, pca

# --- PCA -------------------------------------------------------------------------------------------------------


def up_to_sign(a, b, **tolerance):
    sign = np.sign((a * b).sum(axis=0))
    np.testing.assert_allclose(a, b * sign, **tolerance)


@pytest.mark.parametrize("kind", ["dense", "float32", "sparse", "lanczos", "sparse lanczos"])
def test_pca_equals_scikit_learn(rng, monkeypatch, kind):
    X = rng.standard_normal((80, 30)) @ np.diag(np.linspace(3, 0.5, 30)) + 5
    if "sparse" in kind:
        X[X < 5] = 0
    if "lanczos" in kind:
        monkeypatch.setattr(pca, "_WIDE", 10)
    given = sparse.csr_array(X) if "sparse" in kind else X.astype(np.float32) if kind == "float32" else X
    ours = PCA(6).fit(given)
    theirs = SklearnPCA(6, svd_solver="full").fit(X)
    close = {"atol": 1e-3} if kind == "float32" else {"atol": 1e-8}
    np.testing.assert_allclose(
        ours.explained_variance_, theirs.explained_variance_, rtol=1e-4 if kind == "float32" else 1e-9
    )
    up_to_sign(ours.transform(given), theirs.transform(X), **close)
    assert (ours.components_[np.arange(6), np.abs(ours.components_).argmax(axis=1)] > 0).all()
    assert ours.transform(given).dtype == (np.float32 if kind == "float32" else np.float64)


def test_sparse_and_dense_agree(rng):
    S = sparse.random(200, 40, density=0.1, format="csr", rng=rng)
    a, b = PCA(5).fit_transform(S), PCA(5).fit_transform(S.toarray())
    np.testing.assert_allclose(a, b, atol=1e-10)


def test_a_sparse_matrix_is_never_made_dense(rng, monkeypatch):
    S = sparse.random(2000, 50, density=0.02, format="csr", rng=rng)
    dense = sparse.csr_array.toarray

    def watched(self, *args, **kwargs):
        assert self.shape[0] <= 50, "the whole matrix was made dense"
        return dense(self, *args, **kwargs)

    monkeypatch.setattr(sparse.csr_array, "toarray", watched)
    assert PCA(4).fit_transform(S).shape == (2000, 4)


def test_pca_by_hand():
    # rows (0,0), (2,2), (4,4): mean (2,2), direction (1,1)/sqrt 2, variance (8 + 0 + 8) / 2 = 8
    step = PCA(1).fit(np.array([[0.0, 0], [2, 2], [4, 4]]))
    np.testing.assert_allclose(step.components_, [[2**-0.5, 2**-0.5]])
    np.testing.assert_allclose(step.explained_variance_, [8])
    np.testing.assert_allclose(step.transform(np.array([[6.0, 6]])), [[4 * 2**0.5]])


def test_pca_refuses_nonsense(rng):
    X = rng.random((5, 3))
    with pytest.raises(InputError, match="n_components is 4; 5 training rows of 3 columns have at most 3"):
        PCA(4).fit(X)
    with pytest.raises(InputError, match="n_components must be"):
        PCA(0).fit(X)
    with pytest.raises(NotFittedError, match="used before fit"):
        PCA(2).transform(X)
    with pytest.raises(InputError, match="view 'X' has 2 columns; the model was fitted with 3"):
        PCA(2).fit(X).transform(X[:, :2])
    X[1] = np.nan
    with pytest.raises(InputError, match="is missing for 1 of 5 rows"):
        PCA(2).fit(X)


# --- anchors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["random", "kmeans"])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_anchors_equal_the_formula(rng, method, form):
    X = rng.random((60, 4))
    step = RBFAnchors(n_anchors=7, width=0.5, method=method, random_state=1).fit(form(X))
    K = step.transform(form(X))
    d2 = ((X[:, None, :] - step.anchors_[None, :, :]) ** 2).sum(axis=2)
    all_pairs = ((X[:, None, :] - X[None, :, :]) ** 2).sum(axis=2)
    assert step.scale_ == pytest.approx(0.5 * all_pairs.mean())
    np.testing.assert_allclose(K, np.exp(-d2 / (2 * step.scale_)), rtol=1e-9)
    if method == "random":
        assert all((row == X).all(axis=1).any() for row in step.anchors_)


def test_anchors_are_chosen_by_the_seed(rng):
    X = rng.random((60, 4))
    assert (RBFAnchors(5, random_state=1).fit(X).anchors_ == RBFAnchors(5, random_state=1).fit(X).anchors_).all()
    assert (RBFAnchors(5, random_state=1).fit(X).anchors_ != RBFAnchors(5, random_state=2).fit(X).anchors_).any()
    assert RBFAnchors(500).fit_transform(X).shape == (60, 60)
    assert RBFAnchors(5).fit_transform(X.astype(np.float32)).dtype == np.float32


def test_anchors_refuse_nonsense(rng):
    X = rng.random((10, 2))
    with pytest.raises(InputError, match="width"):
        RBFAnchors(width=0).fit(X)
    with pytest.raises(InputError, match="one of kmeans, random; got 'best'"):
        RBFAnchors(method="best").fit(X)
    with pytest.raises(InputError, match="all training rows are equal"):
        RBFAnchors().fit(np.ones((10, 2)))
    with pytest.raises(NotFittedError):
        RBFAnchors().transform(X)


# --- tags ------------------------------------------------------------------------------------------------------


def test_tags_by_hand():
    train = [["sky", "sea"], ["Sky", "sky ", ""], ["dog"], "sea, the SEA"]
    step = TagVectorizer(min_count=2).fit(train)
    assert step.vocabulary_ == ["sea", "sky"]
    # an item carries a tag once, however often it is written
    assert step.transform(train).toarray().tolist() == [[1, 1], [0, 1], [0, 0], [1, 0]]
    assert step.transform([]).shape == (0, 2)
    assert step.transform([["北京"]]).nnz == 0
    assert list(step.get_feature_names_out()) == ["sea", "sky"]


def test_the_most_frequent_are_kept():
    step = TagVectorizer(max_features=2).fit([["a", "b"], ["b", "c"], ["c", "b"], ["a"]])
    assert step.vocabulary_ == ["a", "b"]  # b 3 times; a and c twice each, a comes first


def test_separator_and_case():
    step = TagVectorizer(separator=";", lowercase=False).fit(["New York; sky", "new york"])
    assert step.vocabulary_ == ["New York", "new york", "sky"]


def test_tfidf_equals_scikit_learn():
    texts = ["the cat sat on the mat", "the dog sat", "a cat and a dog and a cat"]
    ours = TagVectorizer(weighting="tfidf").fit(texts)
    theirs = TfidfVectorizer(token_pattern=r"\w+").fit(texts)
    assert ours.vocabulary_ == list(theirs.get_feature_names_out())
    np.testing.assert_allclose(ours.transform(texts).toarray(), theirs.transform(texts).toarray(), rtol=1e-5)


def test_tags_refuse_nonsense():
    with pytest.raises(
        InputError, match=r"no tag is carried by 3 of the 2 training items \(the most frequent one by 1\)"
    ):
        TagVectorizer(min_count=3).fit([["a"], ["b"]])
    with pytest.raises(InputError, match="weighting"):
        TagVectorizer(weighting="bm25").fit([["a"]])
    with pytest.raises(InputError, match="tags of item 1 must be strings"):
        TagVectorizer().fit([["a"], [3]])
    with pytest.raises(InputError, match="item 0 must be a list of tags or one string; got int"):
        TagVectorizer().fit([3])
    with pytest.raises(InputError, match="got a single value"):
        TagVectorizer().fit("a b")
    with pytest.raises(NotFittedError):
        TagVectorizer().transform([["a"]])


# --- scikit-learn and state ------------------------------------------------------------------------------------

FITTED = {
    "PCA": (PCA(2), np.random.default_rng(0).random((20, 5))),
    "RBFAnchors": (RBFAnchors(4), np.random.default_rng(0).random((20, 5))),
    "TagVectorizer": (TagVectorizer(weighting="tfidf"), ["a b", "b c", "北京"]),
    "GIST": (GIST(size=16, orientations=(4,), blocks=2), [np.eye(16), 1 - np.eye(16)]),
}


@pytest.mark.parametrize("name", FITTED)
def test_they_are_scikit_learn_transformers(name):
    step, X = FITTED[name]
    again = clone(step)
    assert again.get_params() == step.get_params()
    A = make_pipeline(again).fit_transform(X)
    B = clone(step).fit(X).transform(X)
    as_array = (lambda M: M.toarray()) if sparse.issparse(A) else np.asarray
    np.testing.assert_array_equal(as_array(A), as_array(B))


@pytest.mark.parametrize("name", FITTED)
def test_state_is_arrays_and_json(name):
    step, X = FITTED[name]
    fitted = clone(step).fit(X)
    arrays, config = fitted.get_state()
    assert all(isinstance(a, np.ndarray) and a.dtype.kind == "f" for a in arrays.values())
    again = type(step).from_state(arrays, json.loads(json.dumps(config)))
    A, B = fitted.transform(X), again.transform(X)
    as_array = (lambda M: M.toarray()) if sparse.issparse(A) else np.asarray
    np.testing.assert_array_equal(as_array(A), as_array(B))
    with pytest.raises(ModelFormatError, match="was asked for"):
        next(type(s) for s, _ in FITTED.values() if type(s) is not type(step)).from_state(arrays, config)
    if arrays:
        with pytest.raises(ModelFormatError, match="not whole"):
            type(step).from_state({}, config)
        with pytest.raises(NotFittedError):
            clone(step).get_state()


# --- pipeline --------------------------------------------------------------------------------------------------


def test_pipeline_sees_the_training_rows_only(rng):
    data = make_synthetic(n=120, sparse_text=True, random_state=2)
    steps = {"text": [PCA(4), RBFAnchors(6)], "image": PCA(3)}
    before = FeaturePipeline(steps).fit_transform(data)
    query = int(data.splits["query"][1])
    views = {"text": data.views["text"].tolil(), "image": data.views["image"].copy()}
    views["text"][query] = 1
    views["image"][query] = 1000
    changed = Dataset({k: v.tocsr() if sparse.issparse(v) else v for k, v in views.items()}, splits=data.splits)
    after = FeaturePipeline(steps).fit_transform(changed)
    others = np.arange(120) != query
    for view in ("text", "image"):
        np.testing.assert_array_equal(before.views[view][others], after.views[view][others])
        assert (before.views[view][query] != after.views[view][query]).any()


def test_pipeline_equals_its_steps(rng):
    X, raw = rng.random((30, 6)), [f"w{i % 4} w{i % 3} common" for i in range(30)]
    pipeline = FeaturePipeline({"image": PCA(2), "text": [TagVectorizer(min_count=2), PCA(2)]})
    out = pipeline.fit({"image": X[:20], "text": raw[:20]}).transform({"text": raw, "image": X, "more": X})
    np.testing.assert_array_equal(out["image"], PCA(2).fit(X[:20]).transform(X))
    tags = TagVectorizer(min_count=2).fit(raw[:20])
    np.testing.assert_array_equal(out["text"], PCA(2).fit(tags.transform(raw[:20])).transform(tags.transform(raw)))
    assert out["more"] is X
    assert list(pipeline.transform({"text": raw})) == ["text"]


def test_pipeline_on_a_data_set_takes_columns_and_names_them():
    words = ["sky sea", "sky", "sea dog"] * 10
    data = Dataset({"image": np.arange(60.0).reshape(30, 2)}, columns={"text": words}).split()
    out = FeaturePipeline({"text": TagVectorizer()}).fit_transform(data)
    assert out.feature_names["text"] == ["dog", "sea", "sky"]
    assert out.views["text"].shape == (30, 3)
    assert out.views["image"] is data.views["image"]
    assert out.provenance["fitted"]["text"] == {
        "steps": ["TagVectorizer()"],
        "rows": "train",
        "split_hash": data.split_hash,
    }


def test_pipeline_leaves_the_steps_it_was_given_alone(rng):
    step = PCA(2)
    FeaturePipeline({"image": step}).fit({"image": rng.random((10, 3))})
    assert not hasattr(step, "components_")


def test_pipeline_state(rng):
    X, raw = rng.random((30, 6)), [["a", "b"], ["b"], ["a", "北京"]] * 10
    pipeline = FeaturePipeline({"image": [PCA(3), RBFAnchors(4)], "text": [TagVectorizer(), PCA(2)]})
    pipeline.fit({"image": X, "text": raw})
    arrays, config = pipeline.get_state()
    assert "image/1/anchors_" in arrays
    again = FeaturePipeline.from_state(arrays, json.loads(json.dumps(config)))
    for view, items in (("image", X), ("text", raw)):
        np.testing.assert_array_equal(again.transform({view: items})[view], pipeline.transform({view: items})[view])
    config["steps"]["image"][0]["class"] = "Pickle"
    with pytest.raises(ModelFormatError, match="unknown feature step 'Pickle'"):
        FeaturePipeline.from_state(arrays, config)
    with pytest.raises(ModelFormatError, match="damaged"):
        FeaturePipeline.from_state(arrays, {})


def test_pipeline_refuses_nonsense(rng):
    X = rng.random((10, 3))
    with pytest.raises(InputError, match="steps must be a dict"):
        FeaturePipeline({}).fit({})
    with pytest.raises(InputError, match=r"steps\['image'\] must be a transformer"):
        FeaturePipeline({"image": [3]}).fit({"image": X})
    with pytest.raises(UnknownViewError, match="the pipeline needs 'image'; the data has 'text'"):
        FeaturePipeline({"image": PCA(2)}).fit({"text": X})
    with pytest.raises(NotFittedError):
        FeaturePipeline({"image": PCA(2)}).transform({"image": X})
    foreign = FeaturePipeline({"image": SklearnPCA(2)}).fit({"image": X})
    assert foreign.transform({"image": X})["image"].shape == (10, 2)
    with pytest.raises(InputError, match="step 0 of view 'image' is a PCA; only the steps of modalhash"):
        foreign.get_state()


def test_every_step_is_listed():
    from modalhash import features

    assert set(STEPS) <= set(features.__all__)
    for name in features.__all__:
        assert getattr(features, name) is not None
        assert name in dir(features)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        features.nothing
