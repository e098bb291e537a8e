"""Shares batches between interactive and background requests that wait at the same time.

Interactive requests leave first, and background requests take the remaining places. While both
wait, background requests get their share by deficit round robin, so that they are slowed down but
never starved. The deficit is counted over the whole queue, because requests of the two classes
often have different compat keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.core.request import Request

__all__ = ["BackgroundShare"]


class BackgroundShare:
    """Keeps the deficit of background requests.

    Args:
        share: least share of the items sent for background requests while both classes wait.

    Attributes:
        share: as given.
        deficit: items missing from the background share; negative if it was exceeded.
    """

    __slots__ = ("deficit", "share")

    def __init__(self, share: float) -> None:
        self.share = share
        self.deficit = 0.0

    def interleave(
        self, interactive: Iterator[Request], background: Iterator[Request]
    ) -> Iterator[Request]:
        """Yield the requests of both classes in the order in which they leave together."""
        deficit, share = self.deficit, self.share
        first, second = next(interactive, None), next(background, None)
        while first and second:
            if deficit >= (1 - share) * second.item_count:
                deficit -= (1 - share) * second.item_count
                yield second
                second = next(background, None)
            else:
                deficit += share * first.item_count
                yield first
                first = next(interactive, None)
        if first or second:
            yield first or second  # type: ignore[misc]
        yield from interactive
        yield from background

    def record(self, sent: list[Request]) -> None:
        """Count a batch sent while both wait; background owes back at most one such batch."""
        items = sum([request.item_count for request in sent])
        background = sum([request.item_count for request in sent if request.background])
        self.deficit = max(self.deficit + self.share * items - background, -float(items))
