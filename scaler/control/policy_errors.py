"""What a policy has raised, in a line: what it says, and where in its own file."""

from __future__ import annotations

from pathlib import PurePath

from carpool.errors import CarpoolError

__all__ = ["PolicyFailed", "place", "raised"]


class PolicyFailed(CarpoolError):
    """A policy has raised an error."""


def raised(error: BaseException) -> str:
    """Type, text and `place`."""
    return f"{type(error).__name__}: {error}{place(error)}"


def place(error: BaseException) -> str:
    """The innermost line of the first file that is not the catcher's, in brackets."""
    trace, own, where = error.__traceback__, "", ""
    catcher = trace.tb_frame.f_code.co_filename if trace else ""
    while trace:
        file = trace.tb_frame.f_code.co_filename
        own = own or (file if file != catcher else "")
        if file == own:
            where = f" ({PurePath(file).name}:{trace.tb_lineno})"
        trace = trace.tb_next
    return where
