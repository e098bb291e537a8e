"""Replaces a batch policy that fails, so that requests continue.

The first time a policy raises, or returns an invalid time or size, a fallback replaces it
permanently; the request on which it failed is not lost. The reason is logged once and counted: a
sidecar that silently ran another policy would mislead.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from carpool.policy_errors import raised
from sidecar.core.policy import Decision

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from sidecar.core.policy import BatchPolicy, Executed, Waiting
    from sidecar.core.request import Request

__all__ = ["PolicyGuard", "runs_policy"]

_EARLIEST = -math.inf
_ERRORS = (Exception, SystemExit)  # a policy may be any code


class PolicyGuard:
    """Runs a policy until it fails, then a fallback.

    Args:
        policy: the policy to run.
        fallback: the policy that replaces it.
        report: called once, with the reason, when the fallback takes over.

    Attributes:
        failure: the reason; empty while the policy runs.
    """

    def __init__(
        self, policy: BatchPolicy, fallback: BatchPolicy, report: Callable[[str], None]
    ) -> None:
        self._policy = policy
        self._fallback = fallback
        self._report = report
        self.failure = ""

    def depart(self, request: Request) -> float:
        """Return the latest departure time of ``request``."""
        try:
            depart: Any = self._policy.depart(request)
            if isinstance(depart, (float, int)) and depart >= _EARLIEST:  # NaN is not
                return depart
            msg = f"depart returned {depart!r}: expected a time in seconds"
            raise TypeError(msg)
        except _ERRORS as error:  # whatever a policy raises, requests continue
            self._replace(error)
            return self._fallback.depart(request)

    def decide(self, waiting: Waiting) -> Decision:
        """Return how many items may leave now."""
        try:
            decision: Any = self._policy.decide(waiting)
            size, late = decision
            if not (isinstance(size, int) and isinstance(late, int)):
                msg = f"decide returned {(size, late)!r}: expected two whole numbers"
                raise TypeError(msg)
        except _ERRORS as error:
            self._replace(error)
            return self._fallback.decide(waiting)
        return Decision(size, late)

    def observe(self, executed: Executed) -> None:
        """Learn from a batch that ran."""
        try:
            self._policy.observe(executed)
        except _ERRORS as error:
            self._replace(error)

    def _replace(self, error: BaseException) -> None:
        self._policy = self._fallback
        self.failure = raised(error)
        self._report(self.failure)


_CALLS = {PolicyGuard.depart.__code__, PolicyGuard.decide.__code__, PolicyGuard.observe.__code__}


def runs_policy(frame: FrameType | None) -> bool:
    """Return whether the code at ``frame`` was called by a guard, and so is a policy's."""
    while frame is not None and frame.f_code not in _CALLS:
        frame = frame.f_back
    return frame is not None
