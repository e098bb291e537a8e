"""A request of the REST API as its answers see it: names, query, the JSON object in its body.

Knows no functions and no secrets.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from carpool.errors import BadRequest
from carpool.validation.problems import Problems
from faas_stack.provider.deployment import DEFAULT_NAMESPACE, read_object, split_name, take

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from carpool.http.server import Exchange

__all__ = ["Answer", "Body", "Request"]


class Request(NamedTuple):
    """A request, with what its path and query say."""

    exchange: Exchange
    name: str
    query: dict[str, str]
    default_namespace: str = DEFAULT_NAMESPACE

    @property
    def namespace(self) -> str:
        """The namespace in the query, if it names one."""
        return self.query.get("namespace", "")

    def split(self, name: str, namespace: str = "") -> tuple[str, str]:
        """Function name and namespace of ``NAME`` or ``NAME.NAMESPACE``."""
        return split_name(name, namespace, self.default_namespace)

    def body(self) -> Body:
        """The JSON object that was sent.

        Raises:
            BadRequest: there is none.
        """
        return Body(read_object(self.exchange.body), self)

    def reply(self, document: Any) -> int:  # noqa: ANN401 - any JSON
        """Answer with JSON; the status."""
        self.exchange.reply(200, json.dumps(document, ensure_ascii=False).encode())
        return 200


class Body(NamedTuple):
    """The JSON object in a request's body, and the request."""

    document: dict[str, Any]
    request: Request

    @property
    def namespace(self) -> str:
        """From the body, else the query, else the default: clients use either.

        Raises:
            ConfigError: it is not text.
        """
        problems = Problems()
        named = take(self.document, "namespace", "", problems)
        problems.raise_if_any()
        return self.request.split("", named or self.request.namespace)[1]

    def required(self, key: str) -> str:
        """The text of a key that must be there.

        Raises:
            BadRequest: it is not, or empty.
            ConfigError: it is not text.
        """
        problems = Problems()
        value = take(self.document, key, "", problems)
        problems.raise_if_any()
        if not value:
            message = f"{key}: expected text that is not empty"
            raise BadRequest(message)
        return value


if TYPE_CHECKING:
    Answer = Callable[[Request], Awaitable[int]]
