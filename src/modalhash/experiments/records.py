"""The score files read back: one :class:`Score` per run, and one compact JSON that bundles many of them.

A report is a function of score files (``scores/**/*.json``) and of the published numbers, of nothing else. The bundle
is what the documentation commits: everything its pages show, without what would make it large.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..exceptions import InputError

__all__ = ["DIRECTIONS", "RULES", "STUDIES", "Score", "bundle_scores", "read_bundle", "read_scores", "select"]

DIRECTIONS = ("image>text", "text>image")
RULES = ("learned", "encoded")
STUDIES = ("table-map", "fig-f1", "fig-parameters", "fig-convergence", "table-time", "ladder")
BUNDLE_VERSION = 1

_NEEDED = {"dataset": str, "method": str, "label": str, "bits": int, "seed": int, "scores": dict}
_METRICS = ("MAP", "MAP(ties)", "precision@r2", "recall@r2", "F1@r2")
_POOLED = ("parameters", "machine", "split", "studies", "version", "commit", "source")
_POINTS = 33


@dataclass(frozen=True, eq=False)
class Score:
    """What one run scored: one data set, one setting, one length, one seed.

    Attributes
    ----------
    dataset, method, label : str
        The label is the method's name, followed by what was varied.
    bits, seed : int
    studies : tuple of str
        The tables and figures that this run belongs to.
    varied, parameters, split, seconds, machine : dict
    scores : dict
        Rule -> direction -> metric -> value; "pr" is a list of (recall, precision).
    bit_correlation : dict
        Rule -> {"mean_abs", "max_abs", "matrix"}.
    objective : list of (iteration, value)
    rises : int
        How many times the objective rose from one iteration to the next.
    n_iter : int or None
    version, commit, source, finished : str
        Of the code that made the run: its version, its commit, a hash of its files; and when.
    """

    dataset: str
    method: str
    label: str
    bits: int
    seed: int
    studies: tuple[str, ...]
    varied: dict[str, Any]
    parameters: dict[str, Any]
    split: dict[str, Any]
    seconds: dict[str, Any]
    machine: dict[str, Any]
    scores: dict[str, Any]
    bit_correlation: dict[str, Any]
    objective: list[tuple[int, float]]
    rises: int
    n_iter: int | None
    version: str
    commit: str
    source: str
    finished: str

    def value(self, rule: str, direction: str, metric: str) -> float | None:
        """One number, or None where it was not measured.

        Parameters
        ----------
        rule, direction, metric : str

        Returns
        -------
        float or None
        """
        found = ((self.scores.get(rule) or {}).get(direction) or {}).get(metric)
        return float(found) if isinstance(found, (int, float)) and math.isfinite(found) else None

    @property
    def split_hash(self) -> str:
        """The split's hash, or an empty string."""
        return str(self.split.get("hash") or "")


def _points(objective: Any) -> tuple[list[tuple[int, float]], int]:
    values = [float(v) for v in objective or ()]
    rises = sum(b > a for a, b in itertools.pairwise(values))
    return list(enumerate(values, 1)), rises


def _score(raw: Mapping[str, Any], source: str) -> Score:
    wrong = [k for k, kind in _NEEDED.items() if not isinstance(raw.get(k), kind) or isinstance(raw.get(k), bool)]
    if wrong:
        raise InputError(
            f"{source} is not a score file: {', '.join(wrong)} is missing or of another type. "
            "Delete it and run the score step again."
        )
    if "curve" in raw:  # from a bundle: thinned already
        points, rises = [(int(k), float(v)) for k, v in raw["curve"]], int(raw.get("rises", 0))
    else:
        points, rises = _points(raw.get("objective"))
    correlation = {
        rule: {**found, "matrix": _from_triangle(found["triangle"])} if "triangle" in found else found
        for rule, found in (raw.get("bit_correlation") or {}).items()
        if found
    }
    return Score(
        dataset=raw["dataset"],
        method=raw["method"],
        label=raw["label"],
        bits=raw["bits"],
        seed=raw["seed"],
        studies=tuple(raw.get("studies") or ()),
        varied=dict(raw.get("varied") or {}),
        parameters=dict(raw.get("parameters") or {}),
        split=dict(raw.get("split") or {}),
        seconds=dict(raw.get("seconds") or {}),
        machine=dict(raw.get("machine") or {}),
        scores=dict(raw["scores"]),
        bit_correlation=correlation,
        objective=points,
        rises=rises,
        n_iter=raw.get("n_iter"),
        version=str(raw.get("version") or ""),
        commit=str(raw.get("commit") or ""),
        source=str(raw.get("source") or ""),
        finished=str(raw.get("finished") or ""),
    )


def _order(score: Score) -> tuple[Any, ...]:
    return (score.dataset, score.label, score.bits, score.seed)


def read_scores(results: Path) -> list[Score]:
    """Read every score file of a results folder.

    Parameters
    ----------
    results : Path
        The folder that holds ``scores/``.

    Returns
    -------
    list of Score
        By data set, label, length and seed, whatever the order of the files.

    Raises
    ------
    InputError
        When there is no score file, or one of them is not one.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "scores" / "icons" / "CVH" / "016-s0.json"
    ...     file.parent.mkdir(parents=True)
    ...     content = {"dataset": "icons", "method": "CVH", "label": "CVH", "bits": 16, "seed": 0, "scores": {}}
    ...     _ = file.write_text(json.dumps(content))
    ...     [score.label for score in read_scores(Path(folder))]
    ['CVH']
    """
    folder = Path(results) / "scores"
    found = []
    for file in sorted(folder.rglob("*.json")):
        source = file.relative_to(folder).as_posix()
        try:
            raw = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{source} cannot be read ({error}). Delete it and run the score step again.") from error
        found.append(_score(raw if isinstance(raw, dict) else {}, source))
    if not found:
        raise InputError(
            f"there is no score file below {folder.name}/ of the results folder. Run the score step first."
        )
    return sorted(found, key=_order)


def select(
    scores: Iterable[Score],
    *,
    study: str | None = None,
    dataset: str | None = None,
    method: str | None = None,
    label: str | None = None,
    bits: int | None = None,
    where: Callable[[Score], bool] | None = None,
) -> list[Score]:
    """Those scores that agree with everything named.

    Parameters
    ----------
    scores : iterable of Score
    study, dataset, method, label : str, optional
    bits : int, optional
    where : callable, optional
        A further condition.

    Returns
    -------
    list of Score
    """
    return [
        s
        for s in scores
        if (study is None or study in s.studies)
        and (dataset is None or s.dataset == dataset)
        and (method is None or s.method == method)
        and (label is None or s.label == label)
        and (bits is None or s.bits == bits)
        and (where is None or where(s))
    ]


def _rounded(value: Any, digits: int) -> Any:
    """Floats to so many significant digits, through lists and dicts."""
    if isinstance(value, dict):
        return {k: _rounded(v, digits) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(v, digits) for v in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) and math.isfinite(value) else value


def _thin(points: Sequence[Any], keep: Iterable[int] = ()) -> list[Any]:
    """At most some thirty of the points, with both ends and those whose first entry is named."""
    if len(points) <= _POINTS:
        return list(points)
    step = (len(points) - 1) / (_POINTS - 1)
    chosen = {round(j * step) for j in range(_POINTS)} | {i for i, p in enumerate(points) if p[0] in set(keep)}
    return [points[i] for i in sorted(chosen)]


def _triangle(matrix: Sequence[Sequence[float | None]]) -> list[int | None]:
    """What is above the diagonal, in hundredths."""
    return [None if v is None else round(100 * v) for i, row in enumerate(matrix) for v in row[i + 1 :]]


def _from_triangle(values: Sequence[int | None]) -> list[list[float | None]]:
    size = (1 + math.isqrt(1 + 8 * len(values))) // 2
    matrix: list[list[float | None]] = [[1.0] * size for _ in range(size)]
    for (i, j), v in zip(itertools.combinations(range(size), 2), values, strict=True):
        matrix[i][j] = matrix[j][i] = None if v is None else v / 100
    return matrix


def _lean(score: Score, pr_bits: int | None, matrix: bool, curve: bool) -> dict[str, Any]:
    """What the pages show of a run: tables show every metric, the other studies MAP and F1 alone."""
    tabled = bool({"table-map", "fig-f1"} & set(score.studies))
    own = next((rule for rule in score.scores if rule != "encoded"), "encoded")
    scores: dict[str, Any] = {}
    for rule, found in score.scores.items():
        for direction, values in (found or {}).items():
            wanted = _METRICS if tabled else ("MAP", "F1@r2")
            kept = {name: values[name] for name in wanted if values.get(name) is not None}
            if "table-map" in score.studies and score.bits == pr_bits and rule == own and values.get("pr"):
                kept["pr"] = _rounded(_thin(values["pr"]), 3)
            scores.setdefault(rule, {})[direction] = kept
    points = score.objective if "fig-convergence" in score.studies else []
    if not curve:
        points = [p for i, p in enumerate(points) if p[0] == 100 or i in (0, len(points) - 1)]
    correlation = {}
    for rule, found in score.bit_correlation.items():
        correlation[rule] = {name: found[name] for name in ("mean_abs", "max_abs") if found.get(name) is not None}
        if matrix and found.get("matrix"):
            correlation[rule]["triangle"] = _triangle(found["matrix"])
    return {
        "dataset": score.dataset,
        "method": score.method,
        "label": score.label,
        "bits": score.bits,
        "seed": score.seed,
        "varied": score.varied,
        "seconds": _rounded(score.seconds, 4),
        "scores": _rounded(scores, 5),
        "bit_correlation": _rounded(correlation, 4),
        "curve": _rounded(_thin(points, (100,)), 6),
        "rises": score.rises,
        "n_iter": score.n_iter,
        "finished": score.finished,
        "studies": list(score.studies),
        "parameters": score.parameters,
        "machine": score.machine,
        "split": score.split,
        "version": score.version,
        "commit": score.commit,
        "source": score.source,
    }


def bundle_scores(scores: Sequence[Score], *, pr_bits: int | None = None, matrices: Iterable[int] = (0,)) -> str:
    """One compact JSON text with everything that the documentation's pages show.

    Curves are thinned to some thirty points where a figure draws them and left out otherwise, as are metrics and
    matrices that no table or figure shows; values that many runs share are
    stored once.

    Parameters
    ----------
    scores : sequence of Score
    pr_bits : int, optional
        The length whose precision-recall curves are kept.
    matrices : iterable of int
        The seeds whose bit-correlation matrices are kept.

    Returns
    -------
    str
        One run per line, so that a change shows as a change of lines.
    """
    kept, pools = set(matrices), dict[str, list[str]]((key, []) for key in _POOLED)
    first = {(s.label, s.bits): s.seed for s in sorted(scores, key=_order, reverse=True)}  # the seed that figures draw
    lines = []
    for score in sorted(scores, key=_order):
        lean = _lean(score, pr_bits, score.seed in kept, first[score.label, score.bits] == score.seed)
        for key in _POOLED:
            text = json.dumps(lean[key], sort_keys=True, allow_nan=False)
            if text not in pools[key]:
                pools[key].append(text)
            lean[key] = pools[key].index(text)
        lines.append(json.dumps(lean, separators=(",", ":"), allow_nan=False))
    parts = [f'"bundle": {BUNDLE_VERSION}']
    parts += [f'"{key}": [\n' + ",\n".join(texts) + "\n]" for key, texts in (pools | {"runs": lines}).items()]
    return "{" + ",\n".join(parts) + "}\n"


def read_bundle(text: str) -> list[Score]:
    """Read back what :func:`bundle_scores` wrote.

    Parameters
    ----------
    text : str

    Returns
    -------
    list of Score

    Examples
    --------
    >>> raw = {"dataset": "icons", "method": "CVH", "label": "CVH", "bits": 16, "seed": 0, "scores": {}}
    >>> read_bundle(bundle_scores([_score(raw, "here")]))[0].bits
    16
    """
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise InputError(f"the bundle of scores is not JSON ({error}). Write it again from the score files.") from error
    if not isinstance(raw, dict) or raw.get("bundle") != BUNDLE_VERSION:
        raise InputError(f"a bundle of scores of version {BUNDLE_VERSION} is needed. Write it again from the scores.")
    return sorted(
        (_score({**run, **{key: raw[key][run[key]] for key in _POOLED}}, "the bundle") for run in raw["runs"]),
        key=_order,
    )
