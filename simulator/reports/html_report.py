"""A comparison as a self-contained HTML file: a table, and plots for each function."""

from __future__ import annotations

import dataclasses
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any

from carpool import durations
from simulator.reports import heat_map, svg
from simulator.reports.comparison_table import MEANINGS, ROWS
from simulator.reports.svg import Line, Mark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler.planning.cost import Prices
    from scaler.scenarios.scenario import Function, Scenario
    from simulator.results import FunctionRecord, ScenarioResult

__all__ = ["document", "page"]

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1120px; margin: 2em auto; padding: 0 1em;
  background: var(--back); color: var(--text); }
.wide { overflow-x: auto; } table { border-collapse: collapse; }
td, th { padding: .15em .9em .15em 0; text-align: right; border-bottom: 1px solid var(--line); }
td:first-child, th:first-child { text-align: left; min-width: 7.5em; position: sticky; left: 0;
  background: var(--back); }
h1, h2, td, th { overflow-wrap: anywhere; }
td:not(:first-child), th:not(:first-child) { white-space: nowrap; }
dt { font-weight: 600; } dd { margin: 0 0 .4em 1.2em; }
.charts { display: grid; gap: 1.2em;
  grid-template-columns: repeat(auto-fit, minmax(min(420px, 100%), 1fr)); }
figure { margin: 0; min-width: 0; } figcaption { font-weight: 600; }
svg { width: 100%; height: auto; } svg text { font-size: 11px; }
.legend { margin: 0; font-size: 13px; } .legend span { margin-right: 1.2em; display: inline-block; }
@media (max-width: 600px) { svg text { font-size: 16px; } svg.heat text { font-size: 14px; } }
"""
_SCRIPTS = (
    resources.files("scaler.dashboard").joinpath("tip.js"),
    resources.files("simulator.reports").joinpath("report.js"),
)
_MS_PER_S = 1000.0


def page(
    scenario: Scenario,
    results: Mapping[str, ScenarioResult],
    metrics: Mapping[str, Mapping[str, Any]],
) -> str:
    """Return the HTML file."""
    title = f"{scenario.path.name}: {', '.join(results)}"
    length = durations.format(scenario.horizon_s)
    scripts = "".join(script.read_text(encoding="utf-8") for script in _SCRIPTS)
    sections = [
        _section(function, number, results, scenario.prices)
        for number, function in enumerate(scenario.functions)
    ]
    return document(
        title,
        f"<p>{length} of simulated time, seed {scenario.seed}. "
        f"{escape(_prices(scenario.prices))}</p>"
        f"{_table(metrics)}{_meanings()}{''.join(sections)}"
        f'<p id="tip" hidden></p><script>{scripts}</script>',
    )


def document(title: str, body: str) -> str:
    """Return an HTML page of charts, for light and dark mode and for phones.

    Args:
        title: Plain text.
        body: HTML below the title; charts are figures in ``<div class="charts">``.
    """
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>"
        f"<style>{svg.CHARTS}{_STYLE}{heat_map.STYLE}</style></head><body>"
        f"<h1>{escape(title)}</h1>{body}</body></html>\n"
    )


def _prices(prices: Prices) -> str:
    if not prices.given:
        return "The scenario has no prices."
    named = {f.name: getattr(prices, f.name) for f in dataclasses.fields(prices)}
    given = [f"{name} {value:g}" for name, value in named.items() if value and value != str(value)]
    unit = prices.currency or "the currency of the scenario's prices"
    return f"Costs are in {unit}, billing {prices.billing}: {', '.join(given)}."


def _meanings() -> str:
    words = "".join(f"<dt>{escape(n)}</dt><dd>{escape(text)}</dd>" for n, text in MEANINGS.items())
    return f"<details><summary>Meaning of the numbers</summary><dl>{words}</dl></details>"


def _table(metrics: Mapping[str, Mapping[str, Any]]) -> str:
    heads = "".join(f"<th>{escape(name)}</th>" for name in ("", *metrics))
    rows = "".join(
        f'<tr><td title="{escape(MEANINGS[name], quote=True)}">{escape(name)}</td>'
        + "".join(f"<td>{escape(show(result))}</td>" for result in metrics.values())
        + "</tr>"
        for name, show in ROWS.items()
    )
    return f'<div class="wide"><table><tr>{heads}</tr>{rows}</table></div>'


def _section(
    function: Function, number: int, results: Mapping[str, ScenarioResult], prices: Prices
) -> str:
    records = {policy: result.functions[number] for policy, result in results.items()}
    charts = {
        "Share of requests done within a latency": _latencies(records, function),
        "Requests per second": _rates(next(iter(records.values()))),
        "Instances: ready, and loading (dashed)": _instances(records),
    }
    if prices.given:
        charts["Cost so far"] = _over_time(records, "cost", prices.currency or "cost")
    charts["SLO violations so far"] = _over_time(records, "missed", "requests")
    charts["Batch sizes"] = _batches(records)
    figures = "".join(
        f"<figure><figcaption>{escape(caption)}</figcaption>{chart}</figure>"
        for caption, chart in charts.items()
    )
    return f'<h2>{escape(function.name)}</h2><div class="charts">{figures}</div>'


def _latencies(records: Mapping[str, FunctionRecord], function: Function) -> str:
    """Return a chart of the latency distributions from 0, with the objectives marked."""
    drawn = []
    for color, (policy, record) in enumerate(records.items()):
        seconds, shares = record.total.latencies.curve()
        latencies_ms = [s * _MS_PER_S for s in seconds]
        drawn.append(
            Line(
                policy,
                [*latencies_ms[:1], *latencies_ms],
                [0.0, *shares] if latencies_ms else [],
                color,
            )
        )
    objectives: dict[float, list[str]] = {}
    for app in function.apps:
        objectives.setdefault(app.slo_s, []).append(app.name)
    marks = [
        Mark(_objective(slo_s, apps, len(objectives)), slo_s * _MS_PER_S)
        for slo_s, apps in objectives.items()
    ]
    return svg.lines(drawn, x_label="latency, ms", y_label="share", log_x=True, marks=marks)


def _objective(slo_s: float, apps: Sequence[str], several: int) -> str:
    whose = f" of {', '.join(apps)}" if several > 1 else ""
    return f"objective{whose}, {durations.format(slo_s)}"


def _rates(record: FunctionRecord) -> str:
    times, unit = _times(record)
    rates = [moment.rate_rps for moment in record.moments]  # each of the interval that ends then
    line = Line("all applications", times, [*rates, *rates[-1:]])
    return svg.lines([line], x_label=f"time, {unit}", y_label="requests/s", steps=True)


def _instances(records: Mapping[str, FunctionRecord]) -> str:
    drawn, unit = [], ""
    for color, (policy, record) in enumerate(records.items()):
        times, unit = _times(record)
        moments = [*record.moments[:1], *record.moments]
        ready = [float(moment.ready) for moment in moments]
        loading = [float(moment.loading) for moment in moments]
        drawn.append(Line(policy, times, ready, color))
        if any(loading):
            drawn.append(Line(f"{policy}, loading", times, loading, color, dashed=True))
    return svg.lines(drawn, x_label=f"time, {unit}", y_label="instances", steps=True)


def _over_time(records: Mapping[str, FunctionRecord], name: str, y_label: str) -> str:
    drawn, unit = [], ""
    for color, (policy, record) in enumerate(records.items()):
        times, unit = _times(record)
        values = [getattr(moment, name) for moment in record.moments]
        drawn.append(Line(policy, times, [0.0, *values], color))
    return svg.lines(drawn, x_label=f"time, {unit}", y_label=y_label)


def _batches(records: Mapping[str, FunctionRecord]) -> str:
    groups = []
    for policy, record in records.items():
        batches = record.total.batches or 1
        sizes = {size: count / batches for size, count in record.total.sizes.items()}
        groups.append((policy, sizes))
    return svg.bars(groups, x_label="requests in a batch", y_label="share of batches")


def _times(record: FunctionRecord) -> tuple[list[float], str]:
    """Return the times of the moments from the start, and a unit that gives small numbers."""
    last_s = record.moments[-1].at_s
    unit, seconds = next(
        (unit, seconds)
        for unit, seconds in (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))
        if last_s >= 2 * seconds or unit == "s"
    )
    return [0.0, *(moment.at_s / seconds for moment in record.moments)], unit
