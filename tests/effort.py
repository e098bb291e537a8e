"""Effort of a run: ``make test`` tries a part of the examples, ``make test-all`` all of them.

Hypothesis's profile selects it: ``--hypothesis-profile=thorough``. A quick run tries the same
examples every time, so a failure is due to a change; a thorough one looks for new examples,
except in CI.
"""

from __future__ import annotations

import math
import os

from hypothesis import HealthCheck, settings

__all__ = ["loosened", "scaled"]

_PART = 10
_COMMON = settings(
    deadline=None,  # how long an example takes is the machine's affair
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("quick", _COMMON, max_examples=100 // _PART, derandomize=True)
settings.register_profile(
    "thorough", _COMMON, max_examples=100, derandomize=os.environ.get("CI") == "true"
)
settings.load_profile("quick")  # before pytest loads the one that is asked for


def scaled(count: int) -> int:
    """Return how many of ``count`` examples, scenarios or seeds this run tries."""
    return count if _thorough() else -(-count // _PART)


def loosened(tolerance: float) -> float:
    """Return the tolerance of a mean over a run's `scaled` examples, from that over all of them.

    The error of a mean of independent examples doubles with a quarter of the examples.
    """
    return tolerance if _thorough() else tolerance * math.sqrt(_PART)


def _thorough() -> bool:
    return settings.get_current_profile_name() == "thorough"
