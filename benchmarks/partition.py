"""What partitions hold: the cores a limited instance uses, and what its neighbours cost it.

``python -m benchmarks partition`` runs functions with ``limits`` under a provider's process
backend, each a sidecar and a handler that multiplies matrices, and keeps them busy: with partitions
and without. What an instance answers alone and beside another is measured in slices of a second
that follow one another closely and in both orders, because a virtual machine's cores are not
equally fast from one minute to the next. The machine should be idle otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from benchmarks.machine import commit, machine
from benchmarks.usage import of_tree
from carpool.http.client import Pool
from carpool.settings import FunctionSettings
from faas_stack.partition.machine import Capacity
from faas_stack.provider.deployment import Deployment
from faas_stack.provider.local.build_context import BuildContext
from faas_stack.provider.local.orchestrator import LocalOrchestrator
from faas_stack.provider.local.process_backend import ProcessBackend
from faas_stack.provider.local.process_runner import ProcessRunner
from faas_stack.provider.secrets import SecretStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from faas_stack.provider.local.local_function import LocalFunction

__all__ = ["main"]

_RESULTS = Path(__file__).parent / "results" / "partition.md"
_HANDLER = """\
import numpy as np

MATRIX = np.full((384, 384), 1 / 384, np.float32)
example = b"x"


def handle_batch(items):
    product = MATRIX
    for _ in range(32):
        product = product @ MATRIX
    return [b"done"] * len(items)
"""
_FPROCESS = "python -m watchdog_plugin"
_ONE_BY_ONE = FunctionSettings(
    batch_max=1
)  # else answers would depend on what is in a batch together
_GREEDY = {"OPENBLAS_NUM_THREADS": "8"}
_CALLERS = 3  # one is answered, one waits, one is on its way
_SETTLE_S = 0.15  # between the first call of a slice and what counts
_SLICE_S = 1.0
_QUOTA_S = 8.0
_QUOTA_TIMES = 3
_READY_S = 60.0
_FEW = 3
_HALVES = "cores used under load with `limits: {cpu: 500m}`"
_PAIR = "two with `limits: {cpu: 1}`, both busy: throughput of that alone"
_BESIDE = "one of these beside a function without limits on 8 threads: the same"


@dataclass(frozen=True, slots=True)
class Measured:
    """One instance during one slice."""

    cores: float
    answers_per_s: float


@dataclass(slots=True)
class Way:
    """Measurements with partitions, or without."""

    note: str = ""
    half_cores: list[float] = field(default_factory=list)
    kept: list[float] = field(default_factory=list)
    kept_beside_greedy: list[float] = field(default_factory=list)
    alone_per_s: list[float] = field(default_factory=list)

    @property
    def rows(self) -> dict[str, list[float]]:
        """Measurements by their row label in the table."""
        return {_HALVES: self.half_cores, _PAIR: self.kept, _BESIDE: self.kept_beside_greedy}


_TARGETS = {_HALVES: "0.5 within 5 %", _PAIR: "at least 0.95", _BESIDE: ""}


def main(argv: list[str]) -> int:
    """Measure, print and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks partition", description=__doc__)
    add = parser.add_argument
    add("--blocks", type=int, default=8, help="of slices, each way (default: %(default)s)")
    add("--out", type=Path, default=_RESULTS, metavar="FILE", help="the page (%(default)s)")
    flags = parser.parse_args(argv)
    about = {**machine(), "commit": commit() or "unknown"}
    ways = {way: uvloop.run(_measure(flags.blocks, way)) for way in ("on", "off")}
    text = _page(ways, about, " ".join(["python -m benchmarks partition", *argv]))
    flags.out.parent.mkdir(parents=True, exist_ok=True)
    flags.out.write_text(text)
    print(text, end="")
    return 0


async def _measure(blocks: int, which: str) -> Way:
    way = Way()
    async with _provider(partition=which == "on") as (backend, functions):
        way.note = backend.notes[0]
        half = await _deploy(functions, "half", {"cpu": "500m"})
        for _ in range(_QUOTA_TIMES):
            way.half_cores.append((await _load(half, span_s=_QUOTA_S))[0].cores)
        await functions.remove("half", "openfaas-fn")
        a, b = [await _deploy(functions, name, {"cpu": "1"}) for name in ("a", "b")]
        for number in range(blocks):
            await _compare(a, b, way)
            print(f"partition {which}, {number + 1} of {blocks}: {way.kept[-2:]}", file=sys.stderr)
        await functions.remove("b", "openfaas-fn")
        greedy = await _deploy(functions, "greedy", {}, _GREEDY)
        for _ in range(blocks):
            slices = [await _load(*who) for who in ((a,), (a, greedy), (a, greedy), (a,))]
            first, *beside, last = (found[0].answers_per_s for found in slices)
            way.kept_beside_greedy.append(sum(beside) / (first + last))
    return way


async def _compare(a: LocalFunction, b: LocalFunction, way: Way) -> None:
    """Measure one block: each function alone, and both, forwards and backwards."""
    pair: tuple[LocalFunction, ...] = (a, b)
    order = ((a,), pair, (b,), pair, pair, (b,), pair, (a,))
    alone: dict[str, list[float]] = {"a": [], "b": []}
    both: dict[str, list[float]] = {"a": [], "b": []}
    for who in order:
        for function, outcome in zip(who, await _load(*who), strict=True):
            kind = alone if len(who) == 1 else both
            kind[function.deployment.service].append(outcome.answers_per_s)
    way.kept += [statistics.mean(both[name]) / statistics.mean(alone[name]) for name in alone]
    way.alone_per_s += [rate for rates in alone.values() for rate in rates]


@asynccontextmanager
async def _provider(*, partition: bool) -> AsyncIterator[tuple[ProcessBackend, LocalOrchestrator]]:
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        (folder / "function").mkdir()
        (folder / "function" / "handler.py").write_text(_HANDLER)
        images = {"work": BuildContext("work", folder, _FPROCESS)}
        secrets = SecretStore(folder / "secrets")
        capacity = None if partition else Capacity()
        backend = ProcessBackend(images, secrets, watchdog=False, capacity=capacity)
        await backend.open()
        functions = LocalOrchestrator(backend, secrets, patience_s=_READY_S)
        try:
            yield backend, functions
            await functions.close()
        finally:
            await backend.close()


async def _deploy(
    functions: LocalOrchestrator,
    name: str,
    limits: dict[str, str],
    env: dict[str, str] | None = None,
) -> LocalFunction:
    deployment = Deployment(name, "work", limits=limits, env_vars=env or {}, settings=_ONE_BY_ONE)
    function = await functions.deploy(deployment)
    replica = await functions.acquire(function)
    replica.release()
    return function


async def _load(*functions: LocalFunction, span_s: float = _SLICE_S) -> list[Measured]:
    """Keep the functions busy at the same time, and measure CPU use and responses of each."""
    return await asyncio.gather(*(_keep_busy(function, span_s) for function in functions))


async def _keep_busy(function: LocalFunction, span_s: float) -> Measured:
    instance: Any = function.replica_set.replicas[0].instance
    assert isinstance(instance.runner, ProcessRunner)
    root = instance.runner.pid
    pool = Pool(instance.address, max_connections=_CALLERS)
    loop = asyncio.get_running_loop()
    answered_s: list[float] = []

    async def call() -> None:
        while True:
            answer = await pool.request("POST", "/", (), b"x", 60.0)
            if answer.status == 200:  # noqa: PLR2004
                answered_s.append(loop.time())

    callers = [loop.create_task(call()) for _ in range(_CALLERS)]
    await asyncio.sleep(_SETTLE_S)
    answered_s.clear()
    began_s, cpu_s = loop.time(), of_tree(root).cpu_s
    await asyncio.sleep(span_s)
    took_s, used_s = loop.time() - began_s, of_tree(root).cpu_s - cpu_s
    for caller in callers:
        caller.cancel()
    await asyncio.wait(callers)
    pool.close()
    if len(answered_s) > _FEW:  # then what is under way at either end does not count
        took_answering_s = answered_s[-1] - answered_s[0]
        return Measured(used_s / took_s, (len(answered_s) - 1) / took_answering_s)
    return Measured(used_s / took_s, len(answered_s) / took_s)


def _page(ways: dict[str, Way], about: dict[str, Any], command: str) -> str:
    on, off = ways["on"], ways["off"]
    origin = (
        f"`{command}`, commit {about['commit']}; {about['cores']} cores, {about['cpu']}; "
        f"{about['system']}, Python {about['python']}; load average before: "
        f"{about['load_before']}. With partitions: {on.note.removeprefix('partitions: ')}.\n"
    )
    method = (
        f"Medians, in brackets quartiles, then the lowest and the highest. {len(on.half_cores)} "
        f"times {_QUOTA_S:g} s of the first row; of the others {len(on.kept_beside_greedy)} blocks "
        f"of slices of {_SLICE_S:g} s, alone and together, forwards and backwards; a block gives "
        "one number for each instance.\n"
    )
    speed = (
        f"\nAlone an instance with one core answers {_spread(on.alone_per_s, '.1f')} requests a "
        f"second with partitions, {_spread(off.alone_per_s, '.1f')} without: there its sidecar "
        "runs on the other core.\n"
    )
    lines = [
        "# Partitions\n",
        origin,
        method,
        "| | target | with partitions | without |",
        "|---|---|---:|---:|",
        *(
            f"| {name} | {_TARGETS[name]} | {_spread(values)} | {_spread(off.rows[name])} |"
            for name, values in on.rows.items()
        ),
        speed,
        "Every number:\n",
        *(
            f"- {which}: {name}: {', '.join(f'{value:.3f}' for value in values)}"
            for which, way in ways.items()
            for name, values in way.rows.items()
        ),
    ]
    return "\n".join(lines) + "\n"


def _spread(values: Iterable[float], data: str = ".3f") -> str:
    ordered = sorted(values)
    low, _, high = (
        statistics.quantiles(ordered, n=4, method="inclusive")
        if len(ordered) > 1
        else (ordered[0],) * 3
    )
    middle = format(statistics.median(ordered), data)
    inner, outer = (
        " to ".join(format(value, data) for value in pair)
        for pair in ((low, high), (ordered[0], ordered[-1]))
    )
    return f"{middle} ({inner}; {outer})"
