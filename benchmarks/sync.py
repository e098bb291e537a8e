"""Measure how many sidecars one scaler serves: ``python -m benchmarks.sync``.

Synthetic sidecars, a tenth of them fronts, send messages to a real scaler, each on a connection of
its own and at its own point of the interval. The scaler's gateway is a stand-in that lists the
functions and accepts every change. Latency counts from the time at which a message was due, so that
a scaler that falls behind is noticed. Sidecars keep the interval given here; the one that the
scaler sets is printed beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import resource
import signal
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from carpool.errors import CarpoolError
from carpool.http.client import Pool
from carpool.http.server import serve
from carpool.sync import PATH, Announcement, AppReport, ClassReport, FrontReport, InstanceReport

if TYPE_CHECKING:
    from carpool.http.server import Exchange

_FUNCTIONS = 100
_FRONTS = 0.1
_CLASS = "b8-c1"
_START_S = 20.0
_TOKEN = "of-the-benchmark"
_SHOWN = [("authorization", f"Bearer {_TOKEN}")]


class Gateway:
    """Stand-in gateway that lists functions and the classes deployed to it."""

    def __init__(self) -> None:
        self.functions: dict[str, dict[str, Any]] = {
            f"f{number}": {
                "name": f"f{number}",
                "image": "x",
                "replicas": 1,
                "availableReplicas": 1,
                "labels": {
                    "com.carpool.slo": "200ms",
                    "com.carpool.scale.policy": "infless",
                    "com.carpool.batch.max": "8",
                },
            }
            for number in range(_FUNCTIONS)
        }

    def __call__(self, exchange: Exchange) -> None:
        """Respond as the OpenFaaS API would."""
        if exchange.method == "GET":
            exchange.reply(200, json.dumps(list(self.functions.values())).encode())
            return
        document = json.loads(exchange.body)
        if "service" in document:
            name = document["service"]
            self.functions[name] = {**document, "name": name, "replicas": 0}
        elif "replicas" in document:
            self.functions[document["serviceName"]]["replicas"] = document["replicas"]
        else:
            self.functions.pop(document["functionName"], None)
        exchange.reply(202)


class Sidecar:
    """Synthetic sidecar that reports at its own moments."""

    def __init__(self, number: int, scaler: str) -> None:
        self._function = f"f{number % _FUNCTIONS}"
        self._front = number // _FUNCTIONS % round(1 / _FRONTS) == 0
        self._number = number
        self._sequence = 0
        self._pool = Pool(scaler, max_connections=1, idle_s=300.0)
        self.told_s = 0.0

    def _message(self, interval_s: float) -> bytes:
        self._sequence += 1
        sender = f"sender{self._number:06}"
        if not self._front:
            where = f"10.0.{self._number // 250}.{self._number % 250}:8080"
            said = Announcement(self._function, sender, self._sequence, _CLASS, where, "ready", 2.0)
            return said.to_json()
        instances = tuple(
            InstanceReport(
                f"10.0.{k}.{self._number % 250}:8080",
                _CLASS,
                up=True,
                in_flight=1,
                idle_s=0.01,
                item_count=0,
            )
            for k in range(9)
        )
        report = FrontReport(
            self._function,
            sender,
            self._sequence,
            "",
            None,
            interval_s,
            None,
            3,
            False,  # noqa: FBT003
            (AppReport("*", 100),),
            (ClassReport(_CLASS, 20, 100, 1.0, 0.02, 0.002),),
            instances,
            {3: 4, 5: 1},
            {"done": 100},
        )
        return report.to_json()

    async def speak(self, interval_s: float, until_s: float, took: list[float]) -> None:
        """Report until ``until_s``, adding the time of each exchange to ``took``."""
        loop = asyncio.get_running_loop()
        due_s = loop.time() + random.random() * interval_s
        while due_s < until_s:
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            try:
                message = self._message(interval_s)
                answer = await self._pool.request("POST", PATH, _SHOWN, message, 30.0)
            except (CarpoolError, TimeoutError):
                took.append(float("inf"))
            else:
                good = answer.status == 200  # noqa: PLR2004
                took.append(loop.time() - due_s if good else float("inf"))
                if good:
                    self.told_s = json.loads(answer.body)["interval_s"]
            due_s += interval_s

    def close(self) -> None:
        """Close the connection."""
        self._pool.close()


async def measure(sidecars: int, interval_s: float, duration_s: float) -> dict[str, Any]:
    """Measure one number of sidecars."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    gc.disable()  # a pause here would be taken for one there
    with tempfile.TemporaryDirectory() as folder:
        gateway = await serve(Gateway(), listen="127.0.0.1:0")
        address = f"unix:{folder}/scaler"
        token = Path(folder, "token")
        await asyncio.to_thread(token.write_text, _TOKEN, "utf-8")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "carpool", "scaler", "run", "--listen", address),
            *("--gateway", f"http://{gateway.address}", "--store", f"{folder}/scaler.db"),
            *("--token-file", str(token)),
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            await _until_it_knows(address)
            return await _measured(address, process.pid, sidecars, interval_s, duration_s)
        finally:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            await process.wait()
            await gateway.stop()


async def _until_it_knows(address: str) -> None:
    pool = Pool(address)
    async with asyncio.timeout(_START_S):
        while True:
            with suppress(CarpoolError):
                answer = await pool.request("GET", "/v1/functions", _SHOWN, timeout_s=5.0)
                if len(json.loads(answer.body)["functions"]) == _FUNCTIONS:
                    break
            await asyncio.sleep(0.05)
    pool.close()


async def _measured(
    address: str, pid: int, count: int, interval_s: float, duration_s: float
) -> dict[str, Any]:
    sidecars = [Sidecar(number, address) for number in range(count)]
    loop, took = asyncio.get_running_loop(), list[float]()
    warm: list[float] = []
    until_s = loop.time() + interval_s
    await asyncio.gather(*(each.speak(interval_s, until_s, warm) for each in sidecars))
    busy_s, began_s = _processor_s(pid), time.monotonic()
    until_s = loop.time() + duration_s
    await asyncio.gather(*(each.speak(interval_s, until_s, took) for each in sidecars))
    elapsed_s = time.monotonic() - began_s
    busy_s = _processor_s(pid) - busy_s
    round_ms = await _round_ms(address)
    told = statistics.median(each.told_s for each in sidecars)
    for each in sidecars:
        each.close()
    took.sort()
    return {
        "sidecars": count,
        "per_second": round(len(took) / elapsed_s),
        "failed": sum(t == float("inf") for t in took),
        "p50_ms": round(took[len(took) // 2] * 1000, 1),
        "p99_ms": round(took[int(len(took) * 0.99)] * 1000, 1),
        "processor_share": round(busy_s / elapsed_s, 2),
        "round_ms": round_ms,
        "told_s": told,
    }


async def _round_ms(address: str) -> float:
    pool = Pool(address)
    answer = await pool.request("GET", "/metrics", _SHOWN, timeout_s=10.0)
    lines = answer.body.decode().splitlines()
    pool.close()
    values = {line.split()[0]: float(line.split()[1]) for line in lines if line[0] != "#"}
    return round(1000 * values["scaler_rounds_seconds_total"] / values["scaler_rounds_total"], 1)


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Measure, and print a JSON line for each number of sidecars."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sidecars", type=int, action="append")
    parser.add_argument("--interval", type=float, default=5.0)
    parser.add_argument("--duration", type=float, default=20.0)
    args = parser.parse_args()
    for count in args.sidecars or [1_000, 10_000]:
        result = uvloop.run(measure(count, args.interval, args.duration))
        print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
