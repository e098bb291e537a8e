"""No batching: every request is sent alone, as soon as an instance is free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sidecar.core.policy import Decision

if TYPE_CHECKING:
    from sidecar.core.policy import Executed, Waiting
    from sidecar.core.request import Request

__all__ = ["NoBatching"]


class NoBatching:
    """Send every request alone; the baseline to compare batching with."""

    @dataclass(frozen=True, slots=True)
    class Params:
        """Empty: the policy has no parameters."""

    def __init__(self, params: Params) -> None:
        del params

    def depart(self, request: Request) -> float:
        """Return the arrival time, so that the request leaves as soon as an instance is free."""
        return request.arrived

    def decide(self, waiting: Waiting) -> Decision:
        """Return a size of one."""
        del waiting
        return Decision(1)

    def observe(self, executed: Executed) -> None:
        """Do nothing; there is nothing to learn."""
