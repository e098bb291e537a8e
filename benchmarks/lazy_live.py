"""The executor `lazy` behind a real sidecar: ``python -m benchmarks lazy --live``.

The models are ResNet-50, an encoder and a stack of LSTM layers in stages, and the two example
models that generate step by step. The same open-loop generator drives `none`, `deadline`, `fixed`
with several windows, and `lazy`, at shares of the model's capacity in full batches. Outputs have
the four lengths of the paper's authors' public prototype. The latency of a lone request is reported
too: no way of batching can be faster on average.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import uvloop

from benchmarks import operator_models
from benchmarks.launch import free_port
from benchmarks.layers import Layers
from benchmarks.lazy_floor import LENGTHS
from carpool.errors import CarpoolError
from carpool.process.child import end
from examples import models, sequences
from faas_stack.load import arrivals
from faas_stack.load.command import measure
from faas_stack.load.flags import LoadPlan
from faas_stack.load.generator import Target
from faas_stack.load.results import LoadResults, quantile
from watchdog_plugin.stage_cutting.cut_planner import CutPlanner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import onnx

__all__ = ["main"]

_ROOT = Path(__file__).parent.parent
LOADS = (0.2, 0.5, 0.9)
WINDOWS_MS = (0, 1, 2, 5, 10)
_SLOS = (2, 3, 5, 10)  # times the latency of a lone request
_READY_S = 120.0
_ROUNDS = 4
_WARM_UP_S = 0.3
_HANDLER = """import numpy as np

def preprocess(item):
    return np.frombuffer(item.body, np.{dtype}).reshape({shape})

def postprocess(outputs):
    return next(iter(outputs.values())).tobytes()
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A model under load."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    batch_max: int
    staged: bool = False
    make: Callable[[], onnx.ModelProto] | None = None  # None: one of the examples'

    def bodies(self) -> list[bytes]:
        """Return distinct inputs, with sequence lengths in proportion to their shares."""
        rng = np.random.default_rng(3)
        if self.dtype == "float32":
            return [rng.standard_normal(self.shape, np.float32).tobytes() for _ in range(8)]
        if self.make is not None:
            return [rng.integers(1, 1000, self.shape).tobytes() for _ in range(8)]
        rows = rng.integers(1, sequences.VOCABULARY, (60, *self.shape))
        rows[:, 0] = np.repeat(list(LENGTHS), [round(60 * share) for share in LENGTHS.values()])
        rng.shuffle(rows)
        return [row.tobytes() for row in rows]


def recurrent_stack() -> onnx.ModelProto:
    """Return a model of four LSTM layers over 48 steps of 128 numbers."""
    net = Layers("stack", ["batch", 48, 128]).transpose((1, 0, 2)).lstm(128, 192)
    for _ in range(3):
        net.lstm(192, 192)
    return net.transpose((1, 0, 2)).model()


CASES = {
    case.name: case
    for case in (
        Case("resnet50", (3, 224, 224), "float32", 8, staged=True),
        Case("encoder", (64,), "int64", 16, staged=True, make=operator_models.transformer),
        Case("lstm", (48, 128), "float32", 16, staged=True, make=recurrent_stack),
        Case("recurrent", (sequences.LENGTH_MAX,), "int64", 16),
        Case("transformer", (sequences.LENGTH_MAX,), "int64", 16),
    )
}


@dataclass(slots=True)
class Row:
    """Results of one run."""

    case: str
    way: str
    load: float
    rate_rps: float
    report: dict[str, Any]
    missed: dict[str, float] = field(default_factory=dict)


def function(case: Case, folder: Path) -> dict[str, Any]:
    """Write a function's files, and return the stages that were tried."""
    if case.make is not None:
        (folder / "model.onnx").write_bytes(case.make().SerializeToString())
    else:
        for path in models.build(case.name).resolve().parent.glob("*.onnx"):
            (folder / path.name).symlink_to(path)
    (folder / "handler.py").write_text(_HANDLER.format(dtype=case.dtype, shape=case.shape))
    if not case.staged:
        return {}
    planner = CutPlanner(folder / "model.onnx", 1, {})
    cut, tried = planner.best(8, 0.03)
    if cut:
        planner.write(cut, folder / "stages")
    return {"tried": [(each.stages, round(each.trial.loss, 4)) for each in tried]}


@contextlib.contextmanager
def serving(case: Case, folder: Path, settings: dict[str, str]) -> Iterator[int]:
    """Run a sidecar with its handler until the context ends, and give its port once ready.

    Raises:
        CarpoolError: it does not become ready.
    """
    port = free_port()
    env = {
        **os.environ,
        "PYTHONPATH": str(_ROOT),
        "OMP_NUM_THREADS": "1",
        "fprocess": f"{sys.executable} -m watchdog_plugin",
        "function_dir": str(folder),
        "sidecar_listen": f"127.0.0.1:{port}",
        "sidecar_watchdog": "off",
        "carpool_batch_max": str(case.batch_max),
        **settings,
    }
    with (folder.parent / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "sidecar"],
            env=env,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        _until_ready(port)
        yield port
    finally:
        end(process, signal.SIGTERM, grace_s=10)


def _until_ready(port: int) -> None:
    deadline, pause = time.monotonic() + _READY_S, threading.Event()
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/_/ready")
            if connection.getresponse().status == http.HTTPStatus.OK:
                return
        pause.wait(0.1)
    msg = f"no function on port {port} after {_READY_S:g} s"
    raise CarpoolError(msg)


def send(
    port: int,
    bodies: Sequence[bytes],
    rate_rps: float,
    span_s: float,
    tally: LoadResults,
    seed: int = 0,
) -> None:
    """Send Poisson arrivals at a rate, counted in ``tally``."""
    head = "POST / HTTP/1.1\r\nhost: x\r\ncontent-type: application/octet-stream\r\n"
    requests = [f"{head}content-length: {len(b)}\r\n\r\n".encode() + b for b in bodies]
    plan = LoadPlan(
        url=f"http://127.0.0.1:{port}",
        target=Target("127.0.0.1", port, requests, 512, 30.0),
        segments=arrivals.constant(rate_rps, _WARM_UP_S + span_s),
        arrivals="poisson",
        seed=seed,
        warmup_s=_WARM_UP_S,
        span_s=_WARM_UP_S + span_s,
        slo_s=None,
        as_json=False,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(measure(plan, tally))


def capacity(port: int, bodies: Sequence[bytes], span_s: float) -> float:
    """Return the responses per second under overload, in batches of any size."""
    low, tally = LoadResults(), LoadResults()
    send(port, bodies, 10.0, 1.0, low)
    send(port, bodies, 12 / max(min(low.latencies_s), 1e-4), span_s / 2, tally)
    return len(tally.latencies_s) / max(tally.elapsed_s, 1e-9)


def alone_ms(port: int, bodies: Sequence[bytes]) -> float:
    """Return the mean latency of requests sent one after the other."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_READY_S)
    headers = {"content-type": "application/octet-stream"}
    began = 0.0
    for number, body in enumerate((bodies[0], *bodies)):
        began = time.monotonic() if number == 1 else began  # the first one warms up
        connection.request("POST", "/", body, headers)
        connection.getresponse().read()
    connection.close()
    return 1000 * (time.monotonic() - began) / len(bodies)


def run(case: Case, loads: Sequence[float], span_s: float) -> tuple[list[Row], dict[str, Any]]:
    """Serve one model in all ways at all loads."""
    ways: dict[str, dict[str, str]] = {
        "none": {"carpool_batch_policy": "none"},
        "deadline": {"carpool_batch_policy": "deadline"},
    }
    for window_ms in WINDOWS_MS:
        params = {"size": case.batch_max, "wait_s": window_ms / 1000}
        ways[f"fixed {window_ms} ms"] = {
            "carpool_batch_policy": "fixed",
            "carpool_batch_params": json.dumps(params),
        }
    ways["lazy"] = {"carpool_executor": "lazy"}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "function"
        folder.mkdir()
        known = function(case, folder)
        bodies = case.bodies()
        with serving(case, folder, {"carpool_batch_policy": "deadline"}) as port:
            known["capacity_rps"] = most_rps = capacity(port, bodies, span_s)
        with contextlib.ExitStack() as stack:
            ports = {
                way: stack.enter_context(serving(case, folder, settings))
                for way, settings in ways.items()
            }
            known["alone_ms"] = alone_ms(ports["none"], bodies)
            rows = [
                _row(case, way, load, load * most_rps, tally)
                for load in loads
                for way, tally in _interleaved(ports, bodies, load * most_rps, span_s).items()
            ]
    for row in rows:
        latencies = row.report.pop("latencies_s")
        for times in _SLOS:
            late = sum(latency > times * known["alone_ms"] / 1000 for latency in latencies)
            failed = row.report["requests"] - row.report["ok"]
            row.missed[f"{times}x"] = (late + failed) / max(1, row.report["requests"])
    return rows, known


def _interleaved(
    ports: dict[str, int], bodies: Sequence[bytes], rate_rps: float, span_s: float
) -> dict[str, LoadResults]:
    """Run the ways in turn, in rounds, so that disturbances of the machine affect all of them."""
    tallies = {way: LoadResults() for way in ports}
    for turn in range(_ROUNDS):
        order = list(ports)[turn:] + list(ports)[:turn]
        for way in order:
            send(ports[way], bodies, rate_rps, span_s / _ROUNDS, tallies[way], seed=turn)
    return tallies


def _row(case: Case, way: str, load: float, rate_rps: float, tally: LoadResults) -> Row:
    report = tally.report()
    report["latencies_s"] = sorted(tally.latencies_s)
    if tally.latencies_s:
        report["p99_ms"] = 1000 * quantile(report["latencies_s"], 0.99)
    return Row(case.name, way, load, rate_rps, report)


def main(argv: Sequence[str], *, as_json: bool) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks lazy --live")
    parser.add_argument("--case", choices=CASES, action="append", help="only these models")
    parser.add_argument("--load", type=float, action="append", help="only these loads")
    parser.add_argument("--span", type=float, default=8.0, help="seconds of each run (8)")
    flags = parser.parse_args(list(argv))
    for name in flags.case or CASES:
        rows, known = run(CASES[name], flags.load or LOADS, flags.span)
        if as_json:
            document = [
                {
                    "case": row.case, "way": row.way, "load": row.load, "rate_rps": row.rate_rps,
                    "missed": row.missed, **row.report,
                }
                for row in rows
            ]  # fmt: skip
            print(json.dumps({"known": known, "rows": document}))
            continue
        _print(name, rows, known)
    return 0


def _print(name: str, rows: Sequence[Row], known: dict[str, Any]) -> None:
    print(f"\n{name}: {known['capacity_rps']:.0f} requests a second in full batches", end="")
    print(f"; one alone takes {known['alone_ms']:.2f} ms", end="")
    print(f"; stages and their loss {known['tried']}" if "tried" in known else "")
    misses = "".join(f"{f'>{times}x':>8}" for times in _SLOS)
    print(f"{'load':>5} {'way':<12} {'mean ms':>9} {'p99 ms':>9} {'rps':>7} {misses}  errors")
    for row in sorted(rows, key=lambda row: row.load):
        told = row.report
        late = "".join(f"{100 * share:>7.1f}%" for share in row.missed.values())
        mean = told["latency_ms"]["mean"] or float("nan")
        print(
            f"{row.load:>5} {row.way:<12} {mean:>9.2f} {told.get('p99_ms', float('nan')):>9.2f} "
            f"{told['rps']:>7.1f} {late}  {told['errors'] or ''}",
            flush=True,
        )
