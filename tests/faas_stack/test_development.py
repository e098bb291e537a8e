"""Tests of changes to a running stack that overlap or fail unexpectedly."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock, Mock

import pytest

from faas_stack.stack import stack_file
from faas_stack.stack.development import Development
from faas_stack.stack.images import Images
from tests.faas_stack.test_watch import write_stack
from tests.waiting import wait_until_async

if TYPE_CHECKING:
    from pathlib import Path


def test_change_waits_for_cleanup_of_replaced_one(tmp_path: Path) -> None:
    """A change waits for the cleanup of the one it replaces, even if another change comes."""
    (tmp_path / "tell").mkdir()
    write_stack(tmp_path, tell="word")
    steps: list[str] = []

    async def play() -> None:
        cleaned = asyncio.Event()

        async def prepare(_: Any) -> None:
            steps.append("begins")
            try:
                await asyncio.Event().wait()
            finally:
                await cleaned.wait()
                steps.append("ends")

        images = Images(stack_file.load(tmp_path / "stack.yaml"), {}, list)
        development = Development(images, Mock(all=lambda _: []), 1.0, prepare)
        for word in ("one", "two", "three"):
            write_stack(tmp_path, tell="word", more=word)
            for _ in range(2):
                await development._look()
            await wait_until_async(lambda: bool(steps), what="the first attempt")
        assert ["begins"] == steps
        cleaned.set()
        await wait_until_async(lambda: len(steps) > 2, what="the last attempt")
        assert ["begins", "ends", "begins"] == steps
        for task in development._work.values():
            task.cancel()
        await asyncio.wait([*development._work.values()])

    asyncio.run(play())


def test_unexpected_error_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An unexpected error of one change is reported, and the next one is followed as usual."""
    (tmp_path / "tell").mkdir()
    write_stack(tmp_path, tell="word")
    prepared: list[str] = []

    async def prepare(function: Any) -> None:
        prepared.append(function.name)
        raise OSError(28, "No space left on device")

    async def play() -> None:
        images = Images(stack_file.load(tmp_path / "stack.yaml"), {}, list)
        development = Development(images, Mock(all=lambda _: []), 1.0, prepare)
        for names in (["more"], ["more", "other"]):
            write_stack(tmp_path, tell="word", **dict.fromkeys(names, "x"))
            for _ in range(2):  # a file counts once it is at rest
                await development._look()
            await wait_until_async(lambda: names[-1] in prepared, what="the attempt")  # noqa: B023
            await wait_until_async(lambda: not development._work, what="its end")

    asyncio.run(play())
    assert ["more", "other"] == sorted(set(prepared))
    said = capsys.readouterr().err
    assert "more: stack.yaml changed; it is not deployed\nOSError(28, 'No space left" in said
    assert "other: stack.yaml changed; it is not deployed\n" in said


def test_function_is_prepared_before_update(tmp_path: Path) -> None:
    """A changed function is prepared as a new one is: it may be the first with a scaling policy."""
    (tmp_path / "tell").mkdir()
    write_stack(tmp_path, tell="word")
    steps: list[str] = []

    async def prepare(function: Any) -> None:
        steps.append(f"prepared with {function.environment['word']}")

    async def play() -> None:
        images = Images(stack_file.load(tmp_path / "stack.yaml"), {}, list)
        roll_out = AsyncMock(side_effect=lambda *_: steps.append("rolled out"))
        orchestrator = Mock(all=lambda _: [], rollout=Mock(roll_out=roll_out))
        development = Development(images, orchestrator, 1.0, prepare)
        write_stack(tmp_path, tell="other")
        for _ in range(2):  # a file counts once it is at rest
            await development._look()
        await wait_until_async(lambda: not development._work, what="the update")

    asyncio.run(play())
    assert ["prepared with other", "rolled out"] == steps


def test_reverted_change_replaces_update_in_progress(tmp_path: Path) -> None:
    """An edit that is reverted while it is rolled out is not deployed."""
    (tmp_path / "tell").mkdir()
    write_stack(tmp_path, tell="word")
    steps: list[str] = []

    async def roll_out(*_: Any) -> None:
        steps.append("begins")
        try:
            await asyncio.Event().wait()
        finally:
            steps.append("is taken back")

    async def play() -> None:
        images = Images(stack_file.load(tmp_path / "stack.yaml"), {}, list)
        reload = AsyncMock(side_effect=lambda *_: steps.append("reloaded"))
        rollout = Mock(roll_out=AsyncMock(side_effect=roll_out))
        orchestrator = Mock(all=lambda _: [], rollout=rollout, reload=reload)
        development = Development(images, orchestrator, 1.0, AsyncMock())
        for word, step in (("other", "begins"), ("word", "is taken back")):
            write_stack(tmp_path, tell=word)
            for _ in range(2):
                await development._look()
            await wait_until_async(lambda: step in steps, what=step)  # noqa: B023
        await wait_until_async(lambda: not development._work, what="the end")

    asyncio.run(play())
    assert ["begins", "is taken back", "reloaded"] == steps


def test_slow_machine_does_not_delay_the_next_scan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scan that took long only because the machine was busy is not followed by a long pause."""
    (tmp_path / "tell").mkdir()
    write_stack(tmp_path, tell="word")
    development = Development(
        Images(stack_file.load(tmp_path / "stack.yaml"), {}, list), Mock(), 1.0, AsyncMock()
    )
    now_s, pauses = [0.0], []

    def slow(*_: Any) -> dict[str, Any]:
        now_s[0] += 60
        return {}

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) > 1:
            raise EOFError

    async def play() -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now_s[0])
        monkeypatch.setattr("faas_stack.stack.development.look", slow)
        monkeypatch.setattr("faas_stack.stack.development.asyncio.sleep", pause)
        await development.run()

    with pytest.raises(EOFError):
        asyncio.run(play())
    assert [0.3, 0.3] == pauses
