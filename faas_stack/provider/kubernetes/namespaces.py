"""The namespaces of functions: the default one, and all that are labelled ``openfaas=1``."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from carpool.errors import BadRequest, CarpoolError
from carpool.task_set import TaskSet
from faas_stack.provider.kubernetes.api_errors import Forbidden
from faas_stack.provider.kubernetes.names import NAMESPACE_SELECTOR
from faas_stack.provider.kubernetes.namespace import NamespaceFunctions
from faas_stack.provider.kubernetes.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faas_stack.provider.kubernetes.api_server import ApiServer

__all__ = ["Namespaces"]

log = logging.getLogger(__name__)

_PATH = "/api/v1/namespaces"


class Namespaces:
    """Watches the namespaces and the functions in each.

    Args:
        api: API of the cluster.
        default: Namespace of functions that name none, labelled or not.
    """

    def __init__(self, api: ApiServer, default: str) -> None:
        self._api = api
        self.default = default
        self._open: dict[str, NamespaceFunctions] = {}
        self._watch = Watch(
            api, _PATH, NAMESPACE_SELECTOR, lambda namespace: str(namespace["metadata"]["name"])
        )
        self._tasks = TaskSet()

    async def open(self) -> None:
        """List the namespaces and their functions, and watch them from then on.

        Raises:
            CarpoolError: If the default namespace cannot be read.
        """
        home = self._open[self.default] = NamespaceFunctions(self._api, self.default)
        await home.open()
        try:
            others = await self._watch.first()
        except Forbidden:
            log.warning("carpool: namespaces may not be listed: functions are in %s", self.default)
            return
        for name in others:
            with contextlib.suppress(CarpoolError):  # retried later; its watches log the reason
                await self.add(name)
        self._tasks.start(self._watch.follow(self._listed, self._added, self._gone))

    @property
    def behind(self) -> bool:
        """Whether changes may currently be missed."""
        followed = (watch for each in self for watch in each.watches.values())
        return bool(self._watch.failed) or any(watch.failed for watch in followed)

    def __iter__(self) -> Iterator[NamespaceFunctions]:
        """Iterate over the namespaces of functions in order of name."""
        return iter([self._open[name] for name in sorted(self._open)])

    def get(self, name: str) -> NamespaceFunctions | None:
        """Return the namespace of that name. None if functions may not be in it."""
        return self._open.get(name)

    def find(self, name: str) -> NamespaceFunctions:
        """Return the namespace of that name.

        Raises:
            BadRequest: If functions may not be in it.
        """
        if namespace := self._open.get(name):
            return namespace
        message = (
            f"namespace = {name!r}: expected one that is labelled {NAMESPACE_SELECTOR}; "
            f"kubectl label namespace NAME {NAMESPACE_SELECTOR}"
        )
        raise BadRequest(message)

    async def close(self) -> None:
        """Stop watching."""
        self._tasks.cancel()
        await self._tasks.join()
        await asyncio.gather(*(namespace.close() for namespace in self._open.values()))

    async def add(self, name: str) -> None:
        """Add a namespace that was just labelled, before its watch reports it.

        Raises:
            CarpoolError: If it cannot be read yet; this is retried.
        """
        if name not in self._open:
            namespace = self._open[name] = NamespaceFunctions(self._api, name)
            await namespace.open()

    def _added(self, name: str) -> None:
        if name not in self._open:
            self._tasks.start(self._try(name))

    async def _try(self, name: str) -> None:
        with contextlib.suppress(CarpoolError):
            await self.add(name)

    def _gone(self, name: str) -> None:
        if name != self.default and (namespace := self._open.pop(name, None)):
            self._tasks.start(namespace.close())

    def _listed(self, names: list[str]) -> None:
        for name in self._open.keys() - set(names):
            self._gone(name)
        for name in names:
            self._added(name)
