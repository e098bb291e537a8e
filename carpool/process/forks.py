"""Keeps garbage of this process from being collected in its forked children.

uvloop, and ``subprocess`` with a ``preexec_fn``, run Python code in the child before its program.
If the collector runs there, so do finalizers of the parent's garbage. Those of gRPC wait for a
thread, which a child does not have: the child never ends, and the parent waits for it.
"""

from __future__ import annotations

import gc
import os

__all__ = ["keep_garbage"]

_was_enabled: list[bool] = []  # threads may fork at the same time


def keep_garbage() -> None:
    """Have later forks of this process leave its garbage to this process."""
    os.register_at_fork(before=_pause, after_in_parent=_resume, after_in_child=_resume_without_it)


def _pause() -> None:
    _was_enabled.append(gc.isenabled())
    gc.disable()


def _resume() -> None:
    if _was_enabled.pop():
        gc.enable()


def _resume_without_it() -> None:
    gc.freeze()
    _resume()
