"""Confines running processes to cores if no control group does.

Weaker than a group: a process may widen its affinity again, and a process that starts during the
change may be missed. Processes that start later inherit the cores.
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
    """Confine every thread of these processes to ``cores``, ignoring processes that have ended."""
    for pid in pids:
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(int(thread.name), cores)
