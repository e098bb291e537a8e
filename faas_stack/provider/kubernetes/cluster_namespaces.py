"""Namespaces of functions as the OpenFaaS API manages them.

The API server decides whether this provider may: the chart permits it only with
``gateway.manageNamespaces``.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from carpool.errors import CarpoolError, Conflict, NotFound
from faas_stack.provider.kubernetes.api_errors import Forbidden
from faas_stack.provider.kubernetes.names import NAMESPACE_SELECTOR
from faas_stack.provider.orchestrator import FunctionNamespace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from faas_stack.provider.kubernetes.api_server import ApiServer
    from faas_stack.provider.kubernetes.namespaces import Namespaces

__all__ = ["ClusterNamespaces"]

_PATH = "/api/v1/namespaces"


class ClusterNamespaces:
    """Namespaces that functions may be in; no others are shown or changed."""

    def __init__(self, api: ApiServer, namespaces: Namespaces) -> None:
        self._api = api
        self._namespaces = namespaces

    async def get(self, name: str) -> FunctionNamespace:
        """Return a namespace; without labels if not labelled for functions or not readable."""
        self._existing(name)
        namespaces: list[FunctionNamespace] = []
        with suppress(Forbidden):
            namespaces, _ = await self._api.list(_PATH, NAMESPACE_SELECTOR, _read)
        return next((each for each in namespaces if each.name == name), FunctionNamespace(name))

    async def create(self, namespace: FunctionNamespace) -> None:
        """Create a namespace."""
        await self._api.create(_PATH, {"metadata": namespace._asdict()})
        with suppress(CarpoolError):  # it exists now; its objects are listed again later
            await self._namespaces.add(namespace.name)

    async def update(self, namespace: FunctionNamespace) -> None:
        """Set labels and annotations; others stay, including those that Pod Security enforces."""
        change = {"labels": namespace.labels, "annotations": namespace.annotations}
        await self._api.merge(await self._labelled(namespace.name), {"metadata": change})

    async def remove(self, name: str) -> None:
        """Delete a namespace with everything in it."""
        if name == self._namespaces.default:
            message = f"namespace {name!r} is the default of functions and cannot be removed"
            raise Conflict(message)
        await self._api.remove(await self._labelled(name))

    def _existing(self, name: str) -> None:
        if self._namespaces.get(name) is None:
            raise _none(name)

    async def _labelled(self, name: str) -> str:
        """Return the path of a namespace after checking with the API server that it exists."""
        names = await self._api.names(_PATH, NAMESPACE_SELECTOR, f"metadata.name={name}")
        if name not in (*names, self._namespaces.default):
            raise _none(name)
        return f"{_PATH}/{quote(name, safe='')}"


def _none(name: str) -> NotFound:
    return NotFound(f"no namespace {name!r} of functions")


def _read(stored: Mapping[str, Any]) -> FunctionNamespace:
    metadata = stored["metadata"]
    labels, annotations = metadata.get("labels", {}), metadata.get("annotations", {})
    return FunctionNamespace(metadata["name"], labels, annotations)
