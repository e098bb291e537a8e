"""When a process that has answered probes gives no sign of life for too long.

Time alone says too little: the probing process may have been stopped itself, and then finds its
timers over all at once. So some probes in a row must have been missed as well. And a process that
has never answered may still be loading what it serves, for however long that takes.
"""

from __future__ import annotations

__all__ = ["LIMIT_S", "Silence"]

LIMIT_S = 10.0
_PROBES_MIN = 3


class Silence:
    """The silence of one process, told of each probe.

    Attributes:
        probes: how many in a row were not answered.
    """

    def __init__(self) -> None:
        self._known = False
        self.probes = 0
        self._since = 0.0

    @property
    def broken(self) -> bool:
        """Whether there is none: the last probe was answered, or none has been yet."""
        return not (self._known and self.probes)

    def answered(self) -> None:
        """A probe was answered, whatever it said."""
        self._known = True
        self.probes = 0

    def missed(self, asked: float) -> None:
        """A probe, sent at ``asked`` in monotonic seconds, was not answered."""
        if not self.probes:
            self._since = asked
        self.probes += 1

    def too_long(self, limit_s: float, now: float) -> bool:
        """Whether the process is to be ended for it; true once for each ``limit_s``."""
        over = not self.broken and now >= self._since + limit_s
        if not over or self.probes < _PROBES_MIN:
            return False
        self.probes = 0
        return True
