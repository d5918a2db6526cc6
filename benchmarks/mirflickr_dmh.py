"""DMH on the real MIRFlickr-25K features, beside the paper's Table "MAP results".

    python benchmarks/mirflickr_dmh.py --data ../shared/data/mirflickr25k.npz

Every run: 1,001 queries drawn by the seed, the rest is training set and database; the text's PCA to 500 columns, the
means and the scales are fitted on training rows alone; MAP over the whole database, ties in database order.
"learned": database codes made with the database's labels (the paper's protocol); "encoded": without.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np

import modalhash as mh
from modalhash.datasets import load_arrays
from modalhash.exceptions import ConstantBitsWarning
from modalhash.features import PCA, FeaturePipeline

PAPER = {  # bits: (image-text, text-image), Table "MAP results", MIRFlickr, row DMH
    16: (0.7012, 0.7629),
    32: (0.7057, 0.7817),
    64: (0.7398, 0.7962),
    96: (0.7424, 0.8301),
    128: (0.7501, 0.8470),
}
PRESETS = {
    "default": lambda bits, seed: mh.DMH(bits, random_state=seed),
    "paper": lambda bits, seed: mh.DMH.paper(bits, random_state=seed),
    "literal": lambda bits, seed: mh.DMH.paper_literal(bits, random_state=seed),
}


def run(data, bits, seed, preset, device):
    train, query = data.rows("train"), data.rows("query")
    hasher = PRESETS[preset](bits, seed).set_params(device=device)
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConstantBitsWarning)
        hasher.fit(train.views, labels=train.labels)
    seconds = time.perf_counter() - started
    row = {"preset": preset, "bits": bits, "seed": seed, "seconds": round(seconds, 2), "split": data.split_hash}
    found = mh.codes.unpack(hasher.train_codes_, bits).mean(axis=0)
    row["constant_bits"] = int(((found == 0) | (found == 1)).sum())
    for source, target in (("image", "text"), ("text", "image")):
        queries = hasher.encode(source, query.views[source])
        databases = {"learned": hasher.train_codes_, "encoded": hasher.encode(target, train.views[target])}
        for rule, codes in databases.items():
            report = mh.evaluate(
                queries,
                codes,
                query_labels=query.labels,
                database_labels=train.labels,
                n_bits=bits,
                metrics=["MAP[ties=id]", "F1@r2"],
                database_rule=rule,
                diagnostics=False,
            )
            row[f"{source}-{target} {rule}"] = report["MAP[ties=id]"]
            row[f"{source}-{target} {rule} F1"] = report["F1@r2"]
    return row


def table(rows):
    def cell(group, key):
        values = [row[key] for row in group]
        return f"{np.mean(values):.4f} ± {np.std(values, ddof=1) if len(values) > 1 else 0:.4f}"

    lines = [
        "preset   bits  paper I>T  I>T learned      paper T>I  T>I learned      I>T encoded      T>I encoded      "
        "F1@2 I>T  F1@2 T>I  dead bits  fit s"
    ]
    for preset, bits in dict.fromkeys((row["preset"], row["bits"]) for row in rows):
        group = [row for row in rows if (row["preset"], row["bits"]) == (preset, bits)]
        paper = PAPER.get(bits, (float("nan"), float("nan")))
        lines.append(
            f"{preset:<8} {bits:>4}  {paper[0]:.4f}     {cell(group, 'image-text learned')}  {paper[1]:.4f}     "
            f"{cell(group, 'text-image learned')}  {cell(group, 'image-text encoded')}  "
            f"{cell(group, 'text-image encoded')}  {np.mean([r['image-text learned F1'] for r in group]):.3f}     "
            f"{np.mean([r['text-image learned F1'] for r in group]):.3f}     "
            f"{np.mean([r['constant_bits'] for r in group]):>5.1f}      "
            f"{np.mean([r['seconds'] for r in group]):.1f}"
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/mirflickr25k.npz"))
    parser.add_argument("--bits", default="16,32,64,96,128")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--presets", default="default")
    parser.add_argument("--device", default=None, help="a torch device such as cuda; NumPy by default")
    parser.add_argument("--json", type=Path, default=None, help="write one JSON line per run here")
    options = parser.parse_args()
    if not options.data.exists():
        parser.exit(2, f"{options.data} is not there; pass --data FILE with gist, tags and labels.\n")
    whole = load_arrays(options.data, views={"image": "gist", "text": "tags"})
    rows = []
    for seed in range(options.seeds):
        data = FeaturePipeline({"text": PCA(500)}).fit_transform(whole.split("mirflickr", seed=seed))
        for preset in options.presets.split(","):
            for bits in map(int, options.bits.split(",")):
                rows.append(run(data, bits, seed, preset, options.device))
                print(json.dumps(rows[-1]), flush=True)
                if options.json:
                    options.json.write_text("\n".join(map(json.dumps, rows)) + "\n")
    print(f"\nmean ± standard deviation over {options.seeds} seeds (split, start)")
    print(table(rows))


if __name__ == "__main__":
    main()
