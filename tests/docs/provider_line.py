"""A command of the pages that starts a provider, run with a home folder of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import requests

from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["started"]


@contextlib.contextmanager
def started(line: str, home: Path) -> Iterator[Callable[[], Any]]:
    """Run the line of a shell on a free port, and stop the provider by SIGTERM at the end.

    Yields:
        A function that returns the document of the provider's functions.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = subprocess.Popen(
        ["bash", "-c", f"exec {line} --port 0 --no-auth"],
        cwd=home,
        env={**os.environ, "HOME": str(home), "PATH": path},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert said.startswith("provider at http://"), said + process.stderr.read()
        url = f"{said.split()[2].rstrip(';')}/system/functions"
        yield lambda: requests.get(url, timeout=HANG_S).json()
    finally:
        process.terminate()
        process.communicate(timeout=HANG_S)
    assert 0 == process.returncode
