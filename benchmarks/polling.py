"""Compare ways in which a model's threads wait for work: ``python -m benchmarks polling``.

A session runs on several threads, alone or beside a second one that wants the same cores. Ways take
turns within each round, as the speed of a shared machine changes from second to second.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import onnxruntime as ort

from benchmarks.machine import commit
from benchmarks.operators_unseen import built
from carpool.onnx_graph.model_file import read_onnx
from watchdog_plugin.onnx.threads import set_threads
from watchdog_plugin.profiling.profiled_session import feeds
from watchdog_plugin.profiling.profiler import origin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["main"]

_BUILD = Path(__file__).parent.parent / "build" / "operator-models"
_RESULTS = Path(__file__).parent / "results" / "polling.md"
_MODELS = "keyword,mixer,shufflenet,transformer,squeezenet,densenet121,resnet50"
_BATCHES = (1, 4)
_SLICE_S = 0.5
_REST_S = 0.1


def _asleep(options: Any, threads: int) -> None:  # noqa: ANN401  onnxruntime ships no types
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")


def _by_default(options: Any, threads: int) -> None:  # noqa: ANN401
    options.intra_op_num_threads = threads


_WAYS: dict[str, Callable[[Any, int], None]] = {
    "sleep at once": _asleep,
    "as Carpool": set_threads,
    "as ONNX Runtime": _by_default,
}


class _Slice(NamedTuple):
    """Runs in a slice of time, per second, and CPU seconds of each."""

    rate: float
    cpu_s: float


def main(argv: list[str]) -> int:
    """Measure all models, print the table, and write it to benchmarks/results/."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks polling")
    parser.add_argument("--models", default=_MODELS, help=f"separated by commas ({_MODELS})")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--note", default="", help="about the machine, for the report")
    parser.add_argument("--out", type=Path, default=_RESULTS)
    flags = parser.parse_args(argv)
    lines = list(_head(flags))
    for name in flags.models.split(","):
        for batch in _BATCHES:
            lines.append(_row(name, batch, flags.threads, flags.rounds))
            sys.stderr.write(lines[-1] + "\n")
    text = "\n".join(lines) + "\n"
    flags.out.write_text(text)
    sys.stdout.write(text)
    return 0


def _head(flags: argparse.Namespace) -> Iterable[str]:
    yield "# How the threads of a model wait for work\n"
    hardware, runtime, _ = origin()
    yield (
        f"`python -m benchmarks polling --rounds {flags.rounds}`, commit {commit() or 'unknown'}, "
        f"{hardware}, {runtime}, {flags.threads} threads on {os.cpu_count()} cores. "
        f"{flags.note} Runs per second, and CPU time of a run, as ratios to threads that sleep "
        "as soon as their part of an operator is done; medians of rounds. `beside`: two sessions "
        "at once, which want the same cores, both counted.\n"
    )
    ways = list(_WAYS)[1:]
    columns = [f"{way}: {what}" for way in ways for what in ("alone", "CPU", "beside")]
    yield f"| model | batch | runs/s asleep | {' | '.join(columns)} |"
    yield f"|---|{'---:|' * (2 + len(columns))}"


def _row(name: str, batch: int, threads: int, rounds: int) -> str:
    model = read_onnx(built(name, _BUILD))
    inputs = feeds(model, batch)
    sessions = {way: [_session(model, set_, threads) for _ in "ab"] for way, set_ in _WAYS.items()}
    alone: dict[str, list[_Slice]] = {way: [] for way in _WAYS}
    beside: dict[str, list[_Slice]] = {way: [] for way in _WAYS}
    for _ in range(rounds):
        for way, pair in sessions.items():
            time.sleep(_REST_S)  # noqa: TID251  for threads that still poll
            alone[way].append(_slice(pair[:1], inputs))
            beside[way].append(_slice(pair, inputs))
    asleep, *others = _WAYS
    cells = [
        f"{ratio:.2f}"
        for way in others
        for ratio in (
            _ratio([s.rate for s in alone[way]], [s.rate for s in alone[asleep]]),
            _ratio([s.cpu_s for s in alone[way]], [s.cpu_s for s in alone[asleep]]),
            _ratio([s.rate for s in beside[way]], [s.rate for s in beside[asleep]]),
        )
    ]
    first = f"{median(s.rate for s in alone[asleep]):,.0f}"
    return f"| {name} | {batch} | {first} | {' | '.join(cells)} |"


def _session(model: Any, set_: Callable[[Any, int], None], threads: int) -> Any:  # noqa: ANN401
    options = ort.SessionOptions()
    set_(options, threads)
    data = model.SerializeToString()
    return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def _slice(sessions: Sequence[Any], inputs: dict[str, Any]) -> _Slice:
    """Run the sessions at once for half a second."""
    for session in sessions:
        session.run(None, inputs)
    began, cpu_s = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(len(sessions)) as pool:
        end_s = began + _SLICE_S
        runs = sum(pool.map(lambda session: _runs_until(end_s, session, inputs), sessions))
    spent_s = time.perf_counter() - began
    return _Slice(runs / spent_s, (time.process_time() - cpu_s) / runs)


def _runs_until(end_s: float, session: Any, inputs: dict[str, Any]) -> int:  # noqa: ANN401
    runs = 0
    while time.perf_counter() < end_s or not runs:
        session.run(None, inputs)
        runs += 1
    return runs


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median of the rounds' ratios."""
    return median(one / other for one, other in zip(ours, theirs, strict=True))
