"""Search for the first of many items, in a given order, within two limits in logarithmic time.

Theory of operation
-------------------
The items are the leaves of a binary tree in their order. A node keeps the staircase of the items
below it: those of which no other item has both measures lower, by rising first and falling second
measure. A binary search in it tells whether any item below is within both limits. So the way down
from the root, left wherever an item on the left is within them, never has to turn back. A look-up
takes a binary search for each level. A change merges the staircases above it. They are short unless
one measure is traded for the other, and at worst as long as there are items.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["FirstFit"]

_Stairs: TypeAlias = "tuple[array[float], array[float]]"  # rising, and falling

_NONE: _Stairs = (array("d"), array("d"))


class FirstFit:
    """Items numbered 0, 1, ... in the order of preference.

    Args:
        measures: Two measures of each item.
        present: Numbers of the items that are present; None for all.
    """

    __slots__ = ("_leaves", "_measures", "_stairs")

    def __init__(
        self, measures: Sequence[tuple[float, float]], present: Iterable[int] | None = None
    ) -> None:
        self._measures = list(measures)
        self._leaves = 1 << max(len(self._measures) - 1, 0).bit_length()
        self._stairs: list[_Stairs] = [_NONE] * (2 * self._leaves)
        for number in range(len(self._measures)) if present is None else present:
            self._stairs[self._leaves + number] = self._leaf(number)
        for node in range(self._leaves - 1, 0, -1):
            self._stairs[node] = _merged(self._stairs[2 * node], self._stairs[2 * node + 1])

    def first(self, most: float, second_most: float) -> int | None:
        """Return the first present item with measures of at most these; None if there is none."""
        stairs = self._stairs
        rising, falling = stairs[1]
        step = bisect_right(rising, most)
        if not step or falling[step - 1] > second_most:
            return None
        node, leaves = 1, self._leaves
        while node < leaves:
            node *= 2
            rising, falling = stairs[node]
            step = bisect_right(rising, most)
            if not step or falling[step - 1] > second_most:
                node += 1
        return node - leaves

    def put(self, number: int) -> None:
        """Mark the item as present."""
        self._change(number, self._leaf(number))

    def remove(self, number: int) -> None:
        """Mark the item as absent."""
        self._change(number, _NONE)

    def _leaf(self, number: int) -> _Stairs:
        first, second = self._measures[number]
        return array("d", [first]), array("d", [second])

    def _change(self, number: int, leaf: _Stairs) -> None:
        stairs, node = self._stairs, self._leaves + number
        stairs[node] = leaf
        while node > 1:
            node //= 2
            merged = _merged(stairs[2 * node], stairs[2 * node + 1])
            if merged == stairs[node]:
                break
            stairs[node] = merged


def _merged(one: _Stairs, other: _Stairs) -> _Stairs:
    """Return the staircase of both; equal steps appear once."""
    if not one[0] or not other[0]:
        return one if one[0] else other
    rising, falling = array("d"), array("d")  # side by side: long ones are searched often
    lowest = math.inf
    for first, second in sorted([*zip(*one, strict=True), *zip(*other, strict=True)]):
        if second < lowest:
            rising.append(first)
            falling.append(second)
            lowest = second
    return rising, falling
