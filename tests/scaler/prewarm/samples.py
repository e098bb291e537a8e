"""Shared parts of the tests of prewarm policies: idle times, and functions to report them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool import plugins

if TYPE_CHECKING:
    from typing import Any

    from scaler.prewarm.contract import PrewarmPolicy

__all__ = ["LONG", "MINUTE_S", "SHORT", "made", "tell", "told"]

MINUTE_S = 60.0

# Idle times in minutes, and how many of each.
LONG = {2.5: 4, 5.5: 40, 8.5: 30, 12.5: 20, 30.5: 5, 55.5: 1}
SHORT = {3.5: 2, 4.5: 10, 6.5: 8}


def made(name: str, **params: Any) -> Any:
    """Return a built-in policy."""
    return plugins.build(plugins.resolve("prewarm", name), params)


def tell(policy: PrewarmPolicy, minutes: dict[float, int], now_s: float) -> None:
    """Report idle times that all ended at the same time."""
    for idle_minutes, count in minutes.items():
        for _ in range(count):
            policy.observe(idle_minutes * MINUTE_S, now_s)


def told(policy: PrewarmPolicy, idle: list[float], now_s: float = 0.0) -> PrewarmPolicy:
    """Report consecutive idle times to the policy and return it."""
    for idle_s in idle:
        now_s += idle_s
        policy.observe(idle_s, now_s)
    return policy
