from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError as SklearnNotFittedError

import modalhash as mh
from modalhash.base import CrossModalHasher
from modalhash.exceptions import (
    ConstantBitsWarning,
    InputError,
    LabelsRequiredError,
    ModalHashError,
    NotFittedError,
    UnknownViewError,
)
from modalhash.views import ViewTransform

pytestmark = pytest.mark.filterwarnings("ignore::modalhash.exceptions.ConstantBitsWarning")


class _NeedsLabels(CrossModalHasher):
    requires_labels = True
    min_views = max_views = 2

    def __init__(self, n_bits=4):
        self.n_bits = n_bits

    def _fit(self, data):
        for name, view in data.views.items():
            W = np.ones((view.n_columns, self.n_bits))
            self._set_linear(name, W, np.zeros(self.n_bits), ViewTransform.fit(view.X, center=True, scale=None))


@pytest.fixture(scope="module")
def fitted(small):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantBitsWarning)
        return mh.DMH(12, n_iter=30, random_state=0).fit(small.views, labels=small.labels)


def test_parameters():
    hasher = mh.DMH(8, label_weight=5.0)
    assert repr(hasher) == "DMH(n_bits=8, label_weight=5.0)"
    assert clone(hasher).get_params() == hasher.get_params()
    assert hasher.set_params(n_bits=9).n_bits == 9
    with pytest.raises(InputError, match="DMH has no parameter 'bits'"):
        hasher.set_params(bits=3)


def test_not_fitted():
    hasher = mh.DMH(8)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        hasher.encode("image", np.ones((1, 2)))
    with pytest.raises(SklearnNotFittedError):
        hasher.save("nowhere")
    assert issubclass(NotFittedError, ModalHashError)


def test_a_failed_fit_leaves_nothing_behind(small):
    hasher = mh.DMH(8, n_iter=3, random_state=0).fit(small.views, labels=small.labels)

    def stop(k, K, objective):
        raise KeyboardInterrupt

    hasher.set_params(callback=stop)
    with pytest.raises(KeyboardInterrupt):
        hasher.fit(small.views, labels=small.labels)
    with pytest.raises(NotFittedError):
        hasher.encode("image", small.views["image"])


def test_a_second_fit_forgets_the_first(small):
    hasher = mh.DMH(8, n_iter=3, random_state=0).fit(small.views, labels=small.labels)
    hasher.fit({"only": small.views["text"]})
    assert hasher.view_names_ == ["only"]
    assert set(hasher.weights_) == {"only"}
    with pytest.raises(UnknownViewError, match="unknown view 'image'; the model was fitted with 'only'"):
        hasher.encode("image", small.views["image"])


def test_unknown_view_and_wrong_width(fitted, small):
    with pytest.raises(UnknownViewError, match="unknown view 'sound'; the model was fitted with 'image', 'text'"):
        fitted.encode("sound", small.views["text"])
    with pytest.raises(InputError, match="view 'text' has 7 columns; the model was fitted with 100"):
        fitted.encode("text", np.ones((2, 7)))
    X = small.views["text"][:3].copy()
    X[1] = np.nan
    with pytest.raises(InputError, match="missing for 1 of 3 rows; encoding needs"):
        fitted.encode("text", X)
    with pytest.raises(InputError, match="view 'text' is empty"):
        fitted.encode("text", X[:0])


def test_scores_are_the_documented_product(fitted, small):
    X = small.views["text"]
    expected = (X - fitted.means_["text"]) * fitted.scales_["text"] @ fitted.weights_["text"] + fitted.biases_["text"]
    np.testing.assert_allclose(fitted.project("text", X), expected, rtol=1e-3, atol=1e-3)
    assert fitted.project("text", X).dtype == np.float32


def test_labels_can_be_encoded(fitted, small):
    assert fitted.encode("labels", small.labels).shape == (400, 2)
    with pytest.raises(InputError, match="fitted with 10"):
        fitted.encode("labels", small.labels[:, :3])


def test_database_rules(fitted, small):
    np.testing.assert_array_equal(
        fitted.database_codes(small.views, rule="encoded", view="text"), fitted.encode("text", small.views["text"])
    )
    only = {"text": small.views["text"]}
    np.testing.assert_array_equal(fitted.database_codes(only), fitted.encode("text", small.views["text"]))
    with pytest.raises(InputError, match="needs view="):
        fitted.database_codes(small.views)
    with pytest.raises(InputError, match="DMH has no database rule 'magic'; it has encoded, learned, fused"):
        fitted.database_codes(small.views, rule="magic")
    with pytest.raises(UnknownViewError, match="not among those given"):
        fitted.database_codes(only, view="image")
    with pytest.raises(InputError, match="goes with the encoded rule only"):
        fitted.database_codes(small.views, rule="fused", view="text")
    with pytest.raises(InputError, match="view 'text' has 2 columns"):
        fitted.database_codes({"text": np.ones((2, 2))}, rule="fused")


def test_what_a_method_needs_is_checked(small):
    with pytest.raises(LabelsRequiredError, match="learns from labels and none were given"):
        _NeedsLabels().fit(small.views)
    with pytest.raises(InputError, match="_NeedsLabels needs 2 view"):
        _NeedsLabels().fit({"a": small.views["text"]}, labels=small.labels)
    X = small.views["text"].copy()
    X[3] = np.nan
    with pytest.raises(InputError, match="_NeedsLabels needs every view of every row"):
        _NeedsLabels().fit({**small.views, "text": X}, labels=small.labels)
    with pytest.raises(InputError, match="labels have 3 rows; the views have 400"):
        _NeedsLabels().fit(small.views, labels=small.labels[:3])
    with pytest.raises(InputError, match="no row has a label"):
        _NeedsLabels().fit(small.views, labels=np.zeros((400, 3)))


def test_a_row_without_any_view():
    X = np.array([[1.0], [np.nan], [3.0]])
    with pytest.raises(InputError, match="row 1 is missing from every view"):
        mh.DMH(2).fit({"a": X, "b": X})


def test_a_method_must_say_how_it_fits(small):
    class _Empty(CrossModalHasher):
        def __init__(self, n_bits=4):
            self.n_bits = n_bits

    with pytest.raises(TypeError, match="does not define _fit"):
        _Empty().fit(small.views)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_encoding_names_the_number_that_is_not_finite(small, bad):
    hasher = mh.DMH(8, n_iter=5, random_state=1).fit(small.views, labels=small.labels)
    X = np.array(small.views["image"], dtype=np.float32)
    X[7, 2] = bad
    with pytest.raises(InputError, match="row 7"):
        hasher.encode("image", X)
    assert hasher.encode("image", X[:7]).shape == (7, 1)
