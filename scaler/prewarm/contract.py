"""The contract of a prewarm policy: how long an idle instance stays, and when it comes back.

Writing one: a class with a frozen dataclass ``Params``, constructed with it, and the methods of
`PrewarmPolicy`. There is one for each function. It learns from idle times alone, asks no clock and
throws no dice: told the same in the same order, it answers the same. It never loads or releases
anything; the caller does that, and allows for the time that loading takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from carpool.prewarm_windows import Windows

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PrewarmPolicy", "Windows"]


class PrewarmPolicy(Protocol):
    """Decides when the last instance of a function goes and comes back."""

    def observe(self, idle_s: float, now_s: float) -> None:
        """A request has come ``idle_s`` after the execution before it had ended.

        Args:
            idle_s: Seconds without a request, whether or not an instance was there.
            now_s: When the request came, in seconds on one axis for all time, restarts included.
        """

    def windows(self, now_s: float) -> Windows:
        """What to do from ``now_s`` on, when an execution has ended."""

    def to_dict(self) -> dict[str, Any]:
        """All that it has learned, as plain lists and dictionaries, for `absorb`."""

    def absorb(self, data: Mapping[str, Any]) -> None:
        """Learn what another one has: its own before a restart, or that of a replica.

        The order in which several are absorbed makes no difference.

        Raises:
            ConfigError: ``data`` is not what a policy with these parameters has written.
        """
