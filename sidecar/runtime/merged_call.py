"""Sends one batch to a server that knows nothing of Carpool, as the one request that it merges to.

A request that is alone travels as it came, and its answer goes back as it is, whatever it says. An
error in answer to several is nobody's: the batch has failed, and is divided.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from carpool import wire
from carpool.errors import DeadlineMissed, FunctionFault
from carpool.http.client import AnswerTooLarge
from sidecar.runtime import merging
from sidecar.runtime.batch_call import AnswerHead, Answers, check_hop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.http.client import Response
    from sidecar.core.batch import Batch
    from sidecar.runtime.handler_liveness import ProbedInstance
    from sidecar.runtime.ingress import Payload

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
        batch: of requests with instances that agree in all else, or one of any kind.
        instance: where it goes.

    Attributes:
        repeatable: it has no effect, as far as one can tell, and may be sent again.
    """

    def __init__(self, batch: Batch, instance: ProbedInstance) -> None:
        payloads: Sequence[Payload] = [request.payload for request in batch.requests]
        exchange = payloads[0].exchange
        self._requests = [payload.instances for payload in payloads if payload.instances]
        alone = len(payloads) == 1
        body = exchange.body if alone else merging.merged(self._requests)
        head = payloads[0].head if alone else payloads[0].template.head  # the part that agrees
        headers = wire.parse_head(head).headers
        self._alone = alone
        self.repeatable = bool(self._requests) or exchange.method in _WITHOUT_EFFECT
        self._instance = instance
        self._request = exchange.method, exchange.target, headers, body
        self._sending = instance.pool.begin(*self._request)

    async def answers(self, timeout_s: float) -> Answers:
        """As `BatchCall.answers`."""
        timeout = timeout_s if timeout_s < math.inf else None
        try:
            if self._sending:
                response = await self._sending.response(timeout)
            else:
                response = await self._instance.pool.request(*self._request, timeout_s=timeout)
        except TimeoutError as error:
            msg = f"the server did not answer within {timeout_s:g} s"
            raise DeadlineMissed(msg) from error
        except AnswerTooLarge as error:
            msg = f"the server: {error}; sidecar_answer_max_bytes raises the limit"
            raise AnswerTooLarge(msg) from error
        check_hop(response)
        return _as_it_is(response) if self._alone else self._divided(response)

    def _divided(self, response: Response) -> Answers:
        if response.status != _OK:
            reason = response.body[:_REASON_BYTES].decode("utf-8", "replace").strip()
            count, status = len(self._requests), response.status
            msg = f"the server answered {count} merged requests with {status}: {reason}"
            raise FunctionFault(msg)
        counts = [len(request.entries) for request in self._requests]
        bodies = [memoryview(body) for body in merging.divided(response.body, counts)]
        head = AnswerHead(_content_type(response), ())
        return Answers((_OK,) * len(bodies), [head] * len(bodies), bodies, _PADDING)


def _as_it_is(response: Response) -> Answers:
    pairs = [(n.decode("latin-1").lower(), v.decode("latin-1")) for n, v in response.headers]
    passed = tuple((name, value) for name, value in pairs if name not in _NOT_PASSED)
    head, body = AnswerHead(_content_type(response), passed), memoryview(response.body)
    offends = response.status >= _ERROR_FROM
    return Answers((response.status,), [head], [body], _PADDING, offends=offends)


def _content_type(response: Response) -> str:
    return (response.header(b"content-type") or b"").decode("latin-1")
