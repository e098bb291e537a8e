"""Sends one batch, merged into one request, to a server that knows nothing of Carpool.

A single request is sent as it came, and its response is returned unchanged, whatever it is. An
error in response to several belongs to none of them: the batch has failed, and is divided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool import wire
from carpool.errors import FunctionFault
from sidecar.runtime.batch_call import AnswerHead, Answers
from sidecar.runtime.hop import answered
from sidecar.runtime.merging import Message

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from carpool.http.client import Response
    from sidecar.core.batch import Batch
    from sidecar.runtime.handler_liveness import ProbedInstance
    from sidecar.runtime.ingress import Payload
    from sidecar.runtime.merging.protocol import MergeProtocol

__all__ = ["MergedCall"]

_OK = 200
_WITHOUT_EFFECT = frozenset(("GET", "HEAD"))
_ERROR_FROM = 400
_REASON_BYTES = 500
_NOT_PASSED = wire.FRAMING | {"content-type", "date", "server"}
_PADDING = (0, 0)


class MergedCall:
    """One batch that is being sent: at once, if a connection is idle.

    Args:
        batch: requests that can be merged and agree in all else, or one of any kind.
        instance: the instance that takes it.
        protocol: of the requests that can be merged.
        context: headers for tracing.

    Attributes:
        pending: the request, whose response is pending.
        repeatable: whether it presumably has no side effects, and may be sent again.
    """

    def __init__(
        self,
        batch: Batch,
        instance: ProbedInstance,
        protocol: MergeProtocol[Any],
        context: Iterable[tuple[str, str]] = (),
    ) -> None:
        payloads: Sequence[Payload] = [request.payload for request in batch.requests]
        exchange = payloads[0].exchange
        self._requests = [payload.mergeable for payload in payloads if payload.mergeable]
        self._protocol = protocol
        self._alone = len(payloads) == 1
        self._headless = exchange.method == "HEAD"
        self.repeatable = bool(self._requests) or exchange.method in _WITHOUT_EFFECT
        message = Message(exchange.body) if self._alone else protocol.merged(self._requests)
        head = payloads[0].head if self._alone else payloads[0].template.agreed
        own = () if self._alone else context  # a request sent alone has its own context
        headers = (*wire.parse_head(head).headers, *_json_length(message), *own)
        self.pending = instance.pool.begin(exchange.method, exchange.target, headers, message.body)

    def leaves_time(self, outcome: Response | Exception) -> bool:
        """Return whether the next batch can leave before the responses are divided and sent.

        Not after a failure: its requests leave again before others.
        """
        return not (self._alone or isinstance(outcome, Exception)) and outcome.status == _OK

    def answers(self, outcome: Response | Exception, timeout_s: float) -> Answers:
        """Read the responses, as `BatchCall.answers` does."""
        response = answered(outcome, timeout_s, "the server")
        return self._as_it_is(response) if self._alone else self._divided(response)

    def _as_it_is(self, response: Response) -> Answers:
        pairs = [(n.decode("latin-1").lower(), v.decode("latin-1")) for n, v in response.headers]
        passed = tuple((name, value) for name, value in pairs if name not in _NOT_PASSED)
        length = response.told_length if self._headless else None
        head = AnswerHead(_content_type(response), passed, length)
        offends = response.status >= _ERROR_FROM
        return Answers((response.status,), [head], [memoryview(response.body)], _PADDING, offends)

    def _divided(self, response: Response) -> Answers:
        if response.status != _OK:
            reason = response.body[:_REASON_BYTES].decode("utf-8", "replace").strip()
            count, status = len(self._requests), response.status
            msg = f"the server answered {count} merged requests with {status}: {reason}"
            raise FunctionFault(msg)
        length = response.header(wire.JSON_LENGTH_HEADER.encode()) or b""
        parts = self._protocol.divided(Message(response.body, length), self._requests)
        content_type = _content_type(response)
        heads = [AnswerHead(content_type, _json_length(part)) for part in parts]
        bodies = [memoryview(part.body) for part in parts]
        return Answers((_OK,) * len(parts), heads, bodies, _PADDING)


def _json_length(message: Message) -> tuple[tuple[str, str], ...]:
    length = message.json_length.decode()
    return ((wire.JSON_LENGTH_HEADER, length),) if length else ()


def _content_type(response: Response) -> str:
    return (response.header(b"content-type") or b"").decode("latin-1")
