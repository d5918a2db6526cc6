"""Which runs each table and figure needs. A run that several of them need is made once.

A run is one fit: a data set, a method with all of its parameters, a length, and a seed, which draws both the split and
the random start. Runs with the same seed are paired: the same rows, and for methods of one class the same start.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..exceptions import InputError

__all__ = ["BITS", "FULL", "METHODS", "QUICK", "SETTINGS", "STUDIES", "Run", "Size", "build", "make_plan"]

STUDIES = {
    "table-map": "MAP of every method by length, both directions",
    "fig-f1": "F1 of lookup within radius 2, by length",
    "fig-parameters": "DMH by alpha, beta and gamma, and by the scale of the start",
    "fig-convergence": "DMH's objective by iteration",
    "table-time": "seconds to train, and to encode a query; each run alone on the machine",
    "ladder": "from multi-view ITQ to DMH, and the regulariser's effect over paired seeds",
}
"""The studies by name, in the order of the report."""

METHODS = ("DMH", "CMSSH", "CVH", "SCM", "SePH", "MDBE")
"""The methods that the paper compares."""

BITS = (16, 32, 64, 96, 128)

SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "DMH": ("DMH.paper", {"n_iter": 400, "step_start": 0.01, "step_end": 0.001}),
}
"""Constructor and parameters by method where they are not the class's own; other data sets take the class itself.

``papers/*.yaml`` say the same, and why (a test compares them); this table is what runs where PyYAML is not installed.
"""

PRINTED = {"step_start": 0.003, "step_end": 0.0015}
"""DMH's step as the paper prints it, for the rows that take nothing else."""

DATASET_PARAMETERS: dict[tuple[str, str], dict[str, Any]] = {
    # the paper's beta: NUS-WIDE's visual words are counts up to 255, its tags and labels 0 or 1
    ("DMH", "nuswide"): {"scale": {"image": 1.0, "text": 255.0}},
}

_RUNGS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("MultiViewITQ", {}),
    ("MultiViewLinear", {}),
    ("DMH", {"decorrelation_kind": None}),
    ("DMH", {}),
    ("DMH", {"decorrelation_kind": "weights"}),
    ("DMH", {"decorrelation_kind": "centered"}),
    ("DMH", {"decorrelation": 0.01}),
    ("DMH", {"decorrelation_kind": "centered", "decorrelation": 0.1}),
    ("DMH", PRINTED),
    ("DMH", {**PRINTED, "decorrelation_kind": None}),
)
_NOT_PLANNED = ("device", "storage", "callback", "verbose", "checkpoint", "checkpoint_every")  # how, not what
_PAPER_SETS = ("mirflickr", "nuswide")
_LABEL_SCALE = 255.0


@dataclass(frozen=True)
class Size:
    """How large the studies are.

    Attributes
    ----------
    label_weights, scale_bits, decorrelations, init_scales : tuple
        Values in the study of parameters: alpha; b, for beta = 2^b - 1; gamma; and the scale of the start, of which
        the paper says nothing.
    ladder_seeds : int
        Seeds of the ladder, at least.
    parameters : dict of str to dict
        By method, for data sets other than the paper's.
    """

    label_weights: tuple[float, ...] = (1, 2, 5, 10, 15, 20, 25)
    scale_bits: tuple[int, ...] = (1, 2, 4, 6, 8, 9)
    decorrelations: tuple[float, ...] = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
    init_scales: tuple[float, ...] = (0.0003, 0.001, 0.01, 0.1)
    ladder_seeds: int = 5
    parameters: dict[str, dict[str, Any]] = field(default_factory=dict)


FULL = Size()
QUICK = Size(
    label_weights=(1, 5, 10, 25),
    scale_bits=(1, 4, 8),
    decorrelations=(1e-5, 1e-3, 1e-1, 10.0),
    init_scales=(0.01,),
    ladder_seeds=5,
    parameters={"DMH": {"n_iter": 200}, "CMSSH": {"n_pairs": 10_000}, "SePH": {"n_anchors": 200}},
)


@dataclass(frozen=True)
class Run:
    """One fit, and what it is for.

    Attributes
    ----------
    dataset, method, label : str
        The label tells runs of one method apart and names their folder.
    bits, seed : int
    parameters : dict
        All of the constructor's, as JSON values.
    varied : dict
        What differs from the method's setting: parameters, or ``scale_bits`` b for beta = 2^b - 1.
    studies : tuple of str
    """

    dataset: str
    method: str
    label: str
    bits: int
    seed: int
    parameters: dict[str, Any]
    varied: dict[str, Any]
    studies: tuple[str, ...]

    @property
    def alone(self) -> bool:
        """Whether its time is reported, so that nothing else may run meanwhile."""
        return "table-time" in self.studies

    def __str__(self) -> str:
        return f"{self.dataset} {self.label}, {self.bits} bits, seed {self.seed}"


def build(
    method: str,
    dataset: str,
    bits: int,
    seed: int,
    *,
    varied: Mapping[str, Any] | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Any:
    """Make a hasher with the setting that the studies use.

    Parameters
    ----------
    method, dataset : str
    bits, seed : int
    varied : dict, optional
        As in :class:`Run`.
    parameters : dict, optional
        Others than the setting's, for all runs of the method.

    Returns
    -------
    CrossModalHasher

    Examples
    --------
    >>> build("DMH", "mirflickr", 32, 0, varied={"scale_bits": 4})
    DMH(n_bits=32, scale={'image': 15.0, 'labels': 15.0, 'text': 15.0}, n_iter=400, step_start=0.01,
        step_end=0.001, random_state=0)
    """
    from .. import methods

    if method not in methods.__all__:
        raise InputError(f"unknown method {method!r}; there are {', '.join(methods.__all__)}.")
    cls = getattr(methods, method)
    seeded = {"random_state": seed} if "random_state" in inspect.signature(cls.__init__).parameters else {}
    name, own = SETTINGS.get(method, (method, {}))
    if dataset not in _PAPER_SETS:
        name = method  # scales that fit the paper's features need not fit others
    hasher = (getattr(cls, name.partition(".")[2]) if "." in name else cls)(bits, **seeded)
    changed = {**own, **DATASET_PARAMETERS.get((method, dataset), {}), **(parameters or {}), **(varied or {})}
    if "scale_bits" in changed:
        beta = 2.0 ** changed.pop("scale_bits") - 1
        words = beta / _LABEL_SCALE if dataset == "nuswide" else beta
        changed["scale"] = {"image": words, "labels": beta, "text": beta}
    return hasher.set_params(**changed)


def _settings(hasher: Any) -> dict[str, Any]:
    return {name: value for name, value in hasher._plain_params().items() if name not in _NOT_PLANNED}


def _comparable(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters with `scale` written out by view, so that the same setting in other words is seen to be the same."""
    out, scale = dict(parameters), parameters.get("scale")
    if isinstance(scale, (int, float)):
        out["scale"] = {"image": scale, "text": scale, "labels": _LABEL_SCALE}
    elif isinstance(scale, Mapping):
        out["scale"] = {"labels": _LABEL_SCALE, **scale}
    return out


def _label(method: str, varied: Mapping[str, Any]) -> str:
    shown = (f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in varied.items())
    return ",".join([method, *shown])


def _nearest(bits: Sequence[int], wanted: int) -> int:
    return min(bits, key=lambda b: (abs(b - wanted), b))


def _check(studies: Iterable[str], methods: Iterable[str], bits: Sequence[int], seeds: int) -> None:
    for name, given, known in (("study", studies, STUDIES), ("method", methods, METHODS)):
        unknown = [one for one in given if one not in known]
        if unknown or not list(given):
            what = ", ".join(map(repr, unknown)) or "none"
            raise InputError(f"unknown {name}: {what}; there are {', '.join(known)}.")
    if not bits or any(isinstance(b, bool) or not isinstance(b, int) or b < 1 for b in bits):
        raise InputError(f"bits must be whole numbers of at least 1; got {list(bits)!r}.")
    if isinstance(seeds, bool) or not isinstance(seeds, int) or seeds < 1:
        raise InputError(f"seeds must be a whole number of at least 1; got {seeds!r}.")


def make_plan(
    dataset: str,
    *,
    studies: Sequence[str] = tuple(STUDIES),
    methods: Sequence[str] = METHODS,
    bits: Sequence[int] = BITS,
    seeds: int = 3,
    parameters: Mapping[str, Mapping[str, Any]] | None = None,
    size: Size = FULL,
) -> list[Run]:
    """List the runs that studies need, each once.

    Parameters
    ----------
    dataset : str
        Its name; "mirflickr" and "nuswide" get the paper's settings, any other the methods' defaults.
    studies : sequence of str
        Of :data:`STUDIES`.
    methods : sequence of str
        Of :data:`METHODS`. The studies of DMH alone are left out where DMH is not among them.
    bits : sequence of int
        Lengths. Parameters and times are studied at the one nearest to 32, the ladder at those nearest to 32 and 64.
    seeds : int
        0, 1, ... The ladder takes at least those of `size`.
    parameters : dict of str to dict, optional
        By method, in place of the setting's.
    size : Size

    Returns
    -------
    list of Run
        By seed; those that must run alone last.

    Examples
    --------
    >>> runs = make_plan("mirflickr", studies=["table-map", "fig-f1"])
    >>> len(runs), runs[0].studies  # six methods, and DMH as printed: 7 x 5 lengths x 3 seeds
    (105, ('table-map', 'fig-f1'))
    >>> [run.label for run in make_plan("mirflickr", studies=["fig-parameters"], seeds=1)][:3]
    ['DMH', 'DMH,label_weight=1', 'DMH,label_weight=2']
    """
    _check(studies, methods, bits, seeds)
    own = size.parameters if dataset not in _PAPER_SETS else {}
    given = {m: {**own.get(m, {}), **(parameters or {}).get(m, {})} for m in {*own, *(parameters or {})}}
    found: dict[tuple[str, int, int], Run] = {}

    def add(study: str, method: str, n_bits: int, seed: int, varied: Mapping[str, Any] | None = None) -> None:
        varied = dict(varied or {})
        hasher = build(method, dataset, n_bits, seed, varied=varied, parameters=given.get(method))
        plain = _settings(hasher)
        if varied:
            usual = _settings(build(method, dataset, n_bits, seed, parameters=given.get(method)))
            if _comparable(usual) == _comparable(plain):
                varied, plain = {}, usual
        label = _label(method, varied)
        before = found.get((label, n_bits, seed))
        asked = {study, *(before.studies if before else ())}
        ordered = tuple(name for name in STUDIES if name in asked)
        found[label, n_bits, seed] = Run(dataset, method, label, n_bits, seed, plain, varied, ordered)

    lengths, middle = sorted(set(bits)), _nearest(bits, 32)
    wanted = [name for name in METHODS if name in methods]
    for seed in range(seeds):
        for n_bits in lengths:
            for method in wanted:
                for study in {"table-map", "fig-f1"} & set(studies):
                    add(study, method, n_bits, seed)
        for method in wanted:
            if "table-time" in studies:
                add("table-time", method, middle, seed)
    if "DMH" in wanted:
        _plan_dmh(add, studies, lengths, seeds, size)
    return sorted(found.values(), key=lambda run: (run.alone, run.seed))


def _plan_dmh(add: Any, studies: Sequence[str], lengths: Sequence[int], seeds: int, size: Size) -> None:
    """The studies of DMH's own: parameters, convergence, and the ladder."""
    middle = _nearest(lengths, 32)
    varied: list[dict[str, Any]] = [{}]
    varied += [{"label_weight": value} for value in size.label_weights]
    varied += [{"scale_bits": value} for value in size.scale_bits]
    varied += [{"decorrelation": value} for value in size.decorrelations]
    varied += [{"init_scale": value} for value in size.init_scales]
    for seed in range(seeds):
        for one in varied if "fig-parameters" in studies else []:
            add("fig-parameters", "DMH", middle, seed, one)
        for n_bits in lengths:
            for study in {"table-map", "fig-f1", "fig-convergence"} & set(studies):
                add(study, "DMH", n_bits, seed, PRINTED)
            if "fig-convergence" in studies:
                add("fig-convergence", "DMH", n_bits, seed)
        if "table-time" in studies:
            add("table-time", "DMH", middle, seed, PRINTED)
    if "ladder" in studies:
        for seed in range(max(seeds, size.ladder_seeds)):
            for n_bits in sorted({middle, _nearest(lengths, 64)}):
                for method, rung in _RUNGS:
                    add("ladder", method, n_bits, seed, rung)
