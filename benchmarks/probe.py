"""One stretch of open-loop load at one rate, and what came of it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import uvloop

from faas_stack import load_arrivals
from faas_stack.load import measure
from faas_stack.load_engine import Target
from faas_stack.load_flags import LoadPlan
from faas_stack.load_tally import Tally, quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Probe", "send"]

_CONNECTIONS = 512
_ACHIEVED = 0.98
_LAG_S = 0.005


@dataclass(frozen=True, slots=True)
class Probe:
    """The outcome of one probe.

    Attributes:
        rate_rps: offered on average.
        achieved: answers a second, as a share of what was due in the time.
        generator_cpu: share of one core that the generator used.
        generator_late: share of requests that left over 5 ms late although the server was ready.
    """

    rate_rps: float
    requests: int
    errors: int
    achieved: float
    p50_ms: float
    p99_ms: float
    generator_cpu: float
    generator_late: float

    def sustained(self, slo_s: float) -> bool:
        """Whether the server kept up, answered everybody, and in time."""
        enough = self.requests > 0 and not self.errors and self.achieved >= _ACHIEVED
        return enough and self.p99_ms <= 1e3 * slo_s


def send(
    requests: Sequence[bytes],
    port: int,
    rate_rps: float,
    *,
    span_s: float,
    warmup_s: float,
    seed: int,
) -> Probe:
    """Send Poisson arrivals at ``rate_rps`` for ``warmup_s`` uncounted and ``span_s`` counted."""
    tally = Tally()
    whole_s = warmup_s + span_s
    plan = LoadPlan(
        url=f"http://127.0.0.1:{port}",
        target=Target("127.0.0.1", port, requests, _CONNECTIONS, timeout_s=5.0),
        segments=load_arrivals.constant(rate_rps, whole_s),
        arrivals="poisson",
        seed=seed,
        warmup_s=warmup_s,
        span_s=whole_s,
        slo_s=None,
        as_json=False,
    )
    cpu_s, start_s = time.process_time(), time.perf_counter()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(measure(plan, tally))
    took_s = time.perf_counter() - start_s
    cpu_s = time.process_time() - cpu_s
    return _outcome(tally, rate_rps, span_s, cpu_s / took_s)


def _outcome(tally: Tally, rate_rps: float, span_s: float, generator_cpu: float) -> Probe:
    ordered = sorted(tally.latencies_s) or [float("inf")]
    served_rps = tally.ok / max(tally.elapsed_s, 1e-9)
    due_rps = max(1, tally.requests) / span_s
    late = sum(lag > _LAG_S for lag in tally.lags_s)
    return Probe(
        rate_rps=rate_rps,
        requests=tally.requests,
        errors=tally.errors.total(),
        achieved=round(served_rps / due_rps, 4),
        p50_ms=round(1e3 * quantile(ordered, 0.5), 3),
        p99_ms=round(1e3 * quantile(ordered, 0.99), 3),
        generator_cpu=round(generator_cpu, 3),
        generator_late=round(late / max(1, len(tally.lags_s)), 4),
    )
