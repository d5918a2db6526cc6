"""Imports point down the layers only, and importing the package is cheap."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import modalhash

ROOT = Path(modalhash.__file__).parent
LAYERS = [
    {"exceptions", "lazy", "codes", "linalg", "similarity", "kernels", "spectral"},
    {"views", "labels", "datasets", "features", "bundle", "parameters"},
    {"base", "solvers"},
    {"methods"},
    {
        "_popcount",
        "_popcount_torch",
        "metric_names",
        "metrics",
        "diagnostics",
        "results",
        "evaluation",
        "indexing",
        "shards",
        "asymmetric",
        "index",
    },
    {"checks", "report", "engines"},
    {"experiments", "cli", "demo", "serve", "__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def _imports(file: Path) -> set[str]:
    """Top-level modules of this package that a file imports, wherever in it."""
    package = file.relative_to(ROOT).parts[:-1]
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            if node.level:
                base = list(package[: len(package) - node.level + 1])
                path = base + (node.module.split(".") if node.module else [])
            elif node.module and node.module.split(".")[0] == "modalhash":
                path = node.module.split(".")[1:]
            else:
                continue
            found |= {path[0]} if path else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("modalhash.")}
    return found - {"__version__"}


FILES = sorted(p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")


@pytest.mark.parametrize("file", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(file):
    own = file.relative_to(ROOT).parts[0].removesuffix(".py")
    assert own in LEVEL, f"{own} has no layer; give it one in this test and in docs/design.md"
    for name in _imports(file):
        assert name in LEVEL, f"{file.name} imports {name}, which has no layer"
        assert LEVEL[name] <= LEVEL[own], f"{own} (layer {LEVEL[own]}) imports {name} (layer {LEVEL[name]})"


def test_no_rooms_without_a_name():
    assert not [p for p in ROOT.rglob("*.py") if p.stem in {"utils", "common", "helpers", "misc"}]


def test_import_is_light():
    heavy = ("torch", "faiss", "numba", "matplotlib", "sklearn", "pandas", "scipy.sparse")
    code = f"import sys, modalhash; print([m for m in {heavy!r} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_using_dmh_loads_no_heavy_engine():
    code = (
        "import sys, modalhash as mh; mh.DMH(8); mh.datasets.make_synthetic(n=20);"
        "print([m for m in ('torch', 'faiss', 'numba', 'matplotlib', 'sklearn') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_import_takes_under_half_a_second():
    code = "import time; t = time.perf_counter(); import modalhash; print(time.perf_counter() - t)"
    runs = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    ]
    assert min(runs) < 0.5


def test_every_public_name_is_there():
    for name in modalhash.__all__:
        assert getattr(modalhash, name) is not None
        assert name in dir(modalhash)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        modalhash.nothing
