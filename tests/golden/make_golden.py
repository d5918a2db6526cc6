"""Make the small golden files of CVH, SCM, MDBE and CMFH from outputs of their authors' programs.

Run from the repository's root: ``python tests/golden/make_golden.py``. It reads ``../shared/reference``, which the
tests themselves need only for the inputs; what is kept here are packed codes, MAP, curves and the small starts.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
REFERENCE = HERE.parents[2] / "shared" / "reference"
FILES = {
    "cvh_synth": {16: "cvh_synth_16", 32: "cvh_synth_32"},
    "cvh_wiki": {8: "cvh_wiki_8"},
    "scm-seq_synth": {16: "scm-seq_synth_16", 32: "scm-seq_synth_32"},
    "scm-seq_wiki": {16: "scm-seq_wiki_16", 32: "scm-seq_wiki_32"},
    "scm-orth_synth": {8: "scm-orth_synth_8", 10: "scm-orth_synth_10"},
    "scm-orth_wiki": {8: "scm-orth_wiki_8"},
    "mdbe_synth": {16: "mdbe_synth_16", 32: "mdbe_synth_32"},
    "mdbe_wiki": {16: "mdbe_wiki_16", 32: "mdbe_wiki_32"},
    "cmfh-2013_synth": {16: "cmfh_synth_v1_16", 32: "cmfh_synth_v1_32"},
    "cmfh-2013_wiki": {16: "cmfh_wiki_v1_16", 32: "cmfh_wiki_v1_32"},
    "cmfh-2015_synth": {16: "cmfh_synth_v2_16", 32: "cmfh_synth_v2_32"},
    "cmfh-2015_wiki": {16: "cmfh_wiki_v2_16", 32: "cmfh_wiki_v2_32"},
}
CODES = ("Bi", "Bt", "Bd", "Bqi", "Bqt")
NUMBERS = ("i2t", "t2i", "i2t_f", "t2i_f", "nit", "obj")
STARTS = ("P10", "P20")


def main() -> None:
    for name, by_bits in FILES.items():
        out: dict[str, np.ndarray] = {}
        for bits, stem in by_bits.items():
            with np.load(REFERENCE / f"{stem}.npz", allow_pickle=False) as source:
                for key in source.files:
                    if key in CODES:
                        out[f"{bits}_{key}"] = np.packbits(source[key] != 0, axis=1, bitorder="little")
                    elif key in NUMBERS:
                        out[f"{bits}_{key}"] = np.ravel(source[key])
                    elif key in STARTS and name.startswith("mdbe"):  # CMFH's start is as large as its input
                        out[f"{bits}_{key}"] = source[key]
        out["provenance"] = np.array(
            [
                "Outputs of the authors' own program, run under GNU Octave on data_synth.npz or data_wiki.npz.",
                "Sources: " + ", ".join(f"{stem}.npz" for stem in by_bits.values()) + ".",
                "Keys are BITS_NAME. Bi, Bt: codes of the training rows by each view's function; Bd: learned, label or "
                "unified codes; Bqi, Bqt: query codes; all packed, little-endian. i2t, t2i: MAP over the whole "
                "database, ties by row; _f: encoded database. P10, P20: the random start. obj: the objective's curve.",
                "Made by tests/golden/make_golden.py.",
            ]
        )
        np.savez_compressed(HERE / f"methods_{name}.npz", **out)


if __name__ == "__main__":
    main()
