"""``carpool load``: open-loop load against a URL; latency quantiles, SLO misses, errors."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import signal
import sys
from typing import TYPE_CHECKING, Any

from carpool import durations
from carpool.errors import CarpoolError
from faas_stack.load import arrivals, flags
from faas_stack.load.generator import LoadGenerator
from faas_stack.load.results import QUANTILES, LoadResults, quantile

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from faas_stack.load.flags import LoadPlan

__all__ = ["Unreachable", "main", "measure"]

_REFRESH_S = 0.25
_BAR_WIDTH = 24
_RECENT = 2000
_INTERRUPTED = 130


class Unreachable(CarpoolError):
    """Raised when nothing listens at the target."""


def main(argv: list[str]) -> int:
    """Run the load; return 0 if any request succeeded, 1 if none did, 130 if interrupted."""
    plan = flags.parse(argv)
    results = LoadResults(plan.slo_s)
    interrupted = _run(_measure_or_stop(plan, results))
    report = results.report()
    sys.stdout.write(
        f"{json.dumps(report) if plan.as_json else _text(plan, report, results.examples)}\n"
    )
    for warning in results.warnings():
        sys.stderr.write(f"carpool load: {warning}\n")
    if interrupted:
        sys.stderr.write("carpool load: interrupted; the figures cover the answered requests\n")
        return _INTERRUPTED
    return 0 if results.ok else 1


async def measure(plan: LoadPlan, results: LoadResults, *, progress: bool = False) -> None:
    """Run ``plan`` and update ``results`` continuously.

    Raises:
        Unreachable: If the target does not accept connections.
    """
    times = arrivals.arrivals(plan.segments, plan.arrivals, plan.seed)
    generator = LoadGenerator(
        plan.target,
        itertools.takewhile(lambda at_s: at_s < plan.span_s, times),
        results,
        warmup_s=plan.warmup_s,
        span_s=plan.span_s,
    )
    watcher = asyncio.create_task(_show_progress(plan, generator, results)) if progress else None
    gc.collect()
    gc.disable()  # a collection would stall all requests in flight; a run creates no cycles
    try:
        await generator.run()
    except OSError as error:
        where = f"{plan.target.host}:{plan.target.port}"
        msg = f"cannot connect to {where}: {error.strerror or error}; is `carpool up` running?"
        raise Unreachable(msg) from error
    finally:
        gc.enable()
        if watcher:
            watcher.cancel()
            _show("")


async def _measure_or_stop(plan: LoadPlan, results: LoadResults) -> bool:
    """Measure until the end or an interrupt; return whether it was interrupted."""
    run = asyncio.create_task(measure(plan, results, progress=sys.stderr.isatty()))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, run.cancel)
    try:
        await run
    except asyncio.CancelledError:
        return True
    return False


def _run(main_task: Coroutine[Any, Any, bool]) -> bool:
    try:
        import uvloop  # noqa: PLC0415 - absent on some systems, where asyncio will do
    except ImportError:
        return asyncio.run(main_task)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main_task)


async def _show_progress(plan: LoadPlan, generator: LoadGenerator, results: LoadResults) -> None:
    while True:
        await asyncio.sleep(_REFRESH_S)
        share = min(1.0, generator.elapsed_s / plan.span_s)
        bar = ("#" * round(share * _BAR_WIDTH)).ljust(_BAR_WIDTH, ".")
        recent = sorted(results.latencies_s[-_RECENT:])
        p99 = f"p99 {1e3 * quantile(recent, 0.99):.1f} ms" if recent else "no answer yet"
        line = (
            f"[{bar}] {min(generator.elapsed_s, plan.span_s):.0f}/{plan.span_s:.0f} s"
            f"  {results.requests} answered  {generator.in_flight} in flight  {p99}"
            f"  {results.errors.total()} errors"
        )
        _show(line)


def _show(line: str) -> None:
    """Replace the last line of the terminal."""
    sys.stderr.write(f"\r\x1b[2K{line}")
    sys.stderr.flush()


def _text(plan: LoadPlan, report: dict[str, Any], examples: Mapping[str, str]) -> str:
    latency = report["latency_ms"]
    lines = [
        f"requests    {report['requests']} ({report['ok']} ok)",
        f"throughput  {report['rps']:.1f} good answers a second",
    ]
    if report["ok"]:
        figures = "  ".join(f"{name} {latency[name]:.2f}" for name in ("mean", *QUANTILES))
        lines.append(f"latency ms  {figures}")
    if report["slo_miss_ratio"] is not None:
        slo = durations.format(plan.slo_s or 0.0)
        lines.append(f"SLO {slo:<7} {report['slo_miss_ratio']:.2%} missed")
    if report["mean_batch"] is not None:
        lines.append(f"mean batch  {report['mean_batch']:.2f}")
    for what, count in report["errors"].items():
        lines.append(f"errors      {count} x {what}")
        if what in examples:
            lines.append(f"            such as {examples[what]}")
    return "\n".join(lines)
