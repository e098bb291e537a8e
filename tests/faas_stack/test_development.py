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


def test_an_unexpected_error_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is that change's alone: the next one is followed as ever."""
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
