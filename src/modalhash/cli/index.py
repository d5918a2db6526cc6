"""index: build an index of codes, add to it, search it, say what it holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from ..exceptions import InputError
from .console import emit
from .evaluate import _codes as read_codes
from .options import JsonOption, QuietOption, SplitOption, choose_rows, read_data

if TYPE_CHECKING:
    from ..index import HammingIndex

app = typer.Typer(help="Indexes of codes: build, add, search, info.", no_args_is_help=True, rich_markup_mode="markdown")

IndexArgument = Annotated[Path, typer.Argument(help="An index folder.", show_default=False)]
ModelOption = Annotated[Path | None, typer.Option("--model", "-m", help="A model folder, to encode with.")]
DataOption = Annotated[Path | None, typer.Option("--data", "-d", help="A data set whose rows are encoded.")]
CodesOption = Annotated[
    Path | None, typer.Option("--codes", help="Codes made by `modalhash encode` (.npz or .npy), instead of a model.")
]
BitsOption = Annotated[int | None, typer.Option("--bits", help="Length of a code, where the file does not say it.")]
UseOption = Annotated[str | None, typer.Option("--use", help="Which view to encode, where the model has several.")]
RuleOption = Annotated[
    str, typer.Option("--rule", help="How the codes are made: encoded, or another rule of the method, as fused.")
]


@app.command(name="build")
def build_command(
    output: Annotated[Path, typer.Argument(help="The index folder to write.", show_default=False)],
    model: ModelOption = None,
    data: DataOption = None,
    use: UseOption = None,
    split: SplitOption = None,
    rule: RuleOption = "encoded",
    codes: CodesOption = None,
    bits: BitsOption = None,
    kind: Annotated[str, typer.Option(help="flat (exact), ivf or hnsw (approximate).")] = "flat",
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Build an index of codes. Ids are the rows of the data set, or the ids in the file of codes.

    Example: `modalhash index build index/ --model model/ --data data.npz --use image`

    Example: `modalhash index build index/ --codes codes.npz`
    """
    from ..index import HammingIndex

    rows = _rows(model, data, use, split, rule, codes, bits)
    index = HammingIndex(rows.n_bits, kind=kind).add(rows.codes, rows.ids, payload=rows.payload)
    index.build().save(output)
    _report(index, output, len(rows.codes), "built", as_json, quiet)


@app.command(name="add")
def add_command(
    path: IndexArgument,
    model: ModelOption = None,
    data: DataOption = None,
    use: UseOption = None,
    split: SplitOption = None,
    rule: RuleOption = "encoded",
    codes: CodesOption = None,
    keep_ids: Annotated[
        bool,
        typer.Option(
            "--keep-ids", help="Use the rows' own ids, as `build` does; otherwise they go on from the largest there."
        ),
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="With --keep-ids: replace what has the same id.")] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Add codes to an index.

    Example: `modalhash index add index/ --model model/ --data more.npz --use image`
    """
    from ..index import HammingIndex

    if replace and not keep_ids:
        raise InputError("--replace goes with --keep-ids: new ids replace nothing.")
    index = HammingIndex.load(path)
    rows = _rows(model, data, use, split, rule, codes, index.n_bits)
    if rows.n_bits != index.n_bits:
        raise InputError(f"the new codes have {rows.n_bits} bits; the index has {index.n_bits}. Use the same model.")
    payload = {name: values for name, values in rows.payload.items() if not len(index) or name in index.columns}
    if replace:
        index.upsert(rows.codes, rows.ids, payload=payload)
    else:
        index.add(rows.codes, rows.ids if keep_ids else None, payload=payload)
    index.build().save(path)
    _report(index, path, len(rows.codes), "added", as_json, quiet)


@app.command(name="search")
def search_command(
    path: IndexArgument,
    model: ModelOption = None,
    text: Annotated[str | None, typer.Option("--text", help="Search by a text, with a model that has words.")] = None,
    image: Annotated[Path | None, typer.Option("--image", help="Search by a picture file.")] = None,
    data: DataOption = None,
    use: UseOption = None,
    split: SplitOption = None,
    row: Annotated[list[int], typer.Option("--row", help="Only these rows of the data. Repeatable.")] = [],  # noqa: B006
    codes: CodesOption = None,
    k: Annotated[int, typer.Option("-k", min=1, help="How many to find.")] = 10,
    radius: Annotated[
        int | None, typer.Option(min=0, help="Find all within this many differing bits instead of k.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Search an index by text, picture, rows of a data set or codes.

    Example: `modalhash index search index/ --model model/ --text "rain cloud"`

    Example: `modalhash index search index/ --codes queries.npz -k 5 --json`
    """
    from ..index import HammingIndex

    index = HammingIndex.load(path)
    queries, names = _queries(index, model, text, image, data, use, split, row, codes)
    found = index.search(queries, k) if radius is None else index.lookup(queries, radius)
    answers: list[dict[str, Any]] = []
    for name, one in zip(names, found, strict=True):
        payload = index.payload(one.ids) if len(one.ids) else {}
        hits = [
            {
                "id": int(item),
                "distance": int(distance),
                **{column: values[i] for column, values in payload.items() if column not in ("id", "distance")},
            }
            for i, (item, distance) in enumerate(zip(one.ids, one.distances, strict=True))
        ]
        answers.append({"query": name, "hits": hits})
    emit({"n_bits": index.n_bits, "results": answers}, as_json=as_json, text=lambda: _listed(answers))


@app.command(name="info")
def info_command(path: IndexArgument, as_json: JsonOption = False) -> None:
    """Say what an index holds.

    Example: `modalhash index info index/`
    """
    from ..index import HammingIndex

    index = HammingIndex.load(path)
    ids = index.ids
    value = {
        "index": str(path),
        "n_bits": index.n_bits,
        "codes": len(index),
        "kind": index.kind,
        "columns": index.columns,
        "first_id": int(ids[0]) if len(ids) else None,
        "last_id": int(ids[-1]) if len(ids) else None,
        "bytes": sum(file.stat().st_size for file in path.rglob("*") if file.is_file()),
    }
    lines = [
        f"{index!r}",
        f"  ids      {value['first_id']} to {value['last_id']}" if len(ids) else "  ids      none",
        f"  columns  {', '.join(index.columns) or 'none'}",
        f"  on disk  {value['bytes']} bytes",
    ]
    emit(value, as_json=as_json, text="\n".join(lines))


class _Rows:
    """Codes with their ids and texts, wherever they came from."""

    def __init__(self, codes: Any, n_bits: int, ids: Any, payload: dict[str, list[str]]) -> None:
        self.codes, self.n_bits, self.ids, self.payload = codes, n_bits, ids, payload


def _rows(
    model: Path | None,
    data: Path | None,
    use: str | None,
    split: str | None,
    rule: str,
    codes: Path | None,
    bits: int | None,
) -> _Rows:
    if codes is not None:
        if model is not None or data is not None:
            raise InputError("pass --codes, or --model with --data, not both.")
        return _stored(codes, bits)
    if model is None or data is None:
        raise InputError("pass --model and --data to encode, or --codes.")
    from ..base import load

    hasher = load(model)
    whole = read_data(data, [], None)
    rows, _ = choose_rows(whole, split, None)
    if rule == "encoded":
        made = hasher.encode(*_view(hasher, rows.views, use))
    else:
        if use is not None:
            raise InputError(f"--use goes with the encoded rule; the rule {rule!r} joins all views.")
        views = {view: rows.views[view] for view in hasher.view_names_ if view in rows.views}
        made = hasher.database_codes(views, rows.labels, rule=rule)
    title = rows.columns.get("title") or [str(name) for name in rows.ids]
    ids = np.arange(len(whole)) if split is None else whole.splits[split]
    return _Rows(made, hasher.n_bits, ids, {"title": title})


def _stored(path: Path, bits: int | None) -> _Rows:
    from ..datasets import list_arrays, read_array

    made, n_bits = read_codes(path, bits)
    if n_bits is None:
        raise InputError("the file does not say how many bits a code has; pass --bits.")
    names = np.asarray(read_array(path, "ids")).ravel() if "ids" in list_arrays(path) else None
    if names is not None and names.dtype.kind in "iu":
        return _Rows(made, n_bits, names, {})
    titles = {} if names is None else {"title": [str(name) for name in names]}  # names are no ids: rows are
    return _Rows(made, n_bits, np.arange(len(made)), titles)


def _view(hasher: Any, views: Any, use: str | None) -> tuple[str, Any]:
    shared = [view for view in hasher.view_names_ if view in views]
    if use is None and len(shared) != 1:
        raise InputError(f"say which view to encode with --use; the model has {', '.join(hasher.view_names_)}.")
    name = use or shared[0]
    if name not in views:
        raise InputError(f"the data has no view {name!r}; it has {', '.join(views)}.")
    return name, views[name]


def _queries(
    index: HammingIndex,
    model: Path | None,
    text: str | None,
    image: Path | None,
    data: Path | None,
    use: str | None,
    split: str | None,
    row: list[int],
    codes: Path | None,
) -> tuple[Any, list[str]]:
    given = [name for name, v in (("text", text), ("image", image), ("data", data), ("codes", codes)) if v is not None]
    if len(given) != 1:
        raise InputError(
            f"search by exactly one of --text, --image, --data or --codes; got {', '.join(given) or 'none'}."
        )
    if codes is not None:
        made, n_bits = read_codes(codes, index.n_bits)
        _same_length(n_bits, index)
        return made, [f"code {i}" for i in range(len(made))]
    if model is None:
        raise InputError(f"--{given[0]} needs --model, which encodes it.")
    from ..base import load

    hasher = load(model)
    _same_length(hasher.n_bits, index)
    if data is not None:
        rows, _ = choose_rows(read_data(data, [], None), split, None)
        outside = [i for i in row if not 0 <= i < len(rows)]
        if outside:
            raise InputError(f"there is no row {outside[0]}; the data has {len(rows)}.")
        rows = rows.take(row) if row else rows
        return hasher.encode(*_view(hasher, rows.views, use)), [str(name) for name in rows.ids]
    from ..serve.queries import view_of_kind

    if text is not None:
        view = use or view_of_kind(hasher, "text")
        features = hasher.raw_features(view, [text])
        if not np.any(features.data if hasattr(features, "indptr") else features):
            raise InputError(f"the model knows no word of {text!r}.")
        return hasher.encode(view, features), [text]
    if image is None or not image.is_file():
        raise InputError(f"{image} is not a file.")
    return hasher.encode_raw(use or view_of_kind(hasher, "image"), [image]), [image.name]


def _same_length(n_bits: int | None, index: HammingIndex) -> None:
    if n_bits != index.n_bits:
        raise InputError(f"the queries have {n_bits} bits; the index has {index.n_bits}. Use the same model.")


def _listed(answers: list[dict[str, Any]]) -> str:
    lines = []
    for answer in answers:
        lines.append(f"{answer['query']}: {len(answer['hits'])} found")
        for hit in answer["hits"]:
            rest = "  ".join(str(value) for name, value in hit.items() if name not in ("id", "distance"))
            lines.append(f"  {hit['distance']:>4} bits  {hit['id']:>8}  {rest}".rstrip())
    return "\n".join(lines)


def _report(index: HammingIndex, path: Path, n: int, what: str, as_json: bool, quiet: bool) -> None:
    value = {"index": str(path), "codes": len(index), what: n, "n_bits": index.n_bits, "kind": index.kind}
    if as_json or not quiet:
        emit(value, as_json=as_json, text=f"{what} {n} codes of {index.n_bits} bits; {len(index)} in {path}")
