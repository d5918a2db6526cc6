"""The demo: fit DMH on a small data set, measure it, and show what finds what.

By default the data are the icons of Font Awesome Free: a picture and its search terms are the two views, the
categories the labels. ``synthetic`` needs nothing but the package itself.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .bundle import atomic_write
from .codes import n_bytes
from .datasets import Dataset, make_synthetic
from .evaluation import evaluate
from .exceptions import InputError
from .index import HammingIndex
from .methods import DMH

__all__ = ["DemoResult", "Example", "run_demo", "write_page"]

TEXTS = ("rain cloud", "music sound", "money bank", "airplane travel", "doctor hospital")
METRICS = ("MAP[ties=expected]", "F1@r2")


@dataclass(frozen=True)
class Example:
    """One query and what it found: row numbers of the database, nearest first."""

    query: str
    query_row: int | None
    rows: list[int]
    distances: list[int]


@dataclass
class DemoResult:
    """What the demo made.

    Attributes
    ----------
    data : Dataset
    hasher : DMH
        The longest code.
    hashers : list of DMH
        Every length, in the order fitted.
    scores : list of dict
        One row per code length, direction and database rule: bits, direction, rule, and one value per metric.
    by_text, by_image : list of Example
        Queries in words with the pictures found; pictures with the texts found.
    """

    data: Dataset
    hasher: DMH
    hashers: list[DMH] = field(default_factory=list)
    scores: list[dict[str, Any]] = field(default_factory=list)
    by_text: list[Example] = field(default_factory=list)
    by_image: list[Example] = field(default_factory=list)


def load_demo_data(name: str, seed: int, progress: Callable[[int, int], object] | None = None) -> Dataset:
    """The demo's data set: ``icons``, ``openclipart`` or ``synthetic``, with its split.

    Examples
    --------
    >>> load_demo_data("synthetic", seed=0).name
    'synthetic'
    """
    if name == "synthetic":
        return make_synthetic(n=2000, sparse_text=True, random_state=seed)
    if name not in ("icons", "openclipart"):
        raise InputError(f"the demo knows the data sets icons, openclipart and synthetic; got {name!r}.")
    from .datasets import prepare

    return prepare(name, seed=seed, progress=progress)


def run_demo(
    data: Dataset, *, bits: tuple[int, ...] = (16, 32, 64), seed: int = 0, callback: Callable[..., object] | None = None
) -> DemoResult:
    """Fit DMH at each code length, score it in both directions under both rules, and look up examples.

    Parameters
    ----------
    data : Dataset
        With views ``image`` and ``text``, labels and the splits query, train and database.
    bits : tuple of int
    seed : int
    callback : callable(iteration, n_iter, objective), optional

    Returns
    -------
    DemoResult

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("ignore")
    >>> result = run_demo(load_demo_data("synthetic", seed=0).take(range(300)).split("mirflickr"), bits=(8,))
    >>> [row["rule"] for row in result.scores]
    ['learned', 'encoded', 'random codes', 'learned', 'encoded', 'random codes']
    """
    query, train, database = (data.rows(name) for name in ("query", "train", "database"))
    rng = np.random.default_rng(seed)
    result: DemoResult | None = None
    for n_bits in bits:
        hasher = DMH(n_bits, random_state=seed, callback=callback).fit(train.views, labels=train.labels)
        hasher.set_params(callback=None)
        if result is None:
            result = DemoResult(data, hasher)
        result.hasher = hasher
        result.hashers.append(hasher)
        learned = hasher.database_codes(database.views, database.labels, rule="learned")
        for source, target in (("image", "text"), ("text", "image")):
            queries = hasher.encode(source, query.views[source])
            chance = rng.integers(0, 256, (len(query) + len(database), n_bytes(n_bits)), dtype=np.uint8)
            if n_bits % 8:
                chance[:, -1] &= (1 << n_bits % 8) - 1
            runs = {
                "learned": (queries, learned),
                "encoded": (queries, hasher.encode(target, database.views[target])),
                "random codes": (chance[: len(query)], chance[len(query) :]),
            }
            for rule, (q, d) in runs.items():
                report = evaluate(
                    q,
                    d,
                    query_labels=query.labels,
                    database_labels=database.labels,
                    n_bits=n_bits,
                    metrics=METRICS,
                    database_rule=rule,
                    diagnostics=False,
                )
                row = {"bits": n_bits, "direction": f"{source} -> {target}", "rule": rule, **report.values}
                result.scores.append(row)
    if result is None:
        raise InputError("the demo needs at least one code length.")
    for hasher in result.hashers:
        _attach_features(hasher, train)
    _look_up(result, query, database)
    return result


def _attach_features(hasher: DMH, train: Dataset) -> None:
    """Keep the vocabulary and GIST with the model, where the data came from words and drawings."""
    if "text" not in train.columns:
        return
    from .datasets import info
    from .features import GIST, FeaturePipeline, TagVectorizer

    steps = {
        "text": TagVectorizer(min_count=info(train.name).options["min_count"]),
        "image": GIST(size=train.provenance["gist"]["size"]),
    }
    # The same rows and the same setting as in the loader: the same vocabulary, in the same order.
    hasher.attach(FeaturePipeline(steps).fit({"text": train.columns["text"], "image": []}))


def _look_up(result: DemoResult, query: Dataset, database: Dataset, k: int = 8) -> None:
    """Words find items (codes fused of both views); pictures that training never saw find texts (encoded)."""
    hasher = result.hasher
    pictures = HammingIndex(n_bits=hasher.n_bits).add(hasher.database_codes(database.views, rule="fused"))
    texts = HammingIndex(n_bits=hasher.n_bits).add(hasher.encode("text", database.views["text"]))
    where = result.data.splits["database"]
    if hasattr(hasher, "features_"):
        known = set(result.data.feature_names["text"])
        words = [text for text in TEXTS if known & set(text.split())]
        found = pictures.search(hasher.encode_raw("text", words), k)
        names: list[tuple[str, int | None]] = [(text, None) for text in words]
    else:
        found = pictures.search(hasher.encode("text", query.views["text"][:5]), k)
        names = [(f"text of item {row}", int(row)) for row in result.data.splits["query"][:5]]
    result.by_text = [
        Example(name, row, where[ids].tolist(), distances.tolist())
        for (name, row), ids, distances in zip(names, found.ids, found.distances, strict=True)
    ]
    rows = np.linspace(0, len(query) - 1, 5).astype(int)
    found = texts.search(hasher.encode("image", query.views["image"][rows]), k)
    result.by_image = [
        Example(describe(query, int(i)), int(result.data.splits["query"][i]), where[ids].tolist(), distances.tolist())
        for i, ids, distances in zip(rows, found.ids, found.distances, strict=True)
    ]


def describe(data: Dataset, row: int) -> str:
    """What a person would call an item: its title, or its labels."""
    if "title" in data.columns:
        return data.columns["title"][row]
    names = [str(name) for name, on in zip(data.label_names, np.asarray(data.labels[row]).ravel(), strict=True) if on]
    return f"item {data.ids[row]} ({', '.join(names)})"


def write_page(result: DemoResult, path: str | Path) -> Path:
    """Write the demo's results as one self-contained HTML page, pictures inline.

    Parameters
    ----------
    result : DemoResult
    path : path

    Returns
    -------
    Path
    """
    data = result.data
    drawings = data.columns.get("svg")

    def picture(row: int) -> str:
        caption = html.escape(describe(data, row))
        drawn = drawings[row] if drawings else '<span class="dot"></span>'
        return f"<figure>{drawn}<figcaption>{caption}</figcaption></figure>"

    def shown(example: Example, words: bool) -> str:
        head = f"<b>{html.escape(example.query)}</b>" if example.query_row is None or words is False else ""
        left = head or picture(example.query_row or 0)
        cells = []
        for row, distance in zip(example.rows, example.distances, strict=True):
            text = html.escape(describe(data, row))
            inner = f'<span class="word">{text}</span>' if words else picture(row)
            cells.append(f"<td>{inner}<small>{distance} bits</small></td>")
        return f"<tr><th>{left}</th>{''.join(cells)}</tr>"

    head = "".join(f"<th>{name}</th>" for name in ("bits", "direction", "database rule", *METRICS))
    body = "".join(
        f"<tr><td>{r['bits']}</td><td>{html.escape(r['direction'])}</td><td>{r['rule']}</td>"
        + "".join(f"<td>{r[name]:.3f}</td>" for name in METRICS)
        + "</tr>"
        for r in result.scores
    )
    by_text = "".join(shown(example, words=False) for example in result.by_text)
    by_image = "".join(shown(example, words=True) for example in result.by_image)
    page = _PAGE.format(
        name=html.escape(data.name),
        n=len(data),
        bits=result.hasher.n_bits,
        head=head,
        body=body,
        by_text=by_text,
        by_image=by_image,
    )
    path = Path(path)
    atomic_write(path, page.encode())
    return path


_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>modalhash demo: {name}</title>
<style>
:root {{ color-scheme: light dark; --line: #8886; --soft: #8882; }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.5rem; }} h2 {{ font-size: 1.1rem; margin-top: 2.5rem; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; }}
td, th {{ padding: .35rem .7rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: middle; }}
figure {{ margin: 0; text-align: center; width: 84px; }}
figure svg {{ width: 44px; height: 44px; fill: currentColor; }}
figcaption {{ font-size: .72rem; line-height: 1.2; overflow-wrap: anywhere; }}
small {{ display: block; text-align: center; color: #888; }}
.word {{ display: block; padding: .2rem .5rem; border-radius: .5rem; background: var(--soft); text-align: center; }}
.dot {{ display: inline-block; width: 12px; height: 12px; border-radius: 50%; background: var(--line); }}
</style>
<h1>Words find pictures, pictures find words</h1>
<p>{n} items of <b>{name}</b>, codes of {bits} bits learned by DMH. A query and an item are compared by the number of
bits in which their codes differ.</p>
<h2>Words find pictures</h2><p>Database codes: <b>fused</b>, made from an item's picture and terms together, without its
labels.</p><div class="scroll"><table>{by_text}</table></div>
<h2>A picture that training never saw finds texts</h2><p>Database codes: <b>encoded</b>, made from an item's terms
alone, without its labels.</p><div class="scroll"><table>{by_image}</table></div>
<h2>How good is it?</h2>
<p><b>learned</b>: database codes made with the items' labels; <b>encoded</b>: by the other view's own hash function,
without labels; random codes show chance.</p>
<div class="scroll"><table><tr>{head}</tr>{body}</table></div>
</html>
"""
