"""Many time limits of the same length share a single timer."""

from __future__ import annotations

import asyncio
import math
from unittest.mock import patch

from carpool.http.time_limits import TimeLimits
from tests.waiting import wait_until_async


class Work:
    """Work that records when it was given up."""

    def __init__(self) -> None:
        self.given_up_at: list[float] = []

    def give_up(self) -> None:
        self.given_up_at.append(asyncio.get_running_loop().time())


def test_overdue_work_is_abandoned_once_and_not_early() -> None:
    """Finished work is left alone, and later work gets its full time from the same timer."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        limits, ended, first, second = TimeLimits(0.05), Work(), Work(), Work()
        with patch.object(loop, "call_at", wraps=loop.call_at) as set_timer:
            limits.begin(ended)
            limits.begin(first)
            limits.end(ended)
            assert 1 == set_timer.call_count
        await asyncio.sleep(0.02)
        second_began = loop.time()
        limits.begin(second)
        await wait_until_async(lambda: second.given_up_at)
        assert not ended.given_up_at
        assert 1 == len(first.given_up_at)
        assert second.given_up_at[0] >= second_began + 0.05
        limits.end(first)

    asyncio.run(scenario())


def test_without_a_limit_there_is_no_timer() -> None:
    """An infinite limit sets no timer."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        limits = TimeLimits(math.inf)
        with patch.object(loop, "call_at") as set_timer:
            limits.begin(Work())
        assert not set_timer.called

    asyncio.run(scenario())


def test_work_restarted_after_timeout_is_limited_too() -> None:
    """Work that starts in place of abandoned work has a limit too."""

    async def scenario() -> None:
        limits, next_work = TimeLimits(0.01), Work()

        class Replaced(Work):
            def give_up(self) -> None:
                limits.begin(next_work)

        limits.begin(Replaced())
        await wait_until_async(lambda: next_work.given_up_at)

    asyncio.run(scenario())
