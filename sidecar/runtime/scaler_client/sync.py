"""Exchanges messages with the scaler, at intervals that the scaler sets.

A front reports its load and gets plans; the sidecar of an instance announces its address. A message
whose response was lost is sent again unchanged, so nothing is counted twice and nothing is lost.
One that the scaler refuses for its form or size is dropped, as it would be refused again.
While the scaler does not respond, everything continues under the last plan, and this is logged
once. A response that does not prove to be the scaler's, or has an unusable plan, is refused and
counted, and the reason logged once.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from carpool.backoff import Backoff
from carpool.errors import CarpoolError
from carpool.http.client import Pool
from carpool.sync import PATH, PROOF, SyncAnswer, proof

if TYPE_CHECKING:
    from carpool.http.client import Response
    from carpool.sync import Announcement, FrontReport

__all__ = ["Reporter", "Sync"]

log = logging.getLogger(__name__)

_TIMEOUT_S = 3.0  # it answers within milliseconds, and a new connection may reach another scaler
_FIRST_INTERVAL_S = 0.25  # until the scaler has set one
_INTERVAL_MIN_S = 0.02  # also for urgent messages; the scaler may set a longer one
_RETRY_MAX_S = 5.0  # between attempts while the scaler does not answer
_LAST_TIMEOUT_S = 2.0  # for the last message
_OK = 200
_RECEIVED_BEFORE = 409
_UNACCEPTABLE = (400, 413)  # statuses of messages that would be refused again


class Reporter(Protocol):
    """Makes the messages, and follows the responses."""

    def message(self, sender: str, sequence: int) -> FrontReport | Announcement:
        """Return the next message."""
        ...

    def answered(self, answer: SyncAnswer) -> None:
        """Handle the scaler's response to the message.

        Raises:
            CarpoolError: it cannot be followed; nothing has changed.
        """
        ...


class Sync:
    """The exchange of messages between one sidecar and the scaler.

    Args:
        scaler: The scaler's address.
        token: Presented with each message; responses must prove to know it. Both are skipped if
            empty.
        reporter: Makes the messages, and follows the responses.

    Attributes:
        refused: Number of responses refused, by reason; ``message``: of messages that the scaler
            refuses for their form or size.
        lost: Why the scaler does not respond; empty while it does.
    """

    def __init__(self, scaler: str, token: str, reporter: Reporter) -> None:
        self._token = token.encode()
        self._reporter = reporter
        self._pool = Pool(scaler, max_connections=1, idle_s=120.0)
        self._headers = [("content-type", "application/json")]
        if token:
            self._headers.append(("authorization", f"Bearer {token}"))
        self._sender = secrets.token_hex(16)
        self._sequence = 0
        self._unanswered: bytes | None = None
        self._interval_s = _FIRST_INTERVAL_S
        self._interval_min_s = _INTERVAL_MIN_S
        self._backoff = Backoff(_FIRST_INTERVAL_S, _RETRY_MAX_S)
        self._urgent = asyncio.Event()
        self._logged: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self.refused: dict[str, int] = {}
        self.lost = ""

    def start(self) -> None:
        """Exchange messages until `close`."""
        self._task = asyncio.get_running_loop().create_task(self._forever())

    def urgent(self) -> None:
        """Send the next message as soon as the scaler accepts one."""
        self._urgent.set()

    async def send_last(self) -> None:
        """Stop, and send one last message, which the scaler may not answer."""
        await self.close()
        with suppress(CarpoolError, TimeoutError):
            async with asyncio.timeout(_LAST_TIMEOUT_S):
                if self._unanswered is not None:
                    await self._exchange()
                await self._exchange()
        self._pool.close()

    async def close(self) -> None:
        """Stop exchanging messages."""
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _forever(self) -> None:
        now = asyncio.get_running_loop().time
        while True:
            began = now()
            try:
                await self._exchange()
            except (CarpoolError, TimeoutError) as error:
                self._urgent.clear()  # an urgent message waits for the retry
                wait_s = self._failed(str(error) or "it does not answer", now() - began)
            else:
                wait_s = self._succeeded()
            pause_s = min(self._interval_min_s, wait_s)
            await asyncio.sleep(pause_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s - pause_s):
                    await self._urgent.wait()

    async def _exchange(self) -> None:
        """Send the next message, or the last one again, and handle the response."""
        if self._unanswered is None:
            self._urgent.clear()  # later urgent changes are not in this message
            self._sequence += 1
            message = self._reporter.message(self._sender, self._sequence)
            self._unanswered = message.to_json()
        response = await self._pool.request(
            "POST", PATH, self._headers, self._unanswered, _TIMEOUT_S
        )
        if response.status == _RECEIVED_BEFORE:  # the scaler has it, but its response was lost
            self._unanswered = None
            self._interval_s = _INTERVAL_MIN_S
            return
        if response.status in _UNACCEPTABLE:
            self._unanswered = None
            self._count("message")
        if response.status != _OK:
            reason = response.body[:200].decode("utf-8", "replace")
            message_text = f"it answers {response.status}: {reason}"
            raise _NoAnswer(message_text)
        self._unanswered = None
        self._follow(response)

    def _follow(self, response: Response) -> None:
        """Follow the response, if it is the scaler's."""
        presented = (response.header(PROOF.encode()) or b"").decode("latin-1")
        expected = proof(self._token, self._sender, self._sequence, response.body)
        if self._token and not hmac.compare_digest(presented.encode(), expected.encode()):
            self._refuse("proof", "it did not prove that it knows the token")
            return
        try:
            answer = SyncAnswer.from_json(response.body)
            self._interval_s = answer.interval_s
            self._interval_min_s = min(max(_INTERVAL_MIN_S, answer.soonest_s), answer.interval_s)
            self._reporter.answered(answer)
        except CarpoolError as error:
            self._refuse("plan", str(error))

    def _refuse(self, reason: str, text: str) -> None:
        self._count(reason)
        if reason not in self._logged:
            self._logged.add(reason)
            log.warning(
                "a response of the scaler was refused: %s; further ones are only counted", text
            )

    def _count(self, reason: str) -> None:
        self.refused[reason] = self.refused.get(reason, 0) + 1

    def _failed(self, reason: str, took_s: float) -> float:
        """Return the seconds until the next try, less the ``took_s`` that this one took."""
        if not self.lost:
            log.warning("the scaler cannot be reached: %s; the last plan stays in force", reason)
        self.lost = reason
        return max(0.0, self._backoff.after(0.0) - took_s)

    def _succeeded(self) -> float:
        if self.lost:
            log.info("the scaler is back")
        self.lost = ""
        self._backoff = Backoff(_FIRST_INTERVAL_S, _RETRY_MAX_S)
        return self._interval_s


class _NoAnswer(CarpoolError):
    """Raised when the scaler responds with another status than 200."""
