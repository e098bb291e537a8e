"""Parses Kubernetes quantities: ``100m`` cores, ``2Gi`` of memory, ``1e3``."""

from __future__ import annotations

import math

__all__ = ["quantity"]

_EXPONENTS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_FACTORS = {
    **{suffix: 10.0**exponent for suffix, exponent in _EXPONENTS.items()},
    **{f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", start=1)},
}


def quantity(text: object) -> float:
    """Return the value of a quantity.

    Raises:
        ValueError: The text is not a quantity.
    """
    said = str(text).strip()
    digits = said.rstrip("numkKMGTPEi")
    factor = _FACTORS.get(said[len(digits) :])
    number = float(digits) if factor else math.nan
    if factor is None or not math.isfinite(number):
        message = f"{said!r}: expected a quantity such as 500m or 2Gi"
        raise ValueError(message)
    return number * factor
