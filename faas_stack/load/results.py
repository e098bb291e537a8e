"""Results of a load run: one record per request, and the statistics derived from them.

Latency counts from the time a request was due, not from when it could be sent, so a target that
stalls is charged for every request it kept waiting. Quantiles are of good responses (2xx), as a
quick refusal must not make a slow function look fast.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

__all__ = ["QUANTILES", "LoadResults", "quantile"]

QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}

_NOTICEABLE_S = 0.005
_NOTICEABLE_SHARE = 0.01


def quantile(ordered: array[float] | list[float], share: float) -> float:
    """Return the smallest value with a share of ``share`` or more at or below it (nearest rank)."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass(slots=True)
class LoadResults:
    """Counts of one run.

    Attributes:
        slo_s: Latency objective, if any.
        latencies_s: Latencies of good responses.
        errors: Other outcomes, by status or as ``timeout``, ``connection`` or ``unsent``.
        examples: One response for each status in ``errors``, as shortened text.
        batches: Sum of 1/size over responses with a batch size: the number of batches.
        with_batch_size: Number of responses with a batch size.
        lags_s: Delay of each request caused by the generator and not by the target.
        starved: Number of requests that waited because every connection was in use.
    """

    slo_s: float | None = None
    latencies_s: array[float] = field(default_factory=lambda: array("d"))
    errors: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    batches: float = 0.0
    with_batch_size: int = 0
    misses: int = 0
    lags_s: array[float] = field(default_factory=lambda: array("d"))
    starved: int = 0
    elapsed_s: float = 0.0

    @property
    def ok(self) -> int:
        """Number of requests with a good response."""
        return len(self.latencies_s)

    @property
    def requests(self) -> int:
        """Number of requests with an outcome."""
        return self.ok + self.errors.total()

    def answered(self, status: int, latency_s: float, batch: int) -> None:
        """Count a response."""
        if batch > 0:
            self.batches += 1 / batch
            self.with_batch_size += 1
        if not 200 <= status < 300:  # noqa: PLR2004
            self.errors[str(status)] += 1
            return
        self.latencies_s.append(latency_s)
        if self.slo_s is not None and latency_s > self.slo_s:
            self.misses += 1

    def failed(self, why: str) -> None:
        """Count a request without a response."""
        self.errors[why] += 1

    def report(self) -> dict[str, Any]:
        """Return the statistics as ``carpool load --json`` prints them."""
        ordered = sorted(self.latencies_s)
        latency_ms: dict[str, float | None] = dict.fromkeys(("mean", *QUANTILES))
        if ordered:
            latency_ms = {"mean": round(1e3 * sum(ordered) / len(ordered), 3)}
            for name, share in QUANTILES.items():
                latency_ms[name] = round(1e3 * quantile(ordered, share), 3)
        missed = None
        if self.slo_s is not None and self.requests:
            missed = round((self.misses + self.errors.total()) / self.requests, 6)
        return {
            "requests": self.requests,
            "ok": self.ok,
            "errors": dict(sorted(self.errors.items())),
            "slo_miss_ratio": missed,
            "rps": round(self.ok / self.elapsed_s, 2) if self.elapsed_s else 0.0,
            "latency_ms": latency_ms,
            "mean_batch": round(self.with_batch_size / self.batches, 3) if self.batches else None,
        }

    def warnings(self) -> list[str]:
        """Return where the generator itself fell short of the plan. Empty if it did not."""
        texts = []
        late = sum(lag > _NOTICEABLE_S for lag in self.lags_s)
        if self.lags_s and late > _NOTICEABLE_SHARE * len(self.lags_s):
            p99_ms = 1e3 * quantile(sorted(self.lags_s), 0.99)
            texts.append(
                f"the generator could not keep the schedule: {late} of {len(self.lags_s)} requests"
                f" left more than {1e3 * _NOTICEABLE_S:g} ms late (p99 {p99_ms:.1f} ms), which is"
                " part of the latencies above; lower the rate or run it on another machine"
            )
        if self.starved:
            texts.append(
                f"{self.starved} requests waited for a free connection (counted in their latency);"
                " --connections allows more at once"
            )
        return texts
