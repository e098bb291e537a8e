"""Where the gateway and the sidecars say different things of a function's instances, for a while.

Either learns of a change a little later than the other, so that a moment's difference is nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler.core.live.class_function import Status

__all__ = ["Doubts"]

_PATIENCE_S = 15.0


class Doubts:
    """Remembers since when they have differed."""

    def __init__(self) -> None:
        self._since_s: float | None = None

    def said(
        self, deployed: Mapping[str, Status], ready: Mapping[str, Sequence[str]], now_s: float
    ) -> list[str]:
        """What there is to say, in sentences.

        Args:
            deployed: What the gateway lists, by class.
            ready: Who has announced himself, by class.
            now_s: Seconds, on any axis.
        """
        differ = [
            f"the gateway has {status.available} of {status.name} available, "
            f"{len(ready.get(name, ()))} have announced themselves"
            for name, status in sorted(deployed.items())
            if status.available != len(ready.get(name, ()))
        ]
        if not differ:
            self._since_s = None
            return []
        self._since_s = now_s if self._since_s is None else self._since_s
        return differ if now_s >= self._since_s + _PATIENCE_S else []
