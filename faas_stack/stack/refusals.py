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

__all__ = ["Refused", "until_refused"]

_PERIOD_S = 1.0
_TIMEOUT_S = 5.0
_LOOKS = 3  # in a row; a first plan may ask for more than the next
_OK = 200


class Refused(CarpoolError):
    """A function cannot have the instances that are planned for it."""


async def until_refused(url: str, token: str) -> NoReturn:
    """Ask a scaler again and again whether anything is refused for good.

    Args:
        url: of the scaler.
        token: what it asks for.

    Raises:
        Refused: something was, time and again.
    """
    pool = Pool(url.removeprefix("http://"), max_connections=1)
    looks: Counter[str] = Counter()
    try:
        while True:
            refused = await _refused(pool, token)
            looks = Counter({name: looks[name] + 1 for name in refused})
            for name, count in looks.items():
                if count >= _LOOKS:
                    message = f"{name} cannot have its instances: {refused[name]}"
                    raise Refused(message)
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
