"""Beyond one machine: adapters to engines that exist, each imported only when used.

===========  ========================================================================================
distributed  training in several processes (extra ``torch``): :func:`~modalhash.engines.distributed.fit`
dask         encoding on Dask (extra ``dask``): :func:`~modalhash.engines.dask.encode`
codefiles    codes as Parquet files with a manifest: :func:`~modalhash.engines.codefiles.read_codes`
pgvector     codes in PostgreSQL with pgvector (extra ``pg``): :class:`~modalhash.engines.pgvector.PgVectorIndex`
===========  ========================================================================================
"""

from __future__ import annotations
