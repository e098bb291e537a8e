"""Detection of scaled functions whose instances the provider will never accept."""

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

__all__ = ["CHECKS", "InstancesRefused", "RefusalCounter", "until_refused"]

_PERIOD_S = 1.0
_TIMEOUT_S = 5.0
CHECKS = 3  # in a row; a first plan may request more than the next
_OK = 200


class InstancesRefused(CarpoolError):
    """Raised when a function cannot have its planned instances."""


class RefusalCounter:
    """Tells permanent refusals from those of a first plan that asked for too much."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def take(self, refused: Mapping[str, str]) -> None:
        """Record the present refusals: the reason, by function.

        Raises:
            InstancesRefused: A function was refused in `CHECKS` checks in a row.
        """
        self._counts = Counter({name: self._counts[name] + 1 for name in refused})
        for name, count in self._counts.items():
            if count >= CHECKS:
                message = f"the instances of {name} are refused: {refused[name]}"
                raise InstancesRefused(message)


async def until_refused(url: str, token: str) -> NoReturn:
    """Query a scaler repeatedly until a function's instances are permanently refused.

    Args:
        url: URL of the scaler.
        token: Token that the scaler requires.

    Raises:
        InstancesRefused: A function was refused repeatedly.
    """
    pool = Pool(url.removeprefix("http://"), max_connections=1)
    refusals = RefusalCounter()
    try:
        while True:
            refusals.take(await _refused(pool, token))
            await asyncio.sleep(_PERIOD_S)
    finally:
        pool.close()


async def _refused(pool: Pool, token: str) -> Mapping[str, str]:
    """Return the reasons of refusals by function; empty if the scaler does not respond."""
    headers = [("authorization", f"Bearer {token}")]
    try:
        answer = await pool.request("GET", FUNCTIONS, headers, b"", _TIMEOUT_S)
    except (CarpoolError, TimeoutError):
        return {}  # the scaler is restarting or busy
    document: Any = json.loads(answer.body) if answer.status == _OK else {"functions": ()}
    return {
        each["name"]: " ".join(each["refused"]) for each in document["functions"] if each["refused"]
    }
