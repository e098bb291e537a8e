"""A lower bound on the cost of serving a load: a clairvoyant policy with honest batch fill.

Theory of operation
-------------------
The clairvoyant knows every request, starts and stops instances instantly and for free, and pays for
an instance only while it executes. The bill is then the sum over all batches of what their
execution costs, under either billing rule. Let ``c(k)`` be the lowest price of executing ``k``
requests together on any instance size that takes no longer than the objective ``D``, and ``e(k)``
the shortest time. What the clairvoyant cannot do is batch requests that have not
arrived yet: a batch starts after its last request has arrived, so the first request's response
takes at least the span of the batch plus ``e(k)``. A batch of two or more therefore has a span of
at most ``D - e(2)``, as ``e`` does not decrease with ``k``.

With one limit for all spans, an optimal division consists of runs of successive requests: of two
batches that overlap, the first ``k`` of all their requests and the rest span no more than the wider
of the two did, and cost the same. So the bound is a shortest path over the requests in order:

    f(j) = min over k of f(j - k) + c(k),  where requests j - k + 1 to j are within D - e(2) of one
                                            another, or k = 1

The bound cannot be reached in general: the price ``c(k)`` and the span may belong to different
sizes, no instance is ever idle, and large batches get the span of small ones. It holds for policies
that serve all requests in time; one that drops some requests can be cheaper by their cost. It is
exact for models with one execution time per batch size, such as tables and lines.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from carpool.arrivals.processes import timestamps
from scaler.planning.cost import billing
from simulator.model_sizes import exec_times, sizes

if TYPE_CHECKING:
    from collections.abc import Callable

    from carpool.arrivals.processes import Times
    from scaler.scenarios.scenario import App, Function, Scenario

__all__ = ["division_cost", "lower_bound"]

_ROUNDING_S = 1e-9
_OFTEN = 10_000  # requests after which progress is reported


def lower_bound(scenario: Scenario, progress: Callable[[float], None] = lambda _: None) -> float:
    """Return the lowest cost of serving all requests of a scenario in time, in its currency.

    Args:
        scenario: The scenario.
        progress: As for `division_cost`, for each application.
    """
    total, number = 0.0, 0
    for function in scenario.functions:
        for app in function.apps:
            seed = (scenario.seed, 1, number)  # as `simulator.arrivals` draws them
            times = timestamps(app.arrivals, scenario.horizon_s, seed)
            costs, least_s = _cheapest(scenario, function, app)
            window_s = app.slo_s - least_s[1] if len(least_s) > 1 else -math.inf
            total += division_cost(times, costs, window_s, progress)
            number += 1
    return total


def division_cost(
    times: Times,
    costs: Times,
    window_s: float,
    progress: Callable[[float], None] = lambda _: None,
) -> float:
    """Return the cost of the cheapest division of requests into batches.

    Args:
        times: Arrival times, ascending, shape (requests,).
        costs: Cost of a batch of 1, 2 and so on, shape (largest batch,).
        window_s: Longest time between the first and the last request of a batch.
        progress: Called occasionally with the fraction done, 0 to 1; an exception it raises stops
            the computation.
    """
    earliest = np.searchsorted(times, times - window_s - _ROUNDING_S)
    number = np.arange(len(times))
    earliest = np.minimum(np.maximum(earliest, number + 1 - len(costs)), number)
    reverse = costs[::-1]
    least = np.zeros(len(times) + 1)
    for last, first in enumerate(earliest.tolist()):
        if last % _OFTEN == 0:
            progress(last / len(times))
        count = last + 1 - first
        if count == 1:
            least[last + 1] = least[last] + costs[0]
        else:
            least[last + 1] = (least[first : last + 1] + reverse[-count:]).min()
    return float(least[-1])


def _cheapest(scenario: Scenario, function: Function, app: App) -> tuple[Times, Times]:
    """Return ``c`` and ``e`` for batches of 1 up to the largest that any size serves in time."""
    rule = billing(scenario.prices)
    costs = np.full(function.max_batch, math.inf)
    least_s = np.full(function.max_batch, math.inf)
    for model, size, cpu, gpu, largest in sizes(function, app):
        for batch, exec_s in exec_times(model, cpu, gpu, largest):
            if exec_s <= app.slo_s:
                price = rule.execution(size, exec_s) + rule.lifetime(size, exec_s)
                costs[batch - 1] = min(costs[batch - 1], price)
                least_s[batch - 1] = min(least_s[batch - 1], exec_s)
    # A larger batch with a place left over is a smaller one, too.
    costs = np.minimum.accumulate(costs[::-1])[::-1]
    least_s = np.minimum.accumulate(least_s[::-1])[::-1]
    known = int(np.isfinite(costs).sum())
    return costs[:known], least_s[:known]
