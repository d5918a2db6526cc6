"""The words of a text view: which are known, how a beginning goes on, and which items carry them.

A model of tags learns from items with several words each, and a person types one. Two helps, both optional and
both said in the answer: a word being typed is completed from the vocabulary, and a short query is filled up with
the words of the items that match it best (Rocchio's relevance feedback with the first matches taken as relevant;
J. Rocchio, "Relevance feedback in information retrieval", 1971). Neither looks at labels or at other views.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..features import split_words

__all__ = ["ReadText", "TextView"]


@dataclass(frozen=True)
class ReadText:
    """A text as the model sees it.

    Attributes
    ----------
    text : str
        What was encoded: the text as given, or with its last word completed.
    features : CSR matrix of shape (1, d)
    known, unknown : list of str
        Words that the vocabulary has, and has not.
    suggestions : list of str
        Words of the vocabulary that begin like the last word, the most frequent first.
    examples : list of int
        Rows of the items whose words were added.
    """

    text: str
    features: Any
    known: list[str]
    unknown: list[str]
    suggestions: list[str] = field(default_factory=list)
    examples: list[int] = field(default_factory=list)


class TextView:
    """Words of one view of a model whose features begin with a :class:`~modalhash.features.TagVectorizer`.

    Parameters
    ----------
    steps : list of fitted transformers
        The view's feature steps.
    rows : matrix of shape (n, d), optional
        The view's features of the data set, for frequencies and examples.

    Examples
    --------
    >>> from modalhash.features import TagVectorizer
    >>> items = ["cat kitten pet", "car road", "cat paw pet", "card game"]
    >>> step = TagVectorizer().fit(items)
    >>> view = TextView([step], step.transform(items))
    >>> view.read("ca", complete=True).text, view.suggest("ca")
    ('cat', ['cat', 'car', 'card'])
    >>> read = view.read("cat", expand=2)
    >>> read.examples, read.features.nnz
    ([0, 2], 4)
    """

    def __init__(self, steps: list[Any], rows: Any = None) -> None:
        self.steps = steps
        self.vocabulary: list[str] = list(steps[0].vocabulary_)
        fits = rows is not None and sparse.issparse(rows) and rows.shape[1] == len(self.vocabulary) and len(steps) == 1
        self._rows: Any = rows.tocsr() if fits else None

    @cached_property
    def _frequency(self) -> NDArray[np.int64]:
        n = len(self.vocabulary)
        return np.zeros(n, np.int64) if self._rows is None else np.bincount(self._rows.indices, minlength=n)

    @cached_property
    def _postings(self) -> tuple[Any, Any, float]:
        """Rows of unit length, by column and by row, and the length that a row usually has."""
        rows = self._rows.astype(np.float32)
        length = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
        scaled = sparse.csr_array(sparse.diags_array(1 / np.where(length > 0, length, 1)).astype(np.float32) @ rows)
        return scaled.tocsc(), scaled, float(np.median(length[length > 0])) if length.any() else 1.0

    @property
    def can_expand(self) -> bool:
        """Whether there are items to take words from."""
        return self._rows is not None

    def suggest(self, start: str, limit: int = 8) -> list[str]:
        """Words of the vocabulary that begin with `start`, the most frequent first."""
        if not start:
            return []
        first = bisect_left(self.vocabulary, start)
        last = bisect_left(self.vocabulary, start + chr(0x10FFFF))
        found = sorted(range(first, last), key=lambda j: (-self._frequency[j], len(self.vocabulary[j]), j))
        return [self.vocabulary[j] for j in found[:limit]]

    def read(self, text: str, *, complete: bool = False, expand: int = 0) -> ReadText:
        """Turn a text into features.

        Parameters
        ----------
        text : str
        complete : bool
            Where the last word is unknown and still being typed (no space after it), go on as the most frequent
            word of the vocabulary does.
        expand : int
            Add the words of this many items, those that match best.

        Returns
        -------
        ReadText
        """
        words, known = self._split(text)
        suggestions = []
        if words and not text[-1:].isspace():
            suggestions = [word for word in self.suggest(words[-1]) if word != words[-1]]
            if complete and suggestions and words[-1] not in known:
                text = " ".join([*words[:-1], suggestions[0]])
                words, known = self._split(text)
        features: Any = [text]
        for step in self.steps:
            features = step.transform(features)
        examples: list[int] = []
        if expand and known and self._rows is not None:
            features, examples = self._expand(features, expand)
        return ReadText(text, features, known, [w for w in words if w not in known], suggestions, examples)

    def _split(self, text: str) -> tuple[list[str], list[str]]:
        columns = self.steps[0].transform([text]).indices
        known = [self.vocabulary[j] for j in columns]
        words = split_words(text.lower() if self.steps[0].lowercase else text)
        return list(dict.fromkeys(words)), sorted(known, key=lambda w: words.index(w) if w in words else len(words))

    def _expand(self, features: Any, n: int) -> tuple[Any, list[int]]:
        postings, rows, usual = self._postings
        query = features / np.float32(sparse.linalg.norm(features))
        likeness = np.asarray(postings[:, query.indices] @ query.data).ravel()
        near = np.argsort(-likeness, kind="stable")[:n]
        near = near[likeness[near] > 0]
        if not near.size:
            return features, []
        added = sparse.csr_array(likeness[near][None, :].astype(np.float32)) @ rows[near]
        filled = query + added / np.float32(sparse.linalg.norm(added))
        filled = sparse.csr_array(filled * np.float32(usual / sparse.linalg.norm(filled)))
        return filled, near.tolist()
