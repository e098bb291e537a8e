"""Page of the live benchmark: the measurements, and every number of every run."""

from __future__ import annotations

import math
import statistics
from math import nan
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.machine import machine
from simulator.metrics import measured

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.live_measuring import Model
    from benchmarks.live_scenario import Size
    from benchmarks.records import Records
    from simulator.results import FunctionRecord, ScenarioResult

__all__ = [
    "AT_SPEED",
    "EXECUTION",
    "SPREAD_OVER",
    "changes",
    "compared",
    "execution_ms",
    "markdown",
]

_AGREE = 0.10
_MS = 1000
_VERDICT = "| apart | agree |"
_POINTS = 0.5  # of a percentage: one request in two hundred
_COMPARED = (
    "latency mean, ms",
    "p50, ms",
    "p95, ms",
    "p99, ms",
    "mean instances",
    "SLO missed, %",
)
AT_SPEED = "simulated at speed"  # kind of the records with executions as in a policy's runs
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
        "percentage points. Each policy is simulated twice: with the execution times measured "
        "before, and with these times multiplied by a factor, so that batches take as long on "
        "average as in the median of the policy's runs; policies plan with the times measured "
        "before in both. Simulations begin with the instances that the policy's latest live run "
        "began with. Every number of every run is here; where there are several runs of a policy, "
        "those that count are of the medians.\n"
    )
    parts = ["# Live and simulated\n", where]
    for case, model in models.items():
        rows, judged = _rows(records, case)
        steps = ", ".join(f"{rate:.0f}/s from {at_s} s" for at_s, rate in rates[case])
        parts += [
            f"## {case.capitalize()}\n",
            f"Measured on the stack before: {model.said}. Trace: {steps}.\n",
            f"{_chosen(records, case)}\n",
            f"{_agreeing(judged)}\n",
            f"| policy | run | | live | simulated {_VERDICT} at the runs' speed {_VERDICT}",
            "|---|---|---|---:|---:|---:|---|---:|---:|---|",
            *map(str, rows),
            "",
        ]
    return "\n".join(parts)


def _chosen(records: Records, case: str) -> str:
    seed = records.last("seed", case=case) or {"seed": 1, "spreads": (1,)}
    return (
        f"seed {seed['seed']}, in simulation the least subject to chance of {len(seed['spreads'])}"
    )


class _Row(NamedTuple):
    """One number of a run, and the same number of two simulations; NaN if there is none."""

    said: str
    name: str
    live: float
    simulated: float
    at_speed: float

    def __str__(self) -> str:
        cells = [self.said, self.name, f"{self.live:.4g}"]
        for value in (self.simulated, self.at_speed):
            if math.isnan(value):
                cells += ["", "", ""]
                continue
            verdict = "yes" if self.agrees(value) else "**no**"
            cells += [f"{value:.4g}", f"{self._apart(value):.0%}"]
            cells.append("" if self.name == EXECUTION else verdict)
        return f"| {' | '.join(cells)} |"

    def agrees(self, value: float) -> bool:
        """Return whether the live number is near a simulated one."""
        near = "%" in self.name and abs(self.live - value) <= _POINTS
        return near or self._apart(value) <= _AGREE

    def _apart(self, value: float) -> float:
        return abs(self.live - value) / value if value else float(self.live > 0)


def _agreeing(judged: Sequence[_Row]) -> str:
    """Return how many numbers agree with each of the two simulations."""
    before = sum(row.agrees(row.simulated) for row in judged)
    line = f"{before} of {len(judged)} numbers agree with the times measured before"
    known = [row for row in judged if not math.isnan(row.at_speed)]
    if not known:
        return f"{line}."
    near = sum(row.agrees(row.at_speed) for row in known)
    return f"{line}, {near} of {len(known)} at the median speed of the policy's runs."


def _rows(records: Records, case: str) -> tuple[list[_Row], list[_Row]]:
    """Return all rows of a case, and those by which it is judged."""
    rows: list[_Row] = []
    judged: list[_Row] = []
    runs = records.find("live", case=case)
    for policy in dict.fromkeys(run["policy"] for run in runs):
        simulated, at_speed = (
            records.last(kind, case=case, policy=policy) or {} for kind in ("simulated", AT_SPEED)
        )
        own = [run for run in runs if run["policy"] == policy]
        shown = {
            f"{policy} | {number}: {run['commit']}, load before {run['load_before']}": run
            for number, run in enumerate(own, start=1)
        }
        if len(own) > 1:
            names = [name for name in (*_COMPARED, EXECUTION) if all(name in run for run in own)]
            median = {name: statistics.median(run[name] for run in own) for name in names}
            shown[f"{policy} | median of {len(own)}"] = median
        last: list[_Row] = []
        for said, run in shown.items():
            last = [
                _Row(said, name, run[name], simulated.get(name, nan), at_speed.get(name, nan))
                for name in (*_COMPARED, EXECUTION)
                if name in run
            ]
            rows += last
        judged += [row for row in last if row.name != EXECUTION]
    return rows, judged
