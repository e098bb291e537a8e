"""Selects the function that answers a call, by the label ``com.carpool.canary``. Pure.

A caller with a key always gets the same function while shares do not change, and a share that grows
keeps its callers. Other calls are distributed in turn: in any sequence of them, each function gets
its share to within a call or two.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.http.server import Exchange

__all__ = ["VERSION_HEADER", "Division", "caller_key"]

VERSION_HEADER = b"x-carpool-function"  # in responses: the function that answered
_USER = b"x-carpool-user"
_ALL = 100.0  # percent
_DIGEST = 6  # bytes, so that the number fits a float exactly


class Division:
    """Division of one function's calls.

    Args:
        stable: The function itself, which gets the remaining calls.
        percents: Percentages of the other functions; at most 100 together.
    """

    def __init__(self, stable: str, percents: Mapping[str, float]) -> None:
        self._stable = stable
        self._canaries = percents
        self._percents = {stable: _ALL - sum(percents.values()), **percents}
        self._credits = dict.fromkeys(self._percents, 0.0)

    def next(self, key: bytes | None) -> str:
        """Return the function for the next call; calls without a key are distributed in turn."""
        return self._of_key(key) if key else self._dealt()

    def _dealt(self) -> str:
        """Return the function that is furthest behind its share."""
        due = self._credits
        for name, percent in self._percents.items():
            due[name] += percent
        chosen = max(due, key=due.__getitem__)
        due[chosen] -= _ALL
        return chosen

    def _of_key(self, key: bytes) -> str:
        digest = hashlib.blake2b(key, digest_size=_DIGEST, key=self._stable.encode()).digest()
        point = int.from_bytes(digest) / 256**_DIGEST * _ALL
        for name, percent in self._canaries.items():
            if point < percent:
                return name
            point -= percent
        return self._stable


def caller_key(exchange: Exchange) -> bytes | None:
    """Return the caller's key: the header ``X-Carpool-User``, or the cookie of that name."""
    return exchange.header(_USER) or _cookie(exchange.header(b"cookie") or b"")


def _cookie(cookies: bytes) -> bytes | None:
    pairs = (each.strip().partition(b"=") for each in cookies.split(b";"))
    return next((value for name, _, value in pairs if name.lower() == _USER), None)
