"""One request on a connection of its own, with the credentials of Carpool's provider."""

from __future__ import annotations

import http.client

from carpool.basic_auth import credentials_for

__all__ = ["exchange", "status_of"]

_REQUEST_S = 10.0


def exchange(
    method: str,
    path: str,
    body: bytes,
    address: tuple[str, int],
    content_type: str = "application/json",
    timeout_s: float = _REQUEST_S,
) -> tuple[int, bytes]:
    """Return the status and the body of a response.

    Raises:
        OSError: there is no connection, or it breaks, or nothing comes in time.
        http.client.HTTPException: the response is not HTTP.
    """
    headers = {"content-type": content_type}
    if pair := credentials_for(f"http://{address[0]}:{address[1]}"):  # made by Carpool's provider
        headers |= [pair.header]
    connection = http.client.HTTPConnection(*address, timeout=timeout_s)
    try:
        connection.request(method, path, body or None, headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def status_of(
    method: str, path: str, body: bytes, address: tuple[str, int], timeout_s: float
) -> int:
    """Return the status of a response, or 0 if there is none."""
    try:
        return exchange(method, path, body, address, timeout_s=timeout_s)[0]
    except (OSError, http.client.HTTPException):
        return 0
