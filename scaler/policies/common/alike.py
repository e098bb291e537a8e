"""Decides whether a rate is still close enough to the one that was planned for."""

from __future__ import annotations

__all__ = ["alike"]

_SHARE = 0.02


def alike(rate_rps: float, planned_rps: float) -> bool:
    """Return whether a rate is within two percent of the planned one, so that the plan is reused.

    Rates are compared with the planned rate, not with that of the previous round, so that a slow
    drift is noticed too.
    """
    return abs(rate_rps - planned_rps) <= _SHARE * planned_rps
