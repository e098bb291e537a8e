"""One stretch of open-loop load at one rate, and its outcome."""

from __future__ import annotations

import asyncio
import time
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

import uvloop

from faas_stack.load import arrivals
from faas_stack.load.command import measure
from faas_stack.load.flags import LoadPlan
from faas_stack.load.generator import Target
from faas_stack.load.results import LoadResults, quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Load", "Probe", "send"]

_ACHIEVED = 0.98
_LAG_S = 0.005
_TIMEOUT_S = 5.0
_REFUSALS = (429, 503)


@dataclass(frozen=True, slots=True)
class Probe:
    """The outcome of one probe.

    Attributes:
        rate_rps: mean offered rate.
        errors: requests without a successful response, including refused ones.
        achieved: successful responses per second, as a share of what was due in the time.
        in_time: share of requests with a successful response within the objective.
        refused: share of requests answered 429 or 503.
        p50_ms: of successful responses; None if there were none, as below.
        refused_p99_ms: time until a refusal.
        generator_cpu: share of one core that the generator used.
        generator_late: share of requests sent over 5 ms late although the server was ready.
    """

    rate_rps: float
    requests: int
    errors: int
    achieved: float
    in_time: float
    refused: float
    p50_ms: float | None
    p99_ms: float | None
    refused_p99_ms: float | None
    generator_cpu: float
    generator_late: float

    def sustained(self, slo_s: float) -> bool:
        """Return whether the server kept up and answered every request in time."""
        enough = self.requests > 0 and not self.errors and self.achieved >= _ACHIEVED
        return enough and self.p99_ms is not None and self.p99_ms <= 1e3 * slo_s


class _Outcomes(LoadResults):
    """A tally that also records how long refusals took."""

    def __init__(self, slo_s: float) -> None:
        super().__init__(slo_s)
        self.refusals_s = array("d")

    def answered(self, status: int, latency_s: float, batch: int) -> None:
        super().answered(status, latency_s, batch)
        if status in _REFUSALS:
            self.refusals_s.append(latency_s)


@dataclass(slots=True)
class Load:
    """How a probe sends its load.

    Attributes:
        connections: maximum number at once, with one request at a time on each.
        patience_s: how long a request waits for a connection before it is not sent.
        warmup_s: how long it sends before it counts.
    """

    rate_rps: float
    span_s: float
    slo_s: float
    seed: int
    connections: int = 512
    patience_s: float = _TIMEOUT_S
    warmup_s: float = 0.5


def send(requests: Sequence[bytes], port: int, load: Load) -> Probe:
    """Send Poisson arrivals at a rate, and return the outcome."""
    outcomes = _Outcomes(load.slo_s)
    whole_s = load.warmup_s + load.span_s
    plan = LoadPlan(
        url=f"http://127.0.0.1:{port}",
        target=Target("127.0.0.1", port, requests, load.connections, _TIMEOUT_S, load.patience_s),
        segments=arrivals.constant(load.rate_rps, whole_s),
        arrivals="poisson",
        seed=load.seed,
        warmup_s=load.warmup_s,
        span_s=whole_s,
        slo_s=load.slo_s,
        as_json=False,
    )
    cpu_s, start_s = time.process_time(), time.perf_counter()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(measure(plan, outcomes))
    took_s = time.perf_counter() - start_s
    cpu_s = time.process_time() - cpu_s
    return _probe(outcomes, load, cpu_s / took_s)


def _probe(outcomes: _Outcomes, load: Load, generator_cpu: float) -> Probe:
    ordered, refusals = sorted(outcomes.latencies_s), sorted(outcomes.refusals_s)
    p50_ms = _quantile_ms(ordered, 0.5)
    # The last answers come a latency after their requests: that is no lack of throughput.
    served_s = outcomes.elapsed_s - min((p50_ms or 0.0) / 1e3, load.slo_s)
    served_rps = outcomes.ok / max(served_s, 1e-9)
    count = max(1, outcomes.requests)
    late = sum(lag > _LAG_S for lag in outcomes.lags_s)
    return Probe(
        rate_rps=round(load.rate_rps, 2),
        requests=outcomes.requests,
        errors=outcomes.errors.total(),
        achieved=round(served_rps / (count / load.span_s), 4),
        in_time=round((outcomes.ok - outcomes.misses) / count, 4),
        refused=round(len(refusals) / count, 4),
        p50_ms=p50_ms,
        p99_ms=_quantile_ms(ordered, 0.99),
        refused_p99_ms=_quantile_ms(refusals, 0.99),
        generator_cpu=round(generator_cpu, 3),
        generator_late=round(late / max(1, len(outcomes.lags_s)), 4),
    )


def _quantile_ms(ordered: list[float], share: float) -> float | None:
    return round(1e3 * quantile(ordered, share), 3) if ordered else None
