"""Descriptions of exit codes."""

from __future__ import annotations

import signal

__all__ = ["in_words"]


def in_words(code: int) -> str:
    """Return ``status 3`` or ``SIGKILL``; ``code`` is negative for the number of a signal."""
    if code >= 0:
        return f"status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:  # most real-time signals have no name
        return f"signal {-code}"
