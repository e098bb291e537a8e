"""A process of ``carpool provider NAME``, with the backend of a package in a folder."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["running"]


@contextmanager
def running(folder: Path, name: str, params: Mapping[str, str]) -> Iterator[str]:
    """Run a provider and yield its URL; it must end at SIGTERM without an error.

    Args:
        folder: Folder with the installed package; also for the provider's state.
        name: Name of the backend.
        params: Parameters of the backend.
    """
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "carpool", "provider", name, "--params", json.dumps(params)]
    command += ["--port", "0", "--no-auth", "--state", str(folder / "state")]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as provider:
        try:
            assert provider.stderr is not None
            said = re.search(r"provider at (http://\S+);", provider.stderr.readline())
            assert said is not None
            yield said[1]
        finally:
            provider.terminate()
            assert 0 == provider.wait(timeout=HANG_S)
