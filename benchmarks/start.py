"""How long a function takes from its start to its first answer, and the memory of each part.

``python -m benchmarks start --against DIR`` starts `tiny` again and again with this tree and with
that in DIR, in turn: its handler alone, its sidecar with the handler, and through ``carpool up``
from zero replicas. Each row contains those above it that it is made of. Memory is that of
``carpool up`` with one replica, idle and after a load. ``--containers`` measures containers of a
Docker Engine instead.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks import usage
from benchmarks.cases import CASES
from benchmarks.flood import Flood
from benchmarks.launch import Running, free_port
from benchmarks.machine import commit, machine
from benchmarks.one_request import status_of
from benchmarks.servers.carpool import CARPOOL, CARPOOL_PROVIDER, CARPOOL_WATCHDOG
from benchmarks.servers.recipe import Setup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from benchmarks.servers.recipe import Launch, Server

__all__ = ["main"]

_ROOT = Path(__file__).parent.parent
_LONGEST_S = 60.0
_CASE = replace(CASES["tiny"], slo_s=_LONGEST_S)  # so that a request may wait for the start
_POLL_S = 0.002
_CONNECTIONS = 64
_OK = 200
_IMPORTS = {
    "interpreter": "pass",
    "imports of the sidecar": (
        "import importlib.util as found, sidecar.app;"
        "found.find_spec('sidecar.serving') and __import__('sidecar.serving')"
    ),
    "imports of the handler": "import watchdog_plugin.__main__",
    "the same with NumPy and ONNX Runtime": "import watchdog_plugin.__main__, onnxruntime",
}
_PARTS = {"carpool up": "provider", "-m sidecar": "sidecar", "-m watchdog_plugin": "handler"}

Row = tuple[float, float]  # seconds that passed, and of CPU time


def main(argv: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks start", description=__doc__)
    add = parser.add_argument
    add("--against", type=Path, action="append", default=[], metavar="DIR", help="another tree")
    add("--partition", default="on", help="whether instances are held to limits (on)")
    add("--rounds", type=int, default=5, help="starts of each (5)")
    add("--rate", type=float, default=1000, help="requests a second, for the memory (1000)")
    add("--span", type=float, default=5.0, metavar="SECONDS", help="of that load (5)")
    add("--containers", action="store_true", help="measure containers; needs a Docker Engine")
    flags = parser.parse_args(argv)
    trees = [_ROOT, *(path.resolve() for path in flags.against)]
    for tree in trees:
        _compile(tree)
    print(f"{commit()}, {machine()}\n")
    if flags.containers:
        _print_containers(trees, flags.rounds)
        return 0
    _print_starts(trees, flags.rounds, lambda tree: _starts(tree, flags.partition))
    for tree in trees:
        _print_memory(tree, flags.rate, flags.span, flags.partition)
    return 0


def _compile(tree: Path) -> None:
    """Write a tree's bytecode, as installing a wheel does."""
    for module in tree.glob("*/__init__.py"):
        if module.parent.name not in ("benchmarks", "tests"):
            compileall.compile_dir(module.parent, quiet=2)


def _print_containers(trees: list[Path], rounds: int) -> None:
    from benchmarks.start_containers import ContainerStarts  # noqa: PLC0415 - needs Docker's SDK

    with contextlib.ExitStack() as stack:
        made = {tree: stack.enter_context(ContainerStarts(tree, _CASE)) for tree in trees}
        _print_starts(trees, rounds, lambda tree: made[tree].rows(_IMPORTS))


def _print_starts(
    trees: list[Path], rounds: int, starts: Callable[[Path], Iterable[tuple[str, Row]]]
) -> None:
    rows: dict[Path, dict[str, list[Row]]] = {tree: defaultdict(list) for tree in trees}
    for turn in range(rounds):
        for tree in trees[turn % len(trees) :] + trees[: turn % len(trees)]:
            for name, row in starts(tree):
                rows[tree][name].append(row)
    print("| to the first answer, ms |", *(f" {tree.name} | CPU |" for tree in trees), sep="")
    print("|---|", "---:|---:|" * len(trees), sep="")
    for name in next(iter(rows.values())):
        cells = (_cells(rows[tree][name]) for tree in trees)
        print(f"| {name} |", *cells, sep="")


def _cells(rows: Sequence[Row]) -> str:
    """Return the medians in milliseconds."""
    passed_s, cpu_s = (statistics.median(column) for column in zip(*rows, strict=True))
    return f" {passed_s * 1e3:.0f} | {cpu_s * 1e3:.0f} |"


def _starts(tree: Path, partition: str) -> Iterator[tuple[str, Row]]:
    """Start everything once and yield each part's times."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    for name, code in _IMPORTS.items():
        argv = [sys.executable, "-c", code]
        yield name, _timed(partial(subprocess.run, argv, env=environment, cwd=tree, check=True))
    with tempfile.TemporaryDirectory(prefix="carpool-bench-") as folder:
        setup = Setup(_CASE, free_port(), Path(sys.executable), Path(folder), 0.0)
        yield "handler alone", _timed(partial(_handler, setup, tree))
        yield "sidecar and handler", _timed(partial(_sidecar, setup, tree, CARPOOL))
        if not CARPOOL_WATCHDOG.refuses(_CASE):
            behind = partial(_sidecar, setup, tree, CARPOOL_WATCHDOG)
            yield "sidecar, of-watchdog and handler", _timed(behind)
        with Running(_of(tree, partition), setup) as running:
            yield "call of a function without replicas", _from_zero(running)


def _timed(start: Callable[[], object]) -> Row:
    """Return the time until ``start`` returns, and the CPU time of its finished processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    began_s = time.monotonic()
    answered_s = start()
    passed_s = (answered_s if isinstance(answered_s, float) else time.monotonic()) - began_s
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return passed_s, after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime


def _handler(setup: Setup, tree: Path) -> float:
    env = CARPOOL.launch(setup).env
    own = {"PYTHONPATH": str(tree), "handler_listen": f"127.0.0.1:{setup.port}"}
    argv = [sys.executable, "-m", "watchdog_plugin"]
    return _until_answered(argv, {**env, **own}, setup)


def _sidecar(setup: Setup, tree: Path, server: Server) -> float:
    launch = server.launch(setup)
    return _until_answered(launch.argv, {**launch.env, "PYTHONPATH": str(tree)}, setup)


def _until_answered(argv: Sequence[str], env: dict[str, str], setup: Setup) -> float:
    """Start a process, poll until it responds, and end it; return when it responded."""
    log, pause = setup.scratch / "log", threading.Event()
    with log.open("ab") as output:
        process = subprocess.Popen(
            argv, env={**os.environ, **env}, cwd=setup.scratch, stderr=output
        )
        try:
            deadline_s = time.monotonic() + _LONGEST_S
            while _ask(setup.port) != _OK:
                if time.monotonic() > deadline_s or process.poll() is not None:
                    msg = f"{' '.join(argv)} does not answer: {log.read_text()}"
                    raise SystemExit(msg)
                pause.wait(_POLL_S)
            return time.monotonic()
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1)
            process.kill()
            process.wait()


def _ask(port: int, path: str = "/", body: bytes = b"") -> int:
    """Return the status of one request, or 0 without a response."""
    sent = body or _CASE.bodies("v1")[0]
    return status_of("POST", path, sent, ("127.0.0.1", port), _LONGEST_S)


def _from_zero(running: Running) -> Row:
    """Time one call after scaling the function to zero, with the CPU time of all processes."""
    pause = threading.Event()
    _scale(running.port, 0)
    while any(part in ("sidecar", "handler") for part, _ in _memory(running)):
        pause.wait(_POLL_S)
    used_s, began_s = running.used.cpu_s, time.monotonic()
    status = _ask(running.port, "/function/f/")
    passed_s = time.monotonic() - began_s
    if status != _OK:
        msg = f"a call of a function without replicas is answered {status}"
        raise SystemExit(msg)
    return passed_s, running.used.cpu_s - used_s


def _scale(port: int, replicas: int) -> None:
    body = json.dumps({"serviceName": "f", "replicas": replicas}).encode()
    status = _ask(port, "/system/scale-function/f", body)
    if status not in (200, 202):
        msg = f"scaling is answered {status}"
        raise SystemExit(msg)


def _print_memory(tree: Path, rate_rps: float, span_s: float, partition: str) -> None:
    with tempfile.TemporaryDirectory(prefix="carpool-bench-") as folder:
        setup = Setup(_CASE, free_port(), Path(sys.executable), Path(folder), 0.0)
        with Running(_of(tree, partition), setup) as running:
            running.settle()
            idle = dict(_memory(running))
            with Flood(running.port, running.requests, _CONNECTIONS) as flood:
                due_s = np.arange(0.0, span_s, 1 / rate_rps)
                answered = int((flood.open_loop(due_s).status == _OK).sum())
                loaded = dict(_memory(running))
    print(f"\n| {tree.name}: MB | PSS idle | RSS idle | PSS loaded | RSS loaded |")
    print("|---|---:|---:|---:|---:|")
    for part, before in idle.items():
        sizes = (*before, *loaded.get(part, before))
        print(f"| {part} |", *(f" {size:.0f} |" for size in sizes), sep="")
    print(f"\nLoad: {rate_rps:g}/s for {span_s:g} s, {answered} answers")


def _memory(running: Running) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield PSS and RSS in megabytes for each part of ``carpool up``."""
    for process in usage.processes(running.pid):
        for words, part in _PARTS.items():
            if words in process.command:
                yield part, (process.pss_mb, process.rss_mb)


def _of(tree: Path, partition: str) -> Server:
    """Return ``carpool up`` from a tree as a server."""

    def launch(setup: Setup) -> Launch:
        made = CARPOOL_PROVIDER.launch(setup)
        argv = [*made.argv, "--partition", partition]
        return replace(made, argv=argv, env={**made.env, "PYTHONPATH": str(tree)})

    return replace(CARPOOL_PROVIDER, launch=launch)
