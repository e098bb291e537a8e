"""Find the cheapest division of applications into arbitrary sets, each of which is settled.

`bounded` returns its cost, and the lowest cost found if a part of an application's requests may go
to another group.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scaler.policies.harmonybatch.adjacent_groups import AdjacentGroups

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scaler.policies.harmonybatch.offers import Offers
    from scaler.policies.harmonybatch.settling import Group, Member, Settling

__all__ = ["Bounded", "bounded", "cheapest_division"]

_PARTS = (0.1, 0.25, 0.5, 0.75, 0.9)  # of an application's requests that go to another group


@dataclass(frozen=True, slots=True)
class Bounded:
    """Costs per second.

    Attributes:
        sets: The cheapest division into sets.
        split: With a part of one application's requests in another set, or in a set of its own.
    """

    sets: float
    split: float


def bounded(members: Sequence[Member], offers: Offers, settling: Settling) -> Bounded:
    """Return the costs over all subsets of the members, which are ordered by objective.

    The time is exponential in the number of members.
    """

    def settled(group: Sequence[Member]) -> Group | None:
        groups = AdjacentGroups(group, offers, settling).served((0, len(group) - 1))
        return groups[0] if len(groups) == 1 and len(groups[0].members) == len(group) else None

    def money(group: Sequence[Member]) -> float:
        group_alone = settled(group)
        return group_alone.cost * group_alone.rate_rps if group_alone else math.inf

    sets, parts = cheapest_division(members, money)
    split = min((sum(map(money, moved)) for moved in _moved(parts)), default=math.inf)
    return Bounded(sets, split)


def cheapest_division(
    members: Sequence[Member], money: Callable[[Sequence[Member]], float]
) -> tuple[float, list[list[Member]]]:
    """Return the cheapest of all divisions into sets.

    Args:
        members: Ordered by objective; all subsets of them are priced.
        money: Cost of a set per second.

    Returns:
        Its cost, and its sets.
    """
    every = range(1, 1 << len(members))
    costs = {mask: money(_of(members, mask)) for mask in every}
    best: dict[int, tuple[float, list[int]]] = {0: (0.0, [])}
    for mask in every:
        best[mask] = min(
            (best[mask ^ part][0] + costs[part], [*best[mask ^ part][1], part])
            for part in _parts_with_the_first(mask)
        )
    least, masks = best[every[-1]]
    return least, [_of(members, mask) for mask in masks]


def _of(members: Sequence[Member], mask: int) -> list[Member]:
    return [member for place, member in enumerate(members) if mask >> place & 1]


def _parts_with_the_first(mask: int) -> Iterator[int]:
    """Yield all subsets of ``mask`` that contain its first member."""
    first = mask & -mask
    rest = part = mask ^ first
    while True:
        yield part | first
        if not part:
            return
        part = (part - 1) & rest


def _moved(parts: Sequence[list[Member]]) -> Iterator[list[list[Member]]]:
    """Yield divisions in which a part of one application's requests is in another set."""
    for at, part in enumerate(parts):
        for member in part:
            for share in _PARTS:
                moving, staying = (
                    dataclasses.replace(member, rate_rps=member.rate_rps * of)
                    for of in (share, 1 - share)
                )
                without = [staying if each is member else each for each in part]
                others = [each for place, each in enumerate(parts) if place != at]
                yield [without, [moving], *others]
                for place, other in enumerate(others):
                    joined = sorted([*other, moving], key=lambda each: each.slo_s)
                    yield [without, joined, *others[:place], *others[place + 1 :]]
