"""Replays given arrivals with a prewarm policy: cold starts versus idle time.

The model is one instance that serves all requests concurrently and loads instantly; whether it is
loaded depends only on the windows of the policy. Requests that arrive during an execution end no
idle time; they are found for all arrivals at once, so the policy is called once per idle time and
not per request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from carpool.arrivals.processes import Times
    from scaler.prewarm.contract import PrewarmPolicy

__all__ = ["Replayed", "replay", "replay_idle"]


@dataclass(frozen=True, slots=True)
class Replayed:
    """An outcome; outcomes can be added.

    Attributes:
        requests: Number of requests.
        cold_starts: Number of requests that found no instance, including the first of all.
        idle_s: Seconds that an instance was loaded and idle, up to the last request.
        loads: Number of times an instance was loaded, for a request or ahead of one.
    """

    requests: int = 0
    cold_starts: int = 0
    idle_s: float = 0.0
    loads: int = 0

    @property
    def cold_start_ratio(self) -> float:
        """Share of the requests that were cold starts; 0 if there are no requests."""
        return self.cold_starts / self.requests if self.requests else 0.0

    def __add__(self, other: Replayed) -> Replayed:
        return Replayed(
            self.requests + other.requests,
            self.cold_starts + other.cold_starts,
            self.idle_s + other.idle_s,
            self.loads + other.loads,
        )


def replay(arrivals_s: Times, policy: PrewarmPolicy, exec_s: float = 0.0) -> Replayed:
    """Replay requests that arrive at ascending times and execute for ``exec_s`` each."""
    if len(arrivals_s) == 0:
        return Replayed()
    idle_s = np.diff(arrivals_s) - exec_s
    ended = np.flatnonzero(idle_s > 0)
    outcome = replay_idle(idle_s[ended], arrivals_s[ended + 1], float(arrivals_s[0]), policy)
    return Replayed(len(arrivals_s), outcome.cold_starts, outcome.idle_s, outcome.loads)


def replay_idle(idle_s: Times, ended_s: Times, begin_s: float, policy: PrewarmPolicy) -> Replayed:
    """Replay idle times and the times at which they ended, after a first request.

    Args:
        idle_s: Idle times, each above 0.
        ended_s: Time of the request that ended each, ascending.
        begin_s: Time of the first request, which is always cold.
        policy: The policy; what it has learned before is used.
    """
    prewarm_s, keep_alive_s = np.empty(len(idle_s)), np.empty(len(idle_s))
    now_s = begin_s
    for index, (idle, ended) in enumerate(zip(idle_s.tolist(), ended_s.tolist(), strict=True)):
        windows = policy.windows(now_s)
        prewarm_s[index] = windows.prewarm_s
        keep_alive_s[index] = np.inf if windows.keep_alive_s is None else windows.keep_alive_s
        policy.observe(idle, ended)
        now_s = ended
    early, late = idle_s < prewarm_s, idle_s > keep_alive_s
    cold = early | late
    there_s = np.maximum(np.minimum(idle_s, keep_alive_s) - prewarm_s, 0)
    ahead = (prewarm_s > 0) & ~early
    return Replayed(
        requests=1 + len(idle_s),
        cold_starts=1 + int(cold.sum()),
        idle_s=float(there_s.sum()),
        loads=1 + int(cold.sum()) + int(ahead.sum()),
    )
