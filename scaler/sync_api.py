"""``POST /v1/sync``: sidecars report, and receive their configuration in the response.

Served by Carpool's own HTTP server, in the loop's process, and not by a WSGI server: ten thousand
sidecars every five seconds are two thousand calls per second, each with its state in the memory of
one process. (docs/scaler.md has measurements of both.) If even that is too much, the interval that
sidecars are given grows until it is not.

A message is refused and counted, and its reason logged once, if it has neither the scaler's token
nor its function's, is too large or malformed, concerns an unknown function, or has been accepted
before.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from carpool import errors
from carpool.errors import ConfigError, NotFound
from carpool.sync import PATH, PROOF, Announcement, SyncAnswer, proof, read_message

if TYPE_CHECKING:
    from carpool.http.server import Exchange
    from carpool.sync import FrontReport
    from scaler.access_tokens import AccessTokens
    from scaler.control.functions import Functions
    from scaler.control.message_order import MessageOrder
    from scaler.metrics import Metrics

__all__ = ["SyncApi"]

log = logging.getLogger(__name__)

_LARGEST_BYTES = 256 * 1024
_CONTENT_TYPE = "application/json"


class SyncApi:
    """Answers the sync requests of sidecars.

    Args:
        functions: Process reports, and provide the configuration of sidecars.
        callers: Tokens that sidecars may use.
        metrics: Counts messages.
        senders: Record which messages have been accepted.
    """

    def __init__(
        self, functions: Functions, callers: AccessTokens, metrics: Metrics, senders: MessageOrder
    ) -> None:
        self._functions = functions
        self.callers = callers
        self._metrics = metrics
        self._logged: set[str] = set()
        self._senders = senders

    def __call__(self, exchange: Exchange) -> None:
        """Serve a listener that is for sidecars only: all other routes are not found."""
        if exchange.target != PATH:
            message = f"no route {exchange.path!r}: only {PATH} is served here"
            raise NotFound(message)
        self.answer(exchange)

    def answer(self, exchange: Exchange) -> None:
        """Answer one message."""
        began_s = time.perf_counter()
        token = self.callers.shown(exchange)
        function = self.callers.function_of(token)
        if function is None:
            headers = [("www-authenticate", "Bearer")]
            text = "the bearer token is not the scaler's, nor one of a function"
            self._refuse(exchange, 401, "token", text, headers)
            return
        if exchange.method != "POST":
            allowed = [("allow", "POST")]
            self._refuse(
                exchange, 405, "method", f"method {exchange.method} is not allowed", allowed
            )
            return
        if len(exchange.body) > _LARGEST_BYTES:
            text = f"the body has {len(exchange.body)} bytes: expected at most {_LARGEST_BYTES}"
            self._refuse(exchange, 413, "size", text)
            return
        try:
            message = read_message(exchange.body)
        except ConfigError as error:
            self._refuse(exchange, 400, "form", str(error))
            return
        if function not in ("", message.function):
            text = f"the token of {function!r} is not valid for {message.function!r}"
            self._refuse(exchange, 403, "token", text)
            return
        self._take(exchange, message, token)
        self._metrics.sync_s += time.perf_counter() - began_s

    def _take(self, exchange: Exchange, message: FrontReport | Announcement, token: bytes) -> None:
        functions = self._functions
        controller = functions.find(message.function)
        if controller is None and (text := functions.unlisted):
            self._refuse(exchange, 503, "unlisted", text, [("retry-after", "1")])
            return
        if controller is None:
            text = f"function {message.function!r} is unknown or not scaled"
            self._refuse(exchange, 404, "function", text)
            return
        now_s = functions.now()
        if not self._senders.admits(message.sender, message.sequence, now_s):
            text = f"message {message.sequence} of {message.sender} was already accepted"
            self._refuse(exchange, 409, "replayed", text)
            return
        if isinstance(message, Announcement):
            self._metrics.syncs["announcement"] += 1
            functions.announced(controller, message)
            answer = SyncAnswer(functions.interval_s(controller))
        else:
            self._metrics.syncs["report"] += 1
            functions.reported(controller, message)
            answer = functions.answer(controller, message)
        body = answer.to_json()
        headers = []
        if self.callers.token:
            shown = proof(token, message.sender, message.sequence, body)
            headers.append((PROOF, shown))
        exchange.reply(200, body, _CONTENT_TYPE, headers)

    def _refuse(
        self,
        exchange: Exchange,
        status: int,
        reason: str,
        text: str,
        headers: list[tuple[str, str]] | None = None,
    ) -> None:
        self._metrics.refused[reason] += 1
        if reason not in self._logged:
            self._logged.add(reason)
            log.warning("a sync message was refused: %s; further ones are only counted", text)
        exchange.reply(status, errors.body(text), headers=headers or ())
