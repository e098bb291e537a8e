"""Open-loop load for tests, and its outcome."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter

from carpool.errors import CarpoolError
from carpool.http.client import Pool

__all__ = ["BACKGROUND", "ECHO", "INTERACTIVE", "Outcome", "Steady", "all_are_answered", "load"]

_PATIENCE_S = 180.0
# Requests of this class have no deadline, so that all of them must be answered with 200.
BACKGROUND, INTERACTIVE = ("x-carpool-class", "batch"), ("x-carpool-class", "interactive")
ECHO = "/function/echo"


async def load(
    url: str,
    rate_rps: float,
    duration_s: float,
    *headers: tuple[str, str],
    path: str = ECHO,
    outcome: Outcome | None = None,
    over: threading.Event | None = None,
) -> Outcome:
    """Send requests at a constant rate; each must be answered with its own response.

    No more are sent once ``over`` is set.
    """
    loop, outcome = asyncio.get_running_loop(), outcome or Outcome()
    pool = Pool(url.removeprefix("http://"), max_connections=512)
    began, calls = loop.time(), []
    for number in range(round(rate_rps * duration_s)):
        await asyncio.sleep(max(0.0, began + number / rate_rps - loop.time()))
        if over and over.is_set():
            break
        outcome.sent += 1
        calls.append(loop.create_task(_call(pool, path, number, headers, outcome)))
    await asyncio.gather(*calls)
    pool.close()
    return outcome


class Outcome:
    """The outcome of a load.

    Attributes:
        sent: Number of requests sent.
        pending: Number of requests that wait for an answer now.
        refused_s: Times at which others than 200 were answered.
    """

    def __init__(self) -> None:
        self.sent = self.pending = 0
        self.statuses: Counter[int] = Counter()
        self.refused_s: list[float] = []
        self.broken: list[str] = []
        self.broken_s: list[float] = []
        self.wrong: list[str] = []
        self.batches: Counter[int] = Counter()

    @property
    def answered(self) -> int:
        """Number of answers with any status."""
        return self.statuses.total()


async def _call(
    pool: Pool, path: str, number: int, headers: tuple[tuple[str, str], ...], outcome: Outcome
) -> None:
    body = str(number)
    outcome.pending += 1
    try:
        answer = await pool.request("POST", path, headers, body.encode(), _PATIENCE_S)
    except (CarpoolError, TimeoutError) as error:
        outcome.broken.append(str(error) or f"no answer in {_PATIENCE_S:g} s")
        outcome.broken_s.append(time.monotonic())
        return
    finally:
        outcome.pending -= 1
    outcome.statuses[answer.status] += 1
    if answer.status != 200:
        outcome.refused_s.append(time.monotonic())
    else:
        found = json.loads(answer.body)
        outcome.batches[found["batch"]] += 1
        if found["echo"] != body:
            outcome.wrong.append(body)


class Steady:
    """A load in the background, until it is stopped.

    Attributes:
        outcome: The outcome so far.
    """

    def __init__(
        self,
        url: str,
        rate_rps: float,
        *headers: tuple[str, str],
        path: str = ECHO,
        at_most: int = 10**6,
    ) -> None:
        self.outcome, self._over = Outcome(), threading.Event()

        def run() -> None:
            asyncio.run(
                load(
                    *(url, rate_rps, at_most / rate_rps, *(headers or [BACKGROUND])),
                    path=path,
                    outcome=self.outcome,
                    over=self._over,
                )
            )

        self._thread = threading.Thread(target=run)
        self._thread.start()

    def over(self) -> Outcome:
        """Stop the load, and wait for the last answer."""
        self._over.set()
        self._thread.join()
        return self.outcome


def all_are_answered(outcome: Outcome) -> None:
    """Check that requests were sent, and that each got its own answer."""
    assert outcome.sent > 0
    answered = {200: outcome.sent}
    assert (answered, [], []) == (dict(outcome.statuses), outcome.broken, outcome.wrong)
