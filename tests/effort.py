"""How hard a run tries: ``make test`` takes a part of the examples, ``make test-all`` all of them.

Hypothesis's profile says which: ``--hypothesis-profile=thorough``. A quick run tries the same
examples every time, so a failure is due to what has changed; a thorough one looks for new ones,
except in CI.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

__all__ = ["scaled"]

_PART = 5
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
    """How many of ``count`` examples, scenarios or seeds this run tries."""
    thorough = settings.get_current_profile_name() == "thorough"
    return count if thorough else -(-count // _PART)
