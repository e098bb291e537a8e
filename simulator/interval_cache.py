"""Reuse the results of similar intervals instead of simulating again.

This is the rate-level mode. While a function's instances do not change, an interval depends on
little more than its number of requests. The first intervals of a kind are simulated request by
request; once enough are known, further ones take their mean outcome per request. Intervals in which
instances start or stop, or may do so, are always simulated.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from simulator.outcomes import Outcomes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.arrivals.processes import Times
    from simulator.function_run import FunctionRun

__all__ = ["IntervalCache"]

Key: TypeAlias = "tuple[Any, ...]"

_RATIO = math.log(1.05)  # rates within 5 % are alike
_SHARES = 20  # and so are shares of a route within 5 %
_DIGITS = 2  # decimals of a longest wait that must be equal
_ENOUGH = ((4, 3_000), (1, 50_000))  # sufficient intervals and requests: a few long ones suffice
_AGAIN = 32  # one of this many intervals of a known kind is simulated nevertheless
_FEW = 20  # an interval with fewer requests is always simulated, as that costs little


@dataclass(slots=True)
class _IntervalKind:
    """Statistics of one kind of interval."""

    intervals: int = 0
    requests: int = 0
    met: int = 0
    outcomes: Outcomes = field(default_factory=Outcomes)

    @property
    def known(self) -> bool:
        return any(
            self.intervals >= intervals and self.requests >= requests
            for intervals, requests in _ENOUGH
        )


@dataclass(slots=True)
class _Learning:
    """An interval being simulated, whose results are kept if no instance changes."""

    interval_kind: _IntervalKind
    version: int
    requests: int


class IntervalCache:
    """Decides which intervals need to be simulated."""

    def __init__(self) -> None:
        self._known: dict[Key, _IntervalKind] = {}
        self._learning: dict[str, _Learning] = {}

    def pick(
        self, runs: Sequence[FunctionRun], times: Sequence[list[Times]], start: float, end: float
    ) -> list[Times]:
        """Return the arrivals to simulate, and record estimated outcomes for the others."""
        picked: list[Times] = []
        for run, own in zip(runs, times, strict=True):
            skipped = self._skips(run, own, start, end)
            picked += [np.empty(0)] * len(own) if skipped else own
        return picked

    def learn(self, run: FunctionRun, outcomes: Outcomes) -> None:
        """Record the results of an interval that was simulated."""
        learning = self._learning.pop(run.function.name, None)
        if learning and learning.version == run.version:
            learning.interval_kind.intervals += 1
            learning.interval_kind.requests += learning.requests
            learning.interval_kind.outcomes.add(outcomes)

    def _skips(self, run: FunctionRun, times: list[Times], start: float, end: float) -> bool:
        counts = [len(each) for each in times]
        requests = sum(counts)
        if requests < _FEW or not run.steady:
            return False
        key = (run.function.name, *_load(counts, end - start), *_supply(run))
        interval_kind = self._known.setdefault(key, _IntervalKind())
        interval_kind.met += 1
        if not interval_kind.known or interval_kind.met % _AGAIN == 0:
            self._learning[run.function.name] = _Learning(interval_kind, run.version, requests)
            return False
        run.sidecar.outcomes.add(interval_kind.outcomes, requests / interval_kind.requests)
        run.sidecar.skip(end - start)
        for caller, own in zip(run.callers, times, strict=True):
            caller.skips(own)
        for instance in run.serving:
            instance.used = end
        return True


def _load(counts: Sequence[int], interval_s: float) -> tuple[Any, ...]:
    """Return the approximate number of requests per application."""
    total = sum(counts)
    shares = tuple(round(_SHARES * count / total) for count in counts)
    return interval_s, round(math.log(total) / _RATIO), shares


def _supply(run: FunctionRun) -> tuple[Any, ...]:
    """Return the instances that serve the requests, as part of the cache key."""
    plan = run.controller.sidecar_config.plan
    routes = plan.routes if plan else ()
    present = Counter((i.key, i.instance_class.batch_size) for i in run.serving)
    described = [
        (
            route.app,
            float(f"{route.max_wait_s:.{_DIGITS}g}"),
            tuple(sorted((name, round(_SHARES * w)) for name, w in route.weights.items())),
        )
        for route in routes
    ]
    return frozenset(present.items()), tuple(described)
