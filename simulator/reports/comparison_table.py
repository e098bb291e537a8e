"""Compare policies on a terminal: one row per figure, one column per policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simulator.objective_check import impossible_objectives

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from simulator.results import ScenarioResult

__all__ = ["MEANINGS", "ROWS", "aligned", "comparison", "number", "unplaced"]

_FEW_DIGITS, _MANY = 4, 1000


def number(value: float | None) -> str:
    """Format a number for reading, with at most four significant digits."""
    if value is None:
        return "-"
    if value == 0 or abs(value) >= _MANY or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.{_FEW_DIGITS}g}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f} %"


def _latency(name: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda result: number(result["latency_ms"][name])


def _plain(name: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda result: number(result[name])


def _share(name: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda result: _percent(result[name])


ROWS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "requests": _plain("requests"),
    "done": _plain("done"),
    "expired": _plain("expired"),
    "refused": _plain("refused"),
    "SLO missed": _share("slo_miss_ratio"),
    "latency mean, ms": _latency("mean"),
    "p50, ms": _latency("p50"),
    "p95, ms": _latency("p95"),
    "p99, ms": _latency("p99"),
    "mean batch": _plain("mean_batch"),
    "cost": _plain("cost"),
    "cost per 1000": _plain("cost_per_1k"),
    "core seconds": _plain("cpu_core_s"),
    "GPU percent seconds": _plain("gpu_percent_s"),
    "requests per unit s": _plain("rps_per_resource"),
    "cold starts": _share("cold_start_ratio"),
    "idle core seconds": _plain("idle_core_s"),
    "fragmentation": _share("fragmentation"),
    "planning, ms": _plain("planning_ms"),
}


MEANINGS = {
    "requests": "All requests; each is done, failed, expired or refused.",
    "done": "Answered.",
    "expired": "The deadline, 15/16 of the objective, passed before an instance took the request.",
    "refused": "On arrival: the queue was full, or the answer would have been too late.",
    "SLO missed": "Share that missed its objective, or was not done.",
    "latency mean, ms": "Of the requests done, from arrival to answer.",
    "p50, ms": "Median latency of the requests done.",
    "p95, ms": "95th percentile of the latency of the requests done.",
    "p99, ms": "99th percentile of the latency of the requests done.",
    "mean batch": "Requests in a batch.",
    "cost": "By the scenario's billing rule, in the currency of its prices.",
    "cost per 1000": "Cost of a thousand requests done.",
    "core seconds": "Cores that instances occupied, times the seconds that they were there.",
    "GPU percent seconds": "Percent of a GPU that instances occupied, times seconds.",
    "requests per unit s": "Done per second and resource unit: a percent of a GPU. A core is "
    "64/142 of a unit.",
    "cold starts": "Share that waited for an instance to load.",
    "idle core seconds": "Core seconds of instances that were loaded but idle.",
    "fragmentation": "Unallocated share of the servers in use, mean over the rounds.",
    "planning, ms": "A planning round in real time, mean.",
}


def comparison(
    metrics: Mapping[str, Mapping[str, Any]], results: Mapping[str, ScenarioResult]
) -> str:
    """Return the tables of all policies, of several functions, and of unplaced instances."""
    rows = [["", *metrics]]
    rows += [[name, *(show(result) for result in metrics.values())] for name, show in ROWS.items()]
    text = aligned(rows)
    functions = list(next(iter(metrics.values()))["functions"])
    if len(functions) > 1:
        rows = [["missed, p99 ms", *metrics]]
        for function in functions:
            each = [result["functions"][function] for result in metrics.values()]
            cells = (f"{ROWS['SLO missed'](one)}, {ROWS['p99, ms'](one)}" for one in each)
            rows.append([function, *cells])
        text += "\n" + aligned(rows)
    for policy, result in results.items():
        text += "".join(f"\n{policy} {each}" for each in unplaced(result))
    return text.rstrip("\n") + "\n"


def unplaced(result: ScenarioResult) -> Iterator[str]:
    """Yield for each function with an unplaced rate how much it was, and why."""
    functions = {each.function.name: each.function for each in result.functions}
    impossible = impossible_objectives(functions.values())
    for name in [each for each in functions if each in result.unplaced]:
        rate = f"up to {number(result.unplaced[name])}/s of {name}"
        reason = impossible.get(name) or result.unplaced_reasons.get(name)
        yield (
            f"planned no instance for {rate}: {reason}" if reason else f"had no capacity for {rate}"
        )


def aligned(rows: list[list[str]]) -> str:
    """Align rows of cells: the first column to the left, all others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([f"{first:<{widths[0]}}", *cells]).rstrip())
    return "\n".join(lines) + "\n"
