"""The loop that keeps something running."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvloop

from carpool.errors import CarpoolError
from carpool.process.supervisor import Supervisor


class Running:
    """Something that runs until it is asked to end, or made to."""

    def __init__(self, *, deaf: bool = False) -> None:
        self.deaf = deaf
        self.began = asyncio.Event()
        self.signals: list[str] = []
        self._over: asyncio.Future[str] | None = None

    async def run(self) -> str:
        """One run."""
        self._over = asyncio.get_running_loop().create_future()
        self.began.set()
        return await self._over

    def end(self, how: str) -> None:
        """It ends."""
        assert self._over
        self.began.clear()
        self._over.set_result(how)

    async def terminate(self) -> None:
        """As by SIGTERM."""
        self.signals.append("terminate")
        if not self.deaf:
            self.end("asked")

    async def kill(self) -> None:
        """As by SIGKILL."""
        self.signals.append("kill")
        if self._over:
            self.end("killed")


def nothing(_outcome: str, _pause_s: float) -> None:
    """There is no caller to tell."""


def test_it_runs_again_after_each_end() -> None:
    """With longer and longer pauses, until it has become ready."""
    told: list[tuple[str, float]] = []

    async def scene() -> None:
        running = Running()
        supervisor = Supervisor(running.run, running, lambda *end: told.append(end))
        supervisor.start()
        for number in range(4):
            await running.began.wait()
            if number == 2:
                supervisor.became_ready()
            running.end(str(number))
        await running.began.wait()
        assert not await supervisor.stop(60)
        assert ["terminate"] == running.signals

    uvloop.run(scene())
    assert [("0", 0.1), ("1", 0.2), ("2", 0.1), ("3", 0.2)] == told


def test_what_does_not_end_when_asked_is_ended() -> None:
    """After its grace."""

    async def scene() -> None:
        running = Running(deaf=True)
        supervisor = Supervisor(running.run, running, nothing)
        supervisor.start()
        await running.began.wait()
        assert await supervisor.stop(0.01)
        assert ["terminate", "kill"] == running.signals

    uvloop.run(scene())


def test_a_stop_during_a_pause_waits_for_nothing() -> None:
    """There is no further run, and the pause is cut short."""

    async def scene() -> None:
        running = Running(deaf=True)
        paused = asyncio.Event()
        supervisor = Supervisor(running.run, running, lambda *_: paused.set())
        supervisor.start()
        await running.began.wait()
        running.end("of itself")
        await paused.wait()
        assert not await supervisor.stop(60)
        assert supervisor.stopping
        assert not running.began.is_set()

    uvloop.run(scene())


def test_a_run_that_fails_for_good() -> None:
    """Its error is that of the start that waits for something; nothing is left to be stopped."""

    async def fails() -> str:
        msg = "for good"
        raise CarpoolError(msg)

    async def scene() -> None:
        supervisor = Supervisor(fails, Running(deaf=True), nothing)
        with pytest.raises(CarpoolError, match="for good"):
            await supervisor.start_until(asyncio.Event())
        assert not await supervisor.stop(60)

    uvloop.run(scene())


def test_a_fault_of_ours_does_not_end_the_supervision(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, what runs is killed, and there is another run."""
    told: list[str] = []

    async def scene() -> None:
        running = Running()
        faults = [LookupError("unforeseen")]

        async def run() -> str:
            if faults:
                raise faults.pop()
            return await running.run()

        supervisor = Supervisor(run, running, lambda outcome, _: told.append(outcome))
        supervisor.start()
        await running.began.wait()
        await supervisor.stop(60)
        assert ["kill", "terminate"] == running.signals

    uvloop.run(scene())
    assert told == ["failed: LookupError('unforeseen')"]
    assert "unforeseen" in caplog.text


def test_a_start_waits_until_it_is_ready() -> None:
    """And leaves it running; to leave it is not to end it."""

    async def scene() -> Any:
        running = Running()
        supervisor = Supervisor(running.run, running, nothing)
        await supervisor.start_until(running.began)
        await supervisor.leave()
        return running.signals

    assert [] == uvloop.run(scene())
