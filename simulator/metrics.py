"""Metrics of a run: the figures that policies are compared by, under their documented names.

A resource unit is INFless's (ASPLOS'22): one percent of a GPU; a core counts as 64/142 units.
"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Any

from carpool.scaling import resource_units
from simulator.outcomes import Outcomes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulator.results import FunctionRecord, ScenarioResult

__all__ = ["measured"]

_QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_MS_PER_S = 1000.0


def measured(result: ScenarioResult) -> dict[str, Any]:
    """Return the metrics of all functions together, and of each under ``functions``."""
    common = {
        "fragmentation": fmean(result.fragmentation) if result.fragmentation else None,
        "planning_ms": fmean(result.planning_ms) if result.planning_ms else None,
    }
    each = {
        record.function.name: _of([record], priced=result.priced)
        | common
        | {"apps": _by_app(record)}
        for record in result.functions
    }
    return {**_of(result.functions, priced=result.priced), **common, "functions": each}


def _of(records: Sequence[FunctionRecord], *, priced: bool) -> dict[str, Any]:
    outcomes = Outcomes()
    for record in records:
        outcomes.add(record.total)
    requests = sum(record.requests for record in records)
    done, expired, refused, failed = _whole(outcomes, requests)
    cost = outcomes.cost + sum(record.reserved.cost for record in records)
    core_s = sum(record.reserved.core_s for record in records)
    gpu_percent_s = sum(record.reserved.gpu_percent_s for record in records)
    ready_core_s = sum(record.reserved.ready_core_s for record in records)
    return {
        "requests": requests,
        "done": done,
        "failed": failed,
        "expired": expired,
        "refused": refused,
        "slo_miss_ratio": _ratio(outcomes.missed, requests),
        "latency_ms": _latency_ms(outcomes),
        "mean_batch": _ratio(outcomes.done + outcomes.failed, outcomes.batches),
        "cost": cost if priced or cost else None,  # a custom billing rule may need no prices
        "cost_per_1k": _ratio(1000 * cost, done) if priced or cost else None,
        "cpu_core_s": core_s,
        "gpu_percent_s": gpu_percent_s,
        "rps_per_resource": _ratio(done, resource_units(core_s, gpu_percent_s)),
        "cold_start_ratio": _ratio(outcomes.cold, requests),
        "idle_core_s": max(0.0, ready_core_s - outcomes.busy_core_s),
    }


def _by_app(record: FunctionRecord) -> dict[str, dict[str, float | None]]:
    """Return each application's requests and the share that missed the objective."""
    missed = record.total.missed_by_app
    return {
        app: {"requests": count, "slo_miss_ratio": _ratio(missed.get(app, 0.0), count)}
        for app, count in record.requests_by_app.items()
    }


def _whole(outcomes: Outcomes, requests: int) -> tuple[int, int, int, int]:
    """Round estimated outcome counts to integers that add up to the number of requests."""
    expired, refused = round(outcomes.expired), round(outcomes.refused)
    failed = round(outcomes.failed)
    return requests - expired - refused - failed, expired, refused, failed


def _latency_ms(outcomes: Outcomes) -> dict[str, float | None]:
    latencies = outcomes.latencies
    latencies_s = {"mean": latencies.mean_s}
    latencies_s |= {name: latencies.quantile_s(share) for name, share in _QUANTILES.items()}
    return {name: None if s is None else s * _MS_PER_S for name, s in latencies_s.items()}


def _ratio(amount: float, of: float) -> float | None:
    return amount / of if of else None
