"""A process that is started before there is an event loop, which takes it over later.

The starting process imports asyncio meanwhile, so this module does not.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from carpool.process.parent_death import tell_on_parent_death

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["EarlyStart"]


class EarlyStart:
    """A process in a session of its own, which is killed when this process ends.

    Args:
        argv: the program and its arguments.
        env: its whole environment.

    Attributes:
        errors: the descriptor to read its standard error from; closed by whatever takes it over.

    Raises:
        OSError: the process cannot be started.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self.errors, writing = os.pipe()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the command is the function's own
                argv,
                env=env,
                stdin=subprocess.DEVNULL,
                stderr=writing,
                start_new_session=True,
                preexec_fn=partial(tell_on_parent_death, signal.SIGKILL),  # noqa: PLW1509 - there are no threads
            )
        except BaseException:
            os.close(self.errors)
            raise
        finally:
            os.close(writing)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Exit code; None until `wait` has returned."""
        return self._process.returncode

    def end(self) -> None:
        """Kill the process and its group if it still runs, when nothing has taken it over."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    async def wait(self) -> int:
        """Wait in a thread until the process ends, and return its exit code."""
        import asyncio  # noqa: PLC0415 - it is there by now

        return await asyncio.to_thread(self._process.wait)
