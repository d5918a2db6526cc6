"""Score the asymmetric ranking: a query's real-valued scores against the database's bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from .codes import check_codes
from .exceptions import InputError
from .indexing.asymmetric import asymmetric_scores, check_scores
from .labels import check_label_pair
from .results import Report
from .similarity import relevance

__all__ = ["evaluate_asymmetric"]

MAP = "MAP[ranking=asymmetric, ties=id]"


def evaluate_asymmetric(
    query_scores: Any,
    database_codes: Any,
    *,
    query_labels: Any,
    database_labels: Any,
    n_bits: int,
    database_rule: str = "unnamed",
) -> Report:
    """Mean average precision of the ranking that ``HammingIndex.search(..., scores=...)`` gives over all items.

    Items are ranked by how well their bits agree with tanh of the query's scores, ties in database order. The metric
    has a name of its own, so that it is never taken for a Hamming ranking.

    Parameters
    ----------
    query_scores : array of shape (n_queries, n_bits)
        From ``hasher.project``.
    database_codes : array of uint8, shape (n, ceil(n_bits / 8))
    query_labels, database_labels
        As in :func:`modalhash.evaluate`.
    n_bits : int
    database_rule : str
        How the database got its codes.

    Returns
    -------
    Report

    Examples
    --------
    >>> import numpy as np, modalhash as mh
    >>> codes = mh.codes.pack([[1, 1], [1, 0], [0, 0]])
    >>> report = mh.evaluate_asymmetric([[2.0, -0.1]], codes, query_labels=[1], database_labels=[0, 1, 0], n_bits=2)
    >>> report.values
    {'MAP[ranking=asymmetric, ties=id]': 1.0}
    """
    codes = check_codes(database_codes, n_bits, "database_codes")
    query, database = check_label_pair(query_labels, database_labels)
    scores = check_scores(query_scores, query.matrix.shape[0], n_bits)
    if codes.shape[0] != database.matrix.shape[0]:
        raise InputError(f"database_labels have {database.matrix.shape[0]} rows and database_codes {codes.shape[0]}.")
    found = []
    for i in range(len(scores)):
        relevant = relevance(query.matrix[i : i + 1], database.matrix)[0]
        order = np.argsort(-asymmetric_scores(scores[i : i + 1], codes)[0], kind="stable")
        at = np.flatnonzero(relevant[order])
        if at.size:
            found.append(float((np.arange(1, at.size + 1) / (at + 1)).mean()))
    if not found:
        raise InputError("no query shares a label with any database item, so nothing can be measured.")
    return Report(
        values={MAP: float(np.mean(found))},
        metrics=(),
        ties=("id",),
        n_queries=len(scores),
        n_evaluated=len(found),
        n_without_relevant=len(scores) - len(found),
        n_database=codes.shape[0],
        n_bits=n_bits,
        database_rule=database_rule,
        curves={},
        per_query=None,
        bits={},
    )
