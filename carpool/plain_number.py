"""Numbers in sentences and tables."""

from __future__ import annotations

import numpy as np

__all__ = ["plain"]


def plain(value: float, digits: int = 4) -> str:
    """Return a number with at most ``digits`` significant digits and without an exponent."""
    return np.format_float_positional(value, digits, fractional=False, trim="-")
