"""The functions' secrets as Secrets of their namespace; values are written and never read."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from carpool.errors import NotFound
from faas_stack.provider.kubernetes.api_server import METADATA, collection
from faas_stack.provider.kubernetes.names import ID, MANAGED, SELECTOR

if TYPE_CHECKING:
    from collections.abc import Collection

    from faas_stack.provider.kubernetes.api_server import ApiServer
    from faas_stack.provider.kubernetes.namespaces import Namespaces

__all__ = ["SECRETS", "ClusterSecrets"]

SECRETS = "v1/secrets"
_SELECTOR = f"{SELECTOR},!{ID}"  # excludes the tokens of functions
_LOGINS = ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg")  # pull secrets


class ClusterSecrets:
    """Secrets that were created through the OpenFaaS API.

    A function may name any Secret of its namespace except another function's token; this API lists
    and changes only its own.
    """

    def __init__(self, api: ApiServer, namespaces: Namespaces) -> None:
        self._api = api
        self._namespaces = namespaces

    async def names(self, namespace: str) -> list[str]:
        """Return the names of a namespace's secrets, in order."""
        self._namespaces.find(namespace)
        return await self._api.names(collection(SECRETS, namespace), _SELECTOR)

    async def create(self, name: str, namespace: str, value: bytes) -> None:
        """Create a secret, whose value functions read from a file of its name."""
        self._namespaces.find(namespace)
        await self._api.create(collection(SECRETS, namespace), _secret(name, value))

    async def update(self, name: str, namespace: str, value: bytes) -> None:
        """Replace a secret's value, which running functions see after a while."""
        path = await self._existing(name, namespace)
        await self._api.merge(path, {"data": _secret(name, value)["data"]})

    async def remove(self, name: str, namespace: str) -> None:
        """Delete a secret."""
        await self._api.remove(await self._existing(name, namespace))

    async def exists(self, name: str, namespace: str) -> bool:
        """Return whether the secret exists and a function may use it."""
        secret = await self._api.find(collection(SECRETS, namespace, name), METADATA)
        return secret is not None and ID not in _labels(secret)

    async def logins(self, names: Collection[str], namespace: str) -> frozenset[str]:
        """Return which of these secrets are registry logins, used to pull images."""
        secrets: set[str] = set()
        for secret_type in _LOGINS if names else ():
            path = collection(SECRETS, namespace)
            secrets |= set(await self._api.names(path, fields=f"type={secret_type}"))
        return frozenset(secrets.intersection(names))

    async def _existing(self, name: str, namespace: str) -> str:
        self._namespaces.find(namespace)
        path = collection(SECRETS, namespace, name)
        existing = await self._api.find(path, METADATA)
        if not existing or ID in _labels(existing) or MANAGED.items() - _labels(existing).items():
            message = f"no secret {name!r} in namespace {namespace!r}"
            raise NotFound(message)
        return path


def _labels(secret: dict[str, Any]) -> dict[str, str]:
    labels: dict[str, str] = secret["metadata"].get("labels", {})
    return labels


def _secret(name: str, value: bytes) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": MANAGED},
        "data": {name: base64.b64encode(value).decode()},
    }
