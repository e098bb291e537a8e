"""A request to the REST API as its handlers see it: names, query, the JSON object in its body.

Independent of functions and secrets.
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
    """A request, with the name in its path and its query."""

    exchange: Exchange
    name: str
    query: dict[str, str]
    default_namespace: str = DEFAULT_NAMESPACE

    @property
    def namespace(self) -> str:
        """Namespace in the query; empty if it names none."""
        return self.query.get("namespace", "")

    def split(self, name: str, namespace: str = "") -> tuple[str, str]:
        """Return the function name and namespace of ``NAME`` or ``NAME.NAMESPACE``."""
        return split_name(name, namespace, self.default_namespace)

    def body(self) -> Body:
        """Return the JSON object in the body.

        Raises:
            BadRequest: The body is not a JSON object.
        """
        return Body(read_object(self.exchange.body), self)

    def reply(self, document: Any) -> int:  # noqa: ANN401 - any JSON
        """Respond with JSON, and return the status."""
        self.exchange.reply(200, json.dumps(document, ensure_ascii=False).encode())
        return 200


class Body(NamedTuple):
    """The JSON object in a request's body, with the request."""

    document: dict[str, Any]
    request: Request

    @property
    def namespace(self) -> str:
        """Namespace in the body, else in the query, else the default, as clients use either.

        Raises:
            ConfigError: It is not text.
        """
        problems = Problems()
        named = take(self.document, "namespace", "", problems)
        problems.raise_if_any()
        return self.request.split("", named or self.request.namespace)[1]

    def required(self, key: str) -> str:
        """Return the text of a required key.

        Raises:
            BadRequest: It is missing or empty.
            ConfigError: It is not text.
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
