"""The order of interactive and background requests that wait for the same seats.

Interactive requests leave first and background ones take the seats that they leave empty; yet while
both wait, the background gets its share of the seats, so that it is slowed and never starved. What
it is owed is counted over the whole queue, because the two classes often have different keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.core.request import Request

__all__ = ["Balance"]


class Balance:
    """What the background is owed.

    Args:
        share: least share of the seats that it gets while others wait too.

    Attributes:
        share: as given.
        owed: seats that it has not had of its share, negative if it had more.
    """

    __slots__ = ("owed", "share")

    def __init__(self, share: float) -> None:
        self.share = share
        self.owed = 0.0

    def merged(self, front: Iterator[Request], back: Iterator[Request]) -> Iterator[Request]:
        """Interactive and background requests in the order in which they leave together."""
        owed, share = self.owed, self.share
        first, second = next(front, None), next(back, None)
        while first and second:
            if owed >= (1 - share) * second.seats:
                owed -= (1 - share) * second.seats
                yield second
                second = next(back, None)
            else:
                owed += share * first.seats
                yield first
                first = next(front, None)
        if first or second:
            yield first or second  # type: ignore[misc]
        yield from front
        yield from back

    def settle(self, taken: list[Request]) -> None:
        """Count a batch that leaves while both wait; at most one such batch too much is owed."""
        seats = sum([request.seats for request in taken])
        used = sum([request.seats for request in taken if request.background])
        self.owed = max(self.owed + self.share * seats - used, -float(seats))
