"""Measure how long a running front takes to find the variant for a request, by its own metric.

A front as started by ``carpool up``, a process that serves HTTP, follows a plan that offers 10 to
10 000 variants, two of which run. Requests state different needs in headers, many of which cannot
be met. The front counts how long each choice takes, ``batch_selection_seconds``: from the parsed
request to the class that may serve it, or to the finding that none can, with the name under which
the demand is counted.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.http.client import ConnectionFailed, Pool
from carpool.plan import InstanceClass, OnOffer, Plan, Route
from carpool.sync import SyncAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from carpool.variants.selection import Profile

__all__ = ["measured_live"]

_ROOT = Path(__file__).resolve().parents[1]
_HANDLER = _ROOT / "tests" / "services" / "scripted_handler.py"
_FUNCTION = "objects"
_RUNNING = 2
_CALLERS = 32
_START_S = 60.0
_SERIES = "batch_selection_seconds_bucket"
_US_PER_S = 1e6


def measured_live(
    kind: str, draw: Callable[[random.Random, str], Profile], count: int, requests: int
) -> str:
    """Return a line of results for ``count`` variants, as drawn by ``draw``."""
    chance = random.Random(count)
    profiles = [draw(chance, f"v{number}") for number in range(count)]
    with tempfile.TemporaryDirectory(prefix="carpool-selection-") as folder:
        place = Path(folder)
        running = chance.sample(profiles, _RUNNING)
        for number in range(_RUNNING):
            (place / f"i{number}").mkdir()
        plan = _plan(profiles, running)
        there = {each.name: (f"unix:{place}/i{n}/s",) for n, each in enumerate(running)}
        (place / "plan.json").write_bytes(SyncAnswer(0.5, "1", plan, there).to_json())
        with _started(place, [each.name for each in running]):
            statuses, text = asyncio.run(_asked(f"unix:{place}/front", chance, profiles, requests))
    p50, p99, total = _quantile(text, 0.5), _quantile(text, 0.99), statuses.total()
    share = statuses[200] / total
    return f"{kind:14}{count:>9}{p50:>9.1f}{p99:>9.1f}{total:>10}{share:>10.1%}\n"


def _plan(profiles: list[Profile], running: list[Profile]) -> Plan:
    """Return a plan that offers all variants and has an instance of each running one."""
    classes = tuple(
        InstanceClass(each.name, cpu=1, batch_size=8, replicas=1, variant=each.name)
        for each in running
    )
    routes = (Route("*", {running[0].name: 1.0}, 0.0),)
    offers = tuple(
        OnOffer(p.name, p.name, p.accuracy, p.latency_s, p.cost, p.load_s) for p in profiles
    )
    return Plan(_FUNCTION, 1, "infaas", classes, routes, variants=offers)


@contextmanager
def _started(place: Path, names: list[str]) -> Iterator[None]:
    """Run a front that resumes from the stored plan, and instances behind it."""
    common = {
        **os.environ,
        "PYTHONPATH": str(_ROOT),
        "sidecar_watchdog": "off",
        "sidecar_scaler": f"unix:{place}/unused",
        "sidecar_scaler_token": "unused",
        "sidecar_function": _FUNCTION,
        "fprocess": f"{sys.executable} {_HANDLER}",
    }
    front = {"sidecar_listen": f"unix:{place}/front", "sidecar_plan_folder": str(place)}
    others = [
        {"sidecar_listen": f"unix:{place}/i{number}/s", "sidecar_class": name}
        for number, name in enumerate(names)
    ]
    with (place / "log").open("wb") as log:
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "sidecar"],
                cwd=_ROOT,
                env={**common, **own},
                stdout=log,
                stderr=log,
            )
            for own in (*others, front)
        ]
        try:
            yield
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(30)


async def _asked(
    address: str, chance: random.Random, profiles: list[Profile], requests: int
) -> tuple[Counter[int], str]:
    """Send requests with random needs; return counts by status, and the front's metrics."""
    pool = Pool(address, max_connections=_CALLERS)
    await _until_ready(pool)
    dearest = max(profile.cost for profile in profiles)
    statuses: Counter[int] = Counter()
    left = iter(range(requests))

    async def call() -> None:
        for _ in left:
            headers = (
                ("x-carpool-latency", f"{chance.uniform(1, 1200):.3f}ms"),
                ("x-carpool-accuracy", f"{chance.random():.6f}"),
                ("x-carpool-cost", f"{chance.uniform(0.001, dearest):.6g}"),
            )
            answer = await pool.request("POST", "/", headers, b"ok", 30.0)
            statuses[answer.status] += 1

    await asyncio.gather(*(call() for _ in range(_CALLERS)))
    text = (await pool.request("GET", "/metrics")).body.decode()
    pool.close()
    return statuses, text


async def _until_ready(pool: Pool) -> None:
    until_s = time.monotonic() + _START_S
    while time.monotonic() < until_s:
        try:
            if (await pool.request("GET", "/_/ready", timeout_s=5.0)).status == 200:  # noqa: PLR2004
                return
        except ConnectionFailed:
            pass
        await asyncio.sleep(0.1)
    message = f"the front is not ready after {_START_S:g} s"
    raise TimeoutError(message)


def _quantile(text: str, share: float) -> float:
    """Return a quantile in microseconds, as Prometheus's ``histogram_quantile`` computes it."""
    steps = []
    for line in text.splitlines():
        if line.startswith(_SERIES):
            label, _, value = line.rpartition(" ")
            steps.append((float(label.split('le="')[1].rstrip('"}')), float(value)))
    wanted = share * steps[-1][1]
    low_s = below = 0.0
    for high_s, counted in steps:
        if counted >= wanted:
            part = (wanted - below) / (counted - below) if counted > below else 1.0
            return (low_s + (high_s - low_s) * part) * _US_PER_S
        low_s, below = high_s, counted
    return low_s * _US_PER_S
