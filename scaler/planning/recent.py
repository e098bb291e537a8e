"""What was computed lately, by key: it is computed once for each, and the oldest are forgotten.

Latency models, and whatever else need not be hashable, are told apart by identity (`Same`), not by
what they hold.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

__all__ = ["Recent", "Same"]

V = TypeVar("V")


class Same:
    """A part of a key: this very object, which lives as long as the key."""

    __slots__ = ("_one",)

    def __init__(self, one: object) -> None:
        self._one = one

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self._one is other._one

    def __hash__(self) -> int:
        return id(self._one)


class Recent(Generic[V]):
    """Values by key.

    Args:
        most: So many are kept; of more the one that was not asked for the longest goes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[Hashable, V] = OrderedDict()

    def keep(self, most: int) -> None:
        """Keep so many from now on; at least one."""
        self._most = max(1, most)
        while len(self._known) > self._most:
            self._known.popitem(last=False)

    def of(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value of ``key``, which ``make`` computes where it is not known."""
        known = self._known
        if key in known:
            known.move_to_end(key)
        else:
            known[key] = make()
            if len(known) > self._most:
                known.popitem(last=False)
        return known[key]
