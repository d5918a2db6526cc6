"""The second step: what the stored codes are worth, from a run's file and the data's labels alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..datasets import Dataset
from ..diagnostics import bit_diagnostics
from ..evaluation import evaluate
from . import files
from .plan import STUDIES, Run
from .published import DIRECTIONS

__all__ = ["score_codes", "score_runs"]

_METRICS = ("MAP[ties=id]", "MAP[ties=expected]", "P@r2", "R@r2", "F1@r2", "PR@r")
_NAMES = {
    "MAP": "MAP[ties=id]",
    "MAP(ties)": "MAP[ties=expected]",
    "precision@r2": "P@r2",
    "recall@r2": "R@r2",
    "F1@r2": "F1@r2",
}


def _measure(query: Any, database: Any, labels: tuple[Any, Any], n_bits: int, rule: str) -> dict[str, Any]:
    report = evaluate(
        query,
        database,
        query_labels=labels[0],
        database_labels=labels[1],
        n_bits=n_bits,
        metrics=_METRICS,
        database_rule=rule,
        diagnostics=False,
    )
    curve = report.curves["PR@r"]
    points = zip(curve["recall"].tolist(), curve["precision"].tolist(), strict=True)
    out: dict[str, Any] = {name: round(report[full], 6) for name, full in _NAMES.items()}
    return {**out, "pr": [[round(r, 5), round(p, 5)] for r, p in points]}


def _correlation(codes: Sequence[Any], n_bits: int, matrix: bool) -> dict[str, Any]:
    """Correlation between bits: the mean over code sets of its mean size, and the largest."""
    found = [bit_diagnostics(one, n_bits) for one in codes]
    means = [one.mean_abs_correlation for one in found if not math.isnan(one.mean_abs_correlation)]
    off = ~np.eye(n_bits, dtype=np.bool_)
    sizes = np.abs(np.concatenate([one.correlation[off] for one in found]))
    known = sizes[np.isfinite(sizes)]
    rows = [[None if math.isnan(v) else round(v, 3) for v in row] for row in found[0].correlation.tolist()]
    return {
        "mean_abs": round(float(np.mean(means)), 6) if means else None,
        "max_abs": round(float(known.max()), 6) if known.size else None,
        "constant_bits": max(one.constant_bits for one in found),
        "matrix": rows if matrix else None,
    }


def score_codes(
    arrays: Mapping[str, Any], labels: Any, n_bits: int, rule: str, *, matrix: bool = False
) -> dict[str, Any]:
    """Score a run's codes under the encoded rule and, where there is one, the method's own.

    Parameters
    ----------
    arrays : dict of str to ndarray
        Of a run's file.
    labels : array or CSR matrix of shape (n, q)
        Of all rows of the data set.
    n_bits : int
    rule : str
        The rule under which the paper's table compares the method; "encoded" where it has no other.
    matrix : bool
        Whether to keep the whole matrix of correlations between bits.

    Returns
    -------
    dict
        ``scores``, by rule and direction, and ``bit_correlation``, of the database's codes under `rule`.

    Examples
    --------
    >>> from modalhash.codes import pack
    >>> codes = pack([[0, 0], [1, 1], [0, 1]])
    >>> arrays = {"query_ids": [0, 1], "database_ids": [0, 1, 2]}
    >>> arrays |= {name: codes[:2] for name in ("query_image", "query_text")}
    >>> arrays |= {name: codes for name in ("db_encoded_image", "db_encoded_text")}
    >>> found = score_codes(arrays, np.eye(2, dtype=int)[[0, 1, 1]], 2, "encoded")
    >>> found["scores"]["encoded"]["text>image"]["MAP"]
    1.0
    """
    both = labels[arrays["query_ids"]], labels[arrays["database_ids"]]
    scores: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys([rule, "encoded"]):
        scores[name] = {}
        for direction in DIRECTIONS:
            source, target = direction.split(">")
            database = arrays[f"db_encoded_{target}" if name == "encoded" else f"db_{name}"]
            scores[name][direction] = _measure(arrays[f"query_{source}"], database, both, n_bits, name)
    stored = [f"db_encoded_{view}" for view in ("image", "text")] if rule == "encoded" else [f"db_{rule}"]
    correlation = _correlation([arrays[name] for name in stored], n_bits, matrix)
    return {"scores": scores, "bit_correlation": {rule: correlation}}


def _wants_matrix(run: Run, runs: Sequence[Run]) -> bool:
    """Matrices of correlations are large: the ladder's longest length, one seed."""
    longest = max((one.bits for one in runs if "ladder" in one.studies), default=0)
    return "ladder" in run.studies and run.seed == 0 and run.bits == longest


def score_runs(
    runs: Sequence[Run],
    data: Mapping[str, Dataset],
    results: str | Path,
    *,
    progress: Callable[[int, int, str], object] | None = None,
) -> tuple[int, int, list[Run]]:
    """Score every run that is there; scores that are up to date are left as they are.

    Parameters
    ----------
    runs : sequence of Run
    data : dict of str to Dataset
        By name, whole; only its labels are used.
    results : path
        The folder of results.
    progress : callable, optional
        ``progress(done, total, name of the run)``.

    Returns
    -------
    tuple of (int, int, list of Run)
        Runs scored now, runs whose scores were there, and runs without a file.
    """
    results = Path(results)
    scored, current, missing = 0, 0, list[Run]()
    for done, run in enumerate(runs):
        path = files.run_path(results, run)
        found = files.read_run(path)
        if found is None:
            missing.append(run)
        else:
            own = [one for one in runs if one.dataset == run.dataset]
            if _score(run, *found, path, results, data[run.dataset], _wants_matrix(run, own)):
                scored += 1
            else:
                current += 1
        if progress is not None:
            progress(done + 1, len(runs), str(run))
    return scored, current, missing


def _score(
    run: Run, arrays: dict[str, Any], meta: dict[str, Any], path: Path, results: Path, data: Dataset, matrix: bool
) -> bool:
    """Score one run; False where its scores were up to date."""
    target, key = files.score_path(results, run), files.file_hash(path)
    before, asked = files.read_score(target), set(run.studies)
    if before is not None and before["parameters"] == meta["parameters"]:
        # A run made anew, such as alone for its time, still belongs to the studies of the old one.
        asked |= set(before["studies"])
        held = before["bit_correlation"][before["rule"]]["matrix"] is not None
        if before["run"] == key and asked == set(before["studies"]) and (held or not matrix):
            return False
        matrix = matrix or held
    objective = arrays.get("objective")
    score = {
        **{name: value for name, value in meta.items() if name != "made_from"},
        "run": key,
        "studies": [name for name in STUDIES if name in asked],
        "objective": None if objective is None else [float(f"{value:.7g}") for value in objective],
        **score_codes(arrays, data.labels, run.bits, meta["rule"], matrix=matrix),
    }
    files.write_score(target, score)
    return True
