"""Descriptions of exit codes, and of what a handler says before it exits."""

from __future__ import annotations

import signal

__all__ = ["CANNOT_START", "in_words"]

CANNOT_START = "handler: cannot start: "  # begins the line in which `watchdog_plugin` says why


def in_words(code: int) -> str:
    """Return ``status 3`` or ``SIGKILL``; ``code`` is negative for the number of a signal."""
    if code >= 0:
        return f"status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:  # most real-time signals have no name
        return f"signal {-code}"
