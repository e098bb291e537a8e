"""The commit of this code, as shown by ``faas-cli version``."""

from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path

__all__ = ["FILE", "revision"]

FILE = Path(__file__).with_name("REVISION")  # written when an image is built
_ROOT = Path(__file__).resolve().parent.parent
_TIMEOUT_S = 5.0


@functools.cache
def revision() -> str:
    """Return the commit, from the image or the checkout; ``unknown`` if neither has it."""
    if FILE.is_file():
        return FILE.read_text().strip()
    git = shutil.which("git")
    if git and (_ROOT / ".git").exists():  # a checkout of Carpool, not one in which it is installed
        command = (git, "-C", str(_ROOT), "rev-parse", "HEAD")
        done = subprocess.run(  # noqa: S603 - git, in our own folder
            command, check=False, capture_output=True, text=True, timeout=_TIMEOUT_S
        )
        if done.returncode == 0:
            return done.stdout.strip()
    return "unknown"
