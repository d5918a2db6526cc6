"""The parts of :class:`modalhash.HammingIndex`, each replaceable: what is stored, and the ways to search it.

=============  =========================================================================================
arguments      checks of what callers pass
matches        what an index does, and what a search returns
records        the rows (codes, ids, text columns) as immutable snapshots that grow without moving
scan           exact top-k and range search: a vectorised popcount over everything
tables         exact range search for small radii: multi-index hashing
buckets        its kernels
approximate    FAISS's inverted file and graph
asymmetric     ranking bits by real-valued query scores
state          one moment of an index, and how it is searched
parallel       work split over threads
storage        the file: memory-mapped, checksummed, replaced in one step
saved          from the state to the file and back
=============  =========================================================================================
"""

from __future__ import annotations
