"""A call that is sent to its replica in a bundle, without a task of its own.

Only the first attempt is made this way. If another attempt is due, by the same rules as for a
single call, the call is sent alone.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from carpool import errors
from carpool.errors import CarpoolError, FunctionFault
from carpool.http.client import ConnectionFailed
from faas_stack.provider.answer_head import bundled_answer_head, has_not_begun
from faas_stack.provider.call import INTERNAL

if TYPE_CHECKING:
    from carpool.http.call_client import Calls
    from faas_stack.provider.call import Call
    from faas_stack.provider.function import Function
    from faas_stack.provider.replica import Replica

__all__ = ["BundledCall", "Host", "closed_unanswered", "use_retry"]

log = logging.getLogger(__name__)

CLIENT_LEFT = 499  # in metrics only: the client has left


class Host(Protocol):
    """Interface of the proxy to bundled calls."""

    def forward_alone(self, call: Call, function: Function) -> None:
        """Make another attempt."""

    def finished(self, call: Call, status: int) -> None:
        """Count a finished call."""


class BundledCall:
    """One attempt, which is the receiver of `call_client`.

    Args:
        host: Continues the call, or counts it.
        function: Function that is called.
        call: The call.
        replica: Replica that has the call until it ends.
    """

    __slots__ = ("_call", "_calls", "_function", "_host", "_id", "_replica")

    def __init__(self, host: Host, function: Function, call: Call, replica: Replica) -> None:
        self._host = host
        self._function = function
        self._call = call
        self._replica = replica

    def begin(self, calls: Calls) -> None:
        """Send it together with others of this iteration of the event loop."""
        call, exchange = self._call, self._call.exchange
        self._replica.acquire()
        call.sent_to(self._replica, self._function.call_limit_s, calls.now())
        self._calls = calls
        self._id = calls.send(call.template.head, call.own_lines, exchange.body, self)
        exchange.on_gone = self._client_left

    def stop(self) -> None:
        """Cancel the attempt: the call has timed out or is to be retried on another replica."""
        call = self._call
        self._calls.cancel(self._id)
        retry = call.takes_retry()
        self._release()
        if retry:
            self._host.forward_alone(call, self._function)
        elif call.overdue is not None:
            self._finish(call.fail(call.overdue))

    def answered(self, status: int, head: bytes, body: memoryview) -> None:
        """Pass on the replica's response."""
        call = self._call
        try:
            answer = bundled_answer_head(head)
            if has_not_begun(status, answer):
                self._retry()
                return
            exchange = call.exchange
            headers = answer.lines + call.added_lines
            exchange.reply(status, body, answer.type_for(exchange), headers)
        except CarpoolError as error:
            status = call.fail(error)
        except Exception:
            log.exception("passing on the answer to %s failed", call.exchange.target)
            status = 500
            call.exchange.reply(status, errors.body("internal error"), headers=[INTERNAL])
        self._release()
        self._finish(status)

    def failed(self, error: FunctionFault) -> None:
        """Handle a failure without a response of the replica."""
        call = self._call
        if isinstance(error, ConnectionFailed):
            if use_retry(error, call):
                self._retry()
                return
            self._replica.instance.suspect()
            error = closed_unanswered(error)
        self._release()
        self._finish(call.fail(error))

    def _retry(self) -> None:
        self._replica.instance.suspect()
        self._release()
        self._host.forward_alone(self._call, self._function)

    def _client_left(self) -> None:
        self._calls.cancel(self._id)
        self._release()
        self._finish(CLIENT_LEFT)

    def _release(self) -> None:
        self._call.exchange.on_gone = None
        self._call.replica = None
        self._replica.release()

    def _finish(self, status: int) -> None:
        self._host.finished(self._call, status)


def use_retry(error: ConnectionFailed, call: Call) -> bool:
    """Return whether another replica gets a call whose connection failed: once if it was sent."""
    return not error.sent or (error.stale and call.use_retry())


def closed_unanswered(error: ConnectionFailed) -> FunctionFault:
    """Return the error for the client if such a call is not retried."""
    return FunctionFault(f"the function closed the connection before it answered: {error}")
