"""Simulates the batches of independent paths of arrivals, one batch of each path at a time.

The rule is the batcher's (`sidecar.core.batcher`): a batch starts when it is full or its first
request has waited for the window, *and* an instance is free; until then it grows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from carpool.arrivals.processes import Times
    from scaler.policies.batch.batch_law import BatchLaw, Service

__all__ = ["Replayed", "replayed"]


class Replayed(NamedTuple):
    """The outcome of a replay.

    Attributes:
        latencies_s: Latency of each request, shape (paths, requests).
        batches: Number of batches of each path, shape (paths,).
    """

    latencies_s: Times
    batches: Times


def replayed(
    times_s: Times, law: BatchLaw, service: Service, free_s: Times, draw: np.random.Generator
) -> Replayed:
    """Simulate the batches of all requests.

    Args:
        times_s: Arrival times, ascending, shape (paths, requests).
        law: Size and window of the batches.
        service: Execution times of batches.
        free_s: When each instance of a path is free for the first time, shape (instances,).
        draw: Decides which of the possible execution times a batch takes.
    """
    paths, requests = times_s.shape
    size, points = law.size, len(service.weights)
    # The last batch of a path is never full, as no request follows.
    times = np.pad(times_s, ((0, 0), (0, size)), constant_values=np.inf).ravel()
    latencies_s = np.empty_like(times)
    seconds = service.seconds[:size].ravel()
    point_of = draw.choice(points, len(times), p=service.weights) if points > 1 else None
    batches, steps = np.zeros(paths), 0
    path, members = np.arange(paths), np.arange(size)
    first = path * (requests + size)
    beyond = first + requests
    free = np.tile(free_s, (paths, 1))
    while len(path):
        joining = first[:, None] + members
        came = times.take(joining)
        instance = (np.arange(len(path)), free.argmin(axis=1))
        due = np.minimum(came[:, 0] + law.window_s, came[:, -1])
        start = np.maximum(due, free[instance])
        count = (came <= start[:, None]).sum(axis=1)
        which = (count - 1) * points
        if point_of is not None:
            which += point_of.take(first)
        free[instance] = end = start + seconds.take(which)
        # Requests that arrived too late for this batch are overwritten with their own batch.
        latencies_s.put(joining, end[:, None] - came)
        first = first + count
        steps += 1
        left = first < beyond
        if not left.all():
            batches[path[~left]] = steps
            path, first, beyond, free = path[left], first[left], beyond[left], free[left]
    return Replayed(latencies_s.reshape(paths, -1)[:, :requests], batches)
