"""Open-loop load for tests, and what becomes of it."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter

from carpool.errors import CarpoolError
from carpool.http.client import Pool

__all__ = ["BACKGROUND", "Outcome", "load"]

_PATIENCE_S = 90.0
# Requests of this class have no deadline, so that all of them must be answered with 200.
BACKGROUND = ("x-carpool-class", "batch")


async def load(
    url: str,
    rate_rps: float,
    duration_s: float,
    *headers: tuple[str, str],
    path: str = "/function/echo",
    outcome: Outcome | None = None,
) -> Outcome:
    """So many requests a second, whatever becomes of them; each must be answered with its own."""
    loop, outcome = asyncio.get_running_loop(), outcome or Outcome()
    pool = Pool(url.removeprefix("http://"), max_connections=512)
    began, calls = loop.time(), []
    for number in range(round(rate_rps * duration_s)):
        await asyncio.sleep(max(0.0, began + number / rate_rps - loop.time()))
        calls.append(loop.create_task(_call(pool, path, number, headers, outcome)))
    await asyncio.gather(*calls)
    pool.close()
    return outcome


class Outcome:
    """What became of requests.

    Attributes:
        pending: How many wait for an answer now.
        refused_s: When others than 200 were answered.
    """

    def __init__(self) -> None:
        self.pending = 0
        self.statuses: Counter[int] = Counter()
        self.refused_s: list[float] = []
        self.broken: list[str] = []
        self.broken_s: list[float] = []
        self.wrong: list[str] = []
        self.batches: Counter[int] = Counter()

    @property
    def answered(self) -> int:
        """Answers of any kind."""
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
