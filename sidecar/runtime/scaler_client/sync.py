"""Talking to the scaler: every now and then one message there and one answer back.

A front reports its load and takes plans; the sidecar of an instance announces where it is. A
message whose answer was lost is sent again as it was, so nothing is counted twice and nothing is
lost. The scaler may be gone for as long as it likes: everything goes on under the last plan, and it
is said once. An answer that does not prove to be the scaler's, or has a plan that cannot be
followed, is refused, counted, and the reason said once.
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

__all__ = ["Speaker", "Sync"]

log = logging.getLogger(__name__)

_TIMEOUT_S = 10.0
_FIRST_S = 0.25  # until the scaler has said how often
_SOON_S = 0.02  # at the soonest, however urgent; the scaler may say later
_LONGEST_S = 5.0  # between two tries while the scaler is gone
_LAST_S = 2.0  # for the last words
_OK = 200
_TAKEN = 409


class Speaker(Protocol):
    """What is said, and what is done about the answer."""

    def message(self, sender: str, sequence: int) -> FrontReport | Announcement:
        """The next message."""
        ...

    def answered(self, answer: SyncAnswer) -> None:
        """The scaler's answer to it.

        Raises:
            CarpoolError: it cannot be followed; nothing has changed.
        """
        ...


class Sync:
    """The conversation of one sidecar.

    Args:
        scaler: Its address.
        token: What to present, and what answers prove to know; empty: neither.
        speaker: Says what there is to say.

    Attributes:
        refused: Answers that were refused, by reason.
        lost: Why the scaler does not answer; empty while it does.
    """

    def __init__(self, scaler: str, token: str, speaker: Speaker) -> None:
        self._token = token.encode()
        self._speaker = speaker
        self._pool = Pool(scaler, max_connections=1, idle_s=120.0)
        self._headers = [("content-type", "application/json")]
        if token:
            self._headers.append(("authorization", f"Bearer {token}"))
        self._sender = secrets.token_hex(16)
        self._sequence = 0
        self._unanswered: bytes | None = None
        self._interval_s = _FIRST_S
        self._soonest_s = _SOON_S
        self._backoff = Backoff(_FIRST_S, _LONGEST_S)
        self._urgent = asyncio.Event()
        self._said: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self.refused: dict[str, int] = {}
        self.lost = ""

    def start(self) -> None:
        """Talk until `close`."""
        self._task = asyncio.get_running_loop().create_task(self._forever())

    def urgent(self) -> None:
        """There is something that the scaler should know now, or as soon as it can take it."""
        self._urgent.set()

    async def once(self) -> None:
        """Say what there is to say, and nothing more; the scaler may be gone."""
        await self.close()
        with suppress(CarpoolError, TimeoutError):
            async with asyncio.timeout(_LAST_S):
                if self._unanswered is not None:
                    await self._exchange()
                await self._exchange()
        self._pool.close()

    async def close(self) -> None:
        """Stop talking."""
        if self._task:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _forever(self) -> None:
        while True:
            try:
                await self._exchange()
            except (CarpoolError, TimeoutError) as error:
                self._urgent.clear()  # an instance that leaves does not come back for it
                wait_s = self._went_wrong(str(error) or "it does not answer")
            else:
                wait_s = self._went_well()
            soonest_s = min(self._soonest_s, wait_s)
            await asyncio.sleep(soonest_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s - soonest_s):
                    await self._urgent.wait()

    async def _exchange(self) -> None:
        """One message, or the last one again, and its answer."""
        if self._unanswered is None:
            self._urgent.clear()  # what is urgent from now on is not in it
            self._sequence += 1
            message = self._speaker.message(self._sender, self._sequence)
            self._unanswered = message.to_json()
        response = await self._pool.request(
            "POST", PATH, self._headers, self._unanswered, _TIMEOUT_S
        )
        if response.status == _TAKEN:  # the scaler had it, and its answer was lost
            self._unanswered = None
            self._interval_s = _SOON_S
            return
        if response.status != _OK:
            reason = response.body[:200].decode("utf-8", "replace")
            message_text = f"it answers {response.status}: {reason}"
            raise _NoAnswer(message_text)
        self._unanswered = None
        self._follow(response)

    def _follow(self, response: Response) -> None:
        """Do as the answer says, if it is the scaler's and can be followed."""
        shown = (response.header(PROOF.encode()) or b"").decode("latin-1")
        wanted = proof(self._token, self._sender, self._sequence, response.body)
        if self._token and not hmac.compare_digest(shown.encode(), wanted.encode()):
            self._refuse("proof", "it does not prove to know the token")
            return
        try:
            answer = SyncAnswer.from_json(response.body)
            self._interval_s = answer.interval_s
            self._soonest_s = min(max(_SOON_S, answer.soonest_s), answer.interval_s)
            self._speaker.answered(answer)
        except CarpoolError as error:
            self._refuse("plan", str(error))

    def _refuse(self, reason: str, text: str) -> None:
        self.refused[reason] = self.refused.get(reason, 0) + 1
        if reason not in self._said:
            self._said.add(reason)
            log.warning("an answer of the scaler is not followed: %s; others are counted", text)

    def _went_wrong(self, reason: str) -> float:
        if not self.lost:
            log.warning("the scaler is gone: %s; everything goes on as it is", reason)
        self.lost = reason
        return self._backoff.after(0.0)

    def _went_well(self) -> float:
        if self.lost:
            log.info("the scaler is back")
        self.lost = ""
        self._backoff = Backoff(_FIRST_S, _LONGEST_S)
        return self._interval_s


class _NoAnswer(CarpoolError):
    """The scaler answered something else."""
