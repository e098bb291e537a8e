"""Tests of rebuilding a stack's images while their instances run."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from faas_stack.stack import stack_file
from faas_stack.stack.images import Images
from tests.faas_stack.test_watch import write_stack

if TYPE_CHECKING:
    from pathlib import Path

    from faas_stack.provider.local.build_context import BuildContext

IMAGE = "tell:latest"


def images(folder: Path) -> tuple[Images, dict[str, BuildContext]]:
    """Return the assembled images of a stack with one function, and their contexts."""
    (folder / "tell").mkdir()
    (folder / "tell" / "handler.py").write_text("old")
    write_stack(folder, tell="word")
    contexts: dict[str, BuildContext] = {}
    made = Images(stack_file.load(folder / "stack.yaml"), contexts, list)
    made.assemble()
    return made, contexts


def handler(context: BuildContext) -> str:
    """Return the handler's text in an image."""
    return (context.folder / "function" / "handler.py").read_text()


def test_failed_rebuild_restores_previous_image(tmp_path: Path) -> None:
    """After a failed rebuild the previous image is used; the next one removes the failed image."""

    async def play() -> None:
        made, contexts = images(tmp_path)
        before = contexts[IMAGE]
        (tmp_path / "tell" / "handler.py").write_text("new")
        with suppress(RuntimeError):
            async with made.rebuilt(IMAGE):
                failed = contexts[IMAGE]
                assert ("old", "new") == (handler(before), handler(failed))
                raise RuntimeError
        assert before is contexts[IMAGE]
        async with made.rebuilt(IMAGE):
            assert not failed.folder.exists()
        assert ("old", "new") == (handler(before), handler(contexts[IMAGE]))

    asyncio.run(play())


def test_rebuilds_of_one_image_take_turns(tmp_path: Path) -> None:
    """Two rebuilds of one image take turns, so that restoring one does not undo the other."""

    async def play() -> None:
        made, contexts = images(tmp_path)
        inside, fail = asyncio.Event(), asyncio.Event()

        async def first() -> None:
            async with made.rebuilt(IMAGE):
                inside.set()
                await fail.wait()
                raise RuntimeError

        async def second() -> BuildContext:
            await inside.wait()
            async with made.rebuilt(IMAGE):
                return contexts[IMAGE]

        attempts = [asyncio.create_task(first()), asyncio.create_task(second())]
        await inside.wait()
        await asyncio.sleep(0.01)
        assert not attempts[1].done()
        fail.set()
        outcomes = await asyncio.gather(*attempts, return_exceptions=True)
        assert [RuntimeError, contexts[IMAGE]] == [type(outcomes[0]), outcomes[1]]
        assert "old" == handler(contexts[IMAGE])

    asyncio.run(play())
