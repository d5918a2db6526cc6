"""The base class of every hasher, and loading a saved one."""

from __future__ import annotations

import importlib
import logging
import os
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from . import bundle
from .codes import Codes, n_bytes, pack_scores, unpack
from .datasets.rowsource import as_rows
from .exceptions import ConstantBitsWarning, InputError, LabelsRequiredError, ModelFormatError, UnknownViewError
from .labels import Labels, check_labels
from .linalg import CentredMatrix, is_torch, to_device
from .parameters import Parameters, check_random_state, given_or_uniform
from .views import LABELS, View, ViewTransform, check_shape, check_view, check_views, row_blocks

_CACHED_ROWS = 16384
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))

if TYPE_CHECKING:
    from .features.pipeline import FeaturePipeline

__all__ = ["CrossModalHasher", "TrainingData", "check_random_state", "load"]

_log = logging.getLogger(__name__)
_REGISTRY: dict[str, type[CrossModalHasher]] = {}
_FEATURES = "features/"


@dataclass(frozen=True)
class TrainingData:
    """What ``fit`` hands to a method: checked views, ordered by name, and labels.

    Attributes
    ----------
    views : dict of str to View
    labels : Labels or None
    n_rows : int
    """

    views: dict[str, View]
    labels: Labels | None
    n_rows: int

    def centred(self) -> tuple[dict[str, CentredMatrix], dict[str, ViewTransform]]:
        """Every view less its column means, as a :class:`~modalhash.linalg.CentredMatrix`, and what was done."""
        transforms = {
            name: ViewTransform.fit(view.X, center=True, scale=None, name=name) for name, view in self.views.items()
        }
        return {name: CentredMatrix(self.views[name].X, t.mean) for name, t in transforms.items()}, transforms

    def shares(self, weights: Mapping[str, float] | None) -> dict[str, float]:
        """Weights of the views that sum to 1; views not named weigh 1 before the division."""
        for name in weights or {}:
            if name not in self.views:
                raise InputError(f"view_weights names view {name!r}; the views are {', '.join(self.views)}.")
        found = {name: float((weights or {}).get(name, 1.0)) for name in self.views}
        for name, weight in found.items():
            if not 0 < weight < float("inf"):
                raise InputError(f"the weight of view {name!r} must be positive; got {weight!r}.")
        return {name: weight / sum(found.values()) for name, weight in found.items()}

    def starts(self, init: Mapping[str, Any] | None, n_bits: int, rng: np.random.Generator) -> dict[str, Any]:
        """A starting matrix (d, n_bits) for each view: that of `init`, or uniform on (0, 1)."""
        for name in init or {}:
            if name not in self.views:
                raise InputError(f"init names view {name!r}; the views are {', '.join(self.views)}.")
        return {
            name: given_or_uniform((init or {}).get(name), (view.n_columns, n_bits), rng, f"init[{name!r}]")
            for name, view in self.views.items()
        }

    def require_labels_of_all(self, what: str) -> Labels:
        """Return the labels, or raise if there are none or some rows have none."""
        if self.labels is None:
            raise LabelsRequiredError(f"{what} learns from labels and none were given. Pass fit(views, labels=...).")
        missing = int((~self.labels.known).sum())
        if missing:
            raise InputError(
                f"{missing} of {self.n_rows} rows have no label; {what} needs a label of every row. "
                "Leave those rows out, or use DMH, which learns from them too."
            )
        return self.labels


class CrossModalHasher(Parameters):
    """Base class: ``fit`` validates and calls ``_fit``; codes are always packed.

    A subclass stores its parameters in ``__init__`` and does nothing else there, and writes ``_fit(data)``.
    If its hash functions are linear it calls :meth:`_set_linear` for each view; otherwise it overrides
    :meth:`_project`. Learned attributes end in an underscore, and hold arrays, dicts of arrays by view name, or
    JSON values: everything so named is saved and loaded with the model.

    Attributes
    ----------
    view_names_ : list of str
        The views fitted, in order of name.
    n_features_in_ : dict of str to int
        Their widths.
    label_names_ : list or None
    weights_, biases_ : dict of str to ndarray, shapes (d, n_bits) and (n_bits,)
        Linear methods: scores are ``((x - means_) * scales_) @ weights_ + biases_``.
    train_codes_ : ndarray of uint8, shape (n, ceil(n_bits / 8))
        Codes learned for the training rows, where the method has them.
    """

    database_rules: ClassVar[tuple[str, ...]] = ("encoded",)
    """How a database can get its codes; see :meth:`database_codes`."""
    requires_labels: ClassVar[bool] = False
    min_views: ClassVar[int] = 1
    max_views: ClassVar[int | None] = None
    accepts_missing: ClassVar[bool] = False
    accepts_torch: ClassVar[bool] = False

    n_bits: int
    view_names_: list[str]
    n_features_in_: dict[str, int]
    label_names_: list[str | int] | None
    weights_: dict[str, NDArray[Any]]
    biases_: dict[str, NDArray[Any]]
    means_: dict[str, NDArray[Any]]
    scales_: dict[str, float]
    features_: FeaturePipeline

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if not cls.__name__.startswith("_"):
            _REGISTRY[cls.__name__] = cls

    # ------------------------------------------------------------------------------------------- fitting

    @final
    def fit(self, views: Mapping[str, Any], labels: Any = None, *, present: Mapping[str, Any] | None = None) -> Self:
        """Learn the hash functions.

        Parameters
        ----------
        views : dict of str to matrix (n, d)
            Row i of every view is the same item. See :mod:`modalhash.views` for what a matrix may be.
        labels : 0/1 matrix (n, q), n class ids or n lists of names, optional
            See :func:`modalhash.labels.check_labels`.
        present : dict of str to boolean mask (n,), optional
            False where an item lacks that view; rows of nothing but NaN count as lacking too.

        Returns
        -------
        self
            Whatever an earlier fit learned is forgotten.

        Examples
        --------
        >>> import modalhash as mh
        >>> data = mh.datasets.make_synthetic(n=200, random_state=0)
        >>> mh.DMH(n_bits=8, n_iter=20, random_state=1).fit(data.views, labels=data.labels).train_codes_.shape
        (200, 1)
        """
        started = time.perf_counter()
        self._forget()
        n_bytes(self.n_bits)
        self._check_params()
        data = self._check_data(views, labels, present)
        self._describe(data)
        try:
            self._fit(data)
        except BaseException:
            self._forget()
            raise
        self.training_: dict[str, Any] = {"n_rows": data.n_rows, "seconds": round(time.perf_counter() - started, 3)}
        self._warn_constant_bits()
        return self

    def _describe(self, data: TrainingData) -> None:
        """Record what the views and labels are."""
        self.view_names_ = list(data.views)
        self.n_features_in_ = {name: view.n_columns for name, view in data.views.items()}
        self.label_names_ = None
        if data.labels is not None:
            self.label_names_ = list(data.labels.names)
            self.n_features_in_[LABELS] = len(data.labels.names)

    def _streams(self) -> bool:
        """Whether ``_fit`` takes views that stay on disk, as row sources; otherwise they are read whole."""
        return False

    def _check_data(self, views: Any, labels: Any, present: Any) -> TrainingData:
        me = type(self).__name__
        checked = check_views(
            views,
            present=present,
            dtype=getattr(self, "dtype", None),
            keep_torch=self.accepts_torch and not self._streams(),
            stream=self._streams(),
        )
        n_rows = next(iter(checked.values())).n_rows
        if len(checked) < self.min_views or (self.max_views is not None and len(checked) > self.max_views):
            need = str(self.min_views) if self.min_views == self.max_views else f"at least {self.min_views}"
            raise InputError(f"{me} needs {need} view(s); got {len(checked)}: {', '.join(checked)}.")
        if not self.accepts_missing:
            for view in checked.values():
                view.require_complete(me)
        checked_labels = None
        if labels is not None:
            checked_labels = check_labels(labels, n_rows=n_rows)
            if not checked_labels.known.any():
                raise InputError("no row has a label. Leave labels out to fit without them.")
        elif self.requires_labels:
            raise LabelsRequiredError(f"{me} learns from labels and none were given. Pass fit(views, labels=...).")
        covered = np.zeros(n_rows, dtype=np.bool_)
        for view in checked.values():
            covered[slice(None) if view.rows is None else view.rows] = True
        if not covered.all():
            row = int(np.flatnonzero(~covered)[0])
            raise InputError(f"row {row} is missing from every view. Leave such rows out.")
        return TrainingData(checked, checked_labels, n_rows)

    def _fit(self, data: TrainingData) -> None:
        """Learn from checked data; the one thing each method writes."""
        raise TypeError(f"{type(self).__name__} does not define _fit, which every hasher must.")

    def _check_params(self) -> None:
        """Check the method's own parameters; called at the start of ``fit``."""

    def _forget(self) -> None:
        for name in [n for n in vars(self) if n.endswith("_") and not n.startswith("_")]:
            delattr(self, name)

    def _set_linear(self, view: str, W: Any, v: Any, transform: ViewTransform) -> None:
        """Record a linear hash function; what is stored is what ``project`` uses."""
        for name in ("weights_", "biases_", "means_", "scales_"):
            if not hasattr(self, name):
                setattr(self, name, {})
        self.weights_[view] = W
        self.biases_[view] = v
        self.scales_[view] = transform.scale
        if transform.mean is not None:
            self.means_[view] = transform.mean

    def _warn_constant_bits(self) -> None:
        codes = getattr(self, "train_codes_", None)
        if codes is None or codes.shape[0] < 2:
            return
        # Only bytes that differ anywhere can hold a bit that varies: an OR and an AND over the rows tell.
        varies = np.bitwise_or.reduce(codes, axis=0) ^ np.bitwise_and.reduce(codes, axis=0)
        constant = self.n_bits - int(unpack(varies[None, :], self.n_bits).sum())
        if constant:
            warnings.warn(
                f"{constant} of {self.n_bits} bits have the same value for every training row and carry no "
                "information. Try labels, another scale or a smaller decorrelation.",
                ConstantBitsWarning,
                stacklevel=3,
            )

    # ------------------------------------------------------------------------------------------- using it

    def _check_fitted(self) -> None:
        if not hasattr(self, "view_names_"):
            from .exceptions import NotFittedError

            raise NotFittedError(f"this {type(self).__name__} is not fitted yet. Call fit first, or load a model.")

    def _known_view(self, view: str) -> int:
        self._check_fitted()
        if view not in self.n_features_in_ or (view == LABELS and not self._encodes_labels()):
            raise UnknownViewError(
                f"unknown view {view!r}; the model was fitted with {', '.join(map(repr, self.view_names_))}."
            )
        return self.n_features_in_[view]

    def _encodes_labels(self) -> bool:
        return LABELS in getattr(self, "weights_", {})

    def _incoming(self, view: str, X: Any) -> Any:
        width = self._known_view(view)
        if view == LABELS:
            return check_labels(X, names=self.label_names_).matrix
        return check_view(X, view, n_columns=width).require_complete("encoding")

    def project(self, view: str, X: Any) -> NDArray[Any]:
        """Real scores of a view's rows, before the sign.

        Parameters
        ----------
        view : str
            A name given at fit; "labels" too where the method learned a function of the labels.
        X : matrix of shape (n, d)

        Returns
        -------
        ndarray of shape (n, n_bits)

        Examples
        --------
        >>> import modalhash as mh
        >>> data = mh.datasets.make_synthetic(n=200, random_state=0)
        >>> hasher = mh.DMH(n_bits=8, n_iter=20, random_state=1).fit(data.views, labels=data.labels)
        >>> hasher.project("text", data.views["text"]).shape
        (200, 8)
        """
        scores: NDArray[Any] = self._project(view, self._incoming(view, X))
        return scores

    def encode(self, view: str, X: Any) -> Codes:
        """Codes of a view's rows by that view's own hash function.

        Parameters
        ----------
        view : str
        X : matrix of shape (n, d)
            One that lives on disk (:mod:`modalhash.datasets.rowsource`) is read a block at a time; a torch tensor on
            a GPU is encoded there.

        Returns
        -------
        ndarray of uint8, shape (n, ceil(n_bits / 8))
            Packed codes; see :mod:`modalhash.codes`.

        Examples
        --------
        >>> import modalhash as mh
        >>> data = mh.datasets.make_synthetic(n=200, random_state=0)
        >>> hasher = mh.DMH(n_bits=12, n_iter=20, random_state=1).fit(data.views, labels=data.labels)
        >>> hasher.encode("image", data.views["image"]).shape
        (200, 2)
        """
        blocks = self.encode_blocks(view, X)
        out = np.empty((next(blocks), n_bytes(self.n_bits)), dtype=np.uint8)
        for rows, codes in blocks:
            out[rows] = codes
        return out

    def encode_blocks(self, view: str, X: Any, *, start: int = 0) -> Iterator[Any]:
        """Codes of a view's rows, a block of rows at a time; what lives on disk is read in such blocks.

        Parameters
        ----------
        view : str
        X : matrix of shape (n, d)
        start : int
            The row to begin with.

        Yields
        ------
        int, then tuples of (slice, ndarray of uint8)
            First the number of rows, then which rows and their packed codes, in order.

        Examples
        --------
        >>> import modalhash as mh
        >>> data = mh.datasets.make_synthetic(n=200, random_state=0)
        >>> hasher = mh.DMH(n_bits=12, n_iter=20, random_state=1).fit(data.views, labels=data.labels)
        >>> blocks = hasher.encode_blocks("image", data.views["image"], start=150)
        >>> next(blocks), [(rows.start, rows.stop, codes.shape) for rows, codes in blocks]
        (200, [(150, 200, (50, 2))])
        """
        source = as_rows(X) if view != LABELS else None
        linear = type(self)._project is CrossModalHasher._project and view != LABELS
        # Numbers that are not finite make scores that are not: it is enough, and cheaper, to look at those.
        lazily = linear and source is None and type(X) is np.ndarray and X.ndim == 2 and X.dtype in _FLOATS
        if linear and is_torch(X) and X.device.type != "cpu":
            X = check_view(X, view, n_columns=self._known_view(view), keep_torch=True).require_complete("encoding")
        elif source is None and not lazily:
            X = self._incoming(view, X)
        else:
            X = X if source is None else source
            check_shape(X.shape, view, n_columns=self._known_view(view))
        n = X.shape[0]
        yield n
        for block in row_blocks(n - start, max(self.n_bits, 64 if source is None else X.shape[1])):
            rows = slice(block.start + start, block.stop + start)
            part = X[rows]
            if source is not None:
                part = check_view(part, view, first_row=rows.start).require_complete("encoding")
            yield rows, self._encode_dense(view, part, rows.start) if lazily else pack_scores(self._project(view, part))

    def _encode_dense(self, view: str, X: NDArray[Any], first_row: int) -> Codes:
        """Codes of unchecked rows, by blocks whose scores stay in the cache while they are made into bits."""
        W, v = self._folded(view)
        kind = np.result_type(X, W)
        W, v = W.astype(kind, copy=False), v.astype(kind, copy=False)
        out = np.empty((len(X), n_bytes(self.n_bits)), dtype=np.uint8)
        scores = np.empty((min(len(X), _CACHED_ROWS), self.n_bits), dtype=kind)
        for start in range(0, len(X), _CACHED_ROWS):
            rows = X[start : start + _CACHED_ROWS]
            Z = scores[: len(rows)]
            with np.errstate(invalid="ignore", over="ignore"):
                np.dot(rows.astype(kind, copy=False), W, out=Z)
                Z += v
                good = np.isfinite(Z.sum())
            if not good:
                check_view(rows, view, first_row=first_row + start).require_complete("encoding")
            out[start : start + _CACHED_ROWS] = pack_scores(Z)
        return out

    def _project(self, view: str, X: Any) -> Any:
        W, v = self._folded(view)
        if is_torch(X):
            X = X if X.dtype.itemsize >= 4 else X.float()
            return X @ to_device(W, X.device).to(X.dtype) + to_device(v, X.device).to(X.dtype)
        Z: NDArray[Any] = np.asarray(X @ W)
        Z += v
        return Z

    def _folded(self, view: str) -> tuple[NDArray[Any], NDArray[Any]]:
        """Weights and biases with centring and scaling folded in, so that scores are one product."""
        W = self.weights_[view] * np.asarray(self.scales_[view], dtype=self.weights_[view].dtype)
        v = self.biases_[view].astype(np.float64)
        if view in self.means_:
            v = v - self.means_[view] @ W.astype(np.float64)
        return W, v.astype(W.dtype)

    def database_codes(
        self,
        views: Mapping[str, Any],
        labels: Any = None,
        *,
        rule: str = "encoded",
        view: str | None = None,
        present: Mapping[str, Any] | None = None,
    ) -> Codes:
        """Codes of a database under a named rule.

        Parameters
        ----------
        views : dict of str to matrix (n, d)
        labels : optional
            The database's labels, for the rules that use them ("learned", "label").
        rule : str
            One of the class's ``database_rules``. "encoded": the own hash function of `view`, which is all that
            unlabelled data can have. "learned": the method's joint codes of views and labels. "label": from the
            labels alone. "fused": all views together, without labels. "unified": the method's own joint codes,
            learned without labels.
        view : str, optional
            For "encoded": which view; may be left out when there is only one.
        present : dict of str to boolean mask, optional
            As in :meth:`fit`, for rules that join views.

        Returns
        -------
        ndarray of uint8, shape (n, ceil(n_bits / 8))

        Examples
        --------
        >>> import modalhash as mh
        >>> data = mh.datasets.make_synthetic(n=200, random_state=0)
        >>> hasher = mh.DMH(n_bits=8, n_iter=20, random_state=1).fit(data.views, labels=data.labels)
        >>> bool((hasher.database_codes(data.views, data.labels, rule="learned") == hasher.train_codes_).all())
        True
        """
        self._check_fitted()
        if rule not in self.database_rules:
            raise InputError(
                f"{type(self).__name__} has no database rule {rule!r}; it has {', '.join(self.database_rules)}."
            )
        if rule == "encoded":
            if view is None:
                if len(views) != 1:
                    raise InputError(f"the encoded rule needs view=, one of {', '.join(views)}.")
                view = next(iter(views))
            if view not in views:
                raise UnknownViewError(f"view {view!r} is not among those given: {', '.join(views)}.")
            return self.encode(view, views[view])
        if view is not None:
            raise InputError(f"view= goes with the encoded rule only; the {rule} rule joins all views.")
        if rule in ("learned", "label") and labels is None:
            raise LabelsRequiredError(f"the {rule} rule makes codes with the database's labels. Pass labels=.")
        checked = {} if rule == "label" else check_views(views, present=present)
        for name, item in checked.items():
            width = self._known_view(name)
            if item.n_columns != width:
                check_view(item.X, name, n_columns=width)
            if not self.accepts_missing:
                item.require_complete(f"the {rule} rule")
        known = None if rule in ("fused", "unified") else check_labels(labels, names=self.label_names_)
        return self._database_codes(rule, checked, known)

    def _database_codes(self, rule: str, views: dict[str, View], labels: Labels | None) -> Codes:
        """Codes under a rule other than "encoded"; methods that declare one override this."""
        raise TypeError(f"{type(self).__name__} declares the rule {rule!r} and does not define it.")

    # ------------------------------------------------------------------------------------------- raw items

    def attach(self, features: FeaturePipeline) -> Self:
        """Keep a fitted feature pipeline with the model, so that raw text or pictures can be encoded.

        Parameters
        ----------
        features : FeaturePipeline
            Fitted on the training items. It is saved and loaded with the model.

        Returns
        -------
        self

        Examples
        --------
        >>> import modalhash as mh
        >>> from modalhash.features import FeaturePipeline, TagVectorizer
        >>> words = [["sea", "sky"], ["dog"], ["sea"], ["dog", "cat"]] * 5
        >>> features = FeaturePipeline({"text": TagVectorizer()}).fit({"text": words})
        >>> hasher = mh.DMH(n_bits=2, random_state=1).fit(features.transform({"text": words}), labels=[0, 1, 0, 1] * 5)
        >>> hasher.attach(features).encode_raw("text", [["sky"]]).shape
        (1, 1)
        """
        self._check_fitted()
        for view in features.steps_:
            self._known_view(view)
        self.features_ = features
        return self

    def encode_raw(self, view: str, items: Any) -> Codes:
        """Codes of raw items (texts, pictures), through the attached feature pipeline.

        Parameters
        ----------
        view : str
        items : sequence
            Whatever the first feature step of that view takes.

        Returns
        -------
        ndarray of uint8, shape (n, ceil(n_bits / 8))
        """
        return self.encode(view, self.raw_features(view, items))

    def raw_features(self, view: str, items: Any) -> Any:
        """Feature matrix of raw items, through the attached pipeline.

        Parameters
        ----------
        view : str
        items : sequence

        Returns
        -------
        matrix of shape (n, d)
        """
        self._known_view(view)
        features = getattr(self, "features_", None)
        if features is None or view not in features.steps_:
            raise InputError(
                f"the model carries no features for view {view!r}, so raw items cannot be encoded. "
                "Pass a matrix to encode, or attach(pipeline) before saving the model."
            )
        return features.transform({view: items})[view]

    # ------------------------------------------------------------------------------------------- saving

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Save the fitted model as a folder of ``config.json`` and ``model.safetensors``.

        Parameters
        ----------
        path : path
            The folder. A model already there is replaced whole.

        Returns
        -------
        Path

        Examples
        --------
        >>> import tempfile, modalhash as mh
        >>> data = mh.datasets.make_synthetic(n=200, random_state=0)
        >>> hasher = mh.DMH(n_bits=8, n_iter=20, random_state=1).fit(data.views, labels=data.labels)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     again = mh.load(hasher.save(folder))
        >>> bool((again.encode("text", data.views["text"]) == hasher.encode("text", data.views["text"])).all())
        True
        """
        from . import __version__

        self._check_fitted()
        state = {n: v for n, v in vars(self).items() if n.endswith("_") and not n.startswith("_")}
        features = state.pop("features_", None)
        arrays, rest = bundle.flatten(state)
        config = {
            "kind": "model",
            "package_version": __version__,
            "method": type(self).__name__,
            "params": self._plain_params(),
            "views": {name: self.n_features_in_[name] for name in self.view_names_},
            "state": rest,
        }
        if features is not None:
            own, config["features"] = features.get_state()
            arrays.update({f"{_FEATURES}{name}": array for name, array in own.items()})
        return bundle.write_folder(path, config, arrays)

    def _check_state(self) -> None:
        """Check what was loaded; raise ModelFormatError if shapes do not fit together."""
        for name, W in getattr(self, "weights_", {}).items():
            expected = (self.n_features_in_.get(name), self.n_bits)
            if W.shape != expected or self.biases_[name].shape != (self.n_bits,):
                raise ModelFormatError(f"weights of view {name!r} have shape {W.shape}; the model says {expected}.")
            if name in self.means_ and self.means_[name].shape != (W.shape[0],):
                raise ModelFormatError(
                    f"the mean of view {name!r} has {self.means_[name].size} entries, not {W.shape[0]}."
                )
        codes = getattr(self, "train_codes_", None)
        if codes is not None and (codes.ndim != 2 or codes.shape[1] != n_bytes(self.n_bits)):
            raise ModelFormatError(f"train_codes_ has shape {codes.shape}, which does not fit {self.n_bits} bits.")


def load(path: str | os.PathLike[str]) -> CrossModalHasher:
    """Load a model saved with :meth:`CrossModalHasher.save`.

    Parameters
    ----------
    path : path
        The folder.

    Returns
    -------
    CrossModalHasher
        Of the class that was saved. A hasher of your own is found by its class name once its module is imported.

    Examples
    --------
    >>> import modalhash as mh
    >>> mh.load("no/such/model")
    Traceback (most recent call last):
    ...
    modalhash.exceptions.ModelFormatError: cannot load a model from no/such/model: there is no such folder. ...
    """
    config, arrays = bundle.read_folder(path, kind="model")
    method = config.get("method")
    if method not in _REGISTRY:
        importlib.import_module(".methods", __package__)
    cls = _REGISTRY.get(str(method))
    if cls is None:
        raise ModelFormatError(
            f"{path} holds a model of the method {method!r}, which this modalhash does not know. "
            "Import the module that defines it first, or update modalhash."
        )
    try:
        hasher = cls(**config["params"])
        own = {name: array for name, array in arrays.items() if not name.startswith(_FEATURES)}
        for name, value in bundle.unflatten(own, config["state"]).items():
            setattr(hasher, name, value)
        if "features" in config:
            raw = {n.removeprefix(_FEATURES): a for n, a in arrays.items() if n.startswith(_FEATURES)}
            from .features.pipeline import FeaturePipeline

            hasher.features_ = FeaturePipeline.from_state(raw, config["features"])
        hasher._check_fitted()
        hasher._check_state()
    except (KeyError, TypeError, AttributeError) as error:
        raise ModelFormatError(
            f"{path} does not describe a {method} that this version can build ({error!r})."
        ) from error
    return hasher
