"""Batch times for every size, interpolated from those of a few sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["every_size"]


def every_size(known_s: Mapping[int, float], batch_max: int) -> list[float]:
    """Return the seconds of batches of sizes 1, 2, and so on, interpolated linearly.

    A larger batch never takes less. Beyond the largest known size, the last line is extrapolated.

    Args:
        known_s: Seconds by size, including size 1.
        batch_max: Largest size.
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
