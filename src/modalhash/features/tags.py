"""Tags, words or captions as a sparse matrix over the vocabulary of the training items."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..exceptions import InputError
from .transformer import FeatureTransformer, check_count

__all__ = ["TagVectorizer", "split_words"]

_WORD = re.compile(r"\w+(?:['’]\w+)*")


def split_words(text: str) -> list[str]:
    """Cut a text into words: runs of letters, digits and underscores, with apostrophes inside.

    Examples
    --------
    >>> split_words("the dog's ball, 北京!")
    ['the', "dog's", 'ball', '北京']
    """
    return _WORD.findall(text)


class TagVectorizer(FeatureTransformer):
    """Turn the tags of each item into a row of a sparse 0/1 (or tf-idf) matrix.

    Parameters
    ----------
    min_count : int
        Keep tags that at least this many training items carry (20 in the paper's MIRFlickr).
    max_features : int, optional
        Keep at most this many, the most frequent first (ties in alphabetical order).
    weighting : {"binary", "tfidf"}
        0/1, or count times ``log((1 + n) / (1 + df)) + 1`` with rows of unit length.
    lowercase : bool
        Fold case before anything else.
    separator : str, optional
        An item may be one string instead of a list: it is cut at this separator, or, by default, into words.

    Attributes
    ----------
    vocabulary_ : list of str
        The columns, in alphabetical order.
    idf_ : ndarray of shape (n_tags,)
        Ones for "binary".

    Examples
    --------
    >>> step = TagVectorizer(min_count=2).fit([["sea", "sky"], ["sky"], ["sea", "dog"]])
    >>> step.vocabulary_
    ['sea', 'sky']
    >>> step.transform(["Sky and more sky", "a cat"]).toarray().tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """

    _arrays = ("idf_",)
    _values = ("vocabulary_",)

    def __init__(
        self,
        min_count: int = 1,
        max_features: int | None = None,
        weighting: str = "binary",
        lowercase: bool = True,
        separator: str | None = None,
    ) -> None:
        self.min_count = min_count
        self.max_features = max_features
        self.weighting = weighting
        self.lowercase = lowercase
        self.separator = separator

    def fit(self, X: Sequence[Any], y: Any = None) -> Self:
        """Choose the vocabulary from training items.

        Parameters
        ----------
        X : sequence of n items, each a list of tags or one string
        y : ignored

        Returns
        -------
        self
        """
        least = check_count(self.min_count, "min_count")
        if self.weighting not in ("binary", "tfidf"):
            raise InputError(f'weighting must be "binary" or "tfidf"; got {self.weighting!r}.')
        count: Counter[str] = Counter()
        n = 0
        for tags in self._items(X):
            count.update(set(tags))
            n += 1
        kept = sorted(((tag, c) for tag, c in count.items() if c >= least), key=lambda pair: (-pair[1], pair[0]))
        if self.max_features is not None:
            kept = kept[: check_count(self.max_features, "max_features")]
        if not kept:
            most = max(count.values(), default=0)
            raise InputError(
                f"no tag is carried by {least} of the {n} training items (the most frequent one by {most}). "
                "Lower min_count."
            )
        self.vocabulary_ = sorted(tag for tag, _ in kept)
        if self.weighting == "tfidf":
            df = np.array([count[tag] for tag in self.vocabulary_], dtype=np.float64)
            self.idf_ = np.log((1 + n) / (1 + df)) + 1
        else:
            self.idf_ = np.ones(len(self.vocabulary_))
        return self

    def transform(self, X: Sequence[Any]) -> Any:
        """Count the known tags of each item; unknown ones are left out.

        Parameters
        ----------
        X : sequence of n items, each a list of tags or one string

        Returns
        -------
        CSR matrix of float32, shape (n, n_tags)
        """
        self._check_fitted()
        column = {tag: j for j, tag in enumerate(self.vocabulary_)}
        indices: list[int] = []
        indptr = [0]
        for tags in self._items(X):
            found = (column[tag] for tag in tags if tag in column)
            indices.extend(found if self.weighting == "tfidf" else set(found))
            indptr.append(len(indices))
        data = np.ones(len(indices), dtype=np.float32)
        shape = (len(indptr) - 1, len(self.vocabulary_))
        csr = sparse.csr_array((data, np.array(indices, dtype=np.int32), np.array(indptr, dtype=np.int32)), shape=shape)
        csr.sum_duplicates()
        if self.weighting == "tfidf":
            csr.data *= self.idf_[csr.indices].astype(np.float32)
            length = np.sqrt(np.asarray(csr.multiply(csr).sum(axis=1)).ravel())
            csr.data /= np.repeat(np.where(length > 0, length, 1), np.diff(csr.indptr)).astype(np.float32)
        return csr

    def _items(self, X: Any) -> Iterable[list[str]]:
        if isinstance(X, str) or not isinstance(X, Iterable):
            raise InputError("a list of items is needed, each a list of tags or one string; got a single value.")
        for row, item in enumerate(X):
            if isinstance(item, str):
                text = item.lower() if self.lowercase else item
                tags = split_words(text) if self.separator is None else text.split(self.separator)
            elif isinstance(item, Iterable):
                tags = list(item)
                if not all(isinstance(tag, str) for tag in tags):
                    raise InputError(f"the tags of item {row} must be strings; got {tags[:3]!r}.")
                tags = [tag.lower() for tag in tags] if self.lowercase else tags
            else:
                raise InputError(f"item {row} must be a list of tags or one string; got {type(item).__name__}.")
            yield [tag for tag in (t.strip() for t in tags) if tag]

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the vocabulary.

        Parameters
        ----------
        input_features : ignored

        Returns
        -------
        ndarray of str
        """
        self._check_fitted()
        return np.array(self.vocabulary_, dtype=object)
