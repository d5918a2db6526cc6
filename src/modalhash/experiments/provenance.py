"""Where the numbers come from: splits, machines, versions and time, and which runs are missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .evidence import Evidence
from .page import MISSING, Table
from .records import Score, select

__all__ = ["machine_name", "missing_runs", "provenance_tables"]


def machine_name(score: Score) -> str:
    """A machine in a few words.

    Parameters
    ----------
    score : Score

    Returns
    -------
    str
    """
    m = score.machine
    parts = [str(m.get("cpu") or "unknown processor"), f"{m['cores']} cores" if m.get("cores") else ""]
    return ", ".join([*filter(None, parts), *([str(m["device"])] if m.get("device") not in (None, "cpu") else [])])


def missing_runs(evidence: Evidence, studies: Sequence[str]) -> list[str]:
    """What a whole report would have and this one has not.

    A study's runs are its settings times its lengths times its seeds, as far as any of its runs has them; for the MAP
    table, every printed method and length too.

    Parameters
    ----------
    evidence : Evidence
    studies : sequence of str

    Returns
    -------
    list of str
        One line per setting.
    """
    lines = []
    for study in studies:
        runs = select(evidence.scores, study=study)
        if not runs:
            lines.append(f"{study}: not run")
            continue
        have = {(s.label, s.bits, s.seed) for s in runs}
        labels = dict.fromkeys(s.label for s in runs)
        lengths, seeds = sorted({s.bits for s in runs}), sorted({s.seed for s in runs})
        if study in ("table-map", "fig-f1") and evidence.is_printed:
            labels = dict.fromkeys([*evidence.methods, *labels])
            lengths = sorted({*lengths, *evidence.bits})
        if study == "fig-parameters":  # the setting that varies nothing may have more lengths and seeds than the others
            varied = [s for s in runs if s.varied]
            lengths, seeds = sorted({s.bits for s in varied}), sorted({s.seed for s in varied})
        for label in labels:
            gaps = {b: [s for s in seeds if (label, b, s) not in have] for b in lengths}
            listed = [
                f"{b} bits" + ("" if g == seeds else f" (seed {', '.join(map(str, g))})") for b, g in gaps.items() if g
            ]
            if listed:
                lines.append(f"{study}, {label}: {', '.join(listed)}")
    return lines


def provenance_tables(evidence: Evidence) -> list[Table]:
    """Splits, machines and versions, and time spent.

    Parameters
    ----------
    evidence : Evidence

    Returns
    -------
    list of Table
    """

    def grouped(key: Callable[[Score], tuple[object, ...]]) -> dict[tuple[str, ...], list[Score]]:
        groups: dict[tuple[str, ...], list[Score]] = {}
        for score in evidence.scores:
            groups.setdefault(tuple(str(x) for x in key(score)), []).append(score)
        return dict(sorted(groups.items()))

    def size(score: Score, key: str) -> str:
        return str(score.split.get(key, MISSING))

    splits = grouped(
        lambda s: (s.seed, s.split_hash or MISSING, *(size(s, k) for k in ("train", "database", "queries")))
    )
    machines = grouped(
        lambda s: (
            machine_name(s),
            s.machine.get("device") or "cpu",
            s.version or MISSING,
            s.commit or MISSING,
            s.source or MISSING,
            s.machine.get("python") or MISSING,
            s.machine.get("numpy") or MISSING,
        )
    )
    spent = grouped(lambda s: (s.method,))

    def hours(runs: list[Score], key: str) -> str:
        seconds = [s.seconds[key] for s in runs if isinstance(s.seconds.get(key), (int, float))]
        return f"{sum(seconds):.1f}" if seconds else MISSING

    def dates(runs: list[Score]) -> str:
        found = sorted({s.finished[:10] for s in runs if s.finished})
        return found[0] + (f" to {found[-1]}" if len(found) > 1 else "") if found else MISSING

    name = evidence.dataset
    return [
        Table(
            f"{name}-splits",
            "Splits: one per seed; the hash is of the rows' ids.",
            ["seed", "split hash", "training rows", "database rows", "queries", "runs"],
            [[*key, str(len(runs))] for key, runs in sorted(splits.items(), key=lambda x: (int(x[0][0]), x[0]))],
        ),
        Table(
            f"{name}-machines",
            "Machines and versions.",
            ["machine", "device", "modalhash", "commit", "source hash", "Python", "NumPy", "runs", "finished"],
            [[*key, str(len(runs)), dates(runs)] for key, runs in machines.items()],
        ),
        Table(
            f"{name}-spent",
            "Time spent on training, all studies together.",
            ["method", "runs", "wall time, s", "processor time, s"],
            [[*key, str(len(runs)), hours(runs, "fit"), hours(runs, "cpu_fit")] for key, runs in spent.items()]
            + [["all", str(len(evidence.scores)), hours(evidence.scores, "fit"), hours(evidence.scores, "cpu_fit")]],
        ),
    ]
