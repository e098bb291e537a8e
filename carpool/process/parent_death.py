"""A signal from the kernel when the process that started this one ends, for any reason."""

from __future__ import annotations

import ctypes
from contextlib import suppress

__all__ = ["tell_on_parent_death"]

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)  # loaded in advance, as it may be needed between fork and exec


def tell_on_parent_death(number: int) -> None:
    """On Linux, have the kernel send this process a signal when the thread that started it ends.

    On other systems, do nothing.

    Args:
        number: Number of the signal.
    """
    with suppress(OSError, AttributeError):
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
