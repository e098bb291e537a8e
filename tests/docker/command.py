"""``carpool provider docker`` as a user starts it, for tests."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Command"]


class Command:
    """The command with its own state folder and stack."""

    def __init__(self, folder: Path) -> None:
        self.stack = f"carpool-test-{secrets.token_hex(4)}"
        self.argv = (
            *(sys.executable, "-m", "carpool", "provider", "docker"),
            *("--state", str(folder / "state"), "--stack", self.stack),
        )

    def run(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run the command until it ends."""
        command = (*self.argv, *words)
        return subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            timeout=HANG_S,
            env={**os.environ, **env},
        )

    @contextlib.contextmanager
    def serving(self) -> Iterator[tuple[subprocess.Popen[str], str]]:
        """Yield the running command and its URL; stop it at the end if it still runs."""
        process = subprocess.Popen(
            (*self.argv, "--port", "0"), stderr=subprocess.PIPE, text=True, bufsize=1
        )
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.startswith("provider at http://"), line + process.stderr.read()
            yield process, line.split()[2].rstrip(";")
        finally:
            process.terminate()
            process.communicate(timeout=HANG_S)

    def clear(self) -> None:
        """Remove what the command has left."""
        done = self.run("--clear")
        assert 0 == done.returncode, done.stderr
