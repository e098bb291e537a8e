"""What is said of a change of a running stack that fails in a way that nobody has thought of."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

from faas_stack.stack import stack_file
from faas_stack.stack.development import Development
from faas_stack.stack.images import Images
from tests.faas_stack.test_watch import write_stack
from tests.waiting import wait_until_async

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_change_waits_until_what_it_has_ended_has_cleaned_up(tmp_path: Path) -> None:
    """Also if it is the second one that comes meanwhile, as when a file is saved twice."""
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


def test_an_unexpected_error_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is that change's alone: the next one is followed as usual."""
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
