"""Finds lasting disagreements between the gateway and the sidecars about a function.

They concern its instances: either side learns of a change a little later than the other, so a short
difference means nothing.

Counts of its requests come at different times: a gateway counts when a request has been answered,
Prometheus reads that at intervals, and sidecars report arrivals a little later. So a minute of the
other source, between two of its counts, is compared with every stretch of our counts of that length
that ended from some seconds before to some seconds after it. Only a value outside all of these, by
more than chance and errors at the edges, is a disagreement.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from carpool.plain_number import plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler.control.class_function import Status

__all__ = ["CountCheck", "Disagreements"]

_PATIENCE_S = 15.0

_WINDOW_S = 60.0
_LEAST_S = 30.0  # shortest period that is compared
_LAG_S = 20.0
_AHEAD_S = 6.0  # sidecars report at least every five seconds as long as they are few
_PAUSE_S = 2.0  # shortest time between two counts
# Prometheus repeats its last scrape for five minutes; scrape intervals are at most two minutes.
_STALE_S = 130.0
_OLD_S = 300.0  # older counts are ignored
_SHARE, _FEW = 0.1, 20  # tolerated difference: share of the requests, and number


class _Count(NamedTuple):
    """A total count at a point in time."""

    at_s: float
    total: float


class CountCheck:
    """Compares one source's count of one function's requests with that of the sidecars.

    Args:
        source: Name of the source, as in "the gateway".
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._theirs: deque[_Count] = deque()
        self._ours: deque[_Count] = deque()
        self._missing: _Count | None = None  # since when, and our count then

    def note(self, theirs: float | None, ours: int, now_s: float, age_s: float = 0.0) -> None:
        """Record our count now and theirs of ``age_s`` ago; None if the source has no count."""
        if self._ours and ours < self._ours[-1].total:
            self._clear()  # the counter has started again
        self._add(self._ours, ours, now_s)
        if theirs is None or age_s > _STALE_S:
            self._missing = self._missing or _Count(now_s, ours)
            self._theirs.clear()
            _forget(self._ours, now_s - _WINDOW_S)
            return
        self._missing = None
        if self._theirs and theirs < self._theirs[-1].total:
            self._theirs.clear()
        self._add(self._theirs, theirs, now_s - age_s)
        _forget(self._theirs, now_s - _WINDOW_S - _LAG_S)
        _forget(self._ours, self._theirs[0].at_s - _LAG_S)

    def warnings(self, now_s: float) -> list[str]:
        """Return a sentence about the disagreement; empty if there is none."""
        if self._missing:
            return self._said_of_none(self._missing, now_s)
        if not self._theirs or not self._theirs[-1].total:
            return []  # it does not count this function
        from_s, until_s = self._ours[0].at_s + _LAG_S, self._ours[-1].at_s - _AHEAD_S
        theirs = [count for count in self._theirs if from_s <= count.at_s <= until_s]
        if not theirs or theirs[-1].at_s < now_s - _OLD_S:
            return []
        last = theirs[-1]
        first = _by(theirs, last.at_s - _WINDOW_S)
        return self._compared(first, last) if last.at_s - first.at_s >= _LEAST_S else []

    def _compared(self, first: _Count, last: _Count) -> list[str]:
        length_s = last.at_s - first.at_s
        stretches = [
            seen.total - _by(self._ours, seen.at_s - length_s).total
            for seen in self._ours
            if last.at_s - _LAG_S <= seen.at_s <= last.at_s + _AHEAD_S
        ]
        theirs = last.total - first.total
        if not stretches:
            return []
        if min(stretches) * (1 - _SHARE) - _FEW <= theirs <= max(stretches) * (1 + _SHARE) + _FEW:
            return []
        ours = _by(self._ours, last.at_s).total - _by(self._ours, last.at_s - length_s).total
        why = (
            "reports of some of its sidecars do not arrive here"
            if theirs > ours
            else f"some callers use a path that {self._source} does not see"
        )
        rates_rps = [plain(count / length_s, 3) for count in (theirs, ours)]
        rates = "{}/s where the sidecars count {}/s".format(*rates_rps)
        return [f"{self._source} counts {rates}: {why}"]

    def _said_of_none(self, since: _Count, now_s: float) -> list[str]:
        last = self._ours[-1]
        waited = last.at_s - since.at_s >= _LEAST_S and last.at_s >= now_s - _OLD_S
        if not waited or last.total - since.total <= _FEW:
            return []
        return [f"{self._source} has no count of its requests: the counter cannot be read"]

    def _clear(self) -> None:
        self._theirs.clear()
        self._ours.clear()
        self._missing = None

    @staticmethod
    def _add(counts: deque[_Count], total: float, at_s: float) -> None:
        if not counts or at_s >= counts[-1].at_s + _PAUSE_S:
            counts.append(_Count(at_s, total))


def _forget(counts: deque[_Count], before_s: float) -> None:
    """Drop the counts before the last one made by ``before_s``."""
    while len(counts) > 1 and counts[1].at_s <= before_s:
        counts.popleft()


def _by(counts: Sequence[_Count], at_s: float) -> _Count:
    """Return the last count made by ``at_s``, or the first if none was."""
    return counts[max(0, bisect_right(counts, at_s, key=lambda count: count.at_s) - 1)]


class Disagreements:
    """Keeps track of how long gateway and sidecars have disagreed."""

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._count_checks: dict[str, CountCheck] = {}

    def recounted(
        self, source: str, theirs: float | None, ours: int, now_s: float, age_s: float = 0.0
    ) -> None:
        """Compare the sidecars' count with that of another source, made ``age_s`` ago.

        ``theirs`` is None if the source has no count.
        """
        self._count_checks.setdefault(source, CountCheck(source)).note(theirs, ours, now_s, age_s)

    def warnings(
        self, deployed: Mapping[str, Status], ready: Mapping[str, Sequence[str]], now_s: float
    ) -> list[str]:
        """Return the current disagreements as sentences.

        Args:
            deployed: Functions listed by the gateway, by class.
            ready: Instances that have announced themselves, by class.
            now_s: Seconds, on any axis.
        """
        differ = [
            f"the gateway has {status.available} of {status.name} available, "
            f"{len(ready.get(name, ()))} have announced themselves"
            for name, status in sorted(deployed.items())
            if status.available != len(ready.get(name, ()))
        ]
        counts = [text for check in self._count_checks.values() for text in check.warnings(now_s)]
        if not differ:
            self._since_s = None
            return counts
        self._since_s = now_s if self._since_s is None else self._since_s
        return [*(differ if now_s >= self._since_s + _PATIENCE_S else ()), *counts]
