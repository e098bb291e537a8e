"""The first of many things, in a given order, that is within two limits: in logarithmic time.

Theory of operation
-------------------
The things are the leaves of a binary tree in their order. A node keeps the staircase of the things
below it: those of which no other has both measures lower, by rising first and falling second
measure. A binary search in it says whether anything below is within both limits, so the way down
from the root, left wherever there is something on the left, never has to turn back. A look-up
takes a binary search for each level. A change merges the staircases above it; they are short
unless one measure is bought with the other, and at worst as long as there are things.
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
    """Numbers things 0, 1, ... in the order of preference.

    Args:
        measures: Two of each.
        present: Which of them are there; all unless given.
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
        """The first thing there with measures of at most these; None without any."""
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
        """The thing is there from now on."""
        self._change(number, self._leaf(number))

    def remove(self, number: int) -> None:
        """The thing is not there any more."""
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
    """The staircase of both; of equal steps one."""
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
