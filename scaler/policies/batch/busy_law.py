"""Latencies of batches that share a number of instances: a sample, weighted by an exact law.

With several instances, the state that a batch finds includes when each of them will be free, which
is too much for a Markov chain. So a fixed sample of requests is simulated (`replay`).

A sample that is small enough for a planner is off by several percent at high loads, where late
requests come in clusters. But they are late because of the backlog, and a request would find nearly
the same backlog if one instance of the same capacity served all requests singly. The law of the
wait there is known (`single_law`). So the sample is weighted: the requests with about the same such
wait and the same phase of the arrivals weigh as much as the law says they should
(poststratification: Asmussen and Glynn, Stochastic Simulation, 2007, V.7). At nine tenths of the
capacity, this makes the variance of the 99th percentile about a hundred times smaller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scaler.policies.batch.parallel_arrivals import parallel_arrivals
from scaler.policies.batch.replay import replayed
from scaler.policies.batch.single_law import SingleLaw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.arrivals.map_counts import Markovian
    from carpool.arrivals.processes import Times
    from scaler.policies.batch.batch_law import BatchLaw, Service
    from scaler.policies.batch.parallel_arrivals import Paths

__all__ = ["BusyLaw"]

_SEED = 20
_REQUESTS = 1 << 16  # requests of a sample, divided by the spare part of the capacity, at least
_LEAST = 1 << 18  # requests of any sample at least
_FULL_BATCHES = 1 << 15  # full batches of any sample at least, unless they are more requests than:
_MOST_FOR_FULL = 1 << 20
_BATCHES, _TURNS = 256, 4  # full batches of a path, and of each instance on it, at least
_LEAST_REQUESTS = 1024  # requests of a path at least
_LEAST_PATHS = 32
_WARM = 4  # the first quarter of each path is left out
_LEAST_SHARE = 1e-3  # share of requests in a stratum, about
_ROUNDING = 1e-9  # relative


class BusyLaw:
    """Latencies on a limited number of instances.

    Args:
        process: Arrival process of requests.
        law: Size and window of the batches.
        service: Execution times of batches, finite.
        instances: Number of instances, at least 1.
        load: Utilization of the instances in the busiest phase if all batches are full, below 1.

    Attributes:
        mean_size: Mean number of requests in a batch.
    """

    def __init__(
        self, process: Markovian, law: BatchLaw, service: Service, instances: int, load: float
    ) -> None:
        requests = max(law.size * max(_BATCHES, _TURNS * instances), _LEAST_REQUESTS)
        full = min(_FULL_BATCHES * law.size, _MOST_FOR_FULL)
        wanted = max(_LEAST, full, _REQUESTS / (1 - load))
        paths = max(_LEAST_PATHS, round(wanted / requests))
        draw = np.random.default_rng(_SEED)
        arrivals = parallel_arrivals(process, paths, requests, draw)
        full_s = float(service.mean_s()[law.size - 1])
        free_s = full_s * np.arange(instances) / instances  # at first all are busy, evenly spread
        outcome = replayed(arrivals.times_s, law, service, free_s, draw)
        self.mean_size = paths * requests / float(outcome.batches.sum())
        single = SingleLaw(process, full_s / (instances * law.size), 1, load)
        settled = slice(requests // _WARM, requests - law.size)
        weights = _weights(single, arrivals, settled).ravel()
        latencies_s = outcome.latencies_s[:, settled].ravel()
        order = np.argsort(latencies_s)
        self._latencies_s = latencies_s[order]
        self._shares = np.cumsum(weights[order])

    def late(self, times_s: Sequence[float] | Times) -> Times:
        """Return the share of requests whose latency exceeds each of these times."""
        times = np.asarray(times_s, dtype=float) * (1 + _ROUNDING)
        in_time = np.searchsorted(self._latencies_s, times, side="right")
        shares = np.concatenate([[0.0], self._shares])
        late: Times = (1.0 - shares[in_time] / shares[-1]).clip(0.0)
        return late

    def quantiles(self, shares: Sequence[float] | Times) -> Times:
        """Return the latencies in seconds at these shares of requests, shape (shares,)."""
        wanted = np.asarray(shares, dtype=float) * self._shares[-1]
        found: Times = self._latencies_s[np.searchsorted(self._shares[:-1], wanted)]
        return found


def _weights(single: SingleLaw, arrivals: Paths, settled: slice) -> Times:
    """Return the weights of the settled requests of all paths, shape (paths, settled)."""
    steps = single.steps_waited(arrivals.times_s)[:, settled]
    law = np.diff(single.in_time, axis=0, prepend=0.0)
    phases = law.shape[1]
    # Rare waits of a phase share a stratum.
    strata = np.floor((np.cumsum(law, axis=0) - law) / _LEAST_SHARE)
    _, strata = np.unique(strata + np.arange(phases) / phases, return_inverse=True)
    shares = np.bincount(strata.ravel(), law.ravel())
    own = strata.reshape(law.shape)[np.minimum(steps, len(law) - 1), arrivals.phases[:, settled]]
    counts = np.bincount(own.ravel(), minlength=len(shares))
    weights: Times = (shares / np.maximum(counts, 1))[own]
    return weights
