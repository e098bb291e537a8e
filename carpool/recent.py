"""A cache of recently computed values by key; the least recently used are dropped.

Latency models, and other objects that need not be hashable, are compared by identity (`Same`), not
by content.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

__all__ = ["Recent", "Same"]

V = TypeVar("V")


class Same:
    """A part of a key that compares an object by identity, and keeps it alive."""

    __slots__ = ("_one",)

    def __init__(self, one: object) -> None:
        self._one = one

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self._one is other._one

    def __hash__(self) -> int:
        return id(self._one)


class Recent(Generic[V]):
    """A least-recently-used cache of values by key.

    Args:
        most: Maximum number of values.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[Hashable, V] = OrderedDict()

    def keep(self, most: int) -> None:
        """Change the maximum number of values, at least one."""
        self._most = max(1, most)
        while len(self._known) > self._most:
            self._known.popitem(last=False)

    def of(self, key: Hashable, make: Callable[[], V]) -> V:
        """Return the value of ``key``, calling ``make`` to compute it if it is unknown."""
        known = self._known
        if key in known:
            known.move_to_end(key)
        else:
            known[key] = make()
            if len(known) > self._most:
                known.popitem(last=False)
        return known[key]
