"""What a request costs where executions are paid for: batches wait, and are as full as they get.

A batch begins with its first request and leaves when it is full or the window is over. With Poisson
arrivals at a rate ``R`` it has ``1 + min(N, b - 1)`` requests, ``N`` Poisson of mean ``R T``. The
window ``T`` is what the objective leaves beside a full batch's execution.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from carpool.scaling import Billing
    from scaler.policies.carpool.options import Option

__all__ = ["Filled", "filled"]


class Filled(NamedTuple):
    """Batches of one option at one rate.

    Attributes:
        at: The option's place.
        cost: Of a request.
        window_s: How long the first one waits.
        mean_batch: Requests in a batch.
        busy: Executions at a time.
    """

    at: int
    cost: float
    window_s: float
    mean_batch: float
    busy: float


def filled(
    options: Sequence[Option], rate_rps: float, slo_s: float, billing: Billing
) -> list[Filled]:
    """Every option with the batches that it gets, in their order.

    Args:
        options: What there may be.
        rate_rps: Requests per second.
        slo_s: Latency objective, less what a request takes on its way.
        billing: What an execution costs.
    """
    return [_of(at, option, rate_rps, slo_s, billing) for at, option in enumerate(options)]


def _of(at: int, option: Option, rate_rps: float, slo_s: float, billing: Billing) -> Filled:
    size = option.size
    window_s = max(slo_s - size.exec_s, 0.0) if size.batch > 1 else 0.0
    shares = _shares(rate_rps * window_s, size.batch)
    numbers = np.arange(1, size.batch + 1)
    times_s = option.single_s + option.item_s * (numbers - 1)
    costs = np.array([billing.execution(size.resources, each) for each in times_s.tolist()])
    mean_batch = float(shares @ numbers)
    busy = rate_rps / mean_batch * float(shares @ times_s)
    return Filled(at, float(shares @ costs) / mean_batch, window_s, mean_batch, busy)


def _shares(mean: float, largest: int) -> npt.NDArray[np.float64]:
    """The share of batches of each size from 1 on."""
    if largest == 1:
        return np.ones(1)
    logs = np.array([math.lgamma(number + 1) for number in range(largest - 1)])
    numbers = np.arange(largest - 1)
    known = np.exp(numbers * math.log(mean) - mean - logs) if mean > 0 else (numbers == 0) * 1.0
    return np.append(known, max(1.0 - float(known.sum()), 0.0))
