"""Several indexes as one: the same answers, each part small enough to build, save and replace by itself."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .bundle import atomic_write
from .codes import Codes, check_codes
from .exceptions import InputError, ModelFormatError
from .index import HammingIndex
from .indexing.arguments import at_least, check_ids, ids_asked
from .indexing.matches import Matches, merge_nearest, merge_within

__all__ = ["ShardedIndex"]

MANIFEST = "shards.json"
FORMAT_VERSION = 1
_TRIES = 3


class ShardedIndex:
    """Indexes over disjoint sets of ids behind one object; every answer equals that of one index over all.

    New codes go to the shard with the fewest. Searches may run while one thread writes: an addition goes to one shard
    and is seen whole; a removal or replacement that touches several shards may be seen in part.

    Parameters
    ----------
    shards : sequence of HammingIndex
        Of one length of code and with no id in common.

    Examples
    --------
    >>> codes = np.arange(6, dtype=np.uint8)[:, None]
    >>> parts = [HammingIndex(8).add(codes[:3]), HammingIndex(8).add(codes[3:], ids=[3, 4, 5])]
    >>> ShardedIndex(parts).search(codes[5:], k=3).ids
    array([[5, 1, 4]])
    """

    def __init__(self, shards: Sequence[HammingIndex]) -> None:
        if not shards:
            raise InputError("a sharded index needs at least one shard.")
        widths = {shard.n_bits for shard in shards}
        if len(widths) > 1:
            raise InputError(f"shards must have one n_bits; got {sorted(widths)}.")
        check_ids(np.concatenate([shard.ids for shard in shards]))
        self.shards, self.n_bits = list(shards), shards[0].n_bits
        self._writing = threading.Lock()

    def __len__(self) -> int:
        return sum(map(len, self.shards))

    def __repr__(self) -> str:
        return f"ShardedIndex(n_bits={self.n_bits}): {len(self)} codes in {len(self.shards)} shards"

    @property
    def ids(self) -> NDArray[np.int64]:
        """Ids in ascending order, shape (n,)."""
        return np.sort(np.concatenate([shard.ids for shard in self.shards]))

    def _owners(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        # The shard that holds each id, -1 where none does.
        owner = np.full(len(ids), -1)
        for i, shard in enumerate(self.shards):
            owner[shard.has(ids)] = i
        return owner

    def codes(self, ids: Any) -> Codes:
        """Packed codes of some ids, shape (len(ids), n_bytes); an unknown id is an error."""
        ids = ids_asked(ids)
        owner = self._owners_known(ids)
        out = np.empty((len(ids), -(-self.n_bits // 8)), np.uint8)
        for i in np.unique(owner):
            out[owner == i] = self.shards[i].codes(ids[owner == i])
        return out

    def payload(self, ids: Any) -> dict[str, list[str]]:
        """Payload of some ids, by column; an unknown id is an error."""
        ids = ids_asked(ids)
        owner = self._owners_known(ids)
        out: dict[str, list[str]] = {}
        for i in np.unique(owner):
            places = np.flatnonzero(owner == i)
            for name, values in self.shards[i].payload(ids[places]).items():
                column = out.setdefault(name, [""] * len(ids))
                for place, value in zip(places, values, strict=True):
                    column[place] = value
        return out

    def _owners_known(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        owner = self._owners(ids)
        if (owner < 0).any():
            raise InputError(f"the index does not hold id {int(ids[owner < 0][0])}. Pass ids that were added.")
        return owner

    def _emptiest(self) -> HammingIndex:
        return min(self.shards, key=len)

    def add(self, codes: Any, ids: Any = None, *, payload: Mapping[str, Sequence[str]] | None = None) -> Self:
        """Add codes to the shard with the fewest; parameters as in :meth:`modalhash.HammingIndex.add`."""
        codes = check_codes(codes, self.n_bits)
        with self._writing:
            first = max(shard.next_id for shard in self.shards)
            new = np.arange(first, first + len(codes)) if ids is None else check_ids(ids, len(codes))
            owner = self._owners(new)
            if (owner >= 0).any():
                raise InputError(f"id {int(new[owner >= 0][0])} is in the index already. Use upsert to replace it.")
            self._emptiest().add(codes, new, payload=payload)
        return self

    def upsert(self, codes: Any, ids: Any, *, payload: Mapping[str, Sequence[str]] | None = None) -> Self:
        """Add codes, replacing each in its shard whose id is there already."""
        codes, new = check_codes(codes, self.n_bits), check_ids(ids, len(codes))
        columns = {name: np.array(list(values), dtype=object) for name, values in (payload or {}).items()}
        with self._writing:
            owner = self._owners(new)
            emptiest = self._emptiest()
            for i, shard in enumerate(self.shards):
                own = owner == i if shard is not emptiest else (owner == i) | (owner < 0)
                if own.any():
                    shard.upsert(codes[own], new[own], payload={n: v[own].tolist() for n, v in columns.items()})
        return self

    def remove(self, ids: Any) -> Self:
        """Remove codes by id; an unknown id is an error and nothing is removed."""
        gone = check_ids(ids)
        with self._writing:
            owner = self._owners_known(gone)
            for i in np.unique(owner):
                self.shards[i].remove(gone[owner == i])
        return self

    def search(self, codes: Any, k: int = 10, *, within: Any = None) -> Matches:
        """The `k` nearest codes of each query; parameters as in :meth:`modalhash.HammingIndex.search`."""
        k = at_least(1, k, "k")
        return merge_nearest([shard.search(codes, k, within=within) for shard in self.shards], k)

    def lookup(self, codes: Any, radius: int, *, within: Any = None) -> Matches:
        """All codes within `radius` of each query; parameters as in :meth:`modalhash.HammingIndex.lookup`."""
        return merge_within([shard.lookup(codes, radius, within=within) for shard in self.shards])

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write all shards and then, in one step, the list that makes them the index; the old one stays till then."""
        path = Path(path)
        if path.exists() and not path.is_dir():
            raise ModelFormatError(f"{path} is a file; an index is saved as a folder. Choose another name.")
        path.mkdir(parents=True, exist_ok=True)
        names = [f"shard-{i:05d}-{secrets.token_hex(4)}" for i in range(len(self.shards))]
        try:
            for shard, name in zip(self.shards, names, strict=True):
                shard.save(path / name)
            manifest = {"format_version": FORMAT_VERSION, "n_bits": self.n_bits, "shards": names}
            atomic_write(path / MANIFEST, json.dumps(manifest, indent=2).encode())
        except BaseException:
            for name in names:
                shutil.rmtree(path / name, ignore_errors=True)
            raise
        for old in path.glob("shard-*"):
            if old.name not in names:
                shutil.rmtree(old, ignore_errors=True)
        return path

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, verify: bool = True, threads: int | None = None) -> Self:
        """Map what :meth:`save` wrote; parameters as in :meth:`modalhash.HammingIndex.load`."""
        path = Path(path)
        for attempt in range(_TRIES):  # a save may replace the shards between reading the list and the shards
            names = _read_manifest(path / MANIFEST)
            try:
                return cls([HammingIndex.load(path / name, verify=verify, threads=threads) for name in names])
            except ModelFormatError:
                if attempt == _TRIES - 1 or names == _read_manifest(path / MANIFEST):
                    raise
        raise ModelFormatError(f"{path} was replaced again and again while it was read. Try again later.")


def _read_manifest(file: Path) -> list[str]:
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
        if manifest["format_version"] != FORMAT_VERSION:
            raise ModelFormatError(f"format version {manifest['format_version']!r}; this reads {FORMAT_VERSION}")
        names = [str(name) for name in manifest["shards"]]
        if not names or any(Path(name).name != name or name in ("", ".", "..") for name in names):
            raise ModelFormatError("it names no shards, or some outside its folder")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelFormatError(
            f"{file} is not the list of a sharded index: {error}. Pass a folder made by save()."
        ) from error
    return names
