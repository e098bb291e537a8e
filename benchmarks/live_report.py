"""The page of the live benchmark: what was asked of it, and every number of every run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.machine import machine
from simulator.metrics import measured

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.live_measuring import Model
    from benchmarks.live_scenario import Size
    from benchmarks.records import Records
    from simulator.results import Outcome, Results

__all__ = ["compared", "markdown"]

_AGREE = 0.10
_POINTS = 0.5  # of a percentage: one request in two hundred
_COMPARED = (
    "latency mean, ms",
    "p50, ms",
    "p95, ms",
    "p99, ms",
    "mean instances",
    "SLO missed, %",
)


def compared(outcome: Outcome) -> dict[str, float]:
    """The numbers that are compared."""
    result = measured(outcome)
    latency = result["latency_ms"]
    values = (
        *(latency[name] or 0.0 for name in ("mean", "p50", "p95", "p99")),
        _mean_instances(outcome.tracks[0]),
        100 * (result["slo_miss_ratio"] or 0.0),
    )
    return dict(zip(_COMPARED, values, strict=True))


def _mean_instances(track: Results) -> float:
    spans = [m.at_s - n.at_s for n, m in zip(track.moments, track.moments[1:], strict=False)]
    there = [m.ready + m.loading for m in track.moments[1:]]
    return sum(s * n for s, n in zip(spans, there, strict=True)) / sum(spans)


def markdown(records: Records, model: Model, rates: Sequence[tuple[int, float]], size: Size) -> str:
    """The page."""
    about = (records.last("model") or {}).get("machine") or machine()
    steps = ", ".join(f"{rate:.0f}/s from {at_s} s" for at_s, rate in rates)
    where = (
        f"`python -m benchmarks live`, on {about['cores']} cores ({about['cpu']}), which the load "
        "generator, the stack and all instances share. A model on instances of "
        f"{size.cpu:g} cores, batches of up to {size.batch}, objective {size.slo_ms:g} ms. "
        f"Measured on the stack before: {model.said}. Trace: {steps}.\n"
    )
    rows = list(_rows(records))
    near = sum(row.endswith("| yes |") for row in rows)
    verdict = (
        f"{near} of {len(rows)} numbers are within {_AGREE:.0%} of each other; misses also where "
        f"they are within {_POINTS:g} percentage points. Every number of every run is here.\n"
    )
    parts = [
        "# Live and simulated\n",
        where,
        verdict,
        "| policy | run | | live | simulated | apart | within 10 % |",
        "|---|---|---|---:|---:|---:|---|",
        *rows,
    ]
    return "\n".join(parts) + "\n"


def _rows(records: Records) -> list[str]:
    rows = []
    runs = records.find("live")
    for policy in dict.fromkeys(run["policy"] for run in runs):
        simulated = records.last("simulated", policy=policy) or {}
        for number, run in enumerate([r for r in runs if r["policy"] == policy], start=1):
            said = f"{policy} | {number}: {run['commit']}, load before {run['load_before']}"
            rows += [f"| {said} | {name} | {text}" for name, text in _agreement(run, simulated)]
    return rows


def _agreement(run: Mapping[str, Any], simulated: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = []
    for name in _COMPARED:
        one, other = run[name], simulated[name]
        apart = abs(one - other) / other if other else float(one > 0)
        near = apart <= _AGREE or ("%" in name and abs(one - other) <= _POINTS)
        verdict = "yes" if near else "**no**"
        found.append((name, f"{one:.4g} | {other:.4g} | {apart:.0%} | {verdict} |"))
    return found
