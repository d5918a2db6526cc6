"""LSH: signs of random projections, the floor under every learned code.

Paper
-----
M. S. Charikar, "Similarity estimation techniques from rounding algorithms", STOC 2002.

Objective
---------
None: nothing is learned. Two rows of one view agree in a bit with probability 1 - angle / pi, the angle seen from the
training mean.

Symbols
-------
X    view, centred on the training rows, (n, d)
W    ``weights_``, (d, c), standard normal

Steps
-----
code  sgn(X W)  :meth:`modalhash.CrossModalHasher.encode`

Departures from the paper
-------------------------
- The view is centred; features that are never negative would otherwise all lie in one corner.
- Each view has its own W, so codes of different views have nothing to do with each other: across views the MAP is
  that of a random order. That is the floor.

Checked against
---------------
The probability above, on angles known by construction (tests/test_methods_lsh.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base import CrossModalHasher, TrainingData
from ..parameters import check_random_state

__all__ = ["LSH"]


class LSH(CrossModalHasher):
    """Random projections, each view its own: for search within a view, and the floor of a table across views.

    Parameters
    ----------
    n_bits : int
        Length of a code.
    random_state : int, numpy.random.Generator or None

    Examples
    --------
    >>> import modalhash as mh
    >>> data = mh.datasets.make_synthetic(n=300, random_state=0)
    >>> mh.LSH(n_bits=16, random_state=0).fit(data.views).encode("text", data.views["text"]).shape
    (300, 2)
    """

    def __init__(self, n_bits: int = 64, *, random_state: Any = None) -> None:
        self.n_bits = n_bits
        self.random_state = random_state

    def _fit(self, data: TrainingData) -> None:
        rng = check_random_state(self.random_state)
        X, transforms = data.centred()
        for name in X:
            W = rng.standard_normal((X[name].shape[1], self.n_bits))
            self._set_linear(name, W, np.zeros(self.n_bits), transforms[name])
