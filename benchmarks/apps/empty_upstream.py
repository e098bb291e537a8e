"""The smallest upstream that still answers correctly: the model runs once for each distinct body.

After that, a body is looked up and its response written, so that what is measured is what stands in
front: OpenFaaS's gateway. Requests without a body get an empty list, which the gateway takes for
the provider's functions.
"""

from __future__ import annotations

import asyncio
import functools
import json

import httptools
import uvloop
from model import PORT, RAW, Model, row, row_of_bytes

model = Model()


@functools.cache
def response(body: bytes) -> bytes:
    """Return the whole response to a request with this body."""
    answer, content_type = b"[]", "application/json"
    if body:
        outputs = model.run((row_of_bytes(body) if RAW else row(json.loads(body)))[None])
        answer = json.dumps({"predictions": outputs.tolist()}).encode()
        if RAW:
            answer, content_type = outputs.tobytes(), "application/octet-stream"
    head = (
        f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {len(answer)}\r\n\r\n"
    )
    return head.encode() + answer


class Connection(asyncio.Protocol):
    """Answers one request at a time."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport of the connected socket."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""

    def data_received(self, data: bytes) -> None:
        """Parse more of a request."""
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        """Store a piece of the body."""
        self._body += body

    def on_message_complete(self) -> None:
        """Answer the request."""
        self._transport.write(response(self._body))
        self._body = b""


async def main() -> None:
    """Serve until the process is ended."""
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", PORT)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
