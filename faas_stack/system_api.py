"""Sends requests of commands to a running provider: options, credentials and errors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import requests

from carpool import basic_auth
from carpool.direct_session import direct_session
from carpool.errors import CarpoolError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

__all__ = ["CONNECT_S", "RequestRefused", "Unreachable", "add_flags", "ask", "credentials"]

_GATEWAY = "http://127.0.0.1:8080"
CONNECT_S = 3.0


class Unreachable(CarpoolError):
    """Raised when no provider responds at an address."""

    def __init__(self, gateway: str, error: requests.RequestException) -> None:
        message = f"no provider answers at {gateway} ({type(error).__name__})"
        super().__init__(f"{message}; is `carpool up` running, and is --gateway right?")


class RequestRefused(CarpoolError):
    """Raised when a provider refuses a request."""

    def __init__(self, gateway: str, answer: requests.Response) -> None:
        super().__init__(_refusal(gateway, answer))


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the options for the provider's address and credentials."""
    add = parser.add_argument
    default = os.environ.get("OPENFAAS_URL") or _GATEWAY
    add(
        "-g",
        "--gateway",
        default=default,
        metavar="URL",
        help="gateway or provider (default: %(default)s)",
    )
    files = "folder with the credentials (default: those of a provider started on this machine)"
    add("--basic-auth", type=Path, metavar="DIR", help=files)


def credentials(args: argparse.Namespace) -> tuple[str, str] | None:
    """Return the user and password that the options of `add_flags` select; None if none exist."""
    named = args.basic_auth
    return basic_auth.credentials(named) if named else basic_auth.credentials_for(args.gateway)


def ask(
    args: argparse.Namespace,
    method: str,
    path: str,
    document: Mapping[str, Any] | None = None,
    answer_s: float | None = 30.0,
) -> requests.Response:
    """Return the provider's response to one request.

    Args:
        args: What the options of `add_flags` select.
        method: HTTP method.
        path: Path of the API.
        document: Sent as JSON; None to send nothing.
        answer_s: Time limit for the response; None if the provider itself limits the time.

    Raises:
        CarpoolError: If the provider cannot be reached or refuses.
    """
    url, pair = args.gateway.rstrip("/") + path, credentials(args)
    times = (CONNECT_S, answer_s)
    try:
        with direct_session() as session:
            answer = session.request(method, url, json=document, auth=pair, timeout=times)
    except requests.RequestException as error:
        raise Unreachable(args.gateway, error) from error
    if not answer.ok:
        raise RequestRefused(args.gateway, answer)
    return answer


def _refusal(gateway: str, answer: requests.Response) -> str:
    if answer.status_code == requests.codes.unauthorized:
        return f"{gateway} asks for credentials: name their folder with --basic-auth"
    try:
        return str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        return f"{gateway} answered {answer.status_code}: {answer.text[:200]}"
