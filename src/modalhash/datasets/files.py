"""Read plain matrices from files: ``.npy``, ``.npz``, ``.mat`` (v5 and v7.3), HDF5 and Parquet. Never a pickle.

What a file declares about itself is compared with what it holds, and with the memory of the machine, before
anything of that size is allocated.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from ..exceptions import InputError
from .declared import PICKLE

__all__ = ["list_arrays", "read_array", "read_matrix"]


class _Reader(Protocol):
    """What knows one kind of file: a module, or an object."""

    def list_arrays(self, path: Path) -> dict[str, tuple[int, ...]]: ...
    def read(self, path: Path, key: str) -> Any: ...


def list_arrays(path: str | Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the arrays in a file, read from its headers alone.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    dict of str to tuple of int
        In the file's order. The parts of a sparse matrix count as one array; arrays that would be refused
        (objects, cells) are left out. A ``.npy`` file has one array, named ``""``; so has a Parquet file
        whose numeric columns make a matrix, beside its columns of lists.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/a.npz", image=np.ones((4, 2)), labels=np.zeros(4, int))
    ...     list_arrays(f"{folder}/a.npz")
    {'image': (4, 2), 'labels': (4,)}
    """
    path = _existing(path)
    return _reader(path).list_arrays(path)


def read_array(path: str | Path, key: str | None = None) -> Any:
    """Read one plain array of numbers or strings, or one sparse matrix.

    Parameters
    ----------
    path : str or Path
    key : str, optional
        Which array of the file; may be left out when there is only one.

    Returns
    -------
    ndarray or CSR matrix
        A ``.npy`` file is memory-mapped, read-only.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/a.npz", names=np.array(["sky", "sea"]))
    ...     read_array(f"{folder}/a.npz").tolist()
    ['sky', 'sea']
    """
    path = _existing(path)
    reader = _reader(path)
    if key is None:
        names = list(reader.list_arrays(path))
        if len(names) != 1:
            what = f"{len(names)} arrays ({', '.join(map(repr, names[:12]))})" if names else "no plain array"
            raise InputError(f"{path} has {what}; name the one to read, as in {path.name}:KEY.")
        key = names[0]
    return reader.read(path, key)


def read_matrix(path: str | Path, key: str | None = None) -> Any:
    """Read one matrix of numbers.

    Parameters
    ----------
    path : str or Path
        ``.npy`` (memory-mapped), ``.npz`` (arrays; CSR parts ``NAME_data``, ``NAME_indices``, ``NAME_indptr``,
        ``NAME_shape``; or what :func:`scipy.sparse.save_npz` writes), ``.mat`` of MATLAB v5 or v7.3 (told apart
        by content), ``.h5``, or ``.parquet`` (numeric columns, or the column of lists named by `key`).
    key : str, optional
        Which array of the file; may be left out when there is only one matrix.

    Returns
    -------
    ndarray or CSR matrix, shape (n, d)

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/a.npy", np.ones((4, 2)))
    ...     read_matrix(f"{folder}/a.npy").shape
    (4, 2)
    """
    path = _existing(path)
    if key is None:
        matrices = [name for name, shape in list_arrays(path).items() if len(shape) == 2]
        if len(matrices) == 1:
            key = matrices[0]
    X = read_array(path, key)
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        where = f"{path}:{key}" if key else str(path)
        raise InputError(f"{where} must be a matrix (n, d) of numbers; it is {X.dtype} of shape {X.shape}.")
    return X


def _existing(path: str | Path) -> Path:
    path = Path(path)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise InputError(f"{path} {what}; a file of arrays (.npz, .npy, .mat, .h5, .parquet) is needed.")
    return path


def _reader(path: Path) -> _Reader:
    suffix = path.suffix.lower()
    if suffix in (".npy", ".npz"):
        from . import npyfiles, npzfiles

        return npyfiles if suffix == ".npy" else npzfiles
    if suffix in (".mat", ".h5", ".hdf5"):
        from . import matfiles

        return matfiles
    if suffix in (".parquet", ".pq"):
        from . import parquetfiles

        return parquetfiles
    if suffix in (".pkl", ".pickle", ".joblib", ".pt", ".pth"):
        raise InputError(f"{path} is a pickle. {PICKLE} Save the arrays as .npz (numpy.savez) instead.")
    raise InputError(f"{path} has the ending {suffix!r}; modalhash reads .npz, .npy, .mat, .h5 and .parquet.")
