"""Folders that take long to fill, such as those of models, made once per run for all workers."""

from __future__ import annotations

import fcntl
import os
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

__all__ = ["made_once"]


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder filled by ``make``; it is shared, so tests must not write to it.

    Args:
        factory: of temporary folders, which identifies the workers of one run.
        name: of the folder.
        make: fills the given folder, while other callers wait.
    """
    base = factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, part = root / "made-once" / name, root / "made-once" / f"{name}.part"
    part.parent.mkdir(exist_ok=True)
    with part.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            make(part)
            part.rename(folder)
    return folder
