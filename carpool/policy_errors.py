"""Errors of policies: those that they raise, in one line each, and promises that they break."""

from __future__ import annotations

from pathlib import PurePath

from carpool.errors import CarpoolError

__all__ = ["Broken", "PolicyFailed", "place", "raised"]


class PolicyFailed(CarpoolError):
    """Raised when a policy has failed."""


class Broken(Exception):
    """Raised within a suite when a policy breaks a promise, with what was observed instead."""

    def __init__(self, promise: str, detail: str) -> None:
        super().__init__(detail)
        self.promise = promise
        self.detail = detail


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
