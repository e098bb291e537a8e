"""Converts refusals of the API server to errors of the OpenFaaS API with its message. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import orjson

from carpool.errors import (
    BadRequest,
    BodyTooLarge,
    CarpoolError,
    ClientFault,
    Conflict,
    NotFound,
    Overloaded,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AlreadyExists", "Expired", "Forbidden", "Overtaken", "refusal"]

_UNAUTHORIZED, _CONFLICT, _GONE, _TOO_MANY, _SERVER_ERRORS = 401, 409, 410, 429, 500
_SHOWN = 500  # characters of a message that is no Status


class Forbidden(ClientFault):
    """Raised when admission, a quota or the provider's own rights forbid the change."""

    status: ClassVar[int] = 403


class AlreadyExists(Conflict):
    """Raised when an object of that name exists."""


class Overtaken(Conflict):
    """Raised when another change came in between; a retry may succeed."""


class Expired(CarpoolError):
    """Raised when the API server no longer has the version to continue a watch or list from."""


_BY_STATUS: Mapping[int, type[ClientFault]] = {
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: BodyTooLarge,
}
_CONFLICTS: Mapping[str, type[Conflict]] = {"AlreadyExists": AlreadyExists, "Conflict": Overtaken}


def refusal(status: int, body: bytes) -> CarpoolError:
    """Return the error for a response with this status."""
    message = _member(body, "message") or _start(body) or f"status {status}"
    if status == _GONE:
        return Expired(message)
    if status == _UNAUTHORIZED:
        return Overloaded(f"the API server does not accept the provider's credentials: {message}")
    if status == _TOO_MANY or status >= _SERVER_ERRORS:
        return Overloaded(f"the API server says {status}: {message}", 1.0)
    error_class = _BY_STATUS.get(status, BadRequest)
    if status == _CONFLICT:
        error_class = _CONFLICTS.get(_member(body, "reason"), error_class)
    return error_class(f"the API server refused it: {message}")


def _member(body: bytes, name: str) -> str:
    """Return a member of a Status. Empty if the response is not one."""
    try:
        return str(orjson.loads(body)[name])
    except (ValueError, KeyError, TypeError):
        return ""


def _start(body: bytes) -> str:
    return body[:_SHOWN].decode("utf-8", "replace").strip()
