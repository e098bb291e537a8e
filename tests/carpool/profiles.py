"""Profiles of a machine that follows a simple law, for tests of learning from profiles."""

from __future__ import annotations

import itertools
import random
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.onnx_graph.operator_graph import Graph, Operator
from carpool.predictor.fit_database import write_fit
from carpool.predictor.fitting import fit_profiles
from carpool.predictor.profile import OperatorRow, Origin, Profile, RunRow, Setting
from carpool.predictor.profile_database import write_profile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from carpool.onnx_graph.operator_graph import Case
    from carpool.predictor.fit import Fit

ORIGIN = Origin("test processor", "test runtime")
BATCHES = (1, 2, 4, 8, 16)
PER_RUN_S, PER_OPERATOR_S = 5e-6, 1e-6
_RATE = 30e9  # multiplications a second of one thread


def graph(widths: Sequence[int], name: str = "net") -> Graph:
    """Return a network of fully connected layers of these widths."""
    operators = [
        Operator(
            f"layer {at}",
            "Gemm",
            "{}",
            (
                ("f32", ((0, 1), (before, 0)), False),
                ("f32", ((before, 0), (after, 0)), True),
                ("f32", ((after, 0),), True),
            ),
            (("f32", ((0, 1), (after, 0)), False),),
            (at - 1,) if at else (),
        )
        for at, (before, after) in enumerate(itertools.pairwise(widths))
    ]
    return Graph(name, operators)


def operator_s(case: Case, threads: int) -> float:
    """Return the machine's time for a layer."""
    rows, columns = case.outputs[0].shape
    depth = case.inputs[1].shape[0]
    blocks = -(-columns // 16) * 16
    passes = rows / 12 if rows >= 12 else 0.5
    return 2e-6 + 12 * passes * blocks * depth / _RATE / threads


def run_s(net: Graph, batch: int, threads: int, factor: float = 1.0) -> float:
    """Return the machine's time for a run."""
    kernels = sum(operator_s(o.at(batch), threads) for o in net.operators)
    return factor * (kernels + PER_RUN_S + PER_OPERATOR_S * len(net.operators))


def steady(_: Setting) -> float:
    """Return the factor of whole runs that take exactly the time predicted from their operators."""
    return 1.0


def profile(net: Graph, factor: float = 1.0, whole: Callable[[Setting], float] = steady) -> Profile:
    """Return the profile of a network on a machine that is slower by ``factor``.

    ``whole`` gives a further factor for whole runs, which may depend on the setting.
    """
    settings = [Setting(batch, threads) for threads in (1, 2) for batch in BATCHES]
    return Profile(
        net.model,
        ORIGIN,
        tuple(
            _run(setting, run_s(net, setting.batch, setting.threads, factor * whole(setting)))
            for setting in settings
        ),
        tuple(
            OperatorRow(case, s, 1, factor * operator_s(case, s.threads), 1e-7)
            for s in settings
            for case in [operator.at(s.batch) for operator in net.operators]
        ),
        1.5,
        200.0,
        net.fingerprint,
    )


def profiles(count: int = 24) -> list[Profile]:
    """Return profiles of random networks."""
    draw = random.Random(3)
    nets = [graph([draw.randint(16, 900) for _ in range(5)], f"net {n}") for n in range(count)]
    return [profile(net) for net in nets]


@cache
def learnt() -> Fit:
    """Return the fit to `profiles`."""
    return fit_profiles(profiles())


def taught(path: Path) -> Path:
    """Write a database with `profiles` and their fit to ``path``, and return the path."""
    path.write_bytes(_taught())
    return path


@cache
def _taught() -> bytes:
    measured = profiles()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "p.sqlite"
        for each in measured:
            write_profile(path, each)
        write_fit(path, ORIGIN, learnt(), len(measured))
        assert [path] == [*Path(folder).iterdir()]
        return path.read_bytes()


def _run(setting: Setting, median_s: float) -> RunRow:
    return RunRow(setting, median_s, 1.1 * median_s, 1.2 * median_s, 1.4 * median_s, 1e-6, 30)
