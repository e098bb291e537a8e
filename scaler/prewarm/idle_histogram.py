"""A histogram of idle times, of all time or of a sliding window, that can be saved and merged.

The window is a ring of smaller histograms, one for each slice of time; old counts leave the window
slice by slice, so memory is bounded by slices times bins whatever the traffic. A slice stores
nothing for empty bins. Slices are aligned to the time axis of ``now_s``, so those of two replicas
coincide, and merging adds them up: the sum is the same in any order.

Counts are whole numbers throughout, so there is no drift, however long it runs.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from carpool.validation import rules
from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scaler.prewarm.idle_bins import Bins

__all__ = ["IdleHistogram", "check_quantiles"]

_SLICES = 24
_ROUNDING = 1e-9  # 0.07 * 100 is a little more than 7

_SCHEMA = rules.record(
    {
        "edges_s": rules.each(rules.number("a number of seconds", lambda value: value >= 0)),
        "window_s": rules.maybe(rules.number("a number of seconds above 0", lambda v: v > 0)),
        "slices": rules.mapping(
            rules.mapping(rules.number("a count of at least 1", lambda v: v >= 1, whole=True))
        ),
    },
    required=frozenset({"edges_s", "window_s", "slices"}),
)


def check_quantiles(
    problems: Problems, bin_s: float, range_s: float, head: float, tail: float
) -> None:
    """Check parameters of a histogram of even bins, of which ``head`` and ``tail`` are read."""
    if not 0 < bin_s <= range_s < math.inf:
        problems.add("bin_s", bin_s, f"above 0, at most range_s ({range_s:g})")
    if not 0 <= head <= tail <= 1:
        problems.add("head", head, f"from 0 to tail ({tail:g}), and tail at most 1")


class IdleHistogram:
    """Counts of idle times by bin.

    Args:
        bins: Bins to count in; idle times beyond them are counted as out of bounds.
        window_s: Idle times that ended longer ago are dropped; None keeps all.
    """

    def __init__(self, bins: Bins, window_s: float | None = None) -> None:
        self.bins = bins
        self.window_s = window_s
        self._slice_s = math.inf if window_s is None else window_s / _SLICES
        self._slices: dict[int, dict[int, int]] = {}
        self._counts = [0] * (len(bins) + 1)  # the last is out of bounds
        self._total = 0
        self._squares = 0  # of the counts that are in bounds

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of idle times in each bin; the last is the number out of bounds."""
        return tuple(self._counts)

    @property
    def total(self) -> int:
        """Total number of idle times."""
        return self._total

    @property
    def in_bounds(self) -> int:
        """Number of idle times that are in a bin."""
        return self._total - self._counts[-1]

    @property
    def out_of_bounds_share(self) -> float:
        """Share of the idle times that are in no bin; 0 if there are no idle times."""
        return self._counts[-1] / self._total if self._total else 0.0

    @property
    def variation(self) -> float:
        """Coefficient of variation of the bins' counts; 0 if all are equal, or empty."""
        mean = self.in_bounds / len(self.bins)
        if mean == 0:
            return 0.0
        return math.sqrt(max(0.0, self._squares / len(self.bins) - mean * mean)) / mean

    def head_s(self, share: float) -> float:
        """Return the lower edge of the bin with that quantile; some idle time must be in bounds."""
        return self.bins.edges_s[self._quantile_bin(share)]

    def tail_s(self, share: float) -> float:
        """Return the upper edge of the bin with that quantile; some idle time must be in bounds."""
        return self.bins.edges_s[self._quantile_bin(share) + 1]

    def add(self, idle_s: float, now_s: float) -> None:
        """Count an idle time that ended at ``now_s``."""
        self._add_slice(self._slice_of(now_s), {self.bins.index(idle_s): 1})
        self._drop_outdated()

    def forget(self, now_s: float) -> None:
        """Drop the counts that have left the window by ``now_s``, or are from after it.

        The latter are from a clock that was ahead; if kept, all others would be outdated. A slice
        is allowed for replicas whose clocks differ a little.
        """
        current = self._slice_of(now_s)
        self._drop(lambda number: not current - _SLICES < number <= current + 1)

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and dictionaries; equal histograms have equal ones."""
        slices = {
            str(number): {str(index): count for index, count in sorted(counts.items())}
            for number, counts in sorted(self._slices.items())
        }
        return {"edges_s": list(self.bins.edges_s), "window_s": self.window_s, "slices": slices}

    def read(self, data: object) -> IdleHistogram:
        """Return a histogram with the same bins and window, from the result of its `to_dict`.

        Raises:
            ConfigError: The data is malformed, or has other bins or another window.
        """
        histogram = IdleHistogram(self.bins, self.window_s)
        for number, counts in self._checked(data).items():
            histogram._add_slice(number, counts)
        return histogram

    def merge(self, other: IdleHistogram) -> None:
        """Add the counts of a histogram with the same bins and window, except outdated ones."""
        for number, counts in other._slices.items():
            self._add_slice(number, counts)
        self._drop_outdated()

    def _checked(self, given: object) -> dict[int, dict[int, int]]:
        data, problems = rules.checked(_SCHEMA, given), Problems()
        if data["edges_s"] != list(self.bins.edges_s):
            expected = f"the edges of {len(self.bins)} bins to {self.bins.edges_s[-1]:g}"
            problems.add("edges_s", f"{len(data['edges_s'])} edges", expected)
        if data["window_s"] != self.window_s:
            problems.add("window_s", data["window_s"], f"the same window, {self.window_s}")
        for number, counts in data["slices"].items():
            if not _is_whole(number):
                problems.add("slices", number, "the whole number of a slice")
            for index in counts:
                if not (_is_whole(index) and 0 <= int(index) <= len(self.bins)):
                    expected = f"the number of a bin, at most {len(self.bins)}"
                    problems.add(f"slices.{number}", index, expected)
        problems.raise_if_any()
        return {
            int(number): {int(index): count for index, count in counts.items()}
            for number, counts in data["slices"].items()
        }

    def _slice_of(self, now_s: float) -> int:
        return math.floor(now_s / self._slice_s)

    def _add_slice(self, number: int, counts: Mapping[int, int]) -> None:
        before = self._slices.setdefault(number, {})
        for index, count in counts.items():
            before[index] = before.get(index, 0) + count
            self._shift(index, count)

    def _drop_outdated(self) -> None:
        last = max(self._slices, default=0)
        self._drop(lambda number: number <= last - _SLICES)

    def _drop(self, is_outdated: Callable[[int], bool]) -> None:
        for number in filter(is_outdated, list(self._slices)):
            for index, count in self._slices.pop(number).items():
                self._shift(index, -count)

    def _shift(self, index: int, by: int) -> None:
        before = self._counts[index]
        self._counts[index] = before + by
        self._total += by
        if index < len(self.bins):
            self._squares += (before + by) ** 2 - before**2

    def _quantile_bin(self, share: float) -> int:
        rank = max(1, math.ceil(share * self.in_bounds - _ROUNDING))
        for index, count in enumerate(self._counts):
            rank -= count
            if rank <= 0:
                return index
        raise AssertionError  # pragma: no cover  the ranks are those of the counts


def _is_whole(key: str) -> bool:
    """Return whether a key is a whole number as `str` writes it, so that keys are unique."""
    return re.fullmatch(r"0|-?[1-9][0-9]{0,17}", key) is not None
