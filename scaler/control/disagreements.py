"""Disagreements of the gateway and the sidecars about a function that last for a while.

Of its instances: either learns of a change a little later than the other, so that a moment's
difference is nothing. The same for counts of its requests from other sources (`count_check`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler.control.count_check import CountCheck

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler.control.class_function import Status

__all__ = ["Disagreements"]

_PATIENCE_S = 15.0


class Disagreements:
    """Remembers since when they have differed."""

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._recounts: dict[str, CountCheck] = {}

    def recounted(
        self, source: str, theirs: float | None, ours: int, now_s: float, age_s: float = 0.0
    ) -> None:
        """Where the sidecars have counted ours, a source had counted so many ``age_s`` ago.

        None: it has no count at all.
        """
        self._recounts.setdefault(source, CountCheck(source)).note(theirs, ours, now_s, age_s)

    def warnings(
        self, deployed: Mapping[str, Status], ready: Mapping[str, Sequence[str]], now_s: float
    ) -> list[str]:
        """What there is to say, in sentences.

        Args:
            deployed: What the gateway lists, by class.
            ready: Instances that have announced themselves, by class.
            now_s: Seconds, on any axis.
        """
        differ = [
            f"the gateway has {status.available} of {status.name} available, "
            f"{len(ready.get(name, ()))} have announced themselves"
            for name, status in sorted(deployed.items())
            if status.available != len(ready.get(name, ()))
        ]
        counts = [text for recount in self._recounts.values() for text in recount.warnings(now_s)]
        if not differ:
            self._since_s = None
            return counts
        self._since_s = now_s if self._since_s is None else self._since_s
        return [*(differ if now_s >= self._since_s + _PATIENCE_S else ()), *counts]
