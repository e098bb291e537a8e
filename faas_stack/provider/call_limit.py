"""How long a call of a function may take, from what the function itself is deployed with.

A sidecar bounds its own calls: one that waits longer than its objective is answered 504, and so is
one whose batch runs longer than ``exec_timeout``. What is computed here is their sum, and so what
only a replica that hangs exceeds. Knows no calls.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from carpool import durations
from sidecar.options import Options

if TYPE_CHECKING:
    from faas_stack.provider.deployment import Deployment

__all__ = ["GRACE_S", "call_limit_s"]

GRACE_S = 1.0  # beyond a time limit that the replica knows too: it has more to say than we have
_EXEC_S = Options().exec_timeout_s  # of-watchdog has the same, where a function sets none
_WAIT_S = 60.0  # in a sidecar's queue, of requests without an objective or for an instance to start
_LIMITS = ("exec_timeout", "read_timeout", "write_timeout")


def call_limit_s(deployment: Deployment) -> float:
    """The longest that a call may take after it left for a replica, seconds.

    The longest of the time limits in the function's environment (30 s without any), and in addition
    its longest objective, or a minute if that is longer. Without end if one of the limits is zero,
    which switches it off.
    """
    set_s = [_limit_s(deployment.env_vars.get(name, "")) for name in _LIMITS]
    exec_s = max((limit_s for limit_s in set_s if limit_s is not None), default=_EXEC_S)
    settings = deployment.settings
    objectives_s = (settings.slo_s or 0.0, *(app.slo_s for app in settings.apps))
    return exec_s + max(_WAIT_S, *objectives_s) + GRACE_S


def _limit_s(text: str) -> float | None:
    """The seconds of a time limit as of-watchdog reads it, ``inf`` for none; None if it cannot."""
    text = text.strip()
    try:
        limit_s = durations.parse_lenient(text)
    except ValueError:
        return None
    return limit_s if limit_s > 0 else math.inf
