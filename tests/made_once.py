"""Folders that take long to fill, such as models': made once in a run, for all of its workers."""

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
    """The folder that ``make`` has filled; it is shared, so tests may not write to it.

    Args:
        factory: of temporary folders, by which workers of the same run are known.
        name: of the folder.
        make: fills the folder that it is given; other callers wait for it meanwhile.
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
