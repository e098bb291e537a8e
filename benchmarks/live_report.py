"""Page of the live benchmark: the measurements, and every number of every run."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from benchmarks.machine import machine
from simulator.metrics import measured

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.live_measuring import Model
    from benchmarks.live_scenario import Size
    from benchmarks.records import Records
    from simulator.results import FunctionRecord, ScenarioResult

__all__ = ["EXECUTION", "SPREAD_OVER", "changes", "compared", "execution_ms", "markdown"]

_AGREE = 0.10
_MS = 1000
_POINTS = 0.5  # of a percentage: one request in two hundred
_COMPARED = (
    "latency mean, ms",
    "p50, ms",
    "p95, ms",
    "p99, ms",
    "mean instances",
    "SLO missed, %",
)
EXECUTION = "execution mean, ms"  # shown beside: the simulation is given it, and machines drift
SPREAD_OVER = _COMPARED[:-1]  # of a few misses, one more is a lot


def compared(result: ScenarioResult) -> dict[str, float]:
    """Return the numbers that are compared."""
    metrics = measured(result)
    latency = metrics["latency_ms"]
    values = (
        *(latency[name] or 0.0 for name in ("mean", "p50", "p95", "p99")),
        _mean_instances(result.functions[0]),
        100 * (metrics["slo_miss_ratio"] or 0.0),
    )
    return dict(zip(_COMPARED, values, strict=True))


def execution_ms(result: ScenarioResult, cpu: float) -> float:
    """Return a batch's mean execution time in milliseconds on instances of ``cpu`` cores."""
    total = result.functions[0].total
    return _MS * total.busy_core_s / cpu / total.batches if total.batches else 0.0


def changes(result: ScenarioResult) -> list[list[float]]:
    """Return a row of seconds, ready and loading instances for each change of these numbers."""
    rows: list[list[float]] = []
    for moment in result.functions[0].moments:
        if not rows or rows[-1][1:] != [moment.ready, moment.loading]:
            rows.append([round(moment.at_s, 2), moment.ready, moment.loading])
    return rows


def _mean_instances(record: FunctionRecord) -> float:
    spans = [m.at_s - n.at_s for n, m in zip(record.moments, record.moments[1:], strict=False)]
    there = [m.ready + m.loading for m in record.moments[1:]]
    return sum(s * n for s, n in zip(spans, there, strict=True)) / sum(spans)


def markdown(
    records: Records,
    models: Mapping[str, Model],
    rates: Mapping[str, Sequence[tuple[int, float]]],
    size: Size,
) -> str:
    """Return the page, with each case's measurements and the results of its trace."""
    about = machine()
    where = (
        f"`python -m benchmarks live`, on {about['cores']} cores ({about['cpu']}), which the load "
        f"generator, the stack and all instances share. Instances of {size.cpu:g} cores, batches "
        f"of up to {size.batch}, objective {size.slo_ms:g} ms. A number agrees where the two are "
        f"within {_AGREE:.0%} of each other; misses also where they are within {_POINTS:g} "
        "percentage points. Every number of every run is here; where there are several runs of a "
        "policy, those that count are of the medians.\n"
    )
    parts = ["# Live and simulated\n", where]
    for case, model in models.items():
        rows, judged = _rows(records, case)
        near = sum(row.endswith("| yes |") for row in judged)
        steps = ", ".join(f"{rate:.0f}/s from {at_s} s" for at_s, rate in rates[case])
        parts += [
            f"## {case.capitalize()}\n",
            f"Measured on the stack before: {model.said}. Trace: {steps}.\n",
            f"{_chosen(records, case)}\n",
            f"{near} of {len(judged)} numbers agree.\n",
            "| policy | run | | live | simulated | apart | agree |",
            "|---|---|---|---:|---:|---:|---|",
            *rows,
            "",
        ]
    return "\n".join(parts)


def _chosen(records: Records, case: str) -> str:
    seed = records.last("seed", case=case) or {"seed": 1, "spreads": (1,)}
    return (
        f"seed {seed['seed']}, in simulation the least subject to chance of {len(seed['spreads'])}"
    )


def _rows(records: Records, case: str) -> tuple[list[str], list[str]]:
    """Return all rows of a case, and those by which it is judged."""
    rows, judged = [], []
    runs = records.find("live", case=case)
    for policy in dict.fromkeys(run["policy"] for run in runs):
        simulated = records.last("simulated", case=case, policy=policy) or {}
        own = [run for run in runs if run["policy"] == policy]
        shown = {
            f"{policy} | {number}: {run['commit']}, load before {run['load_before']}": run
            for number, run in enumerate(own, start=1)
        }
        if len(own) > 1:
            names = [name for name in (*_COMPARED, EXECUTION) if all(name in run for run in own)]
            median = {name: statistics.median(run[name] for run in own) for name in names}
            shown[f"{policy} | median of {len(own)}"] = median
        last: list[str] = []
        for said, run in shown.items():
            last = _agreement(said, run, simulated)
            rows += last
            if EXECUTION in run:
                rows.append(_execution(said, run, simulated))
        judged += last
    return rows, judged


def _agreement(said: str, run: Mapping[str, Any], simulated: Mapping[str, Any]) -> list[str]:
    rows = []
    for name in _COMPARED:
        one, other = run[name], simulated[name]
        apart = abs(one - other) / other if other else float(one > 0)
        near = apart <= _AGREE or ("%" in name and abs(one - other) <= _POINTS)
        verdict = "yes" if near else "**no**"
        rows.append(f"| {said} | {name} | {one:.4g} | {other:.4g} | {apart:.0%} | {verdict} |")
    return rows


def _execution(said: str, run: Mapping[str, Any], simulated: Mapping[str, Any]) -> str:
    one, other = run[EXECUTION], simulated[EXECUTION]
    return f"| {said} | {EXECUTION} | {one:.4g} | {other:.4g} | {abs(one - other) / other:.0%} | |"
