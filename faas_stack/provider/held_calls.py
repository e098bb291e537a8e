"""Calls that are held back, as their replica has as many as it can answer in time.

Theory of operation
-------------------
Reading a call costs less than refusing it, and a client that waits for its response sends nothing
else on that connection. So an overloaded function's calls are held first. When the replica has
room, the newest one is sent, as it can still be answered in time. Those that cannot are refused,
the oldest first, and only some at a time, as other calls lose the time that this takes. After two
seconds they are refused in any case. A sidecar does the same with its own callers
(`carpool.http.intake`).
"""

from __future__ import annotations

import asyncio
import math
from functools import partial
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from carpool.http.server import Exchange
    from faas_stack.provider.function import Function
    from faas_stack.provider.replica import Replica

__all__ = ["HeldCalls", "Holder"]

_TURN_S = 0.005
_REFUSED_AT_ONCE = 8
_LONGEST_WAIT_S = 2.0


class Holder(Protocol):
    """Interface of the proxy to held calls."""

    def accept(self, exchange: Exchange) -> None:
        """Start to respond to a call, as if it had just come."""

    def refuse_held(self, exchange: Exchange, function: Function, replica: Replica) -> None:
        """Refuse a call."""

    def held_left(self, exchange: Exchange, function: Function) -> None:
        """Count a call whose client has left."""

    def none_held(self, replica: Replica) -> None:
        """Note that no calls of a replica are held any more."""


class HeldCalls:
    """The held calls of one replica; created for the first, and given up after the last.

    Args:
        holder: Sends, refuses or counts them.
        replica: The replica, which is sent calls in bundles.
    """

    def __init__(self, holder: Holder, replica: Replica) -> None:
        self._holder = holder
        self._replica = replica
        self._held: dict[Exchange, Function] = {}  # the oldest first
        self._loop = asyncio.get_running_loop()
        self._loop.call_later(_TURN_S, self._turn)

    def hold(self, exchange: Exchange, function: Function) -> None:
        """Hold a call."""
        self._held[exchange] = function
        exchange.on_gone = partial(self._left, exchange)

    def step(self, now: float) -> None:
        """Send or refuse the calls whose turn it is at ``now``, event-loop time in seconds."""
        calls, held = self._replica.calls, self._held
        late_from = now - (calls.late_after_s if calls else math.inf)
        while held and not (calls and calls.full):
            newest = next(reversed(held))
            if newest.received <= late_from:
                break
            self._take(newest)
            self._holder.accept(newest)
        for number, exchange in enumerate(tuple(held)):
            overdue = exchange.received <= now - _LONGEST_WAIT_S
            if exchange.received > late_from or (number >= _REFUSED_AT_ONCE and not overdue):
                break
            self._holder.refuse_held(exchange, self._take(exchange), self._replica)

    def _turn(self) -> None:
        self.step(self._loop.time())
        if self._held:
            self._loop.call_later(_TURN_S, self._turn)
        else:
            self._holder.none_held(self._replica)

    def _take(self, exchange: Exchange) -> Function:
        exchange.on_gone = None
        return self._held.pop(exchange)

    def _left(self, exchange: Exchange) -> None:
        self._holder.held_left(exchange, self._held.pop(exchange))
