"""Watch over a collection of objects: listed once, then followed change by change.

A watch continues from the last version seen. It may end after any event, with status 200 and
without an error; this is normal. If the API server has forgotten that version (status
410 or an event that says so), the collection is listed again. Until then its known content is kept.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import orjson

from carpool.backoff import Backoff
from carpool.errors import CarpoolError
from faas_stack.provider.kubernetes.api_errors import Expired, refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from faas_stack.provider.kubernetes.api_server import ApiServer

__all__ = ["Watch"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_SPAN_S = 60  # one watch; with a bookmark near its end, it continues from there
_SILENCE_S = _SPAN_S + 15.0  # longer without an event: the connection is dead
_FIRST_WAIT_S, _LONGEST_WAIT_S, _HEALTHY_S = 0.05, 10.0, 5.0


class Watch(Generic[T]):
    """Follows one collection until its task is cancelled.

    Args:
        api: API server that has the collection.
        path: Path of the collection.
        selector: Label selector; empty for all objects.
        read: Converts an object to what is kept of it; None for objects that are not ours.

    Attributes:
        listings: Number of times that the whole collection was read.
        ends: Number of times that a watch ended and was restarted.
        failed: Why changes are currently not received; empty if they are.
    """

    def __init__(
        self, api: ApiServer, path: str, selector: str, read: Callable[[dict[str, Any]], T | None]
    ) -> None:
        self._api = api
        self._path = path
        self._selector = selector
        self._read = read
        self._version = ""
        self.listings = 0
        self.ends = 0
        self.failed = ""

    async def first(self) -> list[T]:
        """Return all current objects; `follow` continues from here.

        Raises:
            CarpoolError: The API server refuses the request or cannot be reached.
        """
        items, self._version = await self._api.list(self._path, self._selector, self._known)
        self.listings += 1
        return [each for each in items if each is not None]

    async def follow(
        self,
        listed: Callable[[list[T]], object],
        changed: Callable[[T], object],
        gone: Callable[[T], object],
    ) -> None:
        """Report all changes until cancelled, retrying after any error.

        Args:
            listed: Called with all objects when changes may have been missed.
            changed: Called with an object that is new or has changed.
            gone: Called with an object that was deleted.
        """
        loop, backoff = (
            asyncio.get_running_loop(),
            Backoff(_FIRST_WAIT_S, _LONGEST_WAIT_S, _HEALTHY_S),
        )
        while True:
            began, version = loop.time(), self._version
            try:
                if not self._version:
                    listed(await self.first())
                await self._events(changed, gone)
            except Expired:
                self._version = ""
            except CarpoolError as error:
                self._fails(str(error))
            except Exception as error:  # nothing else looks at this task
                log.exception(
                    "carpool: an event of the watch %s could not be processed", self._path
                )
                self._fails(repr(error))
                self._version = ""
            self.ends += 1
            progress = self._version not in ("", version)
            lived_s = _HEALTHY_S if progress else loop.time() - began
            await asyncio.sleep(backoff.after(lived_s))

    def _fails(self, why: str) -> None:
        if not self.failed:
            log.warning("carpool: watching %s failed: %s", self._path, why)
        self.failed = why

    def _opened(self) -> None:
        if self.failed:
            log.warning("carpool: watching %s again", self._path)
        self.failed = ""

    def _known(self, stored: dict[str, Any]) -> T | None:
        """Return what is kept of an object; None, with a warning, if it cannot be read."""
        try:
            return self._read(stored)
        except Exception as error:  # noqa: BLE001 - of whatever form it is
            name = stored.get("metadata", {}).get("name", "")
            log.warning("carpool: %s/%s cannot be read: %r", self._path, name, error)
            return None

    async def _events(self, changed: Callable[[T], object], gone: Callable[[T], object]) -> None:
        """Report changes until the watch ends.

        Raises:
            Expired: The whole collection has to be listed again.
        """
        params = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "labelSelector": self._selector,
            "resourceVersion": self._version,
            "timeoutSeconds": str(_SPAN_S),
        }
        async for line in self._api.lines(self._path, params, _SILENCE_S, opened=self._opened):
            event = orjson.loads(line)
            event_type, stored = event["type"], event["object"]
            if event_type == "ERROR":
                raise refusal(int(stored.get("code", 500)), orjson.dumps(stored))
            self._version = stored["metadata"]["resourceVersion"]
            if event_type == "BOOKMARK" or (known := self._known(stored)) is None:
                continue
            (gone if event_type == "DELETED" else changed)(known)
