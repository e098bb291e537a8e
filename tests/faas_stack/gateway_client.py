"""What OpenFaaS's gateway sends to a provider, and how strictly it reads responses.

The gateway (0.27) is a Go program: it sends header names in Go's canonical case and order, forwards
bodies in chunks, and opens a connection for each call of its own. It reads JSON as
``encoding/json`` does for the gateway's types: numbers are not accepted as strings or floats as
integers, and times have an offset.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AUTH", "Answer", "Gateway", "functions", "status"]

AUTH = {"Authorization": "Basic YWRtaW46cGFzczp3b3Jk"}  # admin, pass:word
CHUNK = 32 * 1024  # what Go's copy reads at a time
RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
TEXTS = {"name", "image", "namespace", "envProcess"}
MAPS = {"envVars", "labels", "annotations", "limits", "requests"}
LISTS = {"constraints", "secrets"}


class Answer(NamedTuple):
    """A response with its complete body."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body parsed as JSON."""
        return json.loads(self.body)


class Gateway:
    """Calls one provider, with a new connection for each call."""

    def __init__(self, address: str) -> None:
        self.host, _, port = address.rpartition(":")
        self.port = int(port)

    async def own(self, method: str, target: str, document: object = None) -> Answer:
        """Send a call that the gateway makes itself (poll, status or scale), with credentials.

        The gateway does not declare the body of a scale call as JSON.
        """
        body = b"" if document is None else json.dumps(document).encode()
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        return await self.send(
            f"{method} {target} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n"
            f"User-Agent: Go-http-client/1.1\r\n{length}"
            f"Authorization: {AUTH['Authorization']}\r\n"
            "Accept-Encoding: gzip\r\nConnection: close\r\n\r\n".encode()
            + body
        )

    async def passes_on(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a client's request as the gateway forwards it: with its headers, in chunks."""
        return await self.send(self.forwarded(method, target, body, headers))

    def forwarded(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Return the bytes of a forwarded request."""
        sent = {"X-Forwarded-For": "10.62.0.1:52044", "X-Forwarded-Host": "gateway:8080"}
        sent |= dict(headers or {})
        agent = sent.pop("User-Agent", "openfaas-ce-gateway/0.27.14")
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self.host}:{self.port}"]
        lines += [f"User-Agent: {agent}", *(["Transfer-Encoding: chunked"] * (body is not None))]
        lines += [f"{name}: {sent[name]}" for name in sorted(sent)]
        lines += ["Accept-Encoding: gzip", "", ""]
        return "\r\n".join(lines).encode() + (chunks(body) if body is not None else b"")

    async def send(self, request: bytes) -> Answer:
        """Send exactly these bytes and return the response, read with HTTP/1.1 framing."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            writer.write(request)
            await writer.drain()
            return await _read(reader, head=request.startswith(b"HEAD "))
        finally:
            writer.close()


def chunks(body: bytes) -> bytes:
    """Return a body in the chunks in which Go sends it."""
    pieces = [body[start : start + CHUNK] for start in range(0, len(body), CHUNK)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


async def _read(reader: asyncio.StreamReader, *, head: bool) -> Answer:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
    headers = {name.lower(): text.strip() for name, _, text in (x.partition(":") for x in lines)}
    body = b""
    if head:
        pass
    elif headers.get("transfer-encoding") == "chunked":
        while size := int(await reader.readline(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
    else:
        body = await reader.readexactly(int(headers["content-length"]))
    return Answer(int(first.split()[1]), headers, body)


def functions(answer: Answer) -> list[dict[str, Any]]:
    """Return a list of functions, checked against the gateway's types."""
    assert 200 == answer.status
    listed = answer.json()
    assert isinstance(listed, list)
    return [_checked(each) for each in listed]


def status(answer: Answer) -> dict[str, Any]:
    """Return one function, checked against the gateway's types."""
    assert 200 == answer.status
    return _checked(answer.json())


def _checked(document: dict[str, Any]) -> dict[str, Any]:
    for key in TEXTS & document.keys():
        assert isinstance(document[key], str), key
    for key in MAPS & document.keys():
        assert all(isinstance(text, str) for text in document[key].values()), key
    for key in LISTS & document.keys():
        assert all(isinstance(text, str) for text in document[key]), key
    for key in {"replicas", "availableReplicas"} & document.keys():
        assert type(document[key]) is int, key
        assert document[key] >= 0
    assert isinstance(document.get("invocationCount", 0.0), (int, float))
    assert isinstance(document.get("readOnlyRootFilesystem", False), bool)
    assert RFC3339.fullmatch(document["createdAt"])
    return document
