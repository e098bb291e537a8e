"""Mean batch sizes from a table, as price lists need very many of them."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from scaler.policies.harmonybatch.poisson_windows import poisson

if TYPE_CHECKING:
    from collections.abc import Iterator

    from carpool.arrivals.processes import Times

__all__ = ["MeanSizes", "mean_sizes"]

_ROOTS = 4096  # entries per batch size, evenly spaced in the square root of the expected members
_FEW = 700.0  # expected members up to which ``exp(-members)`` is not 0 as a float


class MeanSizes:
    """Table of ``1 + E[min(Poisson(members), largest - 1)]``, to three digits.

    Args:
        largest: Largest batch size to look up.
    """

    def __init__(self, largest: int) -> None:
        roots = np.linspace(0, math.sqrt(largest + 8 * math.sqrt(largest) + 16), _ROOTS)
        fewer, sizes = np.zeros(_ROOTS), np.ones((largest, _ROOTS))
        for number, share in enumerate(_shares(roots**2, largest - 1), 1):
            fewer += share
            np.add(sizes[number - 1], 1 - fewer, out=sizes[number])
        self._sizes = sizes.ravel()
        self._places_per_root = (_ROOTS - 1) / float(roots[-1])

    def rows(self, batch: Times) -> npt.NDArray[np.intp]:
        """Return the table offsets for batches of up to ``batch`` requests, for `at`."""
        return (batch.astype(np.intp) - 1) * _ROOTS

    def at(self, rows: npt.NDArray[np.intp], members: Times) -> Times:
        """Return the mean size of batches for the expected number of later members.

        Args:
            rows: Table offsets of the batches, broadcastable to the shape of ``members``.
            members: Expected arrivals while a batch is open, if sizes were unlimited.
        """
        place = np.minimum(np.sqrt(members) * self._places_per_root + 0.5, _ROOTS - 1)
        return self._sizes.take(rows + place.astype(np.intp))


mean_sizes = lru_cache(maxsize=64)(MeanSizes)  # a megabyte each, for as many largest batches


def _shares(members: Times, count: int) -> Iterator[Times]:
    """Yield the Poisson probabilities of 0, 1, ... for the expected numbers."""
    if float(members[-1]) > _FEW:
        yield from poisson(members, count).T
        return
    share = np.exp(-members)
    for number in range(1, count + 1):
        yield share
        share = share * members / number
