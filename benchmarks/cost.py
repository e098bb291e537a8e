"""Measure the CPU time of a request in the sidecar or the provider, compared with another version.

``python -m benchmarks cost --against DIR`` sends `tiny` a steady rate, far enough below its
capacity that all responses are in time, to the sidecars of this tree and of the tree in DIR, in
turn, and prints the CPU time of the sidecar's own process for a request. With ``--server
carpool-provider``, requests go through ``/function/NAME``, and the process is the provider's. With
``--traces SHARE``, each tree also has turns in which that share of the requests is traced.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.cases import CASES
from benchmarks.flood import Flood
from benchmarks.launch import Running, free_port
from benchmarks.servers.carpool import CARPOOL, CARPOOL_PROVIDER
from benchmarks.servers.recipe import Setup

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchmarks.servers.recipe import Launch, Server

__all__ = ["main"]

_SERVERS = {server.name: server for server in (CARPOOL, CARPOOL_PROVIDER)}
_ROOT = Path(__file__).parent.parent
_WARMUP_S = 1.0
_CONNECTIONS = 512
_OK = 200
_US = 1e6


def main(argv: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks cost", description=__doc__)
    add = parser.add_argument
    add("--against", type=Path, action="append", default=[], metavar="DIR", help="another tree")
    add("--server", choices=_SERVERS, default=CARPOOL.name, help="what is measured (carpool)")
    add("--rate", type=float, default=15_000, help="requests a second (15000)")
    add("--span", type=float, default=4.0, metavar="SECONDS", help="of one turn (4)")
    add("--rounds", type=int, default=5, help="turns of each (5)")
    add("--traces", action="append", default=[], metavar="SHARE", help="also with so many traced")
    flags = parser.parse_args(argv)
    trees = [_ROOT, *(path.resolve() for path in flags.against)]
    kinds = [(tree, share) for tree in trees for share in ("", *flags.traces)]
    costs: dict[tuple[Path, str], list[float]] = {kind: [] for kind in kinds}
    with _collector() as endpoint:
        for turn in range(flags.rounds):
            for tree, share in kinds[turn % len(kinds) :] + kinds[: turn % len(kinds)]:
                traced = {"sidecar_traces": endpoint, "sidecar_trace_share": share}
                env = {"PYTHONPATH": str(tree), **(traced if share else {})}
                cost_us, answered = _turn(_SERVERS[flags.server], env, flags.rate, flags.span)
                costs[tree, share].append(cost_us)
                said = f"{_name(tree, share)}: {cost_us:.1f} us, {answered:.1%} answered well"
                sys.stderr.write(f"{said}\n")
    for (tree, share), each in costs.items():
        middle, spread = statistics.median(each), f"{min(each):.1f} to {max(each):.1f}"
        print(f"{_name(tree, share)}: {middle:.1f} us a request ({spread})")
    return 0


def _name(tree: Path, share: str) -> str:
    return f"{tree.name}, {share} traced" if share else tree.name


def _turn(
    server: Server, env: Mapping[str, str], rate_rps: float, span_s: float
) -> tuple[float, float]:
    """Return the server's own CPU time per request in microseconds, and the success share."""
    cores = sorted(os.sched_getaffinity(0))

    def launch(setup: Setup) -> Launch:
        made = server.launch(setup)
        return replace(made, env={**made.env, **env})

    with tempfile.TemporaryDirectory(prefix="carpool-bench-") as folder:
        setup = Setup(CASES["tiny"], free_port(), Path(sys.executable), Path(folder), 0.0)
        os.sched_setaffinity(0, cores[:-1] or cores)
        try:
            with Running(replace(server, launch=launch), setup) as running:
                os.sched_setaffinity(0, cores[-1:])
                with Flood(running.port, running.requests, _CONNECTIONS) as flood:
                    flood.open_loop(_due(rate_rps, _WARMUP_S))
                    used_s = running.own_cpu_s
                    sent = flood.open_loop(_due(rate_rps, span_s))
                    used_s = running.own_cpu_s - used_s
        finally:
            os.sched_setaffinity(0, cores)
    good = int((sent.status == _OK).sum())
    return _US * used_s / max(1, good), good / len(sent.due_s)


def _due(rate_rps: float, span_s: float) -> np.ndarray:
    rng = np.random.default_rng(1)
    return np.sort(rng.random(int(rate_rps * span_s))) * span_s


class _Taken(BaseHTTPRequestHandler):
    """Request handler that accepts everything."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def _collector() -> Iterator[str]:
    """Accept and discard spans within the context, at the URL that it gives."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Taken)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
