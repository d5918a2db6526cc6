"""Codes in PostgreSQL, searched by pgvector.

A table holds an id (bigint), the code as ``bit(n_bits)`` (bit j of the code is character j of the bit string) and text
columns. Distances are pgvector's ``<~>``. Without an index every search is exact, by a scan; with HNSW
(``bit_hamming_ops``) it is approximate. Values are always bound parameters and names are always quoted.

Needs the extra ``pg`` and a server with pgvector 0.8 or newer.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..codes import Codes, check_codes, n_bytes
from ..exceptions import InputError, MissingExtraError, ModalHashError
from ..index import Matches
from ..indexing.arguments import at_least, check_ids, check_payload, ids_asked
from .pgformat import bit_strings, copy_rows, from_bit_strings

__all__ = ["PgVectorIndex"]

_OWN_COLUMNS = ("id", "code")


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError as error:
        raise MissingExtraError("psycopg", "pg") from error
    return psycopg


class PgVectorIndex:
    """Codes in a table of a PostgreSQL database, with the methods of :class:`modalhash.HammingIndex`.

    Results come ordered by distance, ties by ascending id. Every change is one transaction. The object may be used by
    several threads; each has its own connection.

    Parameters
    ----------
    dsn : str
        Where the database is, such as ``postgresql://user@host/name``.
    table : str
        Made if it is not there.
    n_bits : int
    schema : str, optional
        The first of the connection's search path by default.
    columns : sequence of str
        Text columns of the table, the payload.
    kind : {"flat", "hnsw"}
        "flat" is exact. "hnsw" makes pgvector's index when :meth:`build` is called and uses it from then on.
    effort : int, optional
        For "hnsw": ``hnsw.ef_search``, 1 to 1000, default 100.
    partition_rows : int, optional
        Make the table partitioned by ranges of so many ids; partitions are added as ids come.

    Examples
    --------
    >>> index = PgVectorIndex(dsn, "items", n_bits=64, columns=["title"])  # doctest: +SKIP
    >>> index.add(codes, ids, payload={"title": titles})                   # doctest: +SKIP
    >>> index.search(queries, k=10, where="title ILIKE %s", parameters=["%cat%"])  # doctest: +SKIP
    """

    def __init__(
        self,
        dsn: str,
        table: str,
        n_bits: int,
        *,
        schema: str | None = None,
        columns: Sequence[str] = (),
        kind: str = "flat",
        effort: int | None = None,
        partition_rows: int | None = None,
    ) -> None:
        n_bytes(n_bits)
        if kind not in ("flat", "hnsw"):
            raise InputError(f"kind must be 'flat' or 'hnsw'; got {kind!r}.")
        if effort is not None and kind == "flat":
            raise InputError("effort is for the kind 'hnsw'; the kind 'flat' looks at everything.")
        if isinstance(columns, str) or any(not isinstance(c, str) or not c or c in _OWN_COLUMNS for c in columns):
            raise InputError(f"columns must be names other than {_OWN_COLUMNS}; got {columns!r}.")
        self.n_bits, self.kind, self.columns = int(n_bits), kind, list(columns)
        self.effort = None if kind == "flat" else min(1000, at_least(1, 100 if effort is None else effort, "effort"))
        self.partition_rows = None if partition_rows is None else at_least(1, partition_rows, "partition_rows")
        self._dsn, self._names = dsn, [name for name in (schema, table) if name is not None]
        self._psycopg = _psycopg()
        self._local, self._lock = threading.local(), threading.Lock()
        self._open: list[Any] = []
        try:
            self._create()
        except BaseException:
            self.close()
            raise

    # Connection and statements -------------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        connection = getattr(self._local, "connection", None)
        if connection is None or connection.closed:
            connection = self._psycopg.connect(self._dsn, autocommit=True)
            self._local.connection = connection
            with self._lock:
                self._open = [c for c in self._open if not c.closed] + [connection]
        with connection.transaction():
            yield connection

    def close(self) -> None:
        """Close the connections of all threads; a later call opens new ones."""
        with self._lock:
            for connection in self._open:
                connection.close()
            self._open = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _sql(self, text: str, **parts: Any) -> Any:
        # A statement with the table, its columns and other parts in place, all quoted.
        sql = self._psycopg.sql
        names = {
            "table": sql.Identifier(*self._names),
            "bit": sql.SQL("bit({})").format(sql.Literal(self.n_bits)),
            "columns": sql.SQL(", ").join(map(sql.Identifier, (*_OWN_COLUMNS, *self.columns))),
            "hnsw": sql.Identifier(f"{self._names[-1]}_code_hnsw"),
        }
        return sql.SQL(text).format(**names, **parts)

    def _create(self) -> None:
        sql = self._psycopg.sql
        texts = [sql.SQL(", {} text NOT NULL DEFAULT ''").format(sql.Identifier(name)) for name in self.columns]
        by_range = sql.SQL("PARTITION BY RANGE (id)" if self.partition_rows else "")
        with self._transaction() as connection:
            try:
                connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            except self._psycopg.Error as error:
                raise ModalHashError(
                    f"the server has no pgvector that this user may use ({error}). Install pgvector 0.8 or newer "
                    "and run CREATE EXTENSION vector in the database."
                ) from error
            connection.execute(
                self._sql(
                    "CREATE TABLE IF NOT EXISTS {table} (id bigint PRIMARY KEY, code {bit} NOT NULL{texts}) {by_range}",
                    texts=sql.Composed(texts),
                    by_range=by_range,
                )
            )
            there = connection.execute(
                "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
                "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
                [sql.Identifier(*self._names).as_string(connection)],
            ).fetchall()
        expected = {"id": "bigint", "code": f"bit({self.n_bits})", **dict.fromkeys(self.columns, "text")}
        for name, kind in expected.items():
            found = dict(there).get(name)
            if found != kind:
                raise InputError(
                    f"table {'.'.join(self._names)} has column {name} of type {found}; {kind} is needed. "
                    "Use the n_bits and columns it was made with, or another table."
                )

    # What is in it -------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        with self._transaction() as connection:
            return int(connection.execute(self._sql("SELECT count(*) FROM {table}")).fetchone()[0])

    @property
    def ids(self) -> NDArray[np.int64]:
        """Ids in ascending order, shape (n,)."""
        with self._transaction() as connection:
            rows = connection.execute(self._sql("SELECT id FROM {table} ORDER BY id")).fetchall()
        return np.array([row[0] for row in rows], dtype=np.int64)

    def _fetch(self, ids: Any) -> list[Any]:
        wanted = ids_asked(ids).tolist()
        with self._transaction() as connection:
            found = connection.execute(
                self._sql("SELECT {columns} FROM {table} WHERE id = ANY(%s)"), [sorted(set(wanted))]
            ).fetchall()
        by_id = {row[0]: row for row in found}
        missing = [i for i in wanted if i not in by_id]
        if missing:
            raise InputError(f"the table does not hold id {missing[0]}. Pass ids that were added.")
        return [by_id[i] for i in wanted]

    def codes(self, ids: Any) -> Codes:
        """Packed codes of some ids, shape (len(ids), n_bytes); an unknown id is an error."""
        return from_bit_strings([row[1] for row in self._fetch(ids)], self.n_bits)

    def payload(self, ids: Any) -> dict[str, list[str]]:
        """Payload of some ids, by column; an unknown id is an error."""
        rows = self._fetch(ids)
        return {name: [row[2 + i] for row in rows] for i, name in enumerate(self.columns)}

    # Changing it ---------------------------------------------------------------------------------------------------

    def add(self, codes: Any, ids: Any = None, *, payload: Mapping[str, Sequence[str]] | None = None) -> Self:
        """Add codes in bulk (COPY).

        Parameters
        ----------
        codes : array of uint8, shape (n, n_bytes)
        ids : array of int, shape (n,), optional
            New to the table. By default they go on from the largest id in the table, beginning at 0.
        payload : dict of str to list of str, optional
            One list per text column.

        Returns
        -------
        PgVectorIndex
            Itself.
        """
        codes, columns = self._checked(codes, payload)
        given = None if ids is None else check_ids(ids, len(codes))
        try:
            with self._transaction() as connection:
                if given is None:
                    connection.execute(self._sql("LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE"))
                    first = connection.execute(self._sql("SELECT coalesce(max(id) + 1, 0) FROM {table}")).fetchone()[0]
                    given = np.arange(first, first + len(codes), dtype=np.int64)
                self._make_partitions(connection, given)
                self._copy(connection, self._psycopg.sql.Identifier(*self._names), codes, given, columns)
        except self._psycopg.errors.UniqueViolation as error:
            raise InputError(f"an id is in the table already ({error.diag.message_detail}). Use upsert.") from error
        return self

    def upsert(self, codes: Any, ids: Any, *, payload: Mapping[str, Sequence[str]] | None = None) -> Self:
        """Add codes, replacing those whose id is there already; parameters as in :meth:`add`."""
        codes, columns = self._checked(codes, payload)
        given, sql = check_ids(ids, len(codes)), self._psycopg.sql
        names = [sql.Identifier(name) for name in ("code", *self.columns)]
        updates = sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(name) for name in names)
        with self._transaction() as connection:
            self._make_partitions(connection, given)
            connection.execute(
                self._sql(
                    "CREATE TEMP TABLE modalhash_incoming ON COMMIT DROP AS SELECT {columns} FROM {table} LIMIT 0"
                )
            )
            self._copy(connection, sql.Identifier("pg_temp", "modalhash_incoming"), codes, given, columns)
            connection.execute(
                self._sql(
                    "INSERT INTO {table} ({columns}) SELECT {columns} FROM pg_temp.modalhash_incoming "
                    "ON CONFLICT (id) DO UPDATE SET {updates}",
                    updates=updates,
                )
            )
        return self

    def remove(self, ids: Any) -> Self:
        """Remove codes by id; an unknown id is an error and nothing is removed."""
        gone = check_ids(ids).tolist()
        with self._transaction() as connection:
            removed = connection.execute(self._sql("DELETE FROM {table} WHERE id = ANY(%s)"), [gone]).rowcount
            if removed != len(gone):
                raise InputError(f"the table holds {removed} of the {len(gone)} ids. Pass ids that were added.")
        return self

    def _checked(self, codes: Any, payload: Mapping[str, Sequence[str]] | None) -> tuple[Codes, dict[str, list[str]]]:
        codes = check_codes(codes, self.n_bits)
        columns = check_payload(payload, len(codes))
        if set(columns) != set(self.columns):
            raise InputError(f"payload must have the columns {self.columns}; got {sorted(columns)}.")
        return codes, columns

    def _make_partitions(self, connection: Any, ids: NDArray[np.int64]) -> None:
        if self.partition_rows is None:
            return
        sql = self._psycopg.sql
        for part in np.unique(ids // self.partition_rows).tolist():
            connection.execute(
                self._sql(
                    "CREATE TABLE IF NOT EXISTS {part} PARTITION OF {table} FOR VALUES FROM ({low}) TO ({high})",
                    part=sql.Identifier(*self._names[:-1], f"{self._names[-1]}_{part}"),
                    low=sql.Literal(part * self.partition_rows),
                    high=sql.Literal((part + 1) * self.partition_rows),
                )
            )

    def _copy(
        self, connection: Any, table: Any, codes: Codes, ids: NDArray[np.int64], payload: Mapping[str, list[str]]
    ) -> None:
        statement = self._sql("COPY {target} ({columns}) FROM STDIN (FORMAT BINARY)", target=table)
        with connection.cursor().copy(statement) as copy:
            for piece in copy_rows(ids, codes, [payload[name] for name in self.columns], self.n_bits):
                copy.write(piece)

    def build(self) -> Self:
        """Make the HNSW index, where the kind is "hnsw" and it is not there yet; searches wait for it."""
        if self.kind == "hnsw":
            with self._transaction() as connection:
                connection.execute(
                    self._sql("CREATE INDEX IF NOT EXISTS {hnsw} ON {table} USING hnsw (code bit_hamming_ops)")
                )
        return self

    # Searching it --------------------------------------------------------------------------------------------------

    def search(
        self, codes: Any, k: int = 10, *, within: Any = None, where: str | None = None, parameters: Sequence[Any] = ()
    ) -> Matches:
        """The `k` nearest codes of each query.

        Parameters
        ----------
        codes : array of uint8, shape (n_queries, n_bytes)
        k : int
            At least 1. Where the table (or the filter) holds fewer, all of them are returned.
        within : array of int, optional
            Look only among these ids; unknown ones are passed over.
        where : str, optional
            A condition in SQL on the table's columns, with ``%s`` for each of `parameters`. It is part of the program:
            never build it from what users type, pass that in `parameters`.
        parameters : sequence
            Values bound to the placeholders of `where`.

        Returns
        -------
        Matches
            Arrays of shape (n_queries, min(k, n)).
        """
        codes, k = check_codes(codes, self.n_bits, "query codes"), at_least(1, k, "k")
        found = self._nearest(codes, k, within, where, parameters, exact=self.kind == "flat")
        widest = max(map(len, found), default=0)
        short = [i for i, row in enumerate(found) if len(row) < k]
        if self.kind == "hnsw" and short:  # the index gave up early, or there are no more: find out
            for i, row in zip(
                short, self._nearest(codes[short], k, within, where, parameters, exact=True), strict=True
            ):
                found[i] = row
            widest = max(map(len, found))
        table = np.array([pair for row in found for pair in row], dtype=np.int64).reshape(len(codes), widest, 2)
        return Matches(table[..., 0], table[..., 1].astype(np.int32))

    def _nearest(
        self, codes: Codes, k: int, within: Any, where: str | None, parameters: Sequence[Any], exact: bool
    ) -> list[list[tuple[int, int]]]:
        condition, values = self._condition(within, where, parameters)
        statement = self._sql(
            "WITH q AS MATERIALIZED (SELECT n, c::{bit} AS code FROM unnest(%s::text[]) WITH ORDINALITY AS u(c, n)) "
            "SELECT q.n, m.id, m.distance FROM q CROSS JOIN LATERAL (SELECT id, {table}.code <~> q.code AS distance "
            "FROM {table} WHERE {condition} ORDER BY {table}.code <~> q.code, id LIMIT %s) AS m "
            "ORDER BY q.n, m.distance, m.id",
            condition=condition,
        )
        with self._transaction() as connection:
            if exact:
                connection.execute("SET LOCAL enable_indexscan = off")
            else:
                connection.execute("SELECT set_config('hnsw.ef_search', %s, true)", [str(self.effort)])
                connection.execute("SET LOCAL hnsw.iterative_scan = strict_order")
            rows = connection.execute(statement, [bit_strings(codes, self.n_bits), *values, k]).fetchall()
        found: list[list[tuple[int, int]]] = [[] for _ in codes]
        for n, item, distance in rows:
            found[n - 1].append((item, int(distance)))
        return found

    def lookup(
        self, codes: Any, radius: int, *, within: Any = None, where: str | None = None, parameters: Sequence[Any] = ()
    ) -> Matches:
        """All codes within `radius` of each query, exactly, by a scan.

        Parameters
        ----------
        codes : array of uint8, shape (n_queries, n_bytes)
        radius : int
        within, where, parameters
            As in :meth:`search`.

        Returns
        -------
        Matches
            Flat, with `offsets`.
        """
        codes, radius = check_codes(codes, self.n_bits, "query codes"), at_least(0, radius, "radius")
        condition, values = self._condition(within, where, parameters)
        statement = self._sql(
            "WITH q AS MATERIALIZED (SELECT n, c::{bit} AS code FROM unnest(%s::text[]) WITH ORDINALITY AS u(c, n)) "
            "SELECT q.n, id, {table}.code <~> q.code AS distance FROM q CROSS JOIN {table} "
            "WHERE {condition} AND {table}.code <~> q.code <= %s ORDER BY q.n, distance, id",
            condition=condition,
        )
        with self._transaction() as connection:
            rows = connection.execute(
                statement, [bit_strings(codes, self.n_bits), *values, min(radius, self.n_bits)]
            ).fetchall()
        table = np.array(rows, dtype=np.int64).reshape(-1, 3)
        offsets = np.searchsorted(table[:, 0], np.arange(1, len(codes) + 2))
        return Matches(table[:, 1], table[:, 2].astype(np.int32), offsets=offsets)

    def recall(self, codes: Any, k: int = 10) -> float:
        """Share of the true `k` nearest that :meth:`search` finds for some queries, ties not held against it."""
        codes, k = check_codes(codes, self.n_bits, "query codes"), at_least(1, k, "k")
        exact = self._nearest(codes, k, None, None, (), exact=True)
        if not exact or not exact[0]:
            raise InputError("recall needs at least one query and one code in the table.")
        farthest = np.array([row[-1][1] for row in exact])
        return float((self.search(codes, k).distances <= farthest[:, None]).mean())

    def _condition(self, within: Any, where: str | None, parameters: Sequence[Any]) -> tuple[Any, list[Any]]:
        sql = self._psycopg.sql
        if where is None and parameters:
            raise InputError("parameters are the values of `where`; pass where too.")
        parts = [] if where is None else [sql.SQL("({})").format(sql.SQL(where))]
        values = list(parameters)
        if within is not None:
            parts.append(sql.SQL("id = ANY(%s)"))
            values.append(ids_asked(within).tolist())
        return sql.SQL(" AND ").join(parts) if parts else sql.SQL("true"), values
