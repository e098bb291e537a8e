"""A cache of values that requests repeat, which clients cannot fill with megabytes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SmallCache"]

_KEPT = 1024
_LARGEST = 2048  # larger ones are rare, and do not repeat

_K = TypeVar("_K", bytes, str)
_V = TypeVar("_V")


class SmallCache(Generic[_K, _V]):
    """Cache of the latest thousand results of a function of bytes or text, except large ones."""

    def __init__(self, function: Callable[[_K], _V]) -> None:
        self._function: Callable[[_K], _V] = function
        self._kept = functools.lru_cache(maxsize=_KEPT)(function)

    def __call__(self, key: _K) -> _V:
        """Return the result of the function for ``key``, from the cache if possible."""
        return self._kept(key) if len(key) <= _LARGEST else self._function(key)

    def __len__(self) -> int:
        return self._kept.cache_info().currsize
