"""Answers the handler's requests: probes, batches, and single requests.

Knows the paths and the content type of the protocol with the sidecar; knows neither sockets nor
what a function is made of.
"""

from __future__ import annotations

import hmac
import math
from typing import TYPE_CHECKING

from carpool import errors, wire
from watchdog_plugin import answers, logs
from watchdog_plugin.content_coding import LARGEST_BYTES, DecodedBytes, TooMuchTogetherError
from watchdog_plugin.function import BatchFailed
from watchdog_plugin.item import Item
from watchdog_plugin.server import Response

if TYPE_CHECKING:
    from watchdog_plugin.batch_runner import BatchRunner
    from watchdog_plugin.reader import Request

__all__ = ["EXEC_HEADER", "Service"]

EXEC_HEADER = "x-carpool-exec-seconds"
_TEXT = "text/plain; charset=utf-8"


class Service:
    """The application behind the server; ready once `open` has given it an engine.

    Args:
        key: What a request that is no probe must present; empty: nothing.
        answer_max_bytes: Of all bodies in the answer to one batch; each item keeps to it by itself.
        decoded_max_bytes: Of all bodies of one POST that have a ``Content-Encoding``.
    """

    def __init__(
        self,
        key: str = "",
        answer_max_bytes: int = answers.LARGEST_BYTES,
        decoded_max_bytes: int = LARGEST_BYTES,
    ) -> None:
        self._decoded_max_bytes = decoded_max_bytes
        self._key = key
        self._answer_max_bytes = answer_max_bytes
        self._engine: BatchRunner | None = None

    def open(self, engine: BatchRunner) -> None:
        """Answer requests from now on; before, they get a 503."""
        self._engine = engine

    def __call__(self, request: Request) -> Response:
        """Answer one request; never raises."""
        path = request.target.partition("?")[0]
        engine = self._engine
        if path == "/_/health" or (path == "/_/ready" and engine is not None):
            concurrency = engine.concurrency if engine is not None else 1
            headers = [(wire.CONCURRENCY_HEADER, str(concurrency))] if concurrency > 1 else []
            return Response(200, b"OK", _TEXT, headers)
        if self._key and not self._has_key(request):
            text = f"expected {wire.KEY_HEADER}: only the sidecar calls this handler"
            return Response(403, errors.body(text))
        if engine is None:
            loading = errors.body("the function is loading")
            return Response(503, loading, headers=[("retry-after", "1")])
        return self._answer(engine, request)

    def _answer(self, engine: BatchRunner, request: Request) -> Response:
        decoded_bytes = DecodedBytes(self._decoded_max_bytes)
        try:
            if request.headers.get("content-type") == wire.CONTENT_TYPE:
                return _batch(engine, request, self._answer_max_bytes, decoded_bytes)
            return _single(engine, request, decoded_bytes)
        except wire.WireError as error:
            return Response(400, errors.body(error))
        except (BatchFailed, TooMuchTogetherError) as error:
            return Response(error.status, errors.body(error))
        except Exception as error:  # noqa: BLE001  a request's fault must not end its connection
            logs.say_failure("the handler", error)
            return Response(500, errors.body("internal error, see the function's log"))

    def _has_key(self, request: Request) -> bool:
        presented = request.headers.get(wire.KEY_HEADER, "").encode("latin-1", "replace")
        return hmac.compare_digest(presented, self._key.encode())


def _batch(
    engine: BatchRunner, request: Request, answer_max_bytes: int, decoded_bytes: DecodedBytes
) -> Response:
    ids, remaining_s, heads, bodies = wire.decode_request(request.body)
    parts = zip(bodies, heads, remaining_s, strict=True)
    items = [Item(body, head, left_s, decoded_bytes) for body, head, left_s in parts]
    made, exec_s, headers = engine.answer(items)
    columns = zip(*made, strict=True) if made else ((), (), ())
    statuses, answer_heads, answer_bodies = columns
    size = sum(map(len, answer_bodies))
    if size > answer_max_bytes and len(made) > 1:  # the sidecar asks again, in halves
        what = f"the answers to a batch of {len(made)} have together"
        raise BatchFailed(answers.too_large(size, answer_max_bytes, what))
    body = wire.encode_answer(ids, statuses, answer_heads, answer_bodies)
    return Response(200, body, wire.CONTENT_TYPE, [(EXEC_HEADER, f"{exec_s:.6f}"), *headers])


def _single(engine: BatchRunner, request: Request, decoded_bytes: DecodedBytes) -> Response:
    head = wire.build_head(f"{request.method} {request.target}", request.headers.items())
    item = Item(memoryview(request.body), head, math.inf, decoded_bytes)
    made, exec_s, others = engine.answer([item])
    status, answer_head, body = made[0]
    pairs = dict(wire.parse_head(answer_head).headers)
    content_type = pairs.pop("content-type", "application/octet-stream")
    headers = [*pairs.items(), (EXEC_HEADER, f"{exec_s:.6f}"), *others]
    return Response(status, body, content_type, headers)
