"""Options where the paper leaves something open, or where its choice does not always pay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["PAPER", "Rules"]


@dataclass(frozen=True, slots=True)
class Rules:
    """How requests are admitted.

    Attributes:
        estimate: How to estimate the time of all requests in the table. ``serial``: the sum of each
            one's time alone (Eq. 2), which is pessimistic on purpose; ``batched``: the stack
            simulated with the times of batches, the paper's oracle.
        remaining: Whether a serial sum counts only the remaining time of running requests. Their
            time since arrival, T_wait, already includes the time that they have run.
        lost: How to treat a request that would be late even if it had the model to itself.
            ``ignore``: it does not keep others from being admitted; ``block``: its slack is
            negative, so it does.
        partial: Whether as many waiting requests as possible are admitted, in order of arrival;
            otherwise all or none.
        pays: Whether new requests join a running batch if that makes fewer requests late than
            running them after it, or as many late and the mean latency lower. An idle device then
            starts with all waiting requests, or with as many as make the fewest late. Slack then
            only limits how many join if not all can.
        overtaken_max: How many batches that cannot join a batch may be put on top of it before it
            runs again.
    """

    estimate: Literal["batched", "serial"] = "batched"
    remaining: bool = True
    lost: Literal["ignore", "block"] = "ignore"
    partial: bool = True
    pays: bool = True
    overtaken_max: int = 4

    def __post_init__(self) -> None:
        for name, known in (("estimate", ("batched", "serial")), ("lost", ("ignore", "block"))):
            value = getattr(self, name)
            if value not in known:
                msg = f"{name} is {value!r}: expected {' or '.join(known)}"
                raise ValueError(msg)
        for name in ("remaining", "partial", "pays"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                msg = f"{name} is {value!r}: expected true or false"
                raise TypeError(msg)
        if type(self.overtaken_max) is not int or self.overtaken_max < 1:
            msg = f"overtaken_max is {self.overtaken_max!r}: expected a whole number of at least 1"
            raise ValueError(msg)


PAPER = Rules(estimate="serial", remaining=False, lost="block", pays=False)
