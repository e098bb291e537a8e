"""Time limit of a function's calls, derived from its deployment.

A sidecar limits its own calls: it answers 504 if one waits longer than its objective, or if its
batch runs longer than ``exec_timeout``. The limit computed here is the sum of both, so only a
replica that hangs exceeds it. This module does not handle calls.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from carpool import durations
from sidecar.options import Options

if TYPE_CHECKING:
    from faas_stack.provider.deployment import Deployment

__all__ = ["GRACE_S", "call_limit_s"]

GRACE_S = 1.0  # added to limits that the replica applies too, as its error is more specific
_EXEC_S = Options().exec_timeout_s  # of-watchdog has the same default
_WAIT_S = 60.0  # in a sidecar's queue, without an objective or until an instance has started
_LIMITS = ("exec_timeout", "read_timeout", "write_timeout")


def call_limit_s(deployment: Deployment) -> float:
    """Return the maximum duration of a call after it was sent to a replica, in seconds.

    The longest of the time limits in the function's environment (30 s without any), plus its
    longest objective, or a minute if that is longer. Infinity if one of the limits is zero, which
    disables it.
    """
    set_s = [_limit_s(deployment.env_vars.get(name, "")) for name in _LIMITS]
    exec_s = max((limit_s for limit_s in set_s if limit_s is not None), default=_EXEC_S)
    settings = deployment.settings
    objectives_s = (settings.slo_s or 0.0, *(app.slo_s for app in settings.apps))
    return exec_s + max(_WAIT_S, *objectives_s) + GRACE_S


def _limit_s(text: str) -> float | None:
    """Return a time limit as of-watchdog reads it; ``inf`` if disabled. None if invalid."""
    text = text.strip()
    try:
        limit_s = durations.parse_lenient(text)
    except ValueError:
        return None
    return limit_s if limit_s > 0 else math.inf
