"""A small handler process behind a real sidecar, which answers each body in upper case."""

from __future__ import annotations

import asyncio
import os
import sys

from carpool import wire
from carpool.http.server import Exchange, serve


def answer(exchange: Exchange) -> None:
    """Answer readiness probes and batches as the handler protocol requires."""
    if exchange.path == "/_/ready":
        exchange.reply(200, b"OK", "text/plain")
        return
    request = wire.decode_request(exchange.body)
    bodies = [bytes(body).upper() for body in request.bodies]
    head = wire.build_head("", [("content-type", "text/plain")])
    sizes = [200] * len(bodies)
    encoded = wire.encode_answer(request.ids, sizes, [head] * len(bodies), bodies)
    exchange.reply(200, encoded, wire.CONTENT_TYPE, [("x-carpool-exec-seconds", "0.001")])


async def main() -> None:
    """Serve until killed."""
    sys.stdout.write(f"handler {os.environ.get('word', 'started')}\n")
    sys.stdout.flush()
    if os.environ.get("fail"):
        raise SystemExit(os.environ["fail"])
    await serve(answer, listen=os.environ["handler_listen"])
    await asyncio.Event().wait()


asyncio.run(main())
