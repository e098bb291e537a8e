"""``carpool up`` as a separate program, run for as long as it is needed.

It runs outside the caller's process, so that a load generator does not share an event loop with
what is measured, and in its own session, so that an interrupt reaches only the caller, who then
stops it in order.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carpool.errors import CarpoolError
from carpool.process.child import end

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ROOT", "StackFailed", "stack_process"]

ROOT = Path(__file__).resolve().parents[2]

_DRAIN_S = 15
_LAST_WORDS = 2000


class StackFailed(CarpoolError):
    """Raised when the stack does not start or does not reach the wanted state."""


@contextmanager
def stack_process(stack: Path, *options: str) -> Iterator[dict[str, Any]]:
    """Run a stack file for the length of the ``with`` block, on any free ports.

    Yields:
        The output of ``carpool up --json``.

    Raises:
        StackFailed: The stack does not become ready; the message contains its last output.
    """
    command = [sys.executable, "-m", "carpool", "up", "-f", str(stack.resolve())]
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as log,
        subprocess.Popen(  # noqa: S603 - our own command
            [*command, "--port", "0", "--scaler-port", "0", "--json", *options],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        try:
            line = process.stdout.readline() if process.stdout else ""
            if not line:
                log.seek(0)
                message = f"the stack did not start; its last output:\n{log.read()[-_LAST_WORDS:]}"
                raise StackFailed(message)
            yield json.loads(line)
        finally:
            # Drain, like the first Ctrl-C; then kill.
            end(process, signal.SIGINT, signal.SIGINT, grace_s=_DRAIN_S)
