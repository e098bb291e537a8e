"""Whether a rate is still as good as the one that was planned for."""

from __future__ import annotations

__all__ = ["alike"]

_SHARE = 0.02


def alike(rate_rps: float, planned_rps: float) -> bool:
    """Whether what was found for ``planned_rps`` is reused: within two percent of it.

    Rates are held to what was planned for, not to those of the round before, so that a slow drift
    is noticed too.
    """
    return abs(rate_rps - planned_rps) <= _SHARE * planned_rps
