"""What the paper leaves open, or decides in a way that does not always pay: as switches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["PAPER", "Rules"]


@dataclass(frozen=True, slots=True)
class Rules:
    """How requests are admitted.

    Attributes:
        estimate: how long the requests in the table take together. ``serial``: the sum of each
            one's time alone (Eq. 2), which is pessimistic on purpose; ``batched``: the stack run
            forward with the times of batches, the paper's oracle.
        remaining: a serial sum counts what is left of the requests that run, not all of it. Their
            time since arrival, T_wait, has what they ran in it already.
        lost: a request that would be late even if it had the model to itself has nothing to lose.
            ``ignore``: it keeps no other from being admitted; ``block``: its slack is negative, so
            it does.
        partial: as many waiting requests are admitted as may be, the first of them first;
            otherwise all or none.
        pays: newcomers join a running batch if that makes fewer requests late than running them
            after it, or as many late and the mean latency lower. An idle device begins with all
            that wait, or with as many as make the fewest late. Slack then only limits how many
            join, where not all can.
        overtaken_max: so many batches that cannot join a batch may be put on top of it before it
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
