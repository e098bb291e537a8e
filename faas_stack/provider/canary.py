"""Which function answers a call, by the shares that the label ``com.carpool.canary`` says. Pure.

A caller who is known by a key always gets the same function, as long as shares stay, and a share
that grows keeps its callers. Other calls are dealt in turn: of any stretch of them, each function
has its share to within a call or two.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.http.server import Exchange

__all__ = ["VERSION_HEADER", "Division", "caller_key"]

VERSION_HEADER = b"x-carpool-function"  # of an answer: which function it is of
_USER = b"x-carpool-user"
_ALL = 100.0  # percent
_DIGEST = 6  # bytes: as many as a float holds exactly


class Division:
    """Divides the calls of one function.

    Args:
        stable: the function itself, which gets what is left.
        percents: of the calls, by the other functions; at most 100 together.
    """

    def __init__(self, stable: str, percents: Mapping[str, float]) -> None:
        self._stable = stable
        self._canaries = percents
        self._percents = {stable: _ALL - sum(percents.values()), **percents}
        self._credits = dict.fromkeys(self._percents, 0.0)

    def next(self, key: bytes | None) -> str:
        """The function that the next call goes to; one without a key counts."""
        return self._of_key(key) if key else self._dealt()

    def _dealt(self) -> str:
        """The one that is furthest behind its share."""
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
    """What a caller is known by: the header ``X-Carpool-User``, or the cookie of that name."""
    return exchange.header(_USER) or _cookie(exchange.header(b"cookie") or b"")


def _cookie(cookies: bytes) -> bytes | None:
    pairs = (each.strip().partition(b"=") for each in cookies.split(b";"))
    return next((value for name, _, value in pairs if name.lower() == _USER), None)
