"""The contract that every hasher keeps. Public, so that a hasher of your own can run it.

>>> from modalhash import DMH
>>> from modalhash.checks import check_hasher
>>> check_hasher(DMH, only=["init_only_stores", "clone"])
['init_only_stores', 'clone']

Each check takes a hasher class and raises :class:`AssertionError` with a sentence when the contract is broken.
"""

from __future__ import annotations

import inspect
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from .base import CrossModalHasher, load
from .codes import n_bytes, pack_scores, unpack
from .datasets import make_synthetic
from .evaluation import evaluate
from .exceptions import ConstantBitsWarning, ConvergenceWarning, InputError, RankWarning

__all__ = ["CHECKS", "check_hasher"]

Hasher = type[CrossModalHasher]
CHECKS: dict[str, Callable[[Hasher], None]] = {}
"""All checks by name, in the order in which they run."""

_BITS = 8


def _check(function: Callable[[Hasher], None]) -> Callable[[Hasher], None]:
    CHECKS[function.__name__.removeprefix("check_")] = function
    return function


def check_hasher(
    cls: Hasher, *, only: Iterable[str] | None = None, exempt: Mapping[str, str] | None = None
) -> list[str]:
    """Run the contract on a hasher class.

    Parameters
    ----------
    cls : class
        A subclass of :class:`modalhash.CrossModalHasher`, constructible with ``n_bits`` alone.
    only : iterable of str, optional
        Names of checks to run; all by default.
    exempt : dict of str to str, optional
        Checks to leave out, each with the reason.

    Returns
    -------
    list of str
        The names of the checks that ran and passed.

    Examples
    --------
    >>> from modalhash import DMH
    >>> check_hasher(DMH, only=["odd_bits"])
    ['odd_bits']
    """
    names = list(CHECKS) if only is None else list(only)
    exempt = dict(exempt or {})
    for name in [*names, *exempt]:
        if name not in CHECKS:
            raise InputError(f"there is no check {name!r}; there are {', '.join(CHECKS)}.")
    for name, reason in exempt.items():
        if not reason:
            raise InputError(f"the exemption from {name!r} needs a reason.")
    ran = []
    for name in names:
        if name not in exempt:
            with warnings.catch_warnings():
                for category in (ConstantBitsWarning, ConvergenceWarning, RankWarning):
                    warnings.simplefilter("ignore", category)
                CHECKS[name](cls)
            ran.append(name)
    return ran


def _require(condition: Any, sentence: str) -> None:
    if not bool(condition):
        raise AssertionError(sentence)


def _make(cls: Hasher, n_bits: int = _BITS, **extra: Any) -> CrossModalHasher:
    """A hasher with a fixed seed; extra parameters are given where the class has them."""
    accepted = inspect.signature(cls.__init__).parameters
    wanted = {"n_bits": n_bits, "random_state": 0, **extra}
    return cls(**{name: value for name, value in wanted.items() if name in accepted})


def _data(n: int = 240, **options: Any) -> Any:
    options = {"n_classes": 8, "n_image": 24, "n_text": 20, "max_labels": 2, "random_state": 0, **options}
    return make_synthetic(n=n, **options)


def _views(cls: Hasher, data: Any) -> dict[str, Any]:
    """As many views as the class takes."""
    names = sorted(data.views)[: cls.max_views]
    return {name: data.views[name] for name in names}


def _fit(cls: Hasher, data: Any, n_bits: int = _BITS, **extra: Any) -> CrossModalHasher:
    return _make(cls, n_bits, **extra).fit(_views(cls, data), labels=data.labels)


def _codes(hasher: CrossModalHasher, data: Any) -> dict[str, Any]:
    found = {name: hasher.encode(name, data.views[name]) for name in hasher.view_names_}
    if hasattr(hasher, "train_codes_"):
        found["train_codes_"] = hasher.train_codes_
    return found


def _same_codes(a: Mapping[str, Any], b: Mapping[str, Any], sentence: str) -> None:
    _require(a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a), sentence)


@_check
def check_init_only_stores(cls: Hasher) -> None:
    """``__init__`` stores its parameters as they came, and nothing else."""
    marker = object()
    names = list(inspect.signature(cls.__init__).parameters)[1:]
    hasher = cls(**dict.fromkeys(names, marker))
    _require(set(vars(hasher)) == set(names), "__init__ must store its parameters under their own names, nothing more")
    _require(all(getattr(hasher, name) is marker for name in names), "__init__ must not change or check a parameter")


@_check
def check_clone(cls: Hasher) -> None:
    """scikit-learn's ``clone`` gives an unfitted hasher with the same parameters."""
    from sklearn.base import clone

    hasher = _fit(cls, _data())
    copy = clone(hasher)
    _require(copy.get_params() == hasher.get_params(), "clone must keep every parameter")
    _require(not hasattr(copy, "view_names_"), "clone must not keep what was learned")


@_check
def check_refit(cls: Hasher) -> None:
    """A second fit forgets the first: it gives what a fresh hasher gives."""
    data = _data()
    hasher = _fit(cls, _data(n=150, random_state=5))
    again = hasher.fit(_views(cls, data), labels=data.labels)
    _same_codes(_codes(again, data), _codes(_fit(cls, data), data), "a second fit must forget the first")


@_check
def check_seed(cls: Hasher) -> None:
    """The same seed gives the same codes."""
    data = _data()
    _same_codes(_codes(_fit(cls, data), data), _codes(_fit(cls, data), data), "the same seed must give the same codes")


@_check
def check_inputs_untouched(cls: Hasher) -> None:
    """Inputs are not written to; read-only arrays are accepted."""
    data = _data()
    before = {name: X.copy() for name, X in data.views.items()}
    labels = data.labels.copy()
    for X in (*data.views.values(), data.labels):
        X.flags.writeable = False
    hasher = _fit(cls, data)
    _codes(hasher, data)
    same = all(np.array_equal(data.views[name], X) for name, X in before.items()) and np.array_equal(
        labels, data.labels
    )
    _require(same, "fit and encode must leave their inputs as they were")


@_check
def check_odd_bits(cls: Hasher) -> None:
    """Any number of bits: shapes fit and the padding is zero."""
    data = _data()
    for n_bits in (1, 5, 13):
        hasher = _fit(cls, data, n_bits)
        for codes in _codes(hasher, data).values():
            _require(codes.dtype == np.uint8, "codes must be uint8")
            _require(codes.shape == (len(data), n_bytes(n_bits)), f"codes of {n_bits} bits have shape {codes.shape}")
            unpack(codes, n_bits)  # refuses padding that is not zero


@_check
def check_one_row(cls: Hasher) -> None:
    """A single row can be encoded, and its scores are those it has among others."""
    data = _data()
    hasher = _fit(cls, data)
    for name in hasher.view_names_:
        X = data.views[name]
        one, all_rows = hasher.project(name, X[7:8]), hasher.project(name, X)
        _require(hasher.encode(name, X[7:8]).shape == (1, n_bytes(_BITS)), "one row must give one code")
        scale = np.abs(all_rows).max()
        _require(
            np.allclose(one[0], all_rows[7], rtol=1e-4, atol=1e-5 * scale), "a row's scores depend on its neighbours"
        )


@_check
def check_view_order(cls: Hasher) -> None:
    """The order in which views are given does not matter."""
    data = _data()
    views = _views(cls, data)
    backwards = dict(reversed(list(views.items())))
    a = _codes(_make(cls).fit(views, labels=data.labels), data)
    _same_codes(a, _codes(_make(cls).fit(backwards, labels=data.labels), data), "the order of views must not matter")


@_check
def check_chunks(cls: Hasher) -> None:
    """Encoding in chunks equals encoding at once; ``encode`` is the sign of ``project``."""
    data = _data()
    hasher = _fit(cls, data)
    for name in hasher.view_names_:
        X = data.views[name]
        scores = hasher.project(name, X)
        parts = np.concatenate([hasher.project(name, X[start : start + 50]) for start in range(0, len(data), 50)])
        _require(np.allclose(scores, parts, rtol=1e-4, atol=1e-5 * np.abs(scores).max()), "chunks change the scores")
        _require(np.array_equal(hasher.encode(name, X), pack_scores(scores)), "encode must be the sign of project")


@_check
def check_sparse_equals_dense(cls: Hasher) -> None:
    """A sparse view gives the codes of the same view held dense, in fit and in encode."""
    data = _data(sparse_text=True)
    dense = {name: X.toarray() if sparse.issparse(X) else X for name, X in data.views.items()}
    name = "text" if "text" in _views(cls, data) else "image"
    if name == "image":  # one-view methods
        data = type(data)({"image": sparse.csr_array(dense["text"])}, labels=data.labels)
        dense = {"image": dense["text"]}
    views = _views(cls, data)
    a = _make(cls, dtype="float64").fit(views, labels=data.labels)
    b = _make(cls, dtype="float64").fit({v: dense[v] for v in views}, labels=data.labels)
    za, zb = a.project(name, data.views[name]), b.project(name, dense[name])
    agree = (unpack(pack_scores(za), _BITS) == unpack(pack_scores(zb), _BITS)).mean()
    _require(agree == 1.0, f"sparse and dense input agree on {agree:.4f} of the bits only")


@_check
def check_float32_close_to_float64(cls: Hasher) -> None:
    """float32 and float64 inputs lead to nearly the same codes."""
    data = _data()
    views = _views(cls, data)
    doubles = {name: X.astype(np.float64) for name, X in views.items()}
    a = _make(cls, dtype="float32").fit(views, labels=data.labels)
    b = _make(cls, dtype="float64").fit(doubles, labels=data.labels)
    for name in views:
        bits = unpack(a.encode(name, views[name]), _BITS) == unpack(b.encode(name, doubles[name]), _BITS)
        _require(
            bits.mean() > 0.98, f"float32 and float64 agree on {bits.mean():.3f} of the bits of view {name!r} only"
        )


@_check
def check_save_and_load(cls: Hasher) -> None:
    """A saved and loaded model gives the same codes, bit for bit, and the same rules."""
    data = _data()
    hasher = _fit(cls, data)
    with tempfile.TemporaryDirectory() as folder:
        again = load(hasher.save(Path(folder) / "model"))
    _require(type(again) is cls, "load must give back the same class")
    _same_codes(_codes(hasher, data), _codes(again, data), "a loaded model must give the same codes")
    views = _views(cls, data)
    for rule in cls.database_rules[1:]:
        a, b = (h.database_codes(views, data.labels, rule=rule) for h in (hasher, again))
        _require(np.array_equal(a, b), f"a loaded model must give the same codes under the {rule} rule")


@_check
def check_rules(cls: Hasher) -> None:
    """Every declared database rule gives packed codes of the right shape; "encoded" comes first."""
    data = _data()
    hasher = _fit(cls, data)
    views = _views(cls, data)
    _require(cls.database_rules[0] == "encoded", '"encoded" must be the first database rule')
    for rule in cls.database_rules[1:]:
        codes = hasher.database_codes(views, data.labels, rule=rule)
        _require(codes.shape == (len(data), n_bytes(_BITS)), f"codes under the {rule} rule have shape {codes.shape}")


def _quality(cls: Hasher, *, shuffled: bool) -> dict[str, tuple[float, float]]:
    """MAP of unseen queries by direction and rule on separable classes; beside it, MAP with queries' labels permuted.

    The second is chance for these very codes: a database sorted by class gives more than random codes do, whatever
    the query.
    """
    rng = np.random.default_rng(0)
    data = _data(n=600, n_classes=4, max_labels=1, noise=0.2)
    if shuffled:  # no view knows its row's labels any more, so no unseen query can
        data = type(data)(data.views, labels=data.labels[rng.permutation(len(data))])
    order = rng.permutation(len(data))
    query, train = data.take(np.sort(order[:150])), data.take(np.sort(order[150:]))
    hasher = _make(cls, 16).fit(_views(cls, train), labels=train.labels)
    names = hasher.view_names_
    permutations = [np.arange(len(query)), *(rng.permutation(len(query)) for _ in range(4))]
    found = {}
    for source in names:
        target = next((other for other in names if other != source), source)
        database = {f"{source} -> {target} [encoded]": hasher.encode(target, train.views[target])}
        for rule in cls.database_rules[1:]:
            database[f"{source} [{rule}]"] = hasher.database_codes(_views(cls, train), train.labels, rule=rule)
        codes = hasher.encode(source, query.views[source])
        for name, items in database.items():
            values = [
                evaluate(
                    codes,
                    items,
                    query_labels=query.labels[permutation],
                    database_labels=train.labels,
                    n_bits=16,
                    metrics="MAP[ties=expected]",
                )["MAP[ties=expected]"]
                for permutation in permutations
            ]
            found[name] = float(values[0]), float(np.mean(values[1:]))
    return found


@_check
def check_separable_classes(cls: Hasher) -> None:
    """Well separated classes are found across views: MAP over 0.9 under every rule."""
    for name, (value, _) in _quality(cls, shuffled=False).items():
        _require(value > 0.9, f"separable classes give MAP {value:.3f} for {name}; more than 0.9 is needed")


@_check
def check_shuffled_labels(cls: Hasher) -> None:
    """Labels dealt out at random teach nothing that shows on unseen queries: a leak detector."""
    for name, (value, chance) in _quality(cls, shuffled=True).items():
        _require(abs(value - chance) < 0.05, f"shuffled labels give MAP {value:.3f} for {name}; chance is {chance:.3f}")
