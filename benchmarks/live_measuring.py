"""Measure, rather than assume, how long batches and loading take on the running stack.

One instance of the given size is measured behind a front, as scaled instances are, and always has
more work than it can do. An instance with a part of a core executes a batch faster after a pause,
in which it saves up no more than the present period's share. So only under full load does a batch
show what it takes in the long run (`simulator.quota`). The time of a batch is that from one to the
next. Loading is measured beside busy instances, as it happens when a load has just risen.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import statistics
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import requests

from carpool.basic_auth import credentials_for
from carpool.http.client import Pool
from faas_stack.compare.stack_under_test import write_stand_ins
from faas_stack.partition.cgroup_limits import CgroupLimits
from faas_stack.stack.stack_process import StackFailed, stack_process
from simulator.quota import Quota

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from scaler.scenarios.scenario import Scenario

__all__ = ["FUNCTION", "Model", "measured_model", "measured_stand_in", "stack_of"]

FUNCTION = "mlp"
_COARSE_CLOCK = 6  # Linux's CLOCK_MONOTONIC_COARSE, which advances with each tick
_SPAN_S = 8.0
_WARM_UP_S = 2.0
_READY_S = 60.0
_ROUNDS = 3  # of batches for which there are callers: one runs, one is behind it, one waits
_ALONE, _PAUSE_S = 40, 0.15  # requests that meet no other request, and the time between them
_FULL = 0.9  # of a batch, in the mean, with more callers than it takes
_LOADING = 3  # instances that load at once


@dataclass(frozen=True, slots=True)
class Model:
    """Measured times of a model.

    Attributes:
        base_s, per_item_s: A line fitted to the means of batches of several sizes.
        load_s: From the call that scales to an instance's first readiness.
        means_s: Mean time by batch size.
        alone_s: Mean time of a batch of one after a pause.
        way_s: Time of a lone request outside its execution.
        quota: How the machine hands out parts of a core; None if it does not.
        loading_slows: Relative increase of execution times per loading instance.
    """

    base_s: float
    per_item_s: float
    load_s: float
    means_s: dict[float, float]
    alone_s: float
    way_s: float
    quota: Quota | None
    loading_slows: float = 0.0

    @property
    def single_rps(self) -> float:
        """Requests per second of an instance in batches of one."""
        return 1 / (self.base_s + self.per_item_s)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Model:
        """Restore a model from the result of `to_dict`."""
        own = {field.name: data[field.name] for field in fields(cls) if field.name in data}
        means_s = {float(size): mean_s for size, mean_s in data["means_s"].items()}
        quota = Quota(**data["quota"]) if data["quota"] else None
        return cls(**{**own, "means_s": means_s, "quota": quota})

    def to_dict(self) -> dict[str, Any]:
        """Return the measurements for JSON."""
        return asdict(self)

    @property
    def said(self) -> str:
        """Description of the measurements in words."""
        means = ", ".join(f"{size:.2g}: {1e3 * s:.1f} ms" for size, s in self.means_s.items())
        line = f"{1e3 * self.base_s:.2f} ms and {1e3 * self.per_item_s:.2f} ms a request"
        line += f" under full load (by batch size: {means})" * bool(means)
        line += (
            f", {1e3 * self.alone_s:.1f} ms for one after a pause, {1e3 * self.way_s:.1f} ms on "
            f"the way, {self.load_s:.1f} s to load, in which others take "
            f"{100 * self.loading_slows:.0f} % longer"
        )
        if self.quota is None:
            return line
        return (
            f"{line}; shares are handed out every {1e3 * self.quota.period_s:g} ms, and looked at "
            f"every {1e3 * self.quota.tick_s:g} ms"
        )


def stack_of(handler: Path, cpu: float, slo_ms: float, batch: int, **labels: str) -> Path:
    """Write a stack file with the model as its only function, scaled unless ``labels`` differ."""
    settings = {
        "com.carpool.slo": f"{slo_ms:g}ms",
        "com.carpool.batch.max": str(batch),
        "com.carpool.cpu": f"{cpu:g}",
        "com.carpool.scale.policy": "infless",
        **{f"com.carpool.{name}": text for name, text in labels.items()},
    }
    function = {
        "lang": "python3-onnx-batch",
        "handler": f"./{handler.name}",
        "image": f"{FUNCTION}:latest",
        "labels": settings,
    }
    document = {"provider": {"name": "openfaas"}, "functions": {FUNCTION: function}}
    path = handler.parent / f"stack-{batch}{'-other' * bool(labels)}.yaml"
    path.write_text(json.dumps(document))
    return path


def measured_model(handler: Path, cpu: float, sizes: Sequence[int], body: bytes) -> Model:
    """Measure a model on an instance of ``cpu`` cores, with batches of the given sizes."""
    relaxed = stack_of(handler, cpu, 10_000, max(sizes))  # nothing is late
    means: dict[float, float] = {}
    alone_s = way_s = 0.0
    for size in sizes:
        with _one_instance(relaxed, cpu, size, body) as url:
            if size == 1:
                alone_s, way_s = asyncio.run(_alone(url, body))
            mean_batch, batch_s = asyncio.run(_full_load(url, _ROUNDS * size, body))
            if mean_batch < _FULL * size:
                message = (
                    f"batches of {size} had {mean_batch:.2g} requests: the machine is too busy"
                )
                raise StackFailed(message)
            means[mean_batch] = batch_s
    fixed = stack_of(handler, cpu, 10_000, max(sizes), **{"scale.policy": "fixed"})
    with stack_process(fixed) as running:
        load_s, slows = asyncio.run(_loading(str(running["url"]), body))
    per_item_s, base_s = np.polyfit(list(means), list(means.values()), 1)
    per_item_s = max(float(per_item_s), 1e-6)
    period_s = CgroupLimits(cpu=cpu).period_us / 1e6
    quota = Quota(period_s, time.clock_getres(_COARSE_CLOCK))
    return Model(float(base_s), per_item_s, load_s, means, alone_s, way_s, quota, slows)


def measured_stand_in(scenario: Scenario, folder: Path, cpu: float, body: bytes) -> Model:
    """Measure how much longer a stand-in for a scenario's model takes than intended."""
    model = scenario.functions[0].model
    stacks = []
    for policy in ("infless", "fixed"):
        home = folder / f"measured-{policy}"
        path = write_stand_ins(scenario, home)
        document = json.loads(path.read_text())
        labels = document["functions"][FUNCTION]["labels"]
        scaling = {"com.carpool.scale.policy": policy, "com.carpool.scale.min": "1"}
        document["functions"][FUNCTION]["labels"] = {**labels, **scaling}
        path.write_text(json.dumps(document))
        stacks.append(path)
    scaled, fixed = stacks
    with _one_instance(scaled, cpu, 1, body, "--partition", "off") as url:
        alone_s, way_s = asyncio.run(_alone(url, body))
    with stack_process(fixed, "--partition", "off") as running:
        load_s, slows = asyncio.run(_loading(str(running["url"]), body))
    first_s, second_s = (model.predict(batch, cpu, 0.0) or 0.0 for batch in (1, 2))
    per_item_s, beside_s = second_s - first_s, max(0.0, alone_s - first_s)
    base_s = first_s - per_item_s + beside_s
    return Model(base_s, per_item_s, load_s, {}, alone_s, way_s, None, slows)


@contextmanager
def _one_instance(stack: Path, cpu: float, batch: int, body: bytes, *options: str) -> Iterator[str]:
    """Run a stack with one instance of the given size, and give its URL."""
    size = {"replicas": 1, "cpu": cpu, "batch": batch, "wait_s": 0}
    policy = shlex.join(["--policy", "fixed", "--params", json.dumps(size)])
    with stack_process(stack, "--scaler", policy, *options) as running:
        url = str(running["url"])
        asyncio.run(_planned(url, body))
        yield url


async def _planned(url: str, body: bytes) -> None:
    """Call until the policy's instance is ready and the first one, used to measure, is gone."""
    pool = Pool(url.removeprefix("http://"))
    end_s = time.monotonic() + _READY_S
    while not _settled(url):
        if time.monotonic() > end_s:
            message = f"no instance of the policy's within {_READY_S:g} s"
            raise TimeoutError(message)
        calls = (pool.request("POST", f"/function/{FUNCTION}", [], body, 30.0) for _ in range(4))
        await asyncio.gather(*calls)
    pool.close()


def _settled(url: str) -> bool:
    listed = requests.get(f"{url}/system/functions", auth=credentials_for(url), timeout=10).json()
    ready = {
        document["name"]: document.get("availableReplicas")
        for document in listed
        if document["name"].startswith(f"{FUNCTION}--")
    }
    return list(ready.values()) == [1] and f"{FUNCTION}--first" not in ready


async def _alone(url: str, body: bytes) -> tuple[float, float]:
    """Return the mean execution time of lone requests, and the median of their remaining time."""
    pool = Pool(url.removeprefix("http://"))
    executions, ways = [], []
    for number in range(_ALONE):
        await asyncio.sleep(_PAUSE_S * (0.5 + number / _ALONE))  # at all moments of the period
        began_s = time.perf_counter()
        headers = [("x-carpool-explain", "1")]
        answer = await pool.request("POST", f"/function/{FUNCTION}", headers, body, 30.0)
        took_s = time.perf_counter() - began_s
        exec_s = float(answer.header(b"x-carpool-exec-seconds") or b"nan")
        executions.append(exec_s)
        ways.append(took_s - exec_s)
    pool.close()
    return statistics.fmean(executions), statistics.median(ways)


async def _full_load(url: str, callers: int, body: bytes) -> tuple[float, float]:
    """Return the mean batch size and the time from one batch to the next under full load."""
    pool = Pool(url.removeprefix("http://"), max_connections=callers + 1)
    loading = asyncio.ensure_future(_calling(pool, callers, body))
    await asyncio.sleep(_WARM_UP_S)
    before, began_s = await _sums(pool, url), time.perf_counter()
    await asyncio.sleep(_SPAN_S)
    after, ended_s = await _sums(pool, url), time.perf_counter()
    await _ended(loading)
    pool.close()
    batches, items = (new - old for new, old in zip(after, before, strict=True))
    return items / batches, (ended_s - began_s) / batches


async def _loading(url: str, body: bytes) -> tuple[float, float]:
    """Return the loading time of instances beside a busy one, and by how much each slows it."""
    pool = Pool(url.removeprefix("http://"), max_connections=_ROUNDS)
    answers: list[float] = []
    loading = asyncio.ensure_future(_calling(pool, _ROUNDS, body, answers))
    await asyncio.sleep(_WARM_UP_S + _SPAN_S)
    began_s = time.monotonic()
    await asyncio.to_thread(_scale, url, 1 + _LOADING)
    took_s: list[float] = []
    while len(took_s) < _LOADING:
        ready = await asyncio.to_thread(_available, url)
        took_s += [time.monotonic() - began_s] * (ready - 1 - len(took_s))
        if time.monotonic() > began_s + _READY_S:
            message = f"{ready} of {1 + _LOADING} instances within {_READY_S:g} s"
            raise TimeoutError(message)
        await asyncio.sleep(0.02)
    await _ended(loading)
    pool.close()
    before = sum(began_s - _SPAN_S < at_s <= began_s for at_s in answers) / _SPAN_S
    during = sum(began_s < at_s <= began_s + took_s[0] for at_s in answers) / took_s[0]
    slows = max(0.0, before / during - 1) / _LOADING
    return statistics.fmean(took_s), slows


async def _calling(
    pool: Pool, callers: int, body: bytes, answers: list[float] | None = None
) -> None:
    """Send requests from concurrent callers, one at a time each, and note when responses arrive."""

    async def call() -> None:
        while True:
            await pool.request("POST", f"/function/{FUNCTION}", [], body, 30.0)
            if answers is not None:
                answers.append(time.monotonic())

    await asyncio.gather(*(call() for _ in range(callers)))


async def _ended(task: asyncio.Future[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _scale(url: str, replicas: int) -> None:
    document = {"serviceName": FUNCTION, "replicas": replicas}
    path = f"{url}/system/scale-function/{FUNCTION}"
    answer = requests.post(path, json=document, auth=credentials_for(url), timeout=10)
    answer.raise_for_status()


def _available(url: str) -> int:
    path = f"{url}/system/function/{FUNCTION}"
    answer: dict[str, Any] = requests.get(path, auth=credentials_for(url), timeout=10).json()
    return int(answer.get("availableReplicas") or 0)


async def _sums(pool: Pool, url: str) -> tuple[float, float]:
    """Return the numbers of batches and of requests in them so far."""
    pair = credentials_for(url)
    headers = [pair.header] if pair else []
    answer = await pool.request("GET", f"/function/{FUNCTION}/metrics", headers, b"", 10.0)
    values = {}
    for line in answer.body.decode().splitlines():
        name, _, value = line.rpartition(" ")
        values[name.partition("{")[0]] = float(value) if name[:1] != "#" else 0.0
    return values["batch_execution_seconds_count"], values["batch_size_sum"]
