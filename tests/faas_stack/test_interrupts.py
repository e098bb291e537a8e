"""How a command that serves ends, by itself or interrupted."""

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
    """Notes what happens; each part may be told to send an interrupt and wait to be ended."""

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
        """Clear up."""
        await self._part("drain")

    async def close(self) -> None:
        """The last."""
        self.done.append("close")

    def run(self) -> int:
        """From the beginning to the exit code."""

        async def main() -> int:
            async with asyncio.timeout(HANG_S):
                return await serve_until_interrupted(self.work(), self.drain, self.close)

        return asyncio.run(main())


def test_work_that_ends_is_cleared_up_after() -> None:
    """One after the other, and the command has succeeded."""
    serving = Serving()
    assert 0 == serving.run()
    assert ["work", "work ends", "drain", "drain ends", "close"] == serving.done


def test_the_first_interrupt_drains(capsys: pytest.CaptureFixture[str]) -> None:
    """Work is cut short, clearing up is not; that is no failure."""
    serving = Serving("work")
    assert 0 == serving.run()
    assert ["work", "drain", "drain ends", "close"] == serving.done
    assert "draining; again to kill\n" == capsys.readouterr().err


def test_the_second_interrupt_kills(capsys: pytest.CaptureFixture[str]) -> None:
    """Clearing up is cut short too, and what has to be closed is closed."""
    serving = Serving("work", "drain")
    assert 130 == serving.run()
    assert ["work", "drain", "close"] == serving.done
    assert ["draining; again to kill", "killing"] == capsys.readouterr().err.splitlines()


def test_work_that_fails_is_cleared_up_after_and_said() -> None:
    """The failure is what comes out."""

    class Failing(Serving):
        async def work(self) -> None:
            message = "no port"
            raise OSError(message)

    serving = Failing()
    with pytest.raises(OSError, match="no port"):
        serving.run()
    assert ["drain", "drain ends", "close"] == serving.done


def test_interrupts_count_with_standard_error_closed() -> None:
    """Ctrl-C ends the reader of a pipe first; what serves must end, too."""
    reading, writing = os.pipe()
    os.close(reading)
    serving = Serving("work")
    closed = io.TextIOWrapper(io.FileIO(writing, "w"))
    with closed, contextlib.redirect_stderr(closed):
        assert 0 == serving.run()
    assert ["work", "drain", "drain ends", "close"] == serving.done
