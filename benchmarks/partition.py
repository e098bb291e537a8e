"""What partitions hold: the cores a limited instance uses, and what its neighbours cost it.

``python -m benchmarks partition`` runs functions with ``limits`` under a provider's process
backend, each a sidecar and a handler that multiplies matrices, as many as it is sent. The same is
done without partitions. Rounds are interleaved; the page shows each. The machine should be idle
otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from benchmarks.machine import commit, machine
from benchmarks.usage import of_tree
from carpool.http.client import Pool
from faas_stack.assemble import BuildContext
from faas_stack.partition.ledger import Capacity
from faas_stack.provider.deployment import Deployment
from faas_stack.provider.fleet import Fleet
from faas_stack.provider.process import ProcessBackend
from faas_stack.provider.process_life import ProcessLife
from faas_stack.provider.secrets import SecretStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from faas_stack.provider.fleet import Function

__all__ = ["main"]

_RESULTS = Path(__file__).parent / "results" / "partition.md"
_HANDLER = """\
import numpy as np

MATRIX = np.full((384, 384), 1 / 384, np.float32)
example = b"x"


def handle_batch(items):
    product = MATRIX
    for _ in range(24):
        product = product @ MATRIX
    return [b"done"] * len(items)
"""
_FPROCESS = "python -m watchdog_plugin"
_CALLERS = 3  # one is answered, one waits, one is on its way
_WARM_S = 1.0
_READY_S = 60.0
_GREEDY = {"OPENBLAS_NUM_THREADS": "8"}


@dataclass(frozen=True, slots=True)
class Measured:
    """One instance over one span."""

    cores: float
    answers_per_s: float


@dataclass(frozen=True, slots=True)
class Round:
    """All that is measured in one round, in one of the two ways."""

    half: Measured
    alone: tuple[Measured, Measured]
    both: tuple[Measured, Measured]
    beside_greedy: Measured

    @property
    def kept(self) -> list[float]:
        """Throughput beside the other one, of that alone."""
        pairs = zip(self.both, self.alone, strict=True)
        return [both.answers_per_s / alone.answers_per_s for both, alone in pairs]

    @property
    def kept_beside_greedy(self) -> float:
        """The same of the first, beside a neighbour without limits that takes what it can get."""
        return self.beside_greedy.answers_per_s / self.alone[0].answers_per_s


def main(argv: list[str]) -> int:
    """Measure, print and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks partition", description=__doc__)
    add = parser.add_argument
    add("--rounds", type=int, default=5, help="(default: %(default)s)")
    add("--span", type=float, default=8.0, help="seconds of each measurement (%(default)s)")
    add("--out", type=Path, default=_RESULTS, metavar="FILE", help="the page (%(default)s)")
    flags = parser.parse_args(argv)
    about = {**machine(), "commit": commit() or "unknown"}
    rounds: dict[str, list[Round]] = {"on": [], "off": []}
    note = ""
    for number in range(flags.rounds):
        for way, found in rounds.items():
            note_of, measured = uvloop.run(_round(flags.span, partition=way == "on"))
            note = note_of if way == "on" else note
            found.append(measured)
            print(f"round {number + 1}, partition {way}: {_line(measured)}", file=sys.stderr)
    text = _page(rounds, about, note, " ".join(["python -m benchmarks partition", *argv]))
    flags.out.parent.mkdir(parents=True, exist_ok=True)
    flags.out.write_text(text)
    print(text, end="")
    return 0


async def _round(span_s: float, *, partition: bool) -> tuple[str, Round]:
    async with _provider(partition=partition) as (backend, fleet):
        half = await _deploy(fleet, "half", {"cpu": "500m"})
        used = await _load(half, span_s=span_s)
        fleet.remove("half", "openfaas-fn")
        pair = [await _deploy(fleet, name, {"cpu": "1"}) for name in ("a", "b")]
        alone = [(await _load(function, span_s=span_s))[0] for function in pair]
        both = await _load(*pair, span_s=span_s)
        fleet.remove("b", "openfaas-fn")
        greedy = await _deploy(fleet, "greedy", {}, _GREEDY)
        beside, _ = await _load(pair[0], greedy, span_s=span_s)
    note = backend.notes[0]
    return note, Round(used[0], (alone[0], alone[1]), (both[0], both[1]), beside)


@asynccontextmanager
async def _provider(*, partition: bool) -> AsyncIterator[tuple[ProcessBackend, Fleet]]:
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        (folder / "function").mkdir()
        (folder / "function" / "handler.py").write_text(_HANDLER)
        images = {"work": BuildContext("work", folder, _FPROCESS)}
        secrets = SecretStore(folder / "secrets")
        capacity = None if partition else Capacity()
        backend = ProcessBackend(images, secrets, watchdog=False, capacity=capacity)
        await backend.open()
        fleet = Fleet(backend)
        try:
            yield backend, fleet
            await fleet.close()
        finally:
            await backend.close()


async def _deploy(
    fleet: Fleet, name: str, limits: dict[str, str], env: dict[str, str] | None = None
) -> Function:
    deployment = Deployment(name, "work", limits=limits, env_vars=env or {})
    function = await fleet.deploy(deployment)
    replica = await function.running.acquire(_READY_S)
    replica.release()
    return function


async def _load(*functions: Function, span_s: float) -> list[Measured]:
    """Keep the functions busy, all at once, and see what each uses and answers."""
    return await asyncio.gather(*(_keep_busy(function, span_s) for function in functions))


async def _keep_busy(function: Function, span_s: float) -> Measured:
    instance: Any = function.running.replicas[0].instance
    assert isinstance(instance.life, ProcessLife)
    root = instance.life.pid or 0
    pool = Pool(instance.address, max_connections=_CALLERS)
    loop = asyncio.get_running_loop()
    answers = 0

    async def call() -> None:
        nonlocal answers
        while True:
            answer = await pool.request("POST", "/", (), b"x", 60.0)
            answers += answer.status == 200  # noqa: PLR2004

    callers = [loop.create_task(call()) for _ in range(_CALLERS)]
    await asyncio.sleep(_WARM_S)
    began_s, cpu_s, before = loop.time(), of_tree(root).cpu_s, answers
    await asyncio.sleep(span_s)
    took_s, used_s, count = loop.time() - began_s, of_tree(root).cpu_s - cpu_s, answers - before
    for caller in callers:
        caller.cancel()
    await asyncio.wait(callers)
    pool.close()
    return Measured(used_s / took_s, count / took_s)


def _line(one: Round) -> str:
    kept = ", ".join(f"{share:.3f}" for share in one.kept)
    return (
        f"{one.half.cores:.3f} cores; kept {kept} of {one.alone[0].answers_per_s:.1f} and "
        f"{one.alone[1].answers_per_s:.1f}/s; beside a greedy one {one.kept_beside_greedy:.3f}"
    )


def _page(rounds: dict[str, list[Round]], about: dict[str, Any], note: str, command: str) -> str:
    on, off = rounds["on"], rounds["off"]
    rows = [
        (
            "cores used under load with `limits: {cpu: 500m}`",
            "0.5 within 5 %",
            [[one.half.cores] for one in on],
            [[one.half.cores] for one in off],
        ),
        (
            "two with `limits: {cpu: 1}` at full load: throughput of that alone",
            "at least 0.95",
            [one.kept for one in on],
            [one.kept for one in off],
        ),
        (
            "one of these beside a function without limits on 8 threads: the same",
            "",
            [[one.kept_beside_greedy] for one in on],
            [[one.kept_beside_greedy] for one in off],
        ),
    ]
    origin = (
        f"`{command}`, commit {about['commit']}; {about['cores']} cores, {about['cpu']}; "
        f"{about['system']}, Python {about['python']}; load average before: "
        f"{about['load_before']}. With partitions: {note.removeprefix('partitions: ')}.\n"
    )
    lines = [
        "# Partitions\n",
        origin,
        f"Median of {len(on)} rounds, in brackets the lowest and the highest of all.\n",
        "| | target | with partitions | without |",
        "|---|---|---:|---:|",
        *(f"| {name} | {target} | {_spread(a)} | {_spread(b)} |" for name, target, a, b in rows),
        "\nEvery round:\n",
        *(f"- {way}: {_line(one)}" for way, found in rounds.items() for one in found),
    ]
    return "\n".join(lines) + "\n"


def _spread(values: list[list[float]]) -> str:
    flat = [value for row in values for value in row]
    return f"{statistics.median(flat):.3f} ({min(flat):.3f} to {max(flat):.3f})"
