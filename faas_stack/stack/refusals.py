"""Ends the wait for a scaled function whose instances the provider will never accept."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import TYPE_CHECKING, Any, NoReturn

from carpool.errors import CarpoolError
from carpool.http.client import Pool
from scaler.web.documents import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LOOKS", "Looks", "Refused", "until_refused"]

_PERIOD_S = 1.0
_TIMEOUT_S = 5.0
LOOKS = 3  # in a row; a first plan may ask for more than the next
_OK = 200


class Refused(CarpoolError):
    """A function cannot have the instances that are planned for it."""


class Looks:
    """Tells what is refused for good from what a first plan asked for too much."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def take(self, refused: Mapping[str, str]) -> None:
        """Note what is refused now: the reason, by function.

        Raises:
            Refused: a function was at this look and those before it.
        """
        self._counts = Counter({name: self._counts[name] + 1 for name in refused})
        for name, count in self._counts.items():
            if count >= LOOKS:
                message = f"{name} cannot get its instances: {refused[name]}"
                raise Refused(message)


async def until_refused(url: str, token: str) -> NoReturn:
    """Ask a scaler again and again whether anything is refused for good.

    Args:
        url: of the scaler.
        token: what it asks for.

    Raises:
        Refused: something was, time and again.
    """
    pool = Pool(url.removeprefix("http://"), max_connections=1)
    looks = Looks()
    try:
        while True:
            looks.take(await _refused(pool, token))
            await asyncio.sleep(_PERIOD_S)
    finally:
        pool.close()


async def _refused(pool: Pool, token: str) -> Mapping[str, str]:
    """What is refused, by function; nothing where the scaler does not say."""
    headers = [("authorization", f"Bearer {token}")]
    try:
        answer = await pool.request("GET", FUNCTIONS, headers, b"", _TIMEOUT_S)
    except (CarpoolError, TimeoutError):
        return {}  # it is started again, or busy
    found: Any = json.loads(answer.body) if answer.status == _OK else {"functions": ()}
    return {
        each["name"]: " ".join(each["refused"]) for each in found["functions"] if each["refused"]
    }
