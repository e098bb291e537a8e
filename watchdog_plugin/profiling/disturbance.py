"""Selects runs that others do not disturb, and the cores on which they are disturbed least.

Other programs on this machine make its threads wait for a core, which the kernel accounts for. On a
virtual machine, another one may use the second hardware thread of the same core. Then everything
takes half as long again, for fractions of a second or for minutes, and the kernel does not know.
A fixed computation between the runs shows it.

Runs are selected independently of their own times: selecting runs because they are fast would
promise latencies that no server can keep.
"""

from __future__ import annotations

import math
import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, TypeVar

from watchdog_plugin.profiling.other_programs import OtherPrograms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["CALM", "LEAST_RUNS", "Disturbance", "least_disturbed", "pinned"]

CALM = 1.0  # limit of the disturbance of undisturbed runs
LEAST_RUNS = 3  # that count in any case
_TRIES = 2  # factor of the number of runs, if some are disturbed
_WAITING = 0.02  # share of the time spent waiting for a core, from which runs are disturbed
_PROLONGED = 0.25  # by which a computation takes longer, from which runs are disturbed
_PROBES, _STEPS = 3, 500  # computations, of which the first finds the caches cold; and their length
_PAUSE_S = 0.01  # between two looks while waiting
_RESOLUTION_S = 1e-9  # of the clock
# Interval of looking for others. That cools caches and lets the runtime's threads fall asleep: a
# product with 768 x 768 weights takes a third longer after it.
_BLOCK_S = 0.01

T = TypeVar("T")


@contextmanager
def pinned(cores: Sequence[int]) -> Iterator[None]:
    """Keep the calling thread on these cores."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def least_disturbed(runs: Sequence[tuple[float, T]]) -> list[T]:
    """Return the results of undisturbed runs, or of the three least disturbed if there are fewer.

    Args:
        runs: The disturbance and the result of each.
    """
    ordered = sorted(runs, key=lambda run: run[0])
    calm = sum(disturbance <= CALM for disturbance, _ in ordered)
    return [result for _, result in ordered[: max(calm, LEAST_RUNS)]]


class Disturbance:
    """Disturbance by other programs and other machines."""

    _fastest_s: ClassVar = math.inf  # of this machine's computations so far

    def __init__(self) -> None:
        self._other_programs = OtherPrograms()

    def calmest(self, count: int) -> list[int]:
        """Return the ``count`` cores that others use least, or all that this process may use."""
        cores = os.sched_getaffinity(0)
        calmest = sorted(zip(self._computations_s(cores), cores, strict=True))
        return sorted(core for _, core in calmest[:count])

    def await_calm(self, cores: Sequence[int], limit_s: float) -> None:
        """Wait until no other machine uses these cores, or until the time limit in seconds."""
        end_s = time.monotonic() + limit_s
        while self._prolonged(cores) > _PROLONGED and time.monotonic() < end_s:
            threading.Event().wait(_PAUSE_S)

    def runs(
        self, run: Callable[[], T], count: int, end_s: float, cores: Sequence[int]
    ) -> tuple[bool, list[T]]:
        """Return the results of undisturbed runs, or of the least disturbed of twice as many.

        Args:
            run: Runs once.
            count: Number of runs; at least three are returned even if they were disturbed.
            end_s: Time in monotonic seconds after which only the first run begins: while other
                programs use all cores, a run on several threads can take a second.
            cores: The cores that the runs use.

        Returns:
            Whether they were undisturbed, and their results.
        """
        candidates: list[tuple[float, T]] = []
        calm = 0
        while calm < count and len(candidates) < _TRIES * count:
            disturbance, results = self.block(run, count - calm, cores)
            candidates += [(disturbance, each) for each in results]
            calm += len(results) if disturbance <= CALM else 0
            if time.monotonic() > end_s:
                break
        chosen = least_disturbed(candidates)
        return calm >= len(chosen), chosen

    def block(self, run: Callable[[], T], most: int, cores: Sequence[int]) -> tuple[float, list[T]]:
        """Run for ten milliseconds, at least once; return the disturbance and the results."""
        before = self._prolonged(cores)
        queued_s, began = self._other_programs.queued_s(), time.monotonic()
        results = [run()]
        while len(results) < most and time.monotonic() < began + _BLOCK_S:
            results.append(run())
        took_s = max(_RESOLUTION_S, time.monotonic() - began)
        waited = (self._other_programs.queued_s() - queued_s) / took_s
        prolonged = max(before, self._prolonged(cores))
        return max(waited / _WAITING, prolonged / _PROLONGED), results

    def _prolonged(self, cores: Iterable[int]) -> float:
        """Return the share by which a computation takes longer now than at best on any core."""
        return max(self._computations_s(cores)) / self._fastest_s - 1

    def _computations_s(self, cores: Iterable[int]) -> list[float]:
        times_s = []
        for core in cores:
            with pinned([core]):
                times_s.append(_computation_s())
        Disturbance._fastest_s = min(self._fastest_s, *times_s)
        return times_s


def _computation_s() -> float:
    """Return the seconds of a fixed computation by this thread's clock, which omits waiting."""
    times_s = []
    for _ in range(_PROBES):
        began, total = time.thread_time(), 0
        for step in range(_STEPS):
            total += step
        times_s.append(time.thread_time() - began)
    return min(times_s)
