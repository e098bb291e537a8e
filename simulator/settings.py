"""How to run a simulation, apart from the scenario."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from carpool.plan import Plan
    from scaler.prewarm.contract import PrewarmPolicy
    from simulator.quota import Quota

__all__ = ["Settings"]


@dataclass(frozen=True, slots=True)
class Settings:
    """Simulation settings.

    Attributes:
        interval_s: Time between planning rounds, unless one is requested sooner.
        window_s: How far back arrivals are counted for the policy's rates.
        noise: Standard deviation of the logarithm of the noise factor on execution times.
        queue_max: Most requests waiting for one function.
        processes_known: Whether policies are given the arrival processes, not only the rates.
        cold: Whether to start without instances and without measurements.
        rate_level: Whether to reuse the results of similar intervals.
        quota: CPU quota of instances with a part of a core; None to run them on slower cores.
        network_s: Time of a request outside waiting and execution: connections, the gateway.
        loading_slows: Relative increase of execution times for each instance that is loading on the
            same server.
        exec_factor: Factor on all execution times, which policies and sidecars learn only by
            measuring; not 1 if the machine is not as fast as when the model was measured.
        start: Plans that functions begin with, such as those that a live run began with; the others
            begin with what the policy plans for the first rates.
        prewarm: Creates a prewarm policy per function; None to follow the plans alone.
    """

    interval_s: float = 0.5
    window_s: float = 10.0
    noise: float = 0.0
    queue_max: float = math.inf
    processes_known: bool = False
    cold: bool = False
    rate_level: bool = False
    quota: Quota | None = None
    network_s: float = 0.0
    loading_slows: float = 0.0
    exec_factor: float = 1.0
    start: Mapping[str, Plan] = field(default_factory=dict)
    prewarm: Callable[[], PrewarmPolicy] | None = None
