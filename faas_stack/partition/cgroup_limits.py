"""The limits that a control group enforces, and the error where no group can be made.

Groups of ours are made below the one that this process is in (`carpool.own_cgroup`), so that
whatever limits it limits them, too. `cgroup_v1` and `cgroup_v2` make them.
"""

from __future__ import annotations

from dataclasses import dataclass

from carpool.errors import CarpoolError

__all__ = ["Limits", "Unusable"]

# What has used its quota waits for the next period: after 2.5 of 10 ms, say, not after 25 of 100,
# as with the kernel's own, which no objective of 100 ms would survive.
_PERIOD_US = 10_000
_LONG_PERIOD_US = 100_000  # for the smallest shares
_LEAST_QUOTA_US = 1000  # the kernel takes no less


class Unusable(CarpoolError):
    """Groups cannot be made here; the message says why, and suggests a fix."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a group is held to.

    Attributes:
        cpu: most cores, by quota; None: no quota.
        cores: the cores it runs on; none: any.
        memory_bytes: most memory; None: no bound.
    """

    cpu: float | None = None
    cores: tuple[int, ...] = ()
    memory_bytes: int | None = None

    @property
    def period_us(self) -> int:
        """Over which the quota holds."""
        fits = self.cpu is None or self.cpu * _PERIOD_US >= _LEAST_QUOTA_US
        return _PERIOD_US if fits else _LONG_PERIOD_US

    @property
    def quota_us(self) -> int | None:
        """Of each period."""
        if self.cpu is None:
            return None
        return max(_LEAST_QUOTA_US, round(self.cpu * self.period_us))
