"""``/system/secrets``: lists names and changes secrets; never returns a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faas_stack.provider.secrets import value_of

if TYPE_CHECKING:
    from faas_stack.provider.orchestrator import Secrets
    from faas_stack.provider.request import Answer, Request

__all__ = ["SecretRoutes"]


class SecretRoutes:
    """Routes for the secrets of one orchestrator."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    @property
    def answers(self) -> dict[str, Answer]:
        """Handlers by method."""
        return {
            "GET": self._list,
            "POST": self._create,
            "PUT": self._update,
            "DELETE": self._remove,
        }

    async def _list(self, request: Request) -> int:
        namespace = request.split("", request.namespace)[1]
        names = await self._secrets.names(namespace)
        return request.reply([{"name": name, "namespace": namespace} for name in names])

    async def _create(self, request: Request) -> int:
        body = request.body()
        await self._secrets.create(body.required("name"), body.namespace, value_of(body.document))
        return 202

    async def _update(self, request: Request) -> int:
        body = request.body()
        await self._secrets.update(body.required("name"), body.namespace, value_of(body.document))
        return 202

    async def _remove(self, request: Request) -> int:
        body = request.body()
        await self._secrets.remove(body.required("name"), body.namespace)
        return 202
