"""The function's process is kept running; real processes that end at once."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from sidecar.runtime.child import Child, Launch
from tests.waiting import wait_until_async


@pytest.mark.parametrize(
    ("was_ready", "waits"), [(True, ["0.1 s"] * 3), (False, ["0.1 s", "0.2 s", "0.4 s"])]
)
def test_a_process_that_has_served_is_started_again_soon(
    caplog: pytest.LogCaptureFixture, *, was_ready: bool, waits: list[str]
) -> None:
    """Only one that never becomes ready is waited for longer and longer."""

    async def run() -> None:
        def died(_reason: str) -> None:
            if was_ready:
                child.became_ready()

        launch = Launch((sys.executable, "-I", "-S", "-c", ""), os.environ, "", "")
        child = Child(launch, died)
        child.start()
        await wait_until_async(lambda: len(caplog.messages) >= 3, what="the third death")
        await child.stop(1.0)

    asyncio.run(run())
    assert waits == [message.rpartition("next in ")[2] for message in caplog.messages[:3]]
