"""Results as a page: medians over the repeats, with their spread."""

from __future__ import annotations

import os
import platform
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["machine", "markdown"]

_BASE = "carpool"
_HEAD = (
    "| server | max req/s | spread | carpool is | of raw batched | p50 / p99 ms at half"
    " | CPU s per 1000 | memory MB | mean batch, half / max | wait ms |\n"
    "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
)


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    cpu = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text().splitlines()
        cpu = next((x.partition(":")[2].strip() for x in lines if "model name" in x), cpu)
    load = os.getloadavg()[0]
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "load_before": round(load, 2),
    }


def markdown(results: dict[str, Any]) -> str:
    """The page."""
    about = results["machine"]
    parts = [
        "# Servers compared\n",
        (
            f"`{results['command']}` on {about['cores']} cores ({about['cpu']}), "
            f"Python {about['python']}, load average before: {about['load_before']}. "
            "Medians; the spread is the range over the median.\n"
        ),
    ]
    for name, case in results["cases"].items():
        parts += [_case(name, case), ""]
    parts.append("## What each parses\n")
    for name, server in results["servers"].items():
        made_of = ", ".join(f"{package} {v}" for package, v in server["versions"].items())
        parts.append(f"- **{name}**: {server['parses']} ({made_of}).")
    return "\n".join(parts) + "\n"


def _case(name: str, case: dict[str, Any]) -> str:
    ceiling = {
        size: statistics.median(run[size] for run in case["ceiling"]) for size in case["ceiling"][0]
    }
    raw = ", ".join(f"{rate:,.0f} at {size}" for size, rate in ceiling.items())
    lines = [
        f"## {name}: p99 within {case['slo_ms']:g} ms, batches of at most {case['batch_max']}\n",
        f"ONNX Runtime alone, one thread, rows a second by batch size: {raw}.\n",
        _HEAD,
    ]
    by_server: dict[str, list[dict[str, Any]]] = {}
    for record in case["repeats"]:
        by_server.setdefault(record["server"], []).append(record)
    highest = {s: _median(rs, lambda r: r["max_rps"]) for s, rs in by_server.items()}
    top = ceiling[str(case["batch_max"])]
    for server in sorted(by_server, key=lambda s: -highest[s]):
        ratio = highest.get(_BASE, 0.0) / highest[server]
        lines.append(_row(server, by_server[server], ratio, highest[server] / top))
    lines += [f"\nSkipped: {s}: {why}." for s, why in case["skipped"].items()]
    return "\n".join(lines)


def _row(server: str, runs: list[dict[str, Any]], ratio: float, of_raw: float) -> str:
    rates = [run["max_rps"] for run in runs]
    median = statistics.median(rates)
    spread = (max(rates) - min(rates)) / median
    half_ms = [_median(runs, lambda r, k=key: r["half"][k]) for key in ("p50_ms", "p99_ms")]  # type: ignore[misc]
    batches = " / ".join(
        f"{_median(known, lambda r, k=key: r[k]):.1f}"  # type: ignore[misc]
        if (known := [run for run in runs if run[key] is not None])
        else "?"
        for key in ("mean_batch", "mean_batch_top")
    )
    cells = [
        server,
        f"{median:,.0f}",
        f"{spread:.0%}",
        f"{ratio:.2f}x",
        f"{of_raw:.2f}",
        " / ".join(f"{value:.1f}" for value in half_ms),
        f"{_median(runs, lambda r: r['cpu_s_per_1000']):.3f}",
        f"{_median(runs, lambda r: r['memory_mb']):.0f}",
        batches,
        f"{runs[0]['wait_ms']:g}",
    ]
    return f"| {' | '.join(cells)} |"


def _median(runs: list[dict[str, Any]], value: Callable[[dict[str, Any]], float]) -> float:
    return statistics.median([value(run) for run in runs])
