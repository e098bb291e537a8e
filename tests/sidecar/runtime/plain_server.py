"""Servers without Carpool code, under gunicorn."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.sidecar.runtime.conftest import ROOT
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["plain_server"]


@contextmanager
def plain_server(app: str, folder: Path) -> Iterator[str]:
    """Start a server of ``app`` with one worker and yield its address; it may still be starting."""
    path = folder / "server.sock"
    command = [sys.executable, "-m", "gunicorn", "--bind", f"unix:{path}"]
    process = subprocess.Popen(
        [*command, "--worker-class", "gthread", app],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        yield f"unix:{path}"
    finally:
        process.terminate()
        process.wait(HANG_S)
