"""What a prewarm policy would have done on given arrivals: cold starts against idle time.

One instance that serves all requests at once, loads in no time, and is there or not: the windows of
the policy and nothing else decide. Requests that come while one executes end no idle time; they
are found for all arrivals together, so the policy is asked once per idle time and not per request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from scaler.arrivals.processes import Times
    from scaler.prewarm.contract import PrewarmPolicy

__all__ = ["Replayed", "replay", "replay_idle"]


@dataclass(frozen=True, slots=True)
class Replayed:
    """An outcome; several add up.

    Attributes:
        requests: All of them.
        cold_starts: Those that found no instance, the first of all included.
        idle_s: Seconds that an instance was there and nothing executed, up to the last request.
        loads: Times an instance was loaded, for a request or ahead of one.
    """

    requests: int = 0
    cold_starts: int = 0
    idle_s: float = 0.0
    loads: int = 0

    @property
    def cold_start_ratio(self) -> float:
        """Cold starts among the requests; 0 without any."""
        return self.cold_starts / self.requests if self.requests else 0.0

    def __add__(self, other: Replayed) -> Replayed:
        return Replayed(
            self.requests + other.requests,
            self.cold_starts + other.cold_starts,
            self.idle_s + other.idle_s,
            self.loads + other.loads,
        )


def replay(arrivals_s: Times, policy: PrewarmPolicy, exec_s: float = 0.0) -> Replayed:
    """Let requests arrive at ascending times; each executes for ``exec_s``."""
    if len(arrivals_s) == 0:
        return Replayed()
    idle_s = np.diff(arrivals_s) - exec_s
    ended = np.flatnonzero(idle_s > 0)
    outcome = replay_idle(idle_s[ended], arrivals_s[ended + 1], float(arrivals_s[0]), policy)
    return Replayed(len(arrivals_s), outcome.cold_starts, outcome.idle_s, outcome.loads)


def replay_idle(idle_s: Times, ended_s: Times, begin_s: float, policy: PrewarmPolicy) -> Replayed:
    """The same for idle times, and the times at which they ended; the first request was before.

    Args:
        idle_s: Each above 0.
        ended_s: When each was ended by a request, ascending.
        begin_s: When the first request came, which is cold always.
        policy: What it has learned before, it uses.
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
