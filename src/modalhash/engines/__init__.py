"""Beyond one machine: adapters to engines that exist, each imported only when used.

=========  ==========================================================================================
pgvector   codes in PostgreSQL with pgvector (extra ``pg``): :class:`~modalhash.engines.pgvector.PgVectorIndex`
=========  ==========================================================================================
"""

from __future__ import annotations
