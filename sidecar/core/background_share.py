"""Shares batches between interactive and background requests that wait at the same time.

Interactive requests leave first, and background requests take the places that are left. While both
wait, the background gets its share by deficit round robin, so that it is slowed down and never
starved. The deficit is counted over the whole queue, because requests of the two classes often have
different compat keys.
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
        share: least share of the items sent that are theirs while both classes wait.

    Attributes:
        share: as given.
        deficit: items that they have not had of their share, negative if they had more.
    """

    __slots__ = ("deficit", "share")

    def __init__(self, share: float) -> None:
        self.share = share
        self.deficit = 0.0

    def interleave(
        self, interactive: Iterator[Request], background: Iterator[Request]
    ) -> Iterator[Request]:
        """Requests of both classes in the order in which they leave together."""
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
        """Count a batch that leaves while both wait; at most one such batch is owed back."""
        items = sum([request.item_count for request in sent])
        background = sum([request.item_count for request in sent if request.background])
        self.deficit = max(self.deficit + self.share * items - background, -float(items))
