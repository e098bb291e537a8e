"""One call of a client: its metadata, the memory that it holds, and its exchange."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from carpool import errors
from carpool.errors import Overloaded
from carpool.http.exchange import Exchange
from carpool.http.limits import CALL_BYTES_HELD, HEADER_BYTES_HELD, STALLED_S, TOO_MUCH_HELD
from sidecar.runtime.oip_grpc.answers import HttpAnswer

if TYPE_CHECKING:
    import asyncio

    from carpool.http.exchange import Body, Headers
    from carpool.http.server import Server
    from sidecar.runtime.oip_grpc.requests import HttpRequest

__all__ = ["Rpc"]

_TRACE = ("traceparent", "tracestate")
_AGAIN_S = 1.0
_STREAMED = "the function streams this answer, in more than one message: call it over HTTP"
_BROKEN_OFF = "the response was cut off"


class Rpc:
    """One call.

    Args:
        server: The HTTP server, with whose application and memory it is served.
        context: gRPC's side of it.
    """

    def __init__(self, server: Server, context: Any) -> None:  # noqa: ANN401 - grpcio is untyped
        self._server = server
        self._held_bytes = 0
        left_s = context.time_remaining()
        self._timeout_s = math.inf if left_s is None else left_s
        self._headers = tuple(
            [
                (name.encode(), value.encode("latin-1", "replace"))
                for name, value in context.invocation_metadata() or ()
                if isinstance(value, str) and (name.startswith("x-") or name in _TRACE)
            ]
        )
        context.add_done_callback(self._ended)

    def hold(self, size_bytes: int) -> None:
        """Count memory until the call has ended and its answer has been sent.

        Raises:
            Overloaded: too much is held for all clients together.
        """
        server = self._server
        self._keep(size_bytes)
        if server.held_bytes > server.most_held_bytes and not server.drop_stalled(STALLED_S):
            raise Overloaded(TOO_MUCH_HELD, _AGAIN_S)

    async def ask(self, request: HttpRequest) -> HttpAnswer:
        """Have the application answer a request with this call's metadata and deadline.

        Raises:
            Overloaded: too much memory is held.
        """
        server, limit_bytes = self._server, self._server.limits.body_bytes
        exchange = _Exchange(server, request, self._headers, self._timeout_s)
        self.hold(CALL_BYTES_HELD + HEADER_BYTES_HELD * len(self._headers) + len(request.body))
        if len(request.body) > limit_bytes:
            exchange.reply(413, errors.body(f"the request is larger than {limit_bytes} bytes"))
        else:
            server.dispatch(exchange)
        try:
            answer = await exchange.answer
        finally:
            exchange.leave()
        self._keep(len(answer.body))
        return answer

    def _keep(self, size_bytes: int) -> None:
        self._held_bytes += size_bytes
        self._server.held_bytes += size_bytes

    def _ended(self, _context: object) -> None:
        self._server.held_bytes -= self._held_bytes
        self._held_bytes = 0


class _Exchange(Exchange):
    """An exchange whose response is a future instead of bytes on a connection.

    Attributes:
        answer: The response.
    """

    __slots__ = ("answer",)

    def __init__(
        self,
        server: Server,
        request: HttpRequest,
        headers: tuple[tuple[bytes, bytes], ...],
        timeout_s: float,
    ) -> None:
        super().__init__(request.method, request.target, request.headers + headers)
        self.body = request.body
        self.received = server.now()
        self.timeout_s = timeout_s
        self.answer: asyncio.Future[HttpAnswer] = server.loop.create_future()

    def _respond(
        self, status: int, body: Body, content_type: str, headers: Headers, length: int | None
    ) -> None:
        del content_type, length
        if self.gone:
            return
        self.answered = True
        self.on_gone = None
        if not self.answer.done():  # else the call was cancelled, and `leave` is about to be called
            self.answer.set_result(HttpAnswer(status, body, _pairs(headers)))

    def leave(self) -> None:
        """Note that the caller awaits no response any more."""
        if not (self.answered or self.gone):
            self.gone = True
            self.tell_gone()

    def start(self, status: int, headers: Headers = ()) -> None:
        """Refuse a response in pieces, and end it: a call has one message."""
        del status, headers
        on_gone = self.on_gone
        self.reply(501, errors.body(_STREAMED))
        if on_gone:
            on_gone()

    def write(self, chunk: bytes) -> None:
        """Drop a piece of a refused response."""

    def end(self) -> None:
        """Do nothing: the response was refused."""

    def abort(self) -> None:
        """Report that there will be no response."""
        self.reply(502, errors.body(_BROKEN_OFF))


def _pairs(headers: Headers) -> tuple[tuple[str, str], ...]:
    if not isinstance(headers, bytes):
        return tuple(headers)
    lines = [line.partition(": ") for line in headers.decode("latin-1").splitlines()]
    return tuple([(name, value) for name, _, value in lines])
