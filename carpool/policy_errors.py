"""Describes an error raised by a policy in one line: its message and place in the policy's file."""

from __future__ import annotations

from pathlib import PurePath

from carpool.errors import CarpoolError

__all__ = ["PolicyFailed", "place", "raised"]


class PolicyFailed(CarpoolError):
    """Raised when a policy has failed."""


def raised(error: BaseException) -> str:
    """Return type, message and `place` of an error."""
    return f"{type(error).__name__}: {error}{place(error)}"


def place(error: BaseException) -> str:
    """Return the innermost line in the first file outside the catcher's own, in brackets."""
    trace, own, where = error.__traceback__, "", ""
    catcher = trace.tb_frame.f_code.co_filename if trace else ""
    while trace:
        file = trace.tb_frame.f_code.co_filename
        own = own or (file if file != catcher else "")
        if file == own:
            where = f" ({PurePath(file).name}:{trace.tb_lineno})"
        trace = trace.tb_next
    return where
