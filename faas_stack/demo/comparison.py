"""Sends the same load to two functions that differ in one setting, and describes the results.

Both get the same arrivals (rate, seed, duration), in alternating rounds, so that a passing
disturbance affects both. Each round follows its warm-up without a pause. The rate comes from a
short calibration with enough callers to keep an instance busy.
"""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carpool.errors import FunctionFault
from carpool.http.client import Pool
from faas_stack.load import command, flags
from faas_stack.load.results import LoadResults

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Contest", "PolicyResult", "announcement", "calibrate", "choose_rate", "described"]
__all__ += ["run_rounds", "table", "verdict"]

_CALLERS = 96
_CALIBRATION_S = 1.5
_WORTHWHILE = 1.3  # a smaller gain is within the variation between runs
_UNDER_BOTH = 0.7
_WARMUP = "500ms"
_TIMEOUT = "1s"  # five times the SLO: clients would have left; also empties the queue


@dataclass(frozen=True, slots=True)
class Contest:
    """Functions to compare by the name of their policy, and the load that both get."""

    address: str
    functions: dict[str, str]
    body: Path
    slo: str
    round_s: float
    rounds: int


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """Results of one policy over all its rounds."""

    policy: str
    load: LoadResults


async def calibrate(contest: Contest) -> dict[str, float]:
    """Return each function's good responses per second while enough callers keep it busy."""
    return {
        policy: await _busy_rate(contest, function)
        for policy, function in contest.functions.items()
    }


def choose_rate(capacities: dict[str, float]) -> tuple[float, bool]:
    """Return a rate for both functions, and whether only the faster one can sustain it.

    The geometric mean of two different capacities overloads the slower function by the factor that
    it leaves the faster one in reserve. If they do not differ, both can sustain the rate.
    """
    slow, fast = min(capacities.values()), max(capacities.values())
    if fast < _WORTHWHILE * slow:
        return _UNDER_BOTH * slow, False
    return math.sqrt(slow * fast), True


def announcement(capacities: dict[str, float]) -> str:
    """Return the rate of the comparison and its reason as a sentence."""
    rate_rps, overload = choose_rate(capacities)
    limits = " and ".join(f"{rate:.0f}/s {described(name)}" for name, rate in capacities.items())
    both = "below both: this model gains little or nothing from batches"
    why = "between the two" if overload else both
    return f"at most {limits}, so the load is {rate_rps:.0f}/s, {why}"


async def run_rounds(contest: Contest, rate_rps: float) -> list[PolicyResult]:
    """Run the rounds in turn and return one result per policy."""
    results = [PolicyResult(policy, LoadResults()) for policy in contest.functions]
    for turn in range(contest.rounds):
        for result in results:
            plan = flags.parse(
                [
                    *("--url", _url(contest, contest.functions[result.policy])),
                    *("--rate", str(rate_rps), "--duration", f"{contest.round_s:g}s"),
                    *("--warmup", _WARMUP, "--timeout", _TIMEOUT, "--slo", contest.slo),
                    *("--data", f"@{contest.body}", "--seed", str(turn)),
                ]
            )
            result.load.slo_s = plan.slo_s
            await command.measure(plan, result.load)
    return results


def table(results: Sequence[PolicyResult], slo: str) -> str:
    """Return a table of the results side by side; late and refused requests are missed."""
    lines = [
        f"  {'policy':<10}{'throughput':>14}{'p50':>10}{'p99':>10}{f'missed {slo}':>14}{'batch':>8}"
    ]
    for result in results:
        report = result.load.report()
        latency = report["latency_ms"]
        missed = f"{100 * (report['slo_miss_ratio'] or 0):.1f} %"
        lines.append(
            f"  {result.policy:<10}{report['rps']:>12.0f}/s{_ms(latency['p50']):>10}"
            f"{_ms(latency['p99']):>10}{missed:>14}{report['mean_batch'] or 1:>8.1f}"
        )
    return "\n".join(lines)


def described(policy: str) -> str:
    """Return a policy's name for use in a sentence, where `none` alone would be misread."""
    return "without batching (none)" if policy == "none" else f"with {policy}"


def verdict(results: Sequence[PolicyResult], slo: str, rate_rps: float) -> str:
    """Return the results as a sentence, without ratios.

    Near the SLO, a ratio of requests answered in time would be misleading: a queue that overflows
    answers most requests slightly too late, so a few would be compared with many.
    """
    rates = [f"{_in_time(each.load):.0f} {described(each.policy)}" for each in results]
    return f"of {rate_rps:.0f} requests a second, {' and '.join(rates)} were answered within {slo}"


async def _busy_rate(contest: Contest, function: str) -> float:
    pool = Pool(contest.address, max_connections=_CALLERS)
    headers = [("content-type", flags.content_type_of(contest.body))]
    body = contest.body.read_bytes()
    until = time.perf_counter() + _CALIBRATION_S
    good = 0

    async def call() -> None:
        nonlocal good
        while time.perf_counter() < until:
            try:
                answer = await pool.request(
                    *("POST", f"/function/{function}", headers),
                    body,
                    timeout_s=_CALIBRATION_S,
                )
            except (FunctionFault, TimeoutError):
                continue
            good += answer.status == 200  # noqa: PLR2004

    try:
        start = time.perf_counter()
        await asyncio.gather(*(call() for _ in range(_CALLERS)))
        return max(1.0, good / (time.perf_counter() - start))
    finally:
        pool.close()


def _in_time(results: LoadResults) -> float:
    return (results.ok - results.misses) / results.elapsed_s if results.elapsed_s else 0.0


def _url(contest: Contest, function: str) -> str:
    return f"http://{contest.address}/function/{function}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} ms"
