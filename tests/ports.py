"""Ports for programs that need to be given one before they listen."""

from __future__ import annotations

import contextlib
import fcntl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.free_port import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["free_port", "watchdog_port"]


@contextlib.contextmanager
def watchdog_port() -> Iterator[None]:
    """Hold port 8081 of the machine's own network, which every of-watchdog there binds.

    Wait until no other test has it, in any worker or run of the suite.
    """
    with (Path(tempfile.gettempdir()) / "carpool-tests-8081.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
