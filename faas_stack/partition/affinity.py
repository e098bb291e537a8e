"""Keeping running processes to cores, where no control group does it.

Weaker than a group: a process may widen its cores again, and one that is started while it is moved
may be missed. What is started later inherits them.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["confine"]


def confine(pids: Iterable[int], cores: Sequence[int]) -> None:
    """Keep every thread of these processes to ``cores``; those that are gone do not matter."""
    for pid in pids:
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(int(thread.name), cores)
