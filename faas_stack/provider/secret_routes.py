"""``/system/secrets``: names and changes of secrets; never a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faas_stack.provider.deployment import split_name
from faas_stack.provider.secrets import value_of

if TYPE_CHECKING:
    from faas_stack.provider.request import Answer, Request
    from faas_stack.provider.secrets import SecretStore

__all__ = ["SecretRoutes"]


class SecretRoutes:
    """Answers for one store."""

    def __init__(self, secrets: SecretStore) -> None:
        self._secrets = secrets

    @property
    def answers(self) -> dict[str, Answer]:
        """By method."""
        return {
            "GET": self._list,
            "POST": self._create,
            "PUT": self._update,
            "DELETE": self._remove,
        }

    async def _list(self, request: Request) -> int:
        namespace = split_name("", request.namespace)[1]
        names = self._secrets.names(namespace)
        return request.reply([{"name": name, "namespace": namespace} for name in names])

    async def _create(self, request: Request) -> int:
        body = request.body()
        self._secrets.create(body.required("name"), body.namespace, value_of(body.document))
        return 202

    async def _update(self, request: Request) -> int:
        body = request.body()
        self._secrets.update(body.required("name"), body.namespace, value_of(body.document))
        return 202

    async def _remove(self, request: Request) -> int:
        body = request.body()
        self._secrets.remove(body.required("name"), body.namespace)
        return 202
