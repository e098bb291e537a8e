"""The loop that restarts a process whenever it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvloop

from carpool.errors import CarpoolError
from carpool.process.supervisor import Supervisor


class Running:
    """A fake process that runs until it is asked or forced to end."""

    def __init__(self, *, deaf: bool = False) -> None:
        self.deaf = deaf
        self.began = asyncio.Event()
        self.signals: list[str] = []
        self._over: asyncio.Future[str] | None = None

    async def run(self) -> str:
        """Run until `end` is called, and return how the run ended."""
        self._over = asyncio.get_running_loop().create_future()
        self.began.set()
        return await self._over

    def end(self, how: str) -> None:
        """End the run."""
        assert self._over
        self.began.clear()
        self._over.set_result(how)

    async def terminate(self) -> None:
        """End as on SIGTERM."""
        self.signals.append("terminate")
        if not self.deaf:
            self.end("asked")

    async def kill(self) -> None:
        """End as on SIGKILL."""
        self.signals.append("kill")
        if self._over:
            self.end("killed")


def nothing(_outcome: str, _pause_s: float) -> None:
    """Ignore the end of a run."""


def test_process_is_restarted_with_growing_pauses() -> None:
    """Restart pauses grow with each end, until a run has become ready."""
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


def test_run_that_ignores_termination_is_killed() -> None:
    """A run that ignores termination is killed after its grace period."""

    async def scene() -> None:
        running = Running(deaf=True)
        supervisor = Supervisor(running.run, running, nothing)
        supervisor.start()
        await running.began.wait()
        assert await supervisor.stop(0.01)
        assert ["terminate", "kill"] == running.signals

    uvloop.run(scene())


def test_stop_during_pause_takes_effect_at_once() -> None:
    """Stopping during a pause cuts the pause short and starts no further run."""

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


def test_start_until_raises_permanent_failure() -> None:
    """`start_until` raises the error of a run that fails permanently, with nothing left to stop."""

    async def fails() -> str:
        msg = "for good"
        raise CarpoolError(msg)

    async def scene() -> None:
        supervisor = Supervisor(fails, Running(deaf=True), nothing)
        with pytest.raises(CarpoolError, match="for good"):
            await supervisor.start_until(asyncio.Event())
        assert not await supervisor.stop(60)

    uvloop.run(scene())


def test_unexpected_error_does_not_end_supervision(caplog: pytest.LogCaptureFixture) -> None:
    """An unexpected error is logged, the process is killed, and another run starts."""
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
    """Starting waits until the process is ready, and leaving it does not end it."""

    async def scene() -> Any:
        running = Running()
        supervisor = Supervisor(running.run, running, nothing)
        await supervisor.start_until(running.began)
        await supervisor.leave()
        return running.signals

    assert [] == uvloop.run(scene())
