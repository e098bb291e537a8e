"""What batches and loading take on the running stack: measured, not assumed.

One instance of the size in question answers as many callers at once as a batch is to have, behind
a front, as scaled instances are: what is done for each request is done there, and not within the
instance's limits. The front counts batches and the time they took.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import requests

from carpool.http.client import Pool
from faas_stack.stack_process import stack_process

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["FUNCTION", "Model", "measured_model", "stack_of"]

FUNCTION = "mlp"
_SPAN_S = 8.0
_WARM_UP_S = 2.0
_READY_S = 60.0


@dataclass(frozen=True, slots=True)
class Model:
    """What was measured.

    Attributes:
        base_s, per_item_s: A line through the means of batches of several sizes.
        load_s: From the call that scales to the instance's first readiness.
        means_s: The mean of each size of batch.
    """

    base_s: float
    per_item_s: float
    load_s: float
    means_s: dict[float, float]

    @property
    def single_rps(self) -> float:
        """What an instance takes of single requests."""
        return 1 / (self.base_s + self.per_item_s)

    @property
    def said(self) -> str:
        """In words."""
        means = ", ".join(f"{size:.2g}: {1e3 * s:.1f} ms" for size, s in self.means_s.items())
        line = f"{1e3 * self.base_s:.2f} ms and {1e3 * self.per_item_s:.2f} ms a request"
        return f"{line}, {self.load_s:.1f} s to load (mean times by batch size: {means})"


def stack_of(handler: Path, cpu: float, slo_ms: float, batch: int, **labels: str) -> Path:
    """A stack file with the model as its one function, scaled unless ``labels`` say otherwise."""
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
    path = handler.parent / f"stack{'-fixed' * bool(labels)}.yaml"
    path.write_text(json.dumps(document))
    return path


def measured_model(stack: Path, body: bytes) -> Model:
    """Measure the model of ``stack`` on an instance of its size."""
    document = json.loads(stack.read_text())
    labels = document["functions"][FUNCTION]["labels"]
    batch = int(labels["com.carpool.batch.max"])
    labels["com.carpool.slo"] = "10s"  # nothing is late while it is measured
    relaxed = stack.parent / "stack-relaxed.yaml"
    relaxed.write_text(json.dumps(document))
    size = {"replicas": 1, "cpu": float(labels["com.carpool.cpu"]), "batch": batch, "wait_s": 0}
    policy = shlex.join(["--policy", "fixed", "--params", json.dumps(size)])
    callers = sorted({1, batch, 2 * batch})  # twice as many: each batch that leaves is full
    with stack_process(relaxed, "--scaler", policy) as found:
        url = str(found["url"])
        asyncio.run(_planned(url, body))
        means = dict(asyncio.run(_batches(url, count, body)) for count in callers)
    labels["com.carpool.scale.policy"] = "fixed"
    fixed = stack.parent / "stack-fixed.yaml"
    fixed.write_text(json.dumps(document))
    with stack_process(fixed) as found:
        load_s = _load_s(str(found["url"]))
    per_item_s, base_s = np.polyfit(list(means), list(means.values()), 1)
    return Model(float(base_s), max(float(per_item_s), 1e-6), load_s, means)


async def _planned(url: str, body: bytes) -> None:
    """Call until the one instance is the policy's: the first is there to be measured."""
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
    listed = requests.get(f"{url}/system/functions", timeout=10).json()
    ready = {
        document["name"]: document.get("availableReplicas")
        for document in listed
        if document["name"].startswith(f"{FUNCTION}--")
    }
    return list(ready.values()) == [1] and f"{FUNCTION}--first" not in ready


def _load_s(url: str) -> float:
    """How long a second instance takes, which is taken back."""
    began_s = time.monotonic()
    _scale(url, 2)
    while _available(url) < 2:  # noqa: PLR2004  the second
        if time.monotonic() > began_s + _READY_S:
            message = f"no second instance within {_READY_S:g} s"
            raise TimeoutError(message)
    load_s = time.monotonic() - began_s
    _scale(url, 1)
    return load_s


def _scale(url: str, replicas: int) -> None:
    document = {"serviceName": FUNCTION, "replicas": replicas}
    answer = requests.post(f"{url}/system/scale-function/{FUNCTION}", json=document, timeout=10)
    answer.raise_for_status()


def _available(url: str) -> int:
    answer: dict[str, Any] = requests.get(f"{url}/system/function/{FUNCTION}", timeout=10).json()
    return int(answer.get("availableReplicas") or 0)


async def _batches(url: str, callers: int, body: bytes) -> tuple[float, float]:
    """The mean size of batches, and the mean time they take, with so many callers."""
    pool = Pool(url.removeprefix("http://"), max_connections=callers + 1)

    async def call_until(end_s: float) -> None:
        while time.monotonic() < end_s:
            await pool.request("POST", f"/function/{FUNCTION}", [], body, 30.0)

    async def all_until(end_s: float) -> None:
        await asyncio.gather(*(call_until(end_s) for _ in range(callers)))

    await all_until(time.monotonic() + _WARM_UP_S)
    before = await _sums(pool)
    await all_until(time.monotonic() + _SPAN_S)
    after = await _sums(pool)
    pool.close()
    batches, exec_s, seats = (new - old for new, old in zip(after, before, strict=True))
    return seats / batches, exec_s / batches


async def _sums(pool: Pool) -> tuple[float, float, float]:
    """Batches, the seconds they took and the requests in them, so far."""
    answer = await pool.request("GET", f"/function/{FUNCTION}/metrics", [], b"", 10.0)
    values = {}
    for line in answer.body.decode().splitlines():
        name, _, value = line.rpartition(" ")
        values[name.partition("{")[0]] = float(value) if name[:1] != "#" else 0.0
    return (
        values["batch_execution_seconds_count"],
        values["batch_execution_seconds_sum"],
        values["batch_size_sum"],
    )
