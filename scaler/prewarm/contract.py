"""The contract of a prewarm policy: how long an idle instance stays, and when it comes back.

A prewarm policy is a class with a frozen dataclass ``Params``, constructed with it, and the methods
of `PrewarmPolicy`. Each function has its own object. It learns from idle times alone and uses
neither a clock nor random numbers: the same calls in the same order give the same results. It never
loads or releases anything; the caller does that, and allows for the time that loading takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from carpool.prewarm_windows import Windows

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PrewarmPolicy", "Windows"]


class PrewarmPolicy(Protocol):
    """Decides when the last instance of a function is released and loaded again."""

    def observe(self, idle_s: float, now_s: float) -> None:
        """Record that a request has arrived ``idle_s`` after the end of the previous execution.

        Args:
            idle_s: Seconds without a request, whether or not an instance was loaded.
            now_s: Time of the request, in seconds on a time axis that continues over restarts.
        """

    def windows(self, now_s: float) -> Windows:
        """Return the windows that apply from ``now_s`` on, when an execution has ended."""

    def to_dict(self) -> dict[str, Any]:
        """Return all that it has learned, as plain lists and dictionaries, for `absorb`."""

    def absorb(self, data: Mapping[str, Any]) -> None:
        """Add what another policy has learned: its own state before a restart, or a replica's.

        The order in which several are absorbed makes no difference.

        Raises:
            ConfigError: ``data`` was not written by a policy with these parameters.
        """
