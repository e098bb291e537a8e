"""The contract of a prewarm policy: how long an idle instance stays, and when it comes back.

Writing one: a class with a frozen dataclass ``Params``, constructed with it, and the methods of
`PrewarmPolicy`. There is one for each function. It learns from idle times alone, asks no clock and
throws no dice: told the same in the same order, it answers the same. It never loads or releases
anything; the caller does that, and allows for the time that loading takes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PrewarmPolicy", "Windows"]


@dataclass(frozen=True, slots=True)
class Windows:
    """When an instance is there after its last execution has ended: between the two.

    Attributes:
        prewarm_s: An instance is released at once and loaded again so much later; 0 if it is not
            released.
        keep_alive_s: It is released (again) so long after the last execution, if no request has
            come; None if it stays.

    Raises:
        ConfigError: a time that is negative or not finite, or a release before the load.
    """

    prewarm_s: float
    keep_alive_s: float | None

    def __post_init__(self) -> None:
        """Refuse what is no interval."""
        until_s = math.inf if self.keep_alive_s is None else self.keep_alive_s
        if 0 <= self.prewarm_s < math.inf and self.prewarm_s <= until_s:
            return
        problems = Problems()
        expected = f"at least 0 and at most keep_alive_s, which is {self.keep_alive_s}"
        problems.add("prewarm_s", self.prewarm_s, expected)
        problems.raise_if_any()


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
