"""Handles the handler's requests: probes, batches, and single requests.

Knows the paths and the content type of the protocol with the sidecar, but neither sockets nor what
a function is made of.
"""

from __future__ import annotations

import hmac
import math
from typing import TYPE_CHECKING

from carpool import errors, wire
from carpool.stream_rule import EVENT_STREAM
from watchdog_plugin import answers, logs
from watchdog_plugin.batch_runner import Answered
from watchdog_plugin.content_coding import LARGEST_BYTES, DecodedBytes, TooMuchTogetherError
from watchdog_plugin.function import BatchFailed
from watchdog_plugin.item import Item
from watchdog_plugin.server import Response

if TYPE_CHECKING:
    from collections.abc import Sequence

    from watchdog_plugin.batch_runner import BatchRunner
    from watchdog_plugin.reader import Request
    from watchdog_plugin.streaming import Streaming

__all__ = ["EXEC_HEADER", "Service"]

EXEC_HEADER = "x-carpool-exec-seconds"
_TEXT = "text/plain; charset=utf-8"


class Service:
    """The application behind the server; ready once `open` has given it a batch runner.

    Args:
        key: Key that requests other than probes must present; if empty, none is required.
        answer_max_bytes: Maximum total size of the bodies in the response to one batch; each item
            has its own limit besides.
        decoded_max_bytes: Maximum total decoded size of the bodies of one POST that have a
            ``Content-Encoding``.
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
        self._runner: BatchRunner | None = None
        self._streaming: Streaming | None = None

    def open(self, runner: BatchRunner, streaming: Streaming | None = None) -> None:
        """Start serving requests, streamed ones with ``streaming``; until then they get a 503."""
        self._streaming = streaming
        self._runner = runner

    def __call__(self, request: Request) -> Response:
        """Return the response to one request; never raises."""
        path = request.target.partition("?")[0]
        runner = self._runner
        if path == "/_/health" or (path == "/_/ready" and runner is not None):
            return Response(200, b"OK", _TEXT, self._abilities(runner))
        if self._key and not self._has_key(request):
            text = f"expected {wire.KEY_HEADER}: only the sidecar calls this handler"
            return Response(403, errors.body(text))
        if runner is None:
            loading = errors.body("the function is loading")
            return Response(503, loading, headers=[("retry-after", "1")])
        return self._answer(runner, request)

    def _answer(self, runner: BatchRunner, request: Request) -> Response:
        decoded_bytes = DecodedBytes(self._decoded_max_bytes)
        streaming = self._streaming
        try:
            if request.headers.get("content-type") != wire.CONTENT_TYPE:
                return _single(runner, streaming, request, decoded_bytes)
            items, ids = _items(request, decoded_bytes)
            if streaming and request.headers.get("accept") == EVENT_STREAM:
                return streaming.answer(*items)
            return _batch(runner, streaming, items, ids, self._answer_max_bytes)
        except wire.WireError as error:
            return Response(400, errors.body(error))
        except (BatchFailed, TooMuchTogetherError) as error:
            return Response(error.status, errors.body(error))
        except Exception as error:  # noqa: BLE001  a request's fault must not end its connection
            logs.say_failure("the handler", error)
            return Response(500, errors.body("internal error, see the function's log"))

    def _abilities(self, runner: BatchRunner | None) -> list[tuple[str, str]]:
        """Return probe headers with the abilities of a ready handler: concurrency, streaming."""
        headers = []
        if runner is not None and runner.concurrency > 1:
            headers.append((wire.CONCURRENCY_HEADER, str(runner.concurrency)))
        if runner is not None and self._streaming:
            headers.append((wire.STREAM_RULE_HEADER, self._streaming.rule.header))
        return headers

    def _has_key(self, request: Request) -> bool:
        presented = request.headers.get(wire.KEY_HEADER, "").encode("latin-1", "replace")
        return hmac.compare_digest(presented, self._key.encode())


def _items(request: Request, decoded_bytes: DecodedBytes) -> tuple[list[Item], Sequence[int]]:
    """Return the items of a batch, and their ids."""
    ids, remaining_s, heads, bodies = wire.decode_request(request.body)
    parts = zip(bodies, heads, remaining_s, strict=True)
    return [Item(body, head, left_s, decoded_bytes) for body, head, left_s in parts], ids


def _batch(
    runner: BatchRunner,
    streaming: Streaming | None,
    items: Sequence[Item],
    ids: Sequence[int],
    answer_max_bytes: int,
) -> Response:
    streamed = [i for i, item in enumerate(items) if streaming.takes(item)] if streaming else []
    batched = [item for i, item in enumerate(items) if i not in streamed] if streamed else items
    answered = runner.answer(batched) if batched or not items else Answered([], 0.0, [])
    made, exec_s, headers = answered
    if streaming:
        for index in streamed:
            made.insert(index, streaming.sent_back())
    columns = zip(*made, strict=True) if made else ((), (), ())
    statuses, answer_heads, answer_bodies = columns
    size = sum(map(len, answer_bodies))
    if size > answer_max_bytes and len(made) > 1:  # the sidecar asks again, in halves
        what = f"the responses to a batch of {len(made)} have in total"
        raise BatchFailed(answers.too_large(size, answer_max_bytes, what))
    body = wire.encode_answer(ids, statuses, answer_heads, answer_bodies)
    return Response(200, body, wire.CONTENT_TYPE, [(EXEC_HEADER, f"{exec_s:.6f}"), *headers])


def _single(
    runner: BatchRunner,
    streaming: Streaming | None,
    request: Request,
    decoded_bytes: DecodedBytes,
) -> Response:
    head = wire.build_head(f"{request.method} {request.target}", request.headers.items())
    item = Item(memoryview(request.body), head, math.inf, decoded_bytes)
    if streaming and streaming.takes(item):
        return streaming.answer(item)
    made, exec_s, others = runner.answer([item])
    status, answer_head, body = made[0]
    pairs = dict(wire.parse_head(answer_head).headers)
    content_type = pairs.pop("content-type", "application/octet-stream")
    headers = [*pairs.items(), (EXEC_HEADER, f"{exec_s:.6f}"), *others]
    return Response(status, body, content_type, headers)
