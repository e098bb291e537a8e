"""Compares the replicas requested from the gateway for one class with those that it lists.

A count that differs from the requested one from the start is the gateway's limit; one that was
right before has been changed from outside.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scaler.control.class_function import Status

__all__ = ["PAUSE_S", "RequestedReplicas"]

PAUSE_S = 1.0
_PAUSE_MAX_S = 60.0
_CALM_S = 60.0
_LIMITED_S = 600.0  # after this time, more than the gateway's limit is requested again
_ANSWER_S = 5.0  # time by which a gateway lists what it has accepted


@dataclass(slots=True)
class RequestedReplicas:
    """State of one class's function at the gateway.

    Attributes:
        requested: Number of replicas requested last, and (``requested_s``) when.
        seen: Whether the gateway has listed that count since.
        most: The gateway's limit, as observed (at ``most_s``).
        lacking_s: Time since which requested instances are missing.
        refusals: Number of refusals in a row by the gateway.
        lasting: Whether it would refuse again what it has refused last.
        cautious: Whether instances are requested one by one, after a refusal.
        given_up: Whether requests are suspended, as instances were missing for too long.
        pause_s: Pause before the next try after a failure.
        free_s: Earliest time of the next try.
        trouble: The last failure (at ``trouble_s``), until there was none for a while.
    """

    requested: int | None = None
    requested_s: float = -math.inf
    seen: bool = False
    most: float = math.inf
    most_s: float = -math.inf
    lacking_s: float | None = None
    refusals: int = 0
    lasting: bool = False
    cautious: bool = False
    given_up: bool = False
    pause_s: float = PAUSE_S
    free_s: float = -math.inf
    trouble: str = ""
    trouble_s: float = -math.inf

    def is_pending(self, count: int, now_s: float) -> bool:
        """Return whether this count was requested recently and is not listed yet."""
        return self.requested == count and not self.seen and now_s <= self.requested_s + _ANSWER_S

    def failed(self, text: str, now_s: float) -> None:
        """Record a failure, and pause, longer each time."""
        self.trouble, self.trouble_s = text, now_s
        self.free_s = now_s + self.pause_s
        self.pause_s = min(2 * self.pause_s, _PAUSE_MAX_S)

    def succeeded(self, now_s: float) -> None:
        """Record that all instances are ready; the trouble is kept until it is long past."""
        self.lacking_s, self.given_up, self.cautious = None, False, False
        if now_s >= self.trouble_s + _CALM_S:
            self.trouble, self.pause_s = "", PAUSE_S

    def limit(self, now_s: float) -> float:
        """Return the gateway's limit, unless it was observed long ago."""
        return self.most if now_s < self.most_s + _LIMITED_S else math.inf

    def compare(self, status: Status, now_s: float) -> None:
        """Compare what the gateway has listed at ``now_s`` with what was requested."""
        if self.requested is None or status.replicas == self.requested:
            self.seen = self.seen or self.requested is not None
        elif self.seen:
            text = f"something else has set {status.name} to {status.replicas} replicas"
            self.failed(
                f"{text} instead of {self.requested}; is another autoscaler running?", now_s
            )
            self.requested, self.seen = None, False
        elif now_s > self.requested_s + _ANSWER_S:
            limit = f"the gateway set {status.name} to {status.replicas} replicas"
            self.failed(f"{limit} when asked for {self.requested}", now_s)
            if 0 < status.replicas < self.requested:
                self.most, self.most_s = status.replicas, now_s
            self.requested = None
