"""The replicas requested of the gateway for one class, against those that it lists.

A count that is another than was asked for, from the start, is the gateway's limit; one that was
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
_ANSWER_S = 5.0  # by then a gateway lists what it has accepted


@dataclass(slots=True)
class RequestedReplicas:
    """What is known of one class's function.

    Attributes:
        asked: How many replicas were asked for last, and when.
        seen: Whether the gateway has listed that count since.
        most: The gateway's limit, as far as it has shown.
        lacking_s: Since when instances are missing that were asked for.
        refusals: How often in a row the gateway has not done what was asked.
        lasting: It would refuse again what it has refused last.
        cautious: Since it refused something, instances are asked for one by one.
        given_up: Instances that were missing for too long are not asked for just now.
        pause_s: Before the next try, after something went wrong.
        free_s: When the next try may be.
        trouble: What went wrong, and when, until it has gone well for a while.
    """

    asked: int | None = None
    asked_s: float = -math.inf
    seen: bool = False
    most: float = math.inf
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
        """Whether so many were asked for, and the gateway may still be at it."""
        return self.asked == count and not self.seen and now_s <= self.asked_s + _ANSWER_S

    def failed(self, text: str, now_s: float) -> None:
        """Something went wrong: wait, longer each time."""
        self.trouble, self.trouble_s = text, now_s
        self.free_s = now_s + self.pause_s
        self.pause_s = min(2 * self.pause_s, _PAUSE_MAX_S)

    def succeeded(self, now_s: float) -> None:
        """All is as it should be; an autoscaler that fights for a count repeats it."""
        self.lacking_s, self.given_up, self.cautious = None, False, False
        if now_s >= self.trouble_s + _CALM_S:
            self.trouble, self.pause_s = "", PAUSE_S

    def compare(self, status: Status, now_s: float) -> None:
        """Hold what the gateway lists against what it was asked for."""
        if self.asked is None or status.replicas == self.asked:
            self.seen = self.seen or self.asked is not None
        elif self.seen:
            text = f"something else has set {status.name} to {status.replicas} replicas"
            self.failed(f"{text} instead of {self.asked}; is an autoscaler at work?", now_s)
            self.asked, self.seen = None, False
        elif now_s > self.asked_s + _ANSWER_S:
            limit = f"the gateway set {status.name} to {status.replicas} replicas"
            self.failed(f"{limit} when asked for {self.asked}", now_s)
            if 0 < status.replicas < self.asked:
                self.most = status.replicas
            self.asked = None
