"""The GPU engine equals the plain version: on a GPU where there is one, else in Triton's interpreter."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

torch = pytest.importorskip("torch")

from modalhash import DMH  # noqa: E402
from modalhash.datasets import make_synthetic  # noqa: E402
from modalhash.exceptions import InputError  # noqa: E402
from modalhash.linalg import CentredMatrix, to_device  # noqa: E402
from modalhash.solvers.objective import Part, ReferenceEngine, choose_engine  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::modalhash.exceptions.ConstantBitsWarning")]

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TRITON = importlib.util.find_spec("triton") is not None
needs_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="no GPU")


def make_parts(n, c, *, counts=False, seed=0, device=DEVICE, text_scale=40.0):
    rng = np.random.default_rng(seed)
    image = rng.normal(3, 2, (n, 70)).astype(np.float32)
    if counts:
        image = rng.poisson(3.0, (n, 70)).astype(np.float32)
    text = sparse.random(n, 90, 0.05, "csr", np.float32, rng=rng)
    labels = (rng.random((n, 3)) < 0.3).astype(np.float32)
    parts = []
    for name, X, mean, scale, alpha in (
        ("image", image, image.mean(axis=0), 5.0, 1.0),
        ("text", text, np.asarray(text.mean(axis=0)).ravel(), text_scale, 2.0),
        ("labels", labels, None, 255.0, 10.0),
    ):
        W = rng.normal(0, 0.01, (X.shape[1], c)).astype(np.float32)
        v = rng.normal(0, 0.1, c).astype(np.float32)
        matrix = CentredMatrix(to_device(X, device), mean, scale)
        parts.append(Part(name, matrix, to_device(W, device), to_device(v, device), alpha, gamma=0.05))
    return parts


def difference(one, other):
    """Relative, in the Frobenius norm: TF32 turns over a bit of B here and there, which moves single entries."""
    one, other = (np.asarray(x.cpu() if torch.is_tensor(x) else x, dtype=np.float64) for x in (one, other))
    return np.linalg.norm(one - other) / max(np.linalg.norm(one), 1e-30)


def check_gradients(n, c, kind, storage, tolerance, counts=False):
    from modalhash.solvers.gpu import GraphEngine

    parts = make_parts(n, c, counts=counts)
    expected = ReferenceEngine(parts, n, kind).gradients()
    with GraphEngine(parts, n, kind, storage) as engine:
        got = engine.gradients()
    for one, other in zip(expected, got, strict=True):
        for a, b in zip(one, other, strict=True):
            assert difference(a, b) < tolerance, (difference(a, b), one[2:], other[2:])


def check_steps(tolerance):
    """Three iterations in two calls, from the same start: the same W, v and objective."""
    from modalhash.solvers.gpu import GraphEngine

    one, other = make_parts(200, 13), make_parts(200, 13)
    curve = ReferenceEngine(one, 200, "paper").advance([0.01, 0.009, 0.008], True)
    with GraphEngine(other, 200, "paper") as engine:
        again = [*engine.advance([0.01, 0.009], True), *engine.advance([0.008], True)]
    np.testing.assert_allclose(again, [[float(term) for term in terms] for terms in curve], rtol=10 * tolerance)
    for a, b in zip(one, other, strict=True):
        assert difference(a.W, b.W) < tolerance
        assert difference(a.v, b.v) < tolerance


@pytest.mark.skipif(not TRITON or DEVICE == "cuda", reason="needs Triton, and is for machines without a GPU")
@pytest.mark.slow
def test_the_passes_in_the_interpreter():
    """In a process of its own: Triton reads the variable when the passes are defined."""
    code = (
        "import test_solvers_gpu as t\n"
        "t.check_gradients(150, 13, 'paper', 'float32', 2e-5)\n"
        "t.check_gradients(70, 65, None, 'float32', 2e-5)\n"
        "t.check_steps(1e-5)\n"
        "print('equal')"
    )
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "equal", done.stderr[-2000:]


@needs_gpu
@pytest.mark.parametrize("kind", ["paper", None])
@pytest.mark.parametrize("c", [5, 13, 32, 64, 100, 128])
@pytest.mark.parametrize(
    ("storage", "counts", "tolerance"),
    [("float32", False, 0.02), ("auto", True, 0.01), ("bfloat16", False, 0.05)],
)
def test_gradients_on_a_gpu(kind, c, storage, counts, tolerance):
    check_gradients(3000, c, kind, storage, tolerance, counts)


@needs_gpu
def test_longer_codes_take_the_plain_version():
    assert isinstance(choose_engine(make_parts(5000, 129), 5000, "paper"), ReferenceEngine)
    assert not isinstance(choose_engine(make_parts(5000, 128), 5000, "paper"), ReferenceEngine)


@needs_gpu
def test_steps_on_a_gpu():
    check_steps(2e-3)


@needs_gpu
def test_a_run_repeats_to_the_last_bit():
    from modalhash.solvers.gpu import GraphEngine

    found = []
    for _ in range(2):
        parts = make_parts(20_000, 32)
        with GraphEngine(parts, 20_000, "paper") as engine:
            engine.advance([0.003] * 30, True)
        found.append([part.W.cpu().numpy() for part in parts])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@needs_gpu
@pytest.mark.parametrize("storage", ["float32", "auto"])
def test_a_whole_fit_on_a_gpu(storage):
    """From the same start, 400 iterations: codes agree with the CPU's on at least 99.5 % of the bits."""
    data = make_synthetic(n=20_000, sparse_text=True, random_state=0)
    cpu = DMH(32, random_state=0).fit(data.views, labels=data.labels)
    gpu = DMH(32, random_state=0, device="cuda", storage=storage).fit(data.views, labels=data.labels)
    np.testing.assert_allclose(gpu.objective_, cpu.objective_, rtol=2e-3)
    assert np.unpackbits(cpu.train_codes_ ^ gpu.train_codes_).mean() < 0.005
    for name, X in data.views.items():
        assert np.unpackbits(cpu.encode(name, X) ^ gpu.encode(name, X)).mean() < 0.005


def test_storage_is_checked(small):
    with pytest.raises(InputError, match="storage must be one of"):
        DMH(8, storage="float16").fit(small.views, labels=small.labels)
    with pytest.raises(InputError, match='storage="bfloat16" needs a CUDA device'):
        DMH(8, storage="bfloat16").fit(small.views, labels=small.labels)


def test_on_a_cpu_the_plain_version_is_chosen():
    parts = make_parts(40_000, 16, device="cpu")
    assert isinstance(choose_engine(parts, 40_000, "paper"), ReferenceEngine)
