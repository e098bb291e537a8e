"""``/system/namespace/NAME``: one namespace of functions, as used by ``faas-cli namespace``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from carpool import function_name
from carpool.errors import BadRequest
from carpool.validation.problems import Problems
from faas_stack.provider.deployment import text_map
from faas_stack.provider.orchestrator import FunctionNamespace

if TYPE_CHECKING:
    from faas_stack.provider.orchestrator import NamespaceStore
    from faas_stack.provider.request import Answer, Request

__all__ = ["NamespaceRoutes"]

_LABEL, _VALUE = "openfaas", "1"
_RESERVED = ".kubernetes.io"  # includes the labels of Pod Security
_NAME = re.compile(function_name.PATTERN)


class NamespaceRoutes:
    """Routes for the namespaces of one orchestrator."""

    def __init__(self, namespaces: NamespaceStore) -> None:
        self._namespaces = namespaces

    @property
    def answers(self) -> dict[str, Answer]:
        """Handlers by method; a new namespace may be named in the body alone."""
        return {
            "GET": self._get,
            "POST": self._create,
            "PUT": self._update,
            "DELETE": self._remove,
        }

    async def _get(self, request: Request) -> int:
        namespace = await self._namespaces.get(request.name)
        return request.reply(namespace._asdict())

    async def _create(self, request: Request) -> int:
        await self._namespaces.create(_requested(request))
        return 201

    async def _update(self, request: Request) -> int:
        await self._namespaces.update(_requested(request))
        return 202

    async def _remove(self, request: Request) -> int:
        await self._namespaces.remove(_requested(request).name)
        return 202


def _requested(request: Request) -> FunctionNamespace:
    """Return the namespace in a request's body.

    Raises:
        BadRequest: It lacks a name or the label of function namespaces.
        ConfigError: It is malformed, or its name differs from the one in the path.
    """
    body, problems = request.body(), Problems()
    name = body.required("name")
    labels = text_map(body.document, "labels", problems) or {}
    annotations = text_map(body.document, "annotations", problems) or {}
    if not _NAME.fullmatch(name) or request.name not in ("", name):
        expected = request.name or "lower-case letters, digits and inner dashes, at most 63"
        problems.add("name", name, expected)
    for key in labels:
        if key.partition("/")[0].endswith(_RESERVED):
            problems.add(f"labels.{key}", labels[key], f"no label of *{_RESERVED}/: kubectl label")
    problems.raise_if_any()
    if labels.get(_LABEL) != _VALUE:
        message = f"labels: expected {_LABEL}: {_VALUE!r}, as on every namespace of functions"
        raise BadRequest(message)
    return FunctionNamespace(name, labels, annotations)
