"""Lasting disagreements between the gateway and the sidecars about a function.

They concern its instances: either side learns of a change a little later than the other, so a short
difference means nothing. Counts of its requests are compared in the same way (`count_check`).
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
    """Keeps track of how long gateway and sidecars have disagreed."""

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._count_checks: dict[str, CountCheck] = {}

    def recounted(
        self, source: str, theirs: float | None, ours: int, now_s: float, age_s: float = 0.0
    ) -> None:
        """Compare the sidecars' count with that of another source, made ``age_s`` ago.

        ``theirs`` is None if the source has no count.
        """
        self._count_checks.setdefault(source, CountCheck(source)).note(theirs, ours, now_s, age_s)

    def warnings(
        self, deployed: Mapping[str, Status], ready: Mapping[str, Sequence[str]], now_s: float
    ) -> list[str]:
        """Return the current disagreements as sentences.

        Args:
            deployed: Functions listed by the gateway, by class.
            ready: Instances that have announced themselves, by class.
            now_s: Seconds, on any axis.
        """
        differ = [
            f"the gateway has {status.available} of {status.name} available, "
            f"{len(ready.get(name, ()))} have announced themselves"
            for name, status in sorted(deployed.items())
            if status.available != len(ready.get(name, ()))
        ]
        counts = [text for check in self._count_checks.values() for text in check.warnings(now_s)]
        if not differ:
            self._since_s = None
            return counts
        self._since_s = now_s if self._since_s is None else self._since_s
        return [*(differ if now_s >= self._since_s + _PATIENCE_S else ()), *counts]
