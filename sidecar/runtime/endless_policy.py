"""Interrupts a batch policy that does not return, so that it fails as one that raises.

The event loop cannot do this, as it waits for the policy. A signal can: Python handles it between
two instructions of the policy.
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from sidecar.core.policy_guard import runs_policy

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["LIMIT_S", "EndlessPolicy"]

LIMIT_S = 5  # less than a silence after which the provider ends the sidecar
_EACH_S = 1.0


class EndlessPolicy:
    """Counts the seconds since the event loop ran last.

    Signals are counted instead of reading a clock, as this process may have been stopped.
    """

    def __init__(self) -> None:
        self._seconds = 0

    def watch(self) -> None:
        """Interrupt a policy that does not return, from now on."""
        signal.signal(signal.SIGALRM, self._alarm)
        signal.setitimer(signal.ITIMER_REAL, _EACH_S, _EACH_S)
        self._loop_runs()

    def _loop_runs(self) -> None:
        self._seconds = 0
        asyncio.get_running_loop().call_later(_EACH_S, self._loop_runs)

    def _alarm(self, _: int, frame: FrameType | None) -> None:
        self._seconds += 1
        if self._seconds >= LIMIT_S and runs_policy(frame):
            msg = f"the policy has not returned for {LIMIT_S} s"
            raise TimeoutError(msg)
