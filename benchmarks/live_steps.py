"""Measure how soon instances follow a step of the load on the running stack, step after step.

The model of `benchmarks.live` under `infless`, with batches of up to 4 on quarters of a core, and a
load that repeatedly jumps from one and a half times the single requests that an instance can serve
to four times that. In between the instances are removed, as the stabilization window is short. The
provider's list is read every 25 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import shlex
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.live_measuring import FUNCTION, measured_model, stack_of
from benchmarks.live_scenario import BODY, Size, model_folder, written_scenario
from benchmarks.machine import commit, machine
from carpool.basic_auth import credentials_for
from carpool.http.client import Pool
from faas_stack.compare.policy_run import Request
from faas_stack.load.generator import LoadGenerator, Target
from faas_stack.load.results import LoadResults
from faas_stack.stack.stack_process import stack_process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.live_measuring import Model

__all__ = ["main"]

_RESULTS = Path(__file__).parent / "results" / "live_steps.md"
_CPU, _SLO_MS, _BATCH = 0.25, 400.0, 4
_LOW, _HIGH = 1.5, 4.2  # times what one instance takes of single requests
_CALM_S, _LOW_S, _HIGH_S = 25.0, 18.0, 8.0  # before the first step, before the others, after each
_HOLD = "3s"
_LOOK_S = 0.025
_TARGET_S = 2.0


@dataclass(frozen=True, slots=True)
class Look:
    """Instances requested and instances ready at a moment."""

    at_s: float
    asked: int
    ready: int


def main(argv: list[str]) -> int:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks live-steps", description=__doc__)
    parser.add_argument("--out", type=Path, default=_RESULTS, help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=6, help="how many (default: %(default)s)")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="carpool-steps-") as folder:
        handler = model_folder(Path(folder))
        model = measured_model(handler, _CPU, (1, _BATCH), BODY)
        sys.stderr.write(f"measured: {model.said}\n")
        rates = [(0, _LOW * model.single_rps)]
        scenario = written_scenario(handler.parent, model, rates, 60, Size(_BATCH, _CPU, _SLO_MS))
        flags = ("--policy", "infless", "--scenario", str(scenario), "--hold", _HOLD)
        stored = ("--store", str(Path(folder) / "scaler.db"))
        stack = stack_of(handler, _CPU, _SLO_MS, _BATCH)
        with stack_process(stack, "--scaler", shlex.join([*flags, *stored])) as running:
            url = str(running["url"]).removeprefix("http://")
            steps, looks = asyncio.run(_stepped(url, model, args.steps))
    text = _page(model, steps, looks)
    args.out.write_text(text)
    sys.stdout.write(text)
    return 0


async def _stepped(url: str, model: Model, count: int) -> tuple[list[float], list[Look]]:
    """Return the times of the steps, and the observations of instances."""
    low_rps, high_rps = _LOW * model.single_rps, _HIGH * model.single_rps
    random = np.random.default_rng(7)
    spans = [(low_rps, _CALM_S + random.random())]
    for _ in range(count):  # at no fixed phase of any interval
        spans += [(high_rps, _HIGH_S + random.random()), (low_rps, _LOW_S + random.random())]
    ends = np.cumsum([span_s for _, span_s in spans]).tolist()
    host, _, port = url.rpartition(":")
    whole = Request("", BODY).to_bytes(url, FUNCTION, "web")
    target = Target(host, int(port), [whole], 512, 60.0)
    generator = LoadGenerator(target, _arrivals(spans, random), LoadResults(slo_s=_SLO_MS / 1e3))
    looks: list[Look] = []
    watching = asyncio.ensure_future(_watch(url, looks))
    began_s = time.perf_counter()
    await generator.run()
    watching.cancel()
    return [began_s + end_s for end_s in ends[:-1:2]], looks


def _arrivals(spans: list[tuple[float, float]], random: np.random.Generator) -> Iterator[float]:
    """Yield Poisson arrivals at one rate after the other."""
    began_s = 0.0
    for rate_rps, span_s in spans:
        count = random.poisson(rate_rps * span_s)
        yield from sorted(random.uniform(began_s, began_s + span_s, count))
        began_s += span_s


async def _watch(url: str, looks: list[Look]) -> None:
    pool, pair = Pool(url, max_connections=1), credentials_for(url)
    headers = [pair.header] if pair else []
    while True:
        answer = await pool.request("GET", "/system/functions", headers, b"", 10.0)
        classes = [each for each in json.loads(answer.body) if "--" in each["name"]]
        asked = sum(each.get("replicas") or 0 for each in classes)
        ready = sum(each.get("availableReplicas") or 0 for each in classes)
        looks.append(Look(time.perf_counter(), asked, ready))
        await asyncio.sleep(_LOOK_S)


def _page(model: Model, steps: list[float], looks: list[Look]) -> str:
    about = machine()
    low_rps, high_rps = _LOW * model.single_rps, _HIGH * model.single_rps
    rows, slowest_s = [], 0.0
    for number, step_s in enumerate(steps, start=1):
        before = [look for look in looks if look.at_s < step_s][-1]
        after = [look for look in looks if step_s <= look.at_s < step_s + _HIGH_S]
        asked_s = _first(after, step_s, [look.asked > before.asked for look in after])
        ready_s = _first(after, step_s, [look.ready > before.ready for look in after])
        most = max(look.asked for look in after)
        rows.append(f"| {number} | {before.asked} | {most} | {_said(asked_s)} | {_said(ready_s)} |")
        slowest_s = max(slowest_s, asked_s)
    verdict = "Reached." if slowest_s <= _TARGET_S else "**Not reached.**"
    return "\n".join(
        [
            "# Steps of the load\n",
            (
                f"`python -m benchmarks live-steps` at {commit()}, on {about['cores']} cores "
                f"({about['cpu']}), load before {about['load_before']}. `infless`, batches of up "
                f"to {_BATCH} on {_CPU:g} cores, objective {_SLO_MS:g} ms; {model.said}. Steps "
                f"from {low_rps:.0f}/s to {high_rps:.0f}/s.\n"
            ),
            "| step | instances before | asked for | first one asked for after | ready after |",
            "|---:|---:|---:|---:|---:|",
            *rows,
            (
                f"\nInstances follow within {_TARGET_S:g} s of a step: {_said(slowest_s)} at the "
                f"slowest. {verdict}\n"
            ),
        ]
    )


def _first(after: list[Look], step_s: float, held: list[bool]) -> float:
    """Return the time from the step until the condition first held, or infinity if it never did."""
    times = (look.at_s - step_s for look, so in zip(after, held, strict=True) if so)
    return next(times, math.inf)


def _said(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds < _HIGH_S else "none"
