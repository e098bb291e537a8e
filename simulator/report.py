"""A comparison as one HTML file that needs nothing else: a table, and plots for each function."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from carpool import durations
from simulator import svg
from simulator.comparison_table import ROWS
from simulator.svg import Line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scaler.scenarios.scenario import Scenario
    from simulator.results import FunctionRecord, ScenarioResult

__all__ = ["page"]

_STYLE = """
:root { color-scheme: light dark; --line: #8888; --faint: #8883; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1120px; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; }
td, th { padding: .15em .9em .15em 0; text-align: right; border-bottom: 1px solid var(--faint); }
td:first-child, th:first-child { text-align: left; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(420px, 1fr)); gap: 1.2em; }
figure { margin: 0; } figcaption { font-weight: 600; }
svg { width: 100%; height: auto; } svg text { font-size: 11px; fill: currentColor; }
.axis { fill: none; stroke: var(--line); } .grid { fill: none; stroke: var(--faint); }
.legend { margin: 0; font-size: 13px; } .legend span { margin-right: 1.2em; }
.legend i { display: inline-block; width: 1.4em; margin-right: .4em; vertical-align: middle; }
"""
_MS_PER_S = 1000.0


def page(
    scenario: Scenario,
    results: Mapping[str, ScenarioResult],
    metrics: Mapping[str, Mapping[str, Any]],
) -> str:
    """The whole file."""
    title = f"{scenario.path.name}: {', '.join(results)}"
    length = durations.format(scenario.horizon_s)
    sections = [
        _section(function.name, number, results)
        for number, function in enumerate(scenario.functions)
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(title)}</h1><p>{length} of simulated time, seed {scenario.seed}.</p>"
        f"{_table(metrics)}{''.join(sections)}</body></html>\n"
    )


def _table(metrics: Mapping[str, Mapping[str, Any]]) -> str:
    heads = "".join(f"<th>{escape(name)}</th>" for name in ("", *metrics))
    rows = "".join(
        f"<tr><td>{escape(name)}</td>"
        + "".join(f"<td>{escape(show(result))}</td>" for result in metrics.values())
        + "</tr>"
        for name, show in ROWS.items()
    )
    return f"<table><tr>{heads}</tr>{rows}</table>"


def _section(function: str, number: int, results: Mapping[str, ScenarioResult]) -> str:
    records = {policy: result.functions[number] for policy, result in results.items()}
    charts = {
        "Share of requests done within a latency": _latencies(records),
        "Requests per second": _rates(next(iter(records.values()))),
        "Instances: ready, and loading (dashed)": _instances(records),
        "Cost so far": _over_time(records, "cost", "cost"),
        "Objectives missed so far": _over_time(records, "missed", "requests"),
        "Batch sizes": _batches(records),
    }
    figures = "".join(
        f"<figure><figcaption>{escape(caption)}</figcaption>{chart}</figure>"
        for caption, chart in charts.items()
    )
    return f'<h2>{escape(function)}</h2><div class="charts">{figures}</div>'


def _latencies(records: Mapping[str, FunctionRecord]) -> str:
    drawn = []
    for color, (policy, record) in enumerate(records.items()):
        seconds, shares = record.total.latencies.curve()
        drawn.append(Line(policy, [s * _MS_PER_S for s in seconds], shares, color))
    return svg.lines(drawn, x_label="latency, ms", y_label="share", log_x=True)


def _rates(record: FunctionRecord) -> str:
    times, unit = _times(record)
    rates = [moment.rate_rps for moment in record.moments]
    line = Line("all applications", times, rates)
    return svg.lines([line], x_label=f"time, {unit}", y_label="requests/s", steps=True)


def _instances(records: Mapping[str, FunctionRecord]) -> str:
    drawn, unit = [], ""
    for color, (policy, record) in enumerate(records.items()):
        times, unit = _times(record)
        ready = [float(moment.ready) for moment in record.moments]
        loading = [float(moment.loading) for moment in record.moments]
        drawn.append(Line(policy, times, ready, color))
        if any(loading):
            drawn.append(Line(f"{policy}, loading", times, loading, color, dashed=True))
    return svg.lines(drawn, x_label=f"time, {unit}", y_label="instances", steps=True)


def _over_time(records: Mapping[str, FunctionRecord], name: str, y_label: str) -> str:
    drawn, unit = [], ""
    for color, (policy, record) in enumerate(records.items()):
        times, unit = _times(record)
        drawn.append(Line(policy, times, [getattr(m, name) for m in record.moments], color))
    return svg.lines(drawn, x_label=f"time, {unit}", y_label=y_label)


def _batches(records: Mapping[str, FunctionRecord]) -> str:
    groups = []
    for policy, record in records.items():
        batches = record.total.batches or 1
        sizes = {size: count / batches for size, count in record.total.sizes.items()}
        groups.append((policy, sizes))
    return svg.bars(groups, x_label="requests in a batch", y_label="share of batches")


def _times(record: FunctionRecord) -> tuple[list[float], str]:
    """When each moment was, in a unit that gives small numbers."""
    last_s = record.moments[-1].at_s
    unit, seconds = next(
        (unit, seconds)
        for unit, seconds in (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))
        if last_s >= 2 * seconds or unit == "s"
    )
    return [moment.at_s / seconds for moment in record.moments], unit
