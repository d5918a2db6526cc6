"""Make the small golden files of SePH and CMSSH from outputs of their authors' programs.

Run from the repository's root: ``python tests/golden/make_golden_kernels.py``. It reads ``../shared/reference``, which
the tests need for the inputs only; one SePH start is kept, with its labels, so that one golden runs anywhere.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
REFERENCE = HERE.parents[2] / "shared" / "reference"
FILES = {
    "cmssh_synth": {"16": "cmssh_synth_16", "32": "cmssh_synth_32"},
    "cmssh_wiki": {"16": "cmssh_wiki_16", "32": "cmssh_wiki_32"},
    "seph_synth": {"16b": "seph-km_v2015b_synth_16", "32b": "seph-km_v2015b_synth_32"},
    "seph_wiki": {"16b": "seph-km_v2015b_wiki_16", "16a": "seph-km_v2015a_wiki_16"},
}
CODES = ("Bi", "Bt", "Bd", "Bqi", "Bqt")
NUMBERS = ("i2t", "t2i", "i2t_f", "t2i_f", "obj", "sig1", "sig2")


def main() -> None:
    for name, runs in FILES.items():
        out: dict[str, np.ndarray] = {}
        for run, stem in runs.items():
            with np.load(REFERENCE / f"{stem}.npz", allow_pickle=False) as source:
                for key in source.files:
                    if key in CODES:
                        out[f"{run}_{key}"] = np.packbits(source[key] != 0, axis=1, bitorder="little")
                    elif key in NUMBERS:
                        out[f"{run}_{key}"] = np.ravel(source[key])
                    elif key == "Y":
                        out[f"{run}_H"] = np.packbits(source[key] > 0, axis=1, bitorder="little")
                    elif key == "C0" and stem == "seph-km_v2015b_synth_16":
                        out[f"{run}_C0"] = source[key]
        if name == "seph_synth":
            with np.load(REFERENCE / "data_synth.npz", allow_pickle=False) as source:
                out["L_tr"] = source["L_tr"].astype(np.uint8)
        out["provenance"] = np.array(
            [
                "Outputs of the authors' own programs, run under GNU Octave on data_synth.npz or data_wiki.npz.",
                "Sources: " + ", ".join(f"{stem}.npz" for stem in runs.values()) + ".",
                "Keys are RUN_NAME, the run being bits (and version). Bi, Bt: codes of the training rows by each "
                "view's function; Bd: fused; H: learned; Bqi, Bqt: queries; all packed, little-endian. C0: the start. "
                "i2t, t2i: MAP over the whole database, ties by row; _f: encoded database. obj: the objective reached. "
                "sig1, sig2: kernel widths.",
                "Made by tests/golden/make_golden_kernels.py.",
            ]
        )
        np.savez_compressed(HERE / f"methods_{name}.npz", **out)


if __name__ == "__main__":
    main()
