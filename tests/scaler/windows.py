"""Batches of a size-or-window buffer with unlimited instances, to check arrivals."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from carpool.arrivals.processes import Times

__all__ = ["mean_batch_and_wait"]


def mean_batch_and_wait(times: Times, batch: int, wait_s: float) -> tuple[float, float]:
    """Return the mean batch size and the mean wait of a request.

    A batch leaves with ``batch`` requests, or ``wait_s`` after its first one.
    """
    arrived = times.tolist()
    first, batches, waited = 0, 0, 0.0
    while first < len(arrived):
        last = first
        while (
            last + 1 < len(arrived)
            and last + 1 - first < batch
            and arrived[last + 1] <= arrived[first] + wait_s
        ):
            last += 1
        full = last + 1 - first == batch
        leaves = arrived[last] if full else arrived[first] + wait_s
        waited += sum(leaves - at for at in arrived[first : last + 1])
        batches += 1
        first = last + 1
    return len(arrived) / batches, waited / len(arrived)
