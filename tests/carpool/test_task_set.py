"""Tasks that are not awaited."""

from __future__ import annotations

import asyncio
import gc

import pytest

from carpool.task_set import TaskSet


def test_what_is_started_is_kept_until_its_end() -> None:
    """The event loop itself has weak references only."""

    async def story() -> list[int]:
        tasks, ended = TaskSet(), list[int]()

        async def work(number: int) -> None:
            await asyncio.sleep(0)
            ended.append(number)

        for number in range(3):
            tasks.start(work(number))
        gc.collect()
        await tasks.join()
        return ended

    assert [0, 1, 2] == asyncio.run(story())


def test_joining_waits_for_what_is_started_meanwhile() -> None:
    """As a replica that is drained may be the reason for another one to go."""

    async def story() -> bool:
        tasks, done = TaskSet(), asyncio.Event()

        async def second() -> None:
            await asyncio.sleep(0)
            done.set()

        async def first() -> None:
            tasks.start(second())

        tasks.start(first())
        await tasks.join()
        return done.is_set()

    assert asyncio.run(story())


def test_what_runs_can_be_cancelled_and_joined() -> None:
    """Neither a cancellation nor a failure reaches a caller of ``join``."""

    async def story() -> asyncio.Task[None]:
        tasks = TaskSet()

        async def fail() -> None:
            _ = 1 // 0

        failing = tasks.start(fail())
        waiting = tasks.start(asyncio.sleep(3600))
        await asyncio.sleep(0)
        tasks.cancel()
        await tasks.join()
        with pytest.raises(ZeroDivisionError):
            failing.result()
        return waiting

    assert asyncio.run(story()).cancelled()
