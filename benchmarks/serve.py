"""Load on a server: mixed searches over a million codes from a second process, on the loopback interface only.

    python benchmarks/serve.py                 # 60 s, 16 connections, 1,000,000 codes of 64 bits
    python benchmarks/serve.py --seconds 5 --codes 100000

Prints requests per second, latencies and the server's memory, and fails if a request failed, if the 99th percentile
is not under 250 ms, or if memory grows after the first part of the run by more than 5 %.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

import modalhash as mh
from modalhash.features import FeaturePipeline, TagVectorizer

HOST = "127.0.0.1"
LIMIT_MS = 250.0
GROWTH = 0.05
SETTLE = 10.0  # seconds after which memory is first read


def prepare(folder: Path, n: int, bits: int) -> tuple[list[str], int]:
    """A model with a vocabulary, and an index of clustered codes: 2,000 items' own, a tenth of their bits flipped."""
    rng = np.random.default_rng(0)
    words = [f"word{i}" for i in range(400)]
    kinds = rng.integers(0, 20, 2000)
    texts = [" ".join(words[20 * kind + j] for j in rng.choice(20, 6, replace=False)) for kind in kinds]
    image = rng.standard_normal((20, 64))[kinds] + rng.standard_normal((2000, 64))
    features = FeaturePipeline({"text": TagVectorizer()}).fit({"text": texts})
    views = {"image": image, **features.transform({"text": texts})}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hasher = mh.DMH(bits, n_iter=60, random_state=0).fit(views, labels=kinds).attach(features)
    hasher.save(folder / "model")
    base = hasher.encode("image", image)[rng.integers(0, 2000, n)]
    flips = np.packbits(rng.random((n, bits)) < 0.1, axis=1, bitorder="little")
    mh.HammingIndex(bits).add(base ^ flips).save(folder / "index")
    return words, image.shape[1]


def requests(words: list[str], columns: int, n: int, bits: int, seed: int) -> list[tuple[str, bytes]]:
    """A thousand mixed requests: texts, vectors, items, codes and lookups."""
    rng = np.random.default_rng(seed)
    out = []
    for kind in rng.choice(["text", "vector", "item", "code", "lookup"], 1000, p=[0.4, 0.2, 0.2, 0.1, 0.1]):
        k = int(rng.choice([10, 36, 100]))
        if kind == "text":
            text = "+".join(rng.choice(words, 3))
            path, body = f"/search?text={text}&k={k}", b""
        elif kind == "vector":
            row = rng.standard_normal(columns).round(4).tolist()
            path, body = "/search", json.dumps({"vector": row, "view": "image", "k": k}).encode()
        elif kind == "item":
            path, body = f"/search?item={rng.integers(n)}&view=image&k={k}", b""
        elif kind == "code":
            path, body = f"/search?code={rng.bytes(bits // 8).hex()}&k={k}", b""
        else:
            path, body = f"/lookup?item={rng.integers(n)}&view=image&radius=2", b""
        head = f"{'POST' if body else 'GET'} {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {len(body)}"
        head += "\r\nContent-Type: application/json" if body else ""
        out.append((str(kind), f"{head}\r\n\r\n".encode() + body))
    return out


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(re.search(rb"content-length: (\d+)", head).group(1))
    return int(head[9:12]), await reader.readexactly(length)


async def connection(
    port: int, mix: list[tuple[str, bytes]], until: float, took: list[float], seen: Counter[str]
) -> None:
    reader, writer = await asyncio.open_connection(HOST, port)
    i = 0
    while time.perf_counter() < until:
        kind, raw = mix[i % len(mix)]
        i += 1
        started = time.perf_counter()
        writer.write(raw)
        status, body = await answer(reader)
        took.append(time.perf_counter() - started)
        seen[kind] += 1
        if status != 200 or not json.loads(body)["hits"]:
            seen["errors"] += kind != "lookup" or status != 200
    writer.close()
    await writer.wait_closed()


async def memory(port: int) -> int:
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(f"GET /metrics HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
    _, body = await answer(reader)
    writer.close()
    await writer.wait_closed()
    return int(re.search(rb"^process_resident_memory_bytes (\d+)", body, re.MULTILINE).group(1))


async def load(port: int, arguments: argparse.Namespace, words: list[str], columns: int) -> dict[str, object]:
    took: list[float] = []
    seen: Counter[str] = Counter()
    until = time.perf_counter() + arguments.seconds
    work = [
        connection(port, requests(words, columns, arguments.codes, arguments.bits, seed), until, took, seen)
        for seed in range(arguments.connections)
    ]
    running = asyncio.gather(*work)
    await asyncio.sleep(min(SETTLE, arguments.seconds / 2))
    first = await memory(port)
    await running
    last = await memory(port)
    ms = np.array(took) * 1000
    p50, p95, p99 = np.percentile(ms, [50, 95, 99])
    return {
        "requests": len(ms),
        "per_second": round(len(ms) / arguments.seconds, 1),
        "errors": seen.pop("errors", 0),
        "ms": {"p50": round(p50, 2), "p95": round(p95, 2), "p99": round(p99, 2), "max": round(float(ms.max()), 2)},
        "memory_mb": {"settled": round(first / 2**20, 1), "end": round(last / 2**20, 1)},
        "mix": dict(sorted(seen.items())),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--codes", type=int, default=1_000_000)
    parser.add_argument("--bits", type=int, default=64)
    parser.add_argument("--connections", type=int, default=16)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words, columns = prepare(folder, arguments.codes, arguments.bits)
        command = [sys.executable, "-m", "modalhash", "serve", str(folder / "model"), "--port", "0"]
        command += ["--index", f"image={folder / 'index'}", "--host", HOST]
        server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            said = server.stderr.readline()
            port = int(re.search(r":(\d+)/", said).group(1))
            result = asyncio.run(load(port, arguments, words, columns))
        finally:
            server.terminate()
            server.wait()
            server.stderr.close()
    print(json.dumps(result, indent=2))
    memory_mb = result["memory_mb"]
    checks = {
        "no errors": result["errors"] == 0,
        f"p99 under {LIMIT_MS:g} ms": result["ms"]["p99"] < LIMIT_MS,
        "memory flat": memory_mb["end"] < (1 + GROWTH) * memory_mb["settled"],
    }
    print("\n".join(f"{'ok  ' if good else 'FAIL'} {what}" for what, good in checks.items()))
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
