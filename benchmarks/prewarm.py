"""Compare prewarm policies on traces of days: cold starts and idle time.

``python -m benchmarks.prewarm --trace FILE --trace FILE`` prints Markdown, or JSON with ``--json``.
A trace is replayed as a Poisson process with its rate, at several scales, for one instance that
runs or does not. In the cases named ``peaks`` its rate is divided over many instances instead, each
of which gets only what the ones before it cannot take: their idle times are those of a function
that is scaled up and down, in steps of the trace. Two timers show what prewarming is for.

All cases are in the tables. Nothing here is timed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from carpool import plugins
from carpool.arrivals.processes import Trace, read_trace, timestamps
from scaler.prewarm.replay import Replayed, replay_idle

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from carpool.arrivals.processes import Times

__all__ = ["main"]

_EXAMPLES = Path(__file__).resolve().parents[1] / "examples/scenarios"
_TRACES = ("periodic.csv", "sporadic.csv", "bursty.csv")
_DAYS_S = 7 * 86400.0
_EXEC_S = 0.1
_FEWER_COLD, _LESS_IDLE = 0.17, 0.24  # what INFless measured for its policy against the other
_HOURS_4 = 14400.0
_PRICES_S = (10.0, 1e6)
_BISECTIONS = 10

_POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    "fixed 5 min": ("fixed", {"keep_alive_s": 300.0}),
    "fixed 20 min": ("fixed", {"keep_alive_s": 1200.0}),
    "fixed 60 min": ("fixed", {"keep_alive_s": 3600.0}),
    "hhp": ("hhp", {}),
    "hhp of 4 h": ("hhp", {"window_s": _HOURS_4}),
    "lsth 0.3": ("lsth", {"gamma": 0.3}),
    "lsth 0.5": ("lsth", {"gamma": 0.5}),
    "lsth 0.7": ("lsth", {"gamma": 0.7}),
    "lsth 0.5, 20 an hour": ("lsth", {"short_least": 20}),
    "breakeven 5 min": ("breakeven", {"price_s": 300.0}),
    "breakeven 20 min": ("breakeven", {"price_s": 1200.0}),
    "breakeven 60 min": ("breakeven", {"price_s": 3600.0}),
}
_AGAINST = ("hhp", "hhp of 4 h")


@dataclass(frozen=True, slots=True)
class Stream:
    """The calls of one instance: time of the first call, idle times, and when each ended."""

    requests: int
    begin_s: float
    idle_s: Times
    ended_s: Times

    def replay(self, policy: str, params: Mapping[str, Any]) -> Replayed:
        """Replay the stream with a fresh policy."""
        made = plugins.build(plugins.resolve("prewarm", policy), params)
        outcome = replay_idle(self.idle_s, self.ended_s, self.begin_s, made)
        return dataclasses.replace(outcome, requests=self.requests)


@dataclass(frozen=True, slots=True)
class Case:
    """Streams whose outcomes are added up; each has its own policy."""

    name: str
    streams: tuple[Stream, ...]

    def replay(self, policy: str, params: Mapping[str, Any]) -> Replayed:
        """Replay all streams."""
        return sum((stream.replay(policy, params) for stream in self.streams), Replayed())

    def least_idle_s(self, cold_starts: int) -> float:
        """Return the least idle time for a number of cold starts, with perfect knowledge.

        The instance is kept through the shortest idle times. Prewarming is not counted: with
        perfect knowledge it would need no idle time at all.
        """
        idle_s = np.sort(np.concatenate([stream.idle_s for stream in self.streams]))
        missed = max(0, cold_starts - len(self.streams))
        return float(idle_s[: max(0, len(idle_s) - missed)].sum())


def main(argv: list[str]) -> int:
    """Run the cases named on the command line, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prewarm", description=__doc__)
    parser.add_argument("--trace", type=Path, action="append", help="start_s,requests_per_minute")
    parser.add_argument("--scale", type=float, nargs="+", default=[0.1, 0.3, 1.0])
    parser.add_argument("--peaks", type=int, default=40, help="instances that share a trace's peak")
    parser.add_argument("--seeds", type=int, default=1, help="runs that are added up")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    arguments = parser.parse_args(argv)
    traces = arguments.trace or [_EXAMPLES / name for name in _TRACES]
    cases = list(_trace_cases(traces, arguments.scale, arguments.peaks, arguments.seeds))
    everything = tuple(stream for case in cases for stream in case.streams)
    cases += [Case("all of these", everything), *_timer_cases(arguments.seeds)]
    results = []
    for case in cases:
        results.append(_measured(case))
        sys.stderr.write(f"{case.name}: done\n")
    print(json.dumps(results, indent=2) if arguments.json else _page(results))
    return 0


def _trace_cases(
    paths: Sequence[Path], scales: Sequence[float], peaks: int, seeds: int
) -> Iterator[Case]:
    for path in paths:
        for scale in scales:
            trace = read_trace(path, scale)
            drawn = [timestamps(trace, trace.end_s, seed) for seed in range(seeds)]
            yield Case(f"{path.stem} x{scale:g}", tuple(_stream(times) for times in drawn))
        yield Case(f"{path.stem} peaks", tuple(_peaks(read_trace(path), peaks)))


def _timer_cases(seeds: int) -> Iterator[Case]:
    """Yield a call every hour with a jitter of about 30 s, and the same with random extra calls."""
    timers, mixed = [], []
    for seed in range(seeds):
        draw = np.random.default_rng(seed)
        hours = np.arange(3600.0, _DAYS_S, 3600.0)
        calls = np.sort(hours + draw.normal(0, 30, len(hours)))
        timers.append(_stream(calls))
        extra = draw.uniform(0, _DAYS_S, len(hours) // 3)
        mixed.append(_stream(np.sort(np.concatenate([calls, extra]))))
    yield Case("timer", tuple(timers))
    yield Case("timer and random calls", tuple(mixed))


def _stream(arrivals_s: Times) -> Stream:
    idle_s = np.diff(arrivals_s) - _EXEC_S
    ended = np.flatnonzero(idle_s > 0)
    return Stream(len(arrivals_s), float(arrivals_s[0]), idle_s[ended], arrivals_s[ended + 1])


def _peaks(trace: Trace, count: int) -> Iterator[Stream]:
    """Yield instances, where instance n is called while the rate exceeds n shares of the peak."""
    starts_s, rates = np.array(trace.starts_s), np.array(trace.rates_rps)
    ends_s = np.append(starts_s[1:], trace.end_s)
    for number in range(count):
        called = np.flatnonzero(rates > rates.max() * number / count)
        idle_s = starts_s[called[1:]] - ends_s[called[:-1]]
        again = np.flatnonzero(idle_s > 0)
        yield Stream(
            1 + len(again), float(ends_s[called[0]]), idle_s[again], starts_s[called[1:]][again]
        )


def _measured(case: Case) -> dict[str, Any]:
    runs = {name: case.replay(*policy) for name, policy in _POLICIES.items()}
    rows = {
        name: {
            "cold_starts": run.cold_starts,
            "cold_start_ratio": run.cold_start_ratio,
            "idle_h": run.idle_s / 3600,
            "loads": run.loads,
        }
        for name, run in runs.items()
    }
    at_equal = {
        name: {
            "idle_h": runs[name].idle_s / 3600,
            "cold_starts": runs[name].cold_starts,
            "fixed": _at_idle_time(case, "fixed", "keep_alive_s", runs[name].idle_s),
            "breakeven": _at_idle_time(case, "breakeven", "price_s", runs[name].idle_s),
            "clairvoyant_idle_h": case.least_idle_s(runs[name].cold_starts) / 3600,
        }
        for name in _AGAINST
    }
    requests = runs["hhp"].requests
    return {"case": case.name, "requests": requests, "policies": rows, "at_equal_idle": at_equal}


def _at_idle_time(case: Case, policy: str, parameter: str, idle_s: float) -> dict[str, float]:
    """Find the fewest cold starts with no more idle time, by bisection of the parameter."""
    low, high = _PRICES_S
    best = case.replay(policy, {parameter: low})
    found = low
    for _ in range(_BISECTIONS):
        middle = (low * high) ** 0.5
        run = case.replay(policy, {parameter: middle})
        if run.idle_s <= idle_s:
            low = middle
            if run.cold_starts <= best.cold_starts:
                best, found = run, middle
        else:
            high = middle
    return {
        parameter: found,
        "cold_starts": best.cold_starts,
        "idle_h": best.idle_s / 3600,
    }


def _page(results: Sequence[Mapping[str, Any]]) -> str:
    tables = [_case_table(result) for result in results]
    parts = [*tables, *(_lsth_table(results, name) for name in _AGAINST)]
    parts += [_equal_table(results, name) for name in _AGAINST]
    return "\n".join(parts)


def _case_table(result: Mapping[str, Any]) -> str:
    lines = [
        f"## {result['case']}: {result['requests']} requests\n",
        "| policy | cold starts | ratio | idle hours | loads |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, row in result["policies"].items():
        lines.append(
            f"| {name} | {row['cold_starts']} | {row['cold_start_ratio']:.2%} "
            f"| {row['idle_h']:.1f} | {row['loads']} |"
        )
    return "\n".join(lines) + "\n"


def _lsth_table(results: Sequence[Mapping[str, Any]], other: str) -> str:
    """Return a table of where the long-short histogram wins and loses."""
    names = [name for name in _POLICIES if name.startswith("lsth")]
    lines = [
        f"## lsth against {other}: cold starts, idle time\n",
        f"| case | {' | '.join(names)} |",
        "|---|" + "---|" * len(names),
    ]
    for result in results:
        rows = result["policies"]
        cells = [_difference(rows[name], rows[other]) for name in names]
        lines.append(f"| {result['case']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _difference(row: Mapping[str, float], other: Mapping[str, float]) -> str:
    cold = row["cold_starts"] / other["cold_starts"] - 1
    idle = row["idle_h"] / other["idle_h"] - 1 if other["idle_h"] else 0.0
    if (cold <= -_FEWER_COLD and idle <= 0) or (idle <= -_LESS_IDLE and cold <= 0):
        verdict = " **reached**"
    elif cold <= 0 and idle <= 0:
        verdict = " better"
    elif cold >= 0 and idle >= 0:
        verdict = " worse"
    else:
        verdict = ""
    return f"{cold:+.1%}, {idle:+.1%}{verdict}"


def _equal_table(results: Sequence[Mapping[str, Any]], other: str) -> str:
    """Return what the others achieve in the same idle time, with their parameter set by hindsight.

    The last column has as many cold starts as ``other``, and the idle time of `least_idle_s`.
    """
    lines = [
        f"## At the idle time of {other}, with the parameter that hindsight chooses\n",
        f"| case | idle hours | {other} | fixed | breakeven | foresight, no loading ahead |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for result in results:
        row = result["at_equal_idle"][other]
        cells = [
            f"{row[name]['cold_starts']} ({row[name]['cold_starts'] / row['cold_starts'] - 1:+.0%})"
            for name in ("fixed", "breakeven")
        ]
        lines.append(
            f"| {result['case']} | {row['idle_h']:.1f} | {row['cold_starts']} "
            f"| {' | '.join(cells)} | {row['clairvoyant_idle_h']:.1f} "
            f"({row['clairvoyant_idle_h'] / row['idle_h'] - 1:+.0%}) |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
