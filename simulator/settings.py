"""How a simulation is run, beside what the scenario says."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler.prewarm.contract import PrewarmPolicy
    from simulator.quota import Quota

__all__ = ["Settings"]


@dataclass(frozen=True, slots=True)
class Settings:
    """What may be chosen.

    Attributes:
        interval_s: From one planning round to the next, while nothing asks for one sooner.
        window_s: How far back the arrivals are counted that a policy plans for.
        noise: Standard deviation of the logarithm of what execution times are multiplied with.
        queue_max: Most requests waiting for one function.
        processes_known: Policies are told how requests arrive, not only at which rate.
        cold: There are no instances at the start, and nothing was measured.
        rate_level: Intervals like others before are not simulated again.
        quota: How instances with a part of a core get it; None: as if they had a slower one.
        way_s: What a request takes beside waiting and being executed: connections, the gateway.
        loading_slows: By which share executions take longer for each instance that loads meanwhile
            on the same server.
        prewarm: Makes a prewarm policy for each function; None: they go by their plans alone.
    """

    interval_s: float = 0.5
    window_s: float = 10.0
    noise: float = 0.0
    queue_max: float = math.inf
    processes_known: bool = False
    cold: bool = False
    rate_level: bool = False
    quota: Quota | None = None
    way_s: float = 0.0
    loading_slows: float = 0.0
    prewarm: Callable[[], PrewarmPolicy] | None = None
