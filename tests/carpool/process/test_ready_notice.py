"""Readiness notices of processes, over a real socket."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from carpool.process.ready_notice import VARIABLE, ReadyNotices, tell
from tests.waiting import wait_until_async

if TYPE_CHECKING:
    from pathlib import Path


def test_parent_receives_ready_notice(tmp_path: Path) -> None:
    """A notice is recognised among further fields, and other messages are ignored."""
    heard: list[str] = []

    async def run() -> None:
        path = f"{tmp_path}/ready"
        notices = ReadyNotices(path, lambda: heard.append("ready"), asyncio.get_running_loop())
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
            server.sendto(b"STATUS=loading", path)
            server.sendto(b"READY=10", path)
            server.sendto(b"READY=1\nSTATUS=serving", path)
        tell({VARIABLE: path})
        await wait_until_async(lambda: len(heard) >= 2, what="the notices")
        notices.close()

    asyncio.run(run())
    assert ["ready"] * 2 == heard
    assert [] == list(tmp_path.iterdir())


def test_a_socket_of_an_earlier_run_is_replaced(tmp_path: Path) -> None:
    """The socket of a killed process is replaced, and its path may contain any characters."""

    async def run() -> None:
        path, loop = f"{tmp_path}/rea@dy", asyncio.get_running_loop()
        heard = asyncio.Event()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as left:
            left.bind(path)
        notices = ReadyNotices(path, heard.set, loop)
        tell({VARIABLE: path})
        await wait_until_async(heard.is_set, what="the notice")
        notices.close()

    asyncio.run(run())


def test_notice_without_listener_is_ignored(tmp_path: Path) -> None:
    """Telling does nothing without the variable, or if no process listens at the path."""
    tell({})
    tell({VARIABLE: "not a path"})
    tell({VARIABLE: f"{tmp_path}/gone"})
    assert [] == list(tmp_path.iterdir())
