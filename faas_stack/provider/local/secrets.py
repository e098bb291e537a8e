"""The functions' secrets as required by the REST API, stored as files by a `SecretStore`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from faas_stack.provider.secrets import SecretStore

__all__ = ["LocalSecrets"]


class LocalSecrets:
    """Asynchronous interface to a secret store, whose errors it passes on."""

    def __init__(self, store: SecretStore) -> None:
        self._store = store

    async def names(self, namespace: str) -> list[str]:
        """Return the names of a namespace's secrets, sorted."""
        return self._store.names(namespace)

    async def create(self, name: str, namespace: str, value: bytes) -> None:
        """Add a secret."""
        self._store.create(name, namespace, value)

    async def update(self, name: str, namespace: str, value: bytes) -> None:
        """Replace a secret's value."""
        self._store.update(name, namespace, value)

    async def remove(self, name: str, namespace: str) -> None:
        """Delete a secret."""
        self._store.remove(name, namespace)
