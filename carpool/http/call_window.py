"""How many calls a provider has open at one sidecar: as many as are answered in time.

Theory of operation
-------------------
An overloaded sidecar marks its answers, as a router marks packets of TCP. The provider then has
half as many calls open, and a few more with each answer without a mark. Further calls wait in the
provider, where a refusal costs less, instead of in the sockets between the two processes, where
calls become late before the sidecar knows of them.

A mark counts only on answers of calls that were sent after the last reduction: earlier calls say
nothing about its effect.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CallWindow"]

_FEWEST = 32
_REDUCTION = 0.5
_GROWTH = 0.02  # calls for each answer


class CallWindow:
    """The most calls that may be open on a connection.

    Attributes:
        size: This number; infinite before the first mark.
    """

    __slots__ = ("_last_id", "size")

    def __init__(self) -> None:
        self.size = math.inf
        self._last_id = 0

    def answered(self, ids: Sequence[int], open_ids: Sequence[int], *, marked: bool) -> None:
        """Adapt the size.

        Args:
            ids: The calls that were answered.
            open_ids: All calls that were open until now, in the order in which they were sent.
            marked: Whether the answers are marked.
        """
        if not marked:
            self.size += _GROWTH * len(ids)
        elif open_ids and max(ids) > self._last_id:
            self._last_id = open_ids[-1]
            self.size = max(_FEWEST, _REDUCTION * min(self.size, len(open_ids)))
