"""The merged windows that HarmonyBatch prints, for comparison with the exact law."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["eq_5_again_and_again", "older_artefact"]


def eq_5_again_and_again(rates_rps: Sequence[float], windows_s: Sequence[float]) -> float:
    """Apply Eq. 5, which is for two applications, to one application after another."""
    total, window_s = rates_rps[0], windows_s[0]
    for rate, other_s in zip(rates_rps[1:], windows_s[1:], strict=True):
        share = rate / (total + rate)
        window_s += share * -math.expm1(-total * (other_s - window_s)) / total
        total += rate
    return window_s


def older_artefact(rates_rps: Sequence[float], windows_s: Sequence[float]) -> float:
    """Apply Eq. 5 with the misplaced parenthesis of the authors' older code."""
    total, window_s = rates_rps[0], windows_s[0]
    for rate, other_s in zip(rates_rps[1:], windows_s[1:], strict=True):
        window_s += rate / (total + rate) * math.exp(-total * other_s - window_s)
        total += rate
    return window_s
