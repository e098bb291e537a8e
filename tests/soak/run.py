"""One soak from its first request to the sidecar's end, and its report."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tests.soak.asked import Kind, stream
from tests.soak.cluster import Cluster
from tests.soak.fire import Fire
from tests.soak.tally import counted, flat

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.soak.fire import Wanted

__all__ = ["Report", "soak"]

_LAST_WAVE = 64
_WAIT_S = 120.0
_FILES_OF_AN_INSTANCE = 3  # two batches and a probe
_NEVER_SAID = ("Exception in callback", "never retrieved", "internal error", "application failed")


@dataclass(slots=True)
class Report:
    """The result of a soak; fields are 0 if the sidecar died before they were measured.

    Attributes:
        answers: Answers by kind of request and status.
        left: Clients that left before their answer, and ``cut_off``: in their request.
        kills: Handlers killed, and ``deaths``: including those that died of a request.
        batches: Number of batches, and ``batches_seen``: looked up in the ledger.
        memory_mib: Memory at the beginning, and the maximum.
        memory_growth_mib: Growth from the second third to the last.
        open_files_growth: File descriptors at the end, minus those before the first request.
        metrics: The sidecar's own, at the end.
        violations: Number of expectations that were not met, and ``violated``: the first of them.
    """

    requests: int
    seconds: float
    answers: dict[str, int]
    left: int
    cut_off: int
    kills: int
    deaths: int
    plans: int
    batches_seen: int
    memory_mib: tuple[float, float]
    violations: int
    violated: list[str]
    batches: int = 0
    memory_growth_mib: float = 0.0
    open_files_growth: int = 0
    exit_code: int = 0
    metrics: dict[str, float] | None = None


async def soak(wanted: Wanted, progress: Callable[[str], None] = lambda _: None) -> Report:
    """Run a soak.

    Args:
        wanted: The size of the soak.
        progress: Called with a line from time to time.
    """
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        async with Cluster(Path(name), wanted.handlers) as cluster:
            addresses = [each["address"] for each in await cluster.look("/v1/instances")]
            files, mib, began_s = cluster.open_files(), cluster.memory_mib(), time.monotonic()
            fire = Fire(wanted, cluster, addresses, progress)
            await fire.burn()
            report = _report(fire, cluster, time.monotonic() - began_s, mib)
            if cluster.running:
                await _settle(report, fire, cluster, files)
                await _end(report, fire, cluster)
            else:
                fire.tally.violated("the sidecar ended in the middle of it")
            fire.tally.violated(*_said(cluster.log))
    report.violations, report.violated = fire.tally.violations, fire.tally.shown
    return report


def _report(fire: Fire, cluster: Cluster, seconds: float, mib: float) -> Report:
    tally = fire.tally
    answers = sorted(tally.answers.items(), key=lambda item: -item[1])
    return Report(
        requests=tally.asked,
        seconds=round(seconds, 1),
        answers={f"{kind.value}: {status}": count for (kind, status), count in answers},
        left=tally.left,
        cut_off=tally.cut_off,
        kills=cluster.kills,
        deaths=cluster.deaths,
        plans=len(fire.planner.drawn),
        batches_seen=fire.ledger.seen,
        memory_mib=(round(mib, 1), round(max((s.mib for s in fire.samples), default=mib), 1)),
        violations=0,
        violated=[],
    )


async def _settle(report: Report, fire: Fire, cluster: Cluster, files_before: int) -> None:
    """Wait for the last batches; then all counts must agree."""
    metrics = await cluster.metrics()
    with contextlib.suppress(TimeoutError):  # what stays is told by the counters
        async with asyncio.timeout(_WAIT_S):
            while metrics["batch_queue_requests"] or metrics["batch_in_flight"]:
                await asyncio.sleep(0.05)
                metrics = await cluster.metrics()
    await fire.look()
    report.batches_seen, report.batches = fire.ledger.seen, int(metrics["batch_size_count"])
    report.metrics = {name: value for name, value in metrics.items() if "_bucket" not in name}
    report.memory_growth_mib, grown = flat(fire.samples, report.requests)
    fire.tally.violated(*counted(fire.tally, metrics), *fire.ledger.wrong, *grown)
    report.open_files_growth = files = cluster.open_files() - files_before
    most = _FILES_OF_AN_INSTANCE * len(fire.planner.addresses) + 1
    if files > most:
        fire.tally.violated(f"{files} more open files than at first: expected {most} at most")


async def _end(report: Report, fire: Fire, cluster: Cluster) -> None:
    """Send SIGTERM while handlers are stopped: all requests are answered, the exit code is 0."""
    cluster.signal_handlers(signal.SIGSTOP)
    before = await _departed(cluster)
    asks = [
        asyncio.create_task(fire.ask(number, [asked]))
        for number, asked in enumerate(stream(Random(0), _LAST_WAVE, Kind.PLAIN))
    ]
    try:
        async with asyncio.timeout(_WAIT_S):
            while await _departed(cluster) + await _waiting(cluster) < before + _LAST_WAVE:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            cluster.terminate()
            while "draining" not in cluster.said():  # noqa: ASYNC110 - another process changes it
                await asyncio.sleep(0.02)
    except TimeoutError:
        fire.tally.violated("the last requests were not taken in, or SIGTERM was not noticed")
    finally:
        cluster.signal_handlers(signal.SIGCONT)
    await asyncio.gather(*asks)
    report.exit_code = await cluster.exit_code(_WAIT_S)
    if report.exit_code != 0:
        fire.tally.violated(f"exit code {report.exit_code} after SIGTERM: expected 0")


async def _departed(cluster: Cluster) -> float:
    """Return the number of requests that have left in batches, counting repeated departures."""
    return (await cluster.metrics())["batch_wait_seconds_count"]


async def _waiting(cluster: Cluster) -> float:
    return (await cluster.metrics())["batch_queue_requests"]


def _said(log: Path) -> list[str]:
    """Return lines of the sidecar's log that must not occur."""
    lines = log.read_text("utf-8", "replace").splitlines()
    return [f"the log: {line}" for line in lines if any(word in line for word in _NEVER_SAID)]
