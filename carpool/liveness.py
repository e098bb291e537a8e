"""Decides when a process that used to answer probes has been silent for too long.

Time alone is not enough: the probing process may itself have been stopped, and then finds all its
timers expired at once. So several probes in a row must also have been missed. A process that
has never answered may still be loading, however long that takes.
"""

from __future__ import annotations

__all__ = ["LIMIT_S", "Silence"]

LIMIT_S = 10.0
_PROBES_MIN = 3


class Silence:
    """Silence of one process, updated with each probe.

    Attributes:
        probes: Number of consecutive unanswered probes.
    """

    def __init__(self) -> None:
        self._known = False
        self.probes = 0
        self._since = 0.0

    @property
    def broken(self) -> bool:
        """Whether there is no silence: the last probe was answered, or none has been yet."""
        return not (self._known and self.probes)

    def answered(self) -> None:
        """Record that a probe was answered, with any status."""
        self._known = True
        self.probes = 0

    def missed(self, sent_s: float) -> None:
        """Record that a probe, sent at ``sent_s`` in monotonic seconds, was not answered."""
        if not self.probes:
            self._since = sent_s
        self.probes += 1

    def too_long(self, limit_s: float, now: float) -> bool:
        """Return whether the process must be ended; true once for each ``limit_s``."""
        over = not self.broken and now >= self._since + limit_s
        if not over or self.probes < _PROBES_MIN:
            return False
        self.probes = 0
        return True
