"""Seconds of batches of every size, from those of a few sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["every_size"]


def every_size(known_s: Mapping[int, float], batch_max: int) -> list[float]:
    """Seconds of batches of one, of two and so on: straight lines between those known.

    A larger batch never takes less. Beyond the largest size known, the last line continues.

    Args:
        known_s: by size, that of one among them.
        batch_max: up to which size.
    """
    sizes = sorted(known_s)
    rising_s = [max(known_s[size] for size in sizes[: place + 1]) for place in range(len(sizes))]
    filled, upper = [], 0
    for size in range(1, batch_max + 1):
        while sizes[upper] < size and upper + 1 < len(sizes):
            upper += 1
        lower = max(upper - 1, 0)
        steps = sizes[upper] - sizes[lower]
        share = (size - sizes[lower]) / steps if steps else 0.0
        filled.append(rising_s[lower] + share * (rising_s[upper] - rising_s[lower]))
    return filled
