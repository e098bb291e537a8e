"""The answer of an instance to one request, or why there is none."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from carpool.errors import DeadlineMissed
from carpool.http.client import AnswerTooLarge, ConnectionFailed

if TYPE_CHECKING:
    from carpool.http.client import PendingRequest, Response

__all__ = ["answered", "says_handler_hung"]

_GATEWAY_TIMEOUT = 504


async def answered(pending: PendingRequest, timeout_s: float, who: str) -> Response:
    """Wait for the answer.

    Args:
        pending: what was sent.
        timeout_s: how long the instance may take; ``inf``: as long as it likes.
        who: has to answer, for messages.

    Raises:
        DeadlineMissed: not within ``timeout_s``, or the watchdog's own limit.
        AnswerTooLarge: it is larger than the instance's pool takes.
        ConnectionFailed: none came, or the watchdog answered as the handler died or was not there.
    """
    try:
        response = await pending.response(timeout_s if timeout_s < math.inf else None)
    except TimeoutError as error:
        msg = f"{who} did not answer within {timeout_s:g} s"
        raise DeadlineMissed(msg) from error
    except AnswerTooLarge as error:
        msg = f"{who}: {error}; sidecar_answer_max_bytes raises the limit"
        raise AnswerTooLarge(msg) from error
    if says_handler_hung(response):
        msg = f"{who} did not answer within exec_timeout"
        raise DeadlineMissed(msg)
    if response.header(b"x-openfaas-internal") == b"of-watchdog":
        msg = "the handler behind the watchdog died while executing the batch, or was not running"
        raise ConnectionFailed(msg, sent=True)
    return response


def says_handler_hung(response: Response) -> bool:
    """Whether the watchdog, or a sidecar, answered that the handler exceeded its time limit."""
    internal = response.header(b"x-openfaas-internal")
    return response.status == _GATEWAY_TIMEOUT and internal is not None
