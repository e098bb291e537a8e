"""Namespaces of functions on one machine; each exists as long as it has functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool.errors import NotFound
from faas_stack.provider.orchestrator import FunctionNamespace, Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

__all__ = ["ImpliedNamespaces"]


class ImpliedNamespaces:
    """The existing namespaces.

    Args:
        names: Returns their current names.
    """

    def __init__(self, names: Callable[[], Collection[str]]) -> None:
        self._names = names

    async def get(self, name: str) -> FunctionNamespace:
        """Return the namespace with the given name."""
        if name in self._names():
            return FunctionNamespace(name)
        message = f"no namespace {name!r}"
        raise NotFound(message)

    async def create(self, namespace: FunctionNamespace) -> None:
        """Refuse to create a namespace."""
        raise _unsupported(namespace.name)

    async def update(self, namespace: FunctionNamespace) -> None:
        """Refuse to update a namespace."""
        raise _unsupported(namespace.name)

    async def remove(self, name: str) -> None:
        """Refuse to remove a namespace."""
        raise _unsupported(name)


def _unsupported(name: str) -> Unsupported:
    return Unsupported(
        f"namespace {name!r}: here a namespace exists while it has functions; deploy one to "
        "it, or remove all of them"
    )
