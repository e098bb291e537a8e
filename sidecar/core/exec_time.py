"""Predicts the execution time of a batch from its size, learned from the batches that ran.

The model is a line, ``base + per_item * size``, fitted by least squares with exponential
forgetting, plus a multiple of the mean absolute residual as a bound: serving times are close to
linear in the batch (Clipper, NSDI'17, section 4.3.1; Nexus, SOSP'19, section 2.2), and a line can
be extrapolated to sizes not seen yet. A single outlier (a page fault, a neighbour) is clipped, so
that it moves the fit only if it recurs. If deviations of one sign add up (a one-sided cumulative
sum on each side, Page 1954), the past no longer describes the function and most of it is forgotten
at once.

Failed batches are not counted: how long a crash takes says nothing about a success.
"""

from __future__ import annotations

__all__ = ["ExecTime"]

_DECAY = 0.98  # weight of the past at each sample: about 50 batches of memory
_CLIP_RESIDUALS = 4.0  # samples are clipped at this distance from the fit
_BOUND_RESIDUALS = 3.0  # added to a prediction: about the 99th percentile
_SETTLED_SAMPLES = 8  # before clipping and the detection of drift start
_NOISE_RESIDUALS = 0.7  # part of each deviation that counts as noise
_DRIFT_RESIDUALS = 8.0  # a sum of deviations in one direction above this means drift
_DRIFT_DECAY = 0.05  # weight of the past after a drift


class ExecTime:
    """The execution time of a batch as a line over its size, with an error bound.

    Attributes:
        drifts: number of permanent changes in speed.
        has_settled: whether `settled` was ever true; after a drift an estimate is better than none.
    """

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
        self.has_settled = False

    @property
    def known(self) -> bool:
        """Whether anything has been observed."""
        return self._samples > 0

    @property
    def settled(self) -> bool:
        """Whether enough was observed to give up requests based on it: first batches are slow."""
        return self._samples >= _SETTLED_SAMPLES

    def observe(self, size: int, exec_s: float) -> None:
        """Learn that a batch of ``size`` took ``exec_s`` seconds."""
        expected = self._fit(size) if self.known else exec_s
        if self._samples >= _SETTLED_SAMPLES:
            self._detect_drift(exec_s - expected, max(self._residual, 0.02 * expected, 1e-9))
            reach_s = _CLIP_RESIDUALS * max(self._residual, 0.05 * expected)
            exec_s = min(max(exec_s, expected - reach_s), expected + reach_s)
        self._residual += (1 - _DECAY) * 2 * (abs(exec_s - expected) - self._residual)
        self._samples += 1
        self.has_settled = self.has_settled or self.settled
        self._n = _DECAY * self._n + 1
        self._x = _DECAY * self._x + size
        self._y = _DECAY * self._y + exec_s
        self._xx = _DECAY * self._xx + size * size
        self._xy = _DECAY * self._xy + size * exec_s

    def line(self) -> tuple[float, float]:
        """Return base and per-item seconds of the fit; ``(0, 0)`` while nothing is known."""
        if not self.known:
            return 0.0, 0.0
        base = max(0.0, self._fit(0))  # a rounding error may make it slightly negative
        return base, self._fit(1) - base

    def mean(self, size: int) -> float:
        """Return the expected seconds for a batch of ``size``; 0 while nothing is known."""
        return self._fit(size) if self.known else 0.0

    def bound(self, size: int) -> float:
        """Return the seconds that a batch of ``size`` rarely exceeds; 0 while nothing is known."""
        return self._fit(size) + _BOUND_RESIDUALS * self._residual if self.known else 0.0

    def _detect_drift(self, deviation: float, unit: float) -> None:
        """Add up deviations of one sign; if they mean drift, forget most of the past."""
        self._above = max(
            0.0, self._above + min(deviation / unit, _CLIP_RESIDUALS) - _NOISE_RESIDUALS
        )
        self._below = max(
            0.0, self._below - max(deviation / unit, -_CLIP_RESIDUALS) - _NOISE_RESIDUALS
        )
        if max(self._above, self._below) > _DRIFT_RESIDUALS:
            self.drifts += 1
            self._above = self._below = 0.0
            self._samples = 1  # no clipping until it has settled again
            for name in ("_n", "_x", "_y", "_xx", "_xy"):
                setattr(self, name, _DRIFT_DECAY * getattr(self, name))

    def _fit(self, size: int) -> float:
        mean_x, mean_y = self._x / self._n, self._y / self._n
        spread = self._xx / self._n - mean_x * mean_x
        if spread < 1e-9 * mean_x * mean_x + 1e-12:  # one size seen: assume the cost is per batch
            slope = 0.0
        else:
            slope = max(0.0, (self._xy / self._n - mean_x * mean_y) / spread)
        slope = min(slope, mean_y / mean_x)  # the base must not be negative
        return mean_y + slope * (size - mean_x)
