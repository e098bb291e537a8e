"""Returns the response of an instance to one request, or raises why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool.errors import DeadlineMissed
from carpool.http.client import AnswerTooLarge, ConnectionFailed

if TYPE_CHECKING:
    from carpool.http.client import Response

__all__ = ["answered", "says_handler_hung"]

_GATEWAY_TIMEOUT = 504


def answered(outcome: Response | Exception, timeout_s: float, who: str) -> Response:
    """Return the response.

    Args:
        outcome: of the request, as `PendingRequest.then` reports it.
        timeout_s: time limit of the instance; ``inf`` if none.
        who: name of the responder, for messages.

    Raises:
        DeadlineMissed: no response within ``timeout_s``, or within the watchdog's own limit.
        AnswerTooLarge: it is larger than the instance's pool accepts.
        ConnectionFailed: no response, or the watchdog's, as the handler died or was not running.
    """
    if isinstance(outcome, TimeoutError):
        msg = f"{who} did not answer within {timeout_s:g} s"
        raise DeadlineMissed(msg)
    if isinstance(outcome, AnswerTooLarge):
        msg = f"{who}: {outcome}; sidecar_answer_max_bytes raises the limit"
        raise AnswerTooLarge(msg)
    if isinstance(outcome, Exception):
        raise outcome
    if says_handler_hung(outcome):
        msg = f"{who} did not answer within exec_timeout"
        raise DeadlineMissed(msg)
    if outcome.header(b"x-openfaas-internal") == b"of-watchdog":
        msg = "the handler behind the watchdog died while executing the batch, or was not running"
        raise ConnectionFailed(msg, sent=True)
    return outcome


def says_handler_hung(response: Response) -> bool:
    """Return whether a watchdog or sidecar reports that the handler exceeded its time limit."""
    internal = response.header(b"x-openfaas-internal")
    return response.status == _GATEWAY_TIMEOUT and internal is not None
