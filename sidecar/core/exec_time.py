"""Execution time by batch size, learned from the batches that ran.

The model is a line, ``base + per_item * size``, fitted by least squares with exponential
forgetting, plus a multiple of the mean absolute residual as a bound: serving times are close to
linear in the batch (Clipper, NSDI'17, section 4.3.1; Nexus, SOSP'19, section 2.2), and a line can
be extrapolated to sizes not seen yet. A single outlier (a page fault, a neighbour) is clipped, so
that it moves the fit only if it keeps coming. If deviations of one sign add up (a one-sided
cumulative sum on each side, Page 1954), the past no longer describes the function and most of it
is forgotten at once.

Failures never get here: how long a crash takes says nothing about a success.
"""

from __future__ import annotations

__all__ = ["ExecTime"]

_FORGET = 0.98  # weight of the past at each sample: about 50 batches of memory
_CLIP = 4.0  # a sample further than this many bounds from the fit counts as that far
_BOUND = 3.0  # mean absolute residuals added to a prediction: about the 99th percentile
_SETTLED = 8  # samples before clipping and the watch for drift start
_SLACK = 0.7  # deviations, in bounds' units, that count as noise each time
_ALARM = 8.0  # how many of them in one direction mean drift
_KEEP = 0.05  # weight of the past after a drift


class ExecTime:
    """Predicts the execution time of a batch from its size."""

    __slots__ = (
        "_above",
        "_below",
        "_n",
        "_residual",
        "_samples",
        "_x",
        "_xx",
        "_xy",
        "_y",
        "drifts",
        "has_settled",
    )

    def __init__(self) -> None:
        self._samples = 0
        self._n = self._x = self._y = self._xx = self._xy = 0.0
        self._residual = 0.0
        self._above = self._below = 0.0
        self.drifts = 0
        self.has_settled = False  # has once settled: after a drift an estimate is better than none

    @property
    def known(self) -> bool:
        """Whether anything has been observed."""
        return self._samples > 0

    @property
    def settled(self) -> bool:
        """Whether enough was observed to give requests up for it: first batches are slow."""
        return self._samples >= _SETTLED

    def observe(self, size: int, exec_s: float) -> None:
        """Learn that a batch of ``size`` took ``exec_s`` seconds."""
        expected = self._fit(size) if self.known else exec_s
        if self._samples >= _SETTLED:
            self._watch(exec_s - expected, max(self._residual, 0.02 * expected, 1e-9))
            reach = _CLIP * max(self._residual, 0.05 * expected)
            exec_s = min(max(exec_s, expected - reach), expected + reach)
        self._residual += (1 - _FORGET) * 2 * (abs(exec_s - expected) - self._residual)
        self._samples += 1
        self.has_settled = self.has_settled or self.settled
        self._n = _FORGET * self._n + 1
        self._x = _FORGET * self._x + size
        self._y = _FORGET * self._y + exec_s
        self._xx = _FORGET * self._xx + size * size
        self._xy = _FORGET * self._xy + size * exec_s

    def line(self) -> tuple[float, float]:
        """Base and per-item seconds of the fit; ``(0, 0)`` while nothing is known."""
        if not self.known:
            return 0.0, 0.0
        base = max(0.0, self._fit(0))  # a rounding error may leave it a hair below
        return base, self._fit(1) - base

    def mean(self, size: int) -> float:
        """Expected seconds for a batch of ``size``; 0 while nothing is known."""
        return self._fit(size) if self.known else 0.0

    def bound(self, size: int) -> float:
        """Seconds that a batch of ``size`` rarely exceeds; 0 while nothing is known."""
        return self._fit(size) + _BOUND * self._residual if self.known else 0.0

    def _watch(self, deviation: float, unit: float) -> None:
        """Add up deviations of one sign; on an alarm, forget most of the past."""
        self._above = max(0.0, self._above + min(deviation / unit, _CLIP) - _SLACK)
        self._below = max(0.0, self._below - max(deviation / unit, -_CLIP) - _SLACK)
        if max(self._above, self._below) > _ALARM:
            self.drifts += 1
            self._above = self._below = 0.0
            self._samples = 1  # no clipping until it has settled again
            for name in ("_n", "_x", "_y", "_xx", "_xy"):
                setattr(self, name, _KEEP * getattr(self, name))

    def _fit(self, size: int) -> float:
        mean_x, mean_y = self._x / self._n, self._y / self._n
        spread = self._xx / self._n - mean_x * mean_x
        if spread < 1e-9 * mean_x * mean_x + 1e-12:  # one size seen: assume the cost is per batch
            slope = 0.0
        else:
            slope = max(0.0, (self._xy / self._n - mean_x * mean_y) / spread)
        slope = min(slope, mean_y / mean_x)  # never a negative base
        return mean_y + slope * (size - mean_x)
