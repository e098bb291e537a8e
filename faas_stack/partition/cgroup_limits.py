"""The limits that a control group enforces, and the error raised if no group can be created.

Groups are created below the group of this process (`carpool.own_cgroup`), so that its limits apply
to them, too. `cgroup_v1` and `cgroup_v2` create them.
"""

from __future__ import annotations

from dataclasses import dataclass

from carpool.errors import CarpoolError

__all__ = ["CgroupLimits", "Unusable"]

# An instance that has used its quota waits for the next period: for 7.5 of 10 ms, for example,
# and not 75 of 100 ms, the kernel's default, which is too long for an objective of 100 ms.
_PERIOD_US = 10_000
_LONG_PERIOD_US = 100_000  # for the smallest shares
_LEAST_QUOTA_US = 1000  # the minimum of the kernel


class Unusable(CarpoolError):
    """Raised if groups cannot be created here; the message gives the reason and suggests a fix."""


@dataclass(frozen=True, slots=True)
class CgroupLimits:
    """Limits of a group.

    Attributes:
        cpu: Maximum number of cores, by quota; None: no quota.
        cores: Cores to run on; empty: any.
        memory_bytes: Maximum memory; None: no limit.
    """

    cpu: float | None = None
    cores: tuple[int, ...] = ()
    memory_bytes: int | None = None

    @property
    def period_us(self) -> int:
        """Period of the quota."""
        fits = self.cpu is None or self.cpu * _PERIOD_US >= _LEAST_QUOTA_US
        return _PERIOD_US if fits else _LONG_PERIOD_US

    @property
    def quota_us(self) -> int | None:
        """CPU time per period. None without a quota."""
        if self.cpu is None:
            return None
        return max(_LEAST_QUOTA_US, round(self.cpu * self.period_us))
