"""Background tasks that are not awaited individually."""

from __future__ import annotations

import asyncio
import gc

import pytest

from carpool.task_set import TaskSet


def test_started_tasks_are_referenced_until_they_end() -> None:
    """Started tasks are referenced until they end, as the event loop has only weak references."""

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


def test_join_waits_for_tasks_started_meanwhile() -> None:
    """``join`` also waits for tasks started by the tasks that it waits for."""

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


def test_cancelled_or_failed_tasks_can_be_joined() -> None:
    """``join`` raises neither a task's cancellation nor its failure."""

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
