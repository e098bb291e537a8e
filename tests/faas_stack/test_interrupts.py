"""Tests of how a serving command ends, by itself or interrupted."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal

import pytest

from faas_stack.interrupts import serve_until_interrupted
from tests.waiting import HANG_S


class Serving:
    """Records its steps; each part can send an interrupt and wait until it is cancelled."""

    def __init__(self, *interrupted: str) -> None:
        self._interrupted = interrupted
        self.done: list[str] = []

    async def _part(self, name: str) -> None:
        self.done.append(name)
        if name in self._interrupted:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        self.done.append(f"{name} ends")

    async def work(self) -> None:
        """Serve."""
        await self._part("work")

    async def drain(self) -> None:
        """Drain."""
        await self._part("drain")

    async def close(self) -> None:
        """Close."""
        self.done.append("close")

    def run(self) -> int:
        """Run all parts and return the exit code."""

        async def main() -> int:
            async with asyncio.timeout(HANG_S):
                return await serve_until_interrupted(self.work(), self.drain, self.close)

        return asyncio.run(main())


def test_finished_work_is_drained_and_closed() -> None:
    """After its work ends, a command drains, closes and succeeds."""
    serving = Serving()
    assert 0 == serving.run()
    assert ["work", "work ends", "drain", "drain ends", "close"] == serving.done


def test_the_first_interrupt_drains(capsys: pytest.CaptureFixture[str]) -> None:
    """The first interrupt ends the work and not the drain, and the command succeeds."""
    serving = Serving("work")
    assert 0 == serving.run()
    assert ["work", "drain", "drain ends", "close"] == serving.done
    assert "draining; press Ctrl-C again to kill\n" == capsys.readouterr().err


def test_the_second_interrupt_kills(capsys: pytest.CaptureFixture[str]) -> None:
    """The second interrupt also ends the drain; close is still called."""
    serving = Serving("work", "drain")
    assert 130 == serving.run()
    assert ["work", "drain", "close"] == serving.done
    assert [
        "draining; press Ctrl-C again to kill",
        "killing",
    ] == capsys.readouterr().err.splitlines()


def test_failed_work_is_drained_closed_and_raised() -> None:
    """After its work fails, a command drains and closes and raises the error."""

    class Failing(Serving):
        async def work(self) -> None:
            message = "no port"
            raise OSError(message)

    serving = Failing()
    with pytest.raises(OSError, match="no port"):
        serving.run()
    assert ["drain", "drain ends", "close"] == serving.done


def test_interrupt_drains_with_stderr_closed() -> None:
    """An interrupt drains even if standard error is closed, as when Ctrl-C ends a pipe's reader."""
    reading, writing = os.pipe()
    os.close(reading)
    serving = Serving("work")
    closed = io.TextIOWrapper(io.FileIO(writing, "w"))
    with closed, contextlib.redirect_stderr(closed):
        assert 0 == serving.run()
    assert ["work", "drain", "drain ends", "close"] == serving.done
