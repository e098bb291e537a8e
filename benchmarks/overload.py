"""What becomes of requests under more load than there is capacity for, and after it.

``python -m benchmarks overload`` puts one sidecar with its handler on all cores but the last, and
the generator (`benchmarks.flood`) on the last. ``--server`` names other paths, on the sidecar's
cores: with a provider in front, with three replicas behind it, with OpenFaaS's gateway in front of
the provider, and that gateway with an empty handler. For each handler it finds the capacity: the
highest of some rates, open loop and without refusals, at which 99 % of the answers are in time.
Then, mode by mode of ``com.carpool.shed``, it sends multiples of it: a second at half of the
capacity, some seconds of the multiple, and again half, from which the time to recover is read.

The handlers are `tiny` and `wide` (`benchmarks.cases`), and `slow`, which sleeps 20 ms and 2 ms an
item in batches of 8, so that neither processor nor sidecar is the limit.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import resource
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import machine
from benchmarks.cases import CASES, Case
from benchmarks.flood import UNANSWERED, UNSENT, Flood, Sent
from benchmarks.launch import Running, free_port
from benchmarks.records import Records
from benchmarks.servers.carpool import (
    CARPOOL,
    CARPOOL_GATEWAY,
    CARPOOL_PROVIDER,
    CARPOOL_REPLICAS,
)
from benchmarks.servers.openfaas import GATEWAY_EMPTY
from benchmarks.servers.recipe import Setup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.servers.recipe import Server

__all__ = ["main"]

_SERVERS = {
    server.name: server
    for server in (CARPOOL, CARPOOL_PROVIDER, CARPOOL_REPLICAS, CARPOOL_GATEWAY, GATEWAY_EMPTY)
}
_OUT = Path(__file__).parent / "results" / "overload.jsonl"
_MODES = ("off", "observe", "on")
_TIMES = (0.5, 0.9, 1.0, 2.0, 5.0, 20.0)
_BEFORE_S, _AFTER_S = 1.0, 2.0
_SETTLING_S = 0.3  # of the overload, which are not counted
_LADDER = 1.12  # between rates while the capacity is looked for
_ABOVE = 4  # rungs above what a closed loop of callers gets
_RUNGS = 12
_RUNG_S = 1.5
_ENOUGH = 0.99
_WINDOW_S = 0.05
_CONNECTIONS = range(512, 2000)
_OK, _EXPIRED, _REFUSED = 200, 504, (429, 503)
_OPEN_FILES = 8192

_SLOW = '''"""Takes its time and no processor."""

import time


def handle_batch(items):
    time.sleep(0.02 + 0.002 * len(items))
    return [item.body for item in items]
'''


class _Slow(Case):
    """A handler that echoes after a delay."""

    __slots__ = ()

    def bodies(self, data: str) -> list[bytes]:
        del data
        return [b"%064d" % number for number in range(16)]

    def is_right(self, answer: bytes, which: int = 0) -> bool:
        return answer == b"%064d" % which


_CASES = {
    "tiny": CASES["tiny"],
    "wide": CASES["wide"],
    "slow": _Slow(
        "slow", "tiny", (64,), raw=True, slo_s=0.2, batch_max=8, start_rps=200, handler=_SLOW
    ),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One stretch of load; shares are of all requests due in it.

    Attributes:
        times: the rate, as a multiple of the capacity.
        in_time: successful responses within the objective after the due time.
        of_capacity: successful responses per second, in time or not, as a share of the capacity.
        refused: answered 429 or 503.
        expired: answered 504.
        unsent: no connection was free when the request was due, or no response arrived.
        p99_ms: of successful responses; None without any, as below.
        refused_p50_ms, refused_p99_ms: time until a refusal.
        recovered_s: time after the load until 99 % stay in time; None if that never happened.
        lag_p99_ms: how late the generator sent.
        server_cpu: cores that sidecar and handler used.
    """

    times: float
    rate_rps: float
    requests: int
    in_time: float
    of_capacity: float
    refused: float
    expired: float
    unsent: float
    p50_ms: float | None
    p99_ms: float | None
    refused_p50_ms: float | None
    refused_p99_ms: float | None
    recovered_s: float | None
    lag_p99_ms: float | None
    server_cpu: float


class Bench:
    """One handler on one path.

    Args:
        server: how requests reach it.
        case: what is served.
        span_s: duration of an overload.
    """

    def __init__(self, server: Server, case: Case, span_s: float) -> None:
        self.server = server
        self.case = case
        self._span_s = span_s

    @contextlib.contextmanager
    def running(self, mode: str) -> Iterator[tuple[Running, Flood]]:
        """Run the server with ``shed`` in ``mode``, away from the generator's core."""
        cores = sorted(os.sched_getaffinity(0))
        with tempfile.TemporaryDirectory(prefix="carpool-bench-") as folder:
            python, scratch = Path(sys.executable), Path(folder)
            setup = Setup(self.case, free_port(), python, scratch, 0.0, mode)
            os.sched_setaffinity(0, cores[:-1] or cores)  # the server inherits it
            try:
                with Running(self.server, setup) as running:
                    os.sched_setaffinity(0, cores[-1:])
                    with Flood(running.port, running.requests, self._connections) as flood:
                        yield running, flood
            finally:
                os.sched_setaffinity(0, cores)

    @property
    def _connections(self) -> int:
        wanted = int(40 * self.case.start_rps * self.case.slo_s)
        return min(max(wanted, _CONNECTIONS.start), _CONNECTIONS.stop)

    def capacity_rps(self) -> float:
        """Return the highest rate of a ladder with enough responses in time, without refusals."""
        with self.running("off") as (_, flood):
            callers = 2 * self.case.batch_max
            flood.closed_loop(callers, _RUNG_S / 2)
            rate_rps, _ = flood.closed_loop(callers, _RUNG_S)
            rate_rps *= _LADDER**_ABOVE
            for rung in range(_RUNGS):
                sent = flood.open_loop(_due([(rate_rps, _RUNG_S)], seed=rung))
                if self._in_time(sent).mean() >= _ENOUGH:
                    break
                rate_rps /= _LADDER
                self._rest(flood, rate_rps)
        return rate_rps

    def _rest(self, flood: Flood, rate_rps: float) -> None:
        flood.open_loop(_due([(rate_rps / 4, 0.5)], seed=0))

    def row(self, running: Running, flood: Flood, capacity_rps: float, times: float) -> Row:
        """Send load at a multiple of the capacity, between stretches at half of it."""
        rate_rps, half_rps = times * capacity_rps, capacity_rps / 2
        stretches = [(half_rps, _BEFORE_S), (rate_rps, self._span_s), (half_rps, _AFTER_S)]
        began_s, used_s = time.perf_counter(), running.used.cpu_s
        everything = flood.open_loop(_due(stretches, seed=int(10 * times)))
        cores = (running.used.cpu_s - used_s) / (time.perf_counter() - began_s)
        end_s = _BEFORE_S + self._span_s
        sent = everything.between(_BEFORE_S + _SETTLING_S, end_s)
        good = sent.status == _OK
        refused = np.isin(sent.status, _REFUSED)
        good_rps = int(good.sum()) / (self._span_s - _SETTLING_S)
        return Row(
            times=times,
            rate_rps=round(rate_rps, 1),
            requests=len(sent.due_s),
            in_time=_share(self._in_time(sent)),
            of_capacity=round(good_rps / capacity_rps, 3),
            refused=_share(refused),
            expired=_share(sent.status == _EXPIRED),
            unsent=_share(np.isin(sent.latency_s, (UNSENT, UNANSWERED))),
            p50_ms=_quantile_ms(sent.latency_s[good], 0.5),
            p99_ms=_quantile_ms(sent.latency_s[good], 0.99),
            refused_p50_ms=_quantile_ms(sent.latency_s[refused], 0.5),
            refused_p99_ms=_quantile_ms(sent.latency_s[refused], 0.99),
            recovered_s=self._recovered_s(everything, end_s),
            lag_p99_ms=_quantile_ms(sent.lag_s[sent.latency_s != UNSENT], 0.99),
            server_cpu=round(cores, 2),
        )

    def _in_time(self, sent: Sent) -> Any:  # noqa: ANN401 - an array of truths
        return (sent.status == _OK) & (sent.latency_s <= self.case.slo_s)

    def _recovered_s(self, sent: Sent, end_s: float) -> float | None:
        recovered_s = 0.0
        for window in range(round(_AFTER_S / _WINDOW_S)):
            start_s = end_s + window * _WINDOW_S
            part = self._in_time(sent.between(start_s, start_s + _WINDOW_S))
            if len(part) and part.mean() < _ENOUGH:
                recovered_s = (window + 1) * _WINDOW_S
        return round(recovered_s, 2) if recovered_s < _AFTER_S else None


def _due(stretches: list[tuple[float, float]], seed: int) -> Any:  # noqa: ANN401 - an array
    """Return Poisson arrivals for stretches of a rate and a duration each."""
    rng, start_s, parts = np.random.default_rng(seed), 0.0, []
    for rate_rps, span_s in stretches:
        count = max(1, rng.poisson(rate_rps * span_s))
        parts.append(start_s + np.sort(rng.random(count)) * span_s)
        start_s += span_s
    return np.concatenate(parts)


def _share(which: Any) -> float:  # noqa: ANN401 - an array of truths
    return round(float(which.mean()), 4)


def _quantile_ms(seconds: Any, share: float) -> float | None:  # noqa: ANN401 - an array
    return round(1e3 * float(np.quantile(seconds, share)), 1) if len(seconds) else None


def main(argv: list[str]) -> int:
    """Measure, writing each row as it arrives, and the page of medians."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks overload", description=__doc__)
    add = parser.add_argument
    known = ", ".join(_SERVERS)
    add("--server", default=CARPOOL.name, help=f"paths, separated by commas: {known} (carpool)")
    add("--case", default=",".join(_CASES), help="handlers, separated by commas (all)")
    add("--mode", default=",".join(_MODES), help="modes, separated by commas (all)")
    add("--times", default=",".join(f"{t:g}" for t in _TIMES), help="multiples of the capacity")
    add("--span", type=float, default=3.0, metavar="SECONDS", help="of an overload (3)")
    add("--rounds", type=int, default=1, help="of everything (1)")
    add("--resume", action="store_true", help="add rounds to what --out has")
    add("--out", type=Path, default=_OUT, help="JSON lines; a page, .md, goes beside it")
    flags = parser.parse_args(argv)
    servers, names = flags.server.split(","), flags.case.split(",")
    if unknown := ({*servers} - {*_SERVERS}) | ({*names} - {*_CASES}):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_OPEN_FILES, hard), hard))
    records = Records(flags.out, resume=flags.resume)
    about = machine.machine()
    command = " ".join(["python -m benchmarks overload", *argv])
    records.add("run", command=command, commit=machine.commit(), machine=about)
    times = [float(each) for each in flags.times.split(",")]
    for _ in range(flags.rounds):
        for server, name in itertools.product(servers, names):
            bench = Bench(_SERVERS[server], _CASES[name], flags.span)
            _measure(records, bench, flags.mode.split(","), times)
            flags.out.with_suffix(".md").write_text(_page(records))
    return 0


def _measure(records: Records, bench: Bench, modes: list[str], times: list[float]) -> None:
    path = {"server": bench.server.name, "case": bench.case.name}
    capacity_rps = bench.capacity_rps()
    for mode in modes:
        with bench.running(mode) as (running, flood):
            flood.open_loop(_due([(capacity_rps / 2, 1.0)], seed=0))
            for each in times:
                row = bench.row(running, flood, capacity_rps, each)
                fields = {key: getattr(row, key) for key in Row.__slots__}
                records.add("row", **path, mode=mode, capacity_rps=round(capacity_rps), **fields)
                where = f"{bench.server.name} {bench.case.name}"
                sys.stderr.write(f"{where} {mode} {each:g}x of {capacity_rps:.0f}/s: {row}\n")


_COLUMNS = {
    "in time": ("in_time", ".3f"),
    "answers of capacity": ("of_capacity", ".2f"),
    "refused": ("refused", ".3f"),
    "504": ("expired", ".3f"),
    "unsent": ("unsent", ".3f"),
    "p99 ms": ("p99_ms", ".0f"),
    "ms until refused": ("refused_p50_ms", ".0f"),
    "p99": ("refused_p99_ms", ".0f"),
    "s to recover": ("recovered_s", ".2f"),
    "generator late p99 ms": ("lag_p99_ms", ".1f"),
    "server's cores": ("server_cpu", ".2f"),
}


def _page(records: Records) -> str:
    lines = ["# Overload\n"]
    for run in records.find("run"):
        about = run["machine"]
        lines.append(
            f"- `{run['command']}` (commit {run['commit'] or 'unknown'}; {about['cores']} cores,"
            f" {about['cpu']}; load average before: {about['load_before']})"
        )
    lines += ["", _EXPLAINED]
    for server, name in dict.fromkeys((_server(row), row["case"]) for row in records.find("row")):
        rows = [row for row in records.find("row", case=name) if _server(row) == server]
        capacities = sorted({row["capacity_rps"] for row in rows})
        slo_ms = 1e3 * _CASES[name].slo_s
        lines.append(
            f"\n## {server}, {name}: within {slo_ms:g} ms,"
            f" capacity {', '.join(map(str, capacities))}/s\n"
        )
        lines.append(f"| load | shed | {' | '.join(_COLUMNS)} |")
        lines.append(f"| ---: | --- |{' ---: |' * len(_COLUMNS)}")
        for times, mode in dict.fromkeys((row["times"], row["mode"]) for row in rows):
            same = [row for row in rows if (row["times"], row["mode"]) == (times, mode)]
            cells = [_median(same, *column) for column in _COLUMNS.values()]
            lines.append(f"| {times:g}x | {mode} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


_EXPLAINED = """All parts of a path share all cores but the last (on two: one for all, as under
`limits.cpu: 1`), the generator has the last. It sends each request when it is due on one of up to
2000 keep-alive connections; where none is free the request is not sent (`unsent`) and counts as not
in time. Latency counts from the due time, shares are of all that was due, `in time` is at best one
over the load. `answers of capacity` are good ones, in time or not. Where the generator was late by
more than a tenth of the objective, what it tells of that row is its own lateness as well."""


def _server(row: dict[str, Any]) -> str:
    return str(row.get("server", CARPOOL.name))  # files before there were others lack it


def _median(rows: list[dict[str, Any]], field: str, data: str) -> str:
    known = [row[field] for row in rows if row[field] is not None]
    return format(statistics.median(known), data) if known else "-"
