"""Holds calls of a function back while its replicas have as many as they can answer in time.

Theory of operation
-------------------
Which calls are worth sending is known only when a replica can take one: the newest ones, as these
can still be answered in time. So calls are held first. Calls that can no longer be answered in time
are refused, the oldest first, for a limited share of the time (`carpool.http.refusal_budget`). A
sidecar does the same with its own callers (`carpool.http.intake`).
"""

from __future__ import annotations

import asyncio
import math
from functools import partial
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from carpool.http.call_client import Calls
    from carpool.http.refusal_budget import RefusalBudget
    from carpool.http.server import Exchange
    from faas_stack.provider.function import Function

__all__ = ["HeldCalls", "Holder"]

_TURN_S = 0.005


class Holder(Protocol):
    """Interface of the proxy to held calls."""

    def choose(self, function: Function) -> Calls | None:
        """Return what would send a function's next call in a bundle; None if nothing would."""

    def accept(self, exchange: Exchange) -> None:
        """Send a call."""

    def refuse_held(self, exchange: Exchange, function: Function) -> None:
        """Refuse a call."""

    def held_left(self, exchange: Exchange, function: Function) -> None:
        """Count a call whose client has left."""

    def none_held(self, function: Function) -> None:
        """Note that no calls of a function are held any more."""


class HeldCalls:
    """The held calls of one function; created for the first one and dropped after the last.

    Args:
        holder: Sends, refuses or counts them.
        function: The function.
        budget: The time for refusals.
    """

    def __init__(self, holder: Holder, function: Function, budget: RefusalBudget) -> None:
        self._holder = holder
        self._function = function
        self._budget = budget
        self._held: dict[Exchange, None] = {}  # the oldest first
        self._loop = asyncio.get_running_loop()
        self._loop.call_later(_TURN_S, self._turn)

    def hold(self, exchange: Exchange) -> None:
        """Hold a call."""
        self._held[exchange] = None
        exchange.on_gone = partial(self._left, exchange)

    def step(self, now: float) -> None:
        """Send or refuse the calls whose turn it is at ``now``, event-loop time in seconds."""
        calls, late_from, held = None, -math.inf, self._held
        while held:
            calls = self._holder.choose(self._function)
            late_from = now - calls.hold_max_s if calls else -math.inf
            newest = next(reversed(held))
            if newest.received <= late_from or (calls and calls.full):
                break
            self._take(newest)
            self._holder.accept(newest)
        before = len(held)
        self._budget.spend(partial(self._refuse_next, late_from))
        if calls and len(held) < before:
            calls.count_refused(before - len(held))

    def _refuse_next(self, late_from: float) -> bool:
        """Refuse the oldest call if it was received until ``late_from``; return whether it was."""
        oldest = next(iter(self._held), None)
        if oldest is None or oldest.received > late_from:
            return False
        self._take(oldest)
        self._holder.refuse_held(oldest, self._function)
        return True

    def _turn(self) -> None:
        self.step(self._loop.time())
        if self._held:
            self._loop.call_later(_TURN_S, self._turn)
        else:
            self._holder.none_held(self._function)

    def _take(self, exchange: Exchange) -> None:
        exchange.on_gone = None
        del self._held[exchange]

    def _left(self, exchange: Exchange) -> None:
        del self._held[exchange]
        self._holder.held_left(exchange, self._function)
