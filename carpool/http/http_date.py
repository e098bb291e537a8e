"""Dates as HTTP writes them (RFC 9110, section 5.6.7).

``email.utils`` writes them too, but loads the whole package for MIME messages.
"""

from __future__ import annotations

import time

__all__ = ["http_date"]

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)


def http_date(since_epoch_s: float) -> bytes:
    """Return a time in seconds since the epoch as ``Sun, 06 Nov 1994 08:49:37 GMT``."""
    at = time.gmtime(since_epoch_s)
    day, month = _DAYS[at.tm_wday], _MONTHS[at.tm_mon - 1]
    clock = time.strftime("%H:%M:%S", at)
    return f"{day}, {at.tm_mday:02} {month} {at.tm_year} {clock} GMT".encode()
