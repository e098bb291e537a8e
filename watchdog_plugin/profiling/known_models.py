"""A model's latency from a profile database that is queried and extended operator by operator.

The graph of a file is stored too, so that a known model needs neither the runtime nor the package
that reads models.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from carpool.errors import ConfigError
from carpool.predictor.calibration_file import read_calibration
from carpool.predictor.fit_database import own_database, read_model, usual_database
from carpool.predictor.graph_json import known_graph, write_graph
from carpool.predictor.measured_operators import write_alone
from carpool.predictor.prediction_report import Basis
from carpool.predictor.profile_file import begin_database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from carpool.onnx_graph.operator_graph import Graph
    from carpool.onnx_graph.optimised import Optimised
    from carpool.predictor.latency_model import OperatorLatencyModel
    from carpool.predictor.profile import Alone, Origin, RefusedOperator, Setting

    Say = Callable[[str], None]

__all__ = ["Request", "read"]

_CHUNK = 64  # rows that are written together


class Request(NamedTuple):
    """A request for predictions.

    Attributes:
        path: The model file.
        sizes: Sizes of free dimensions other than the batch.
        database: A profile database; None for the user's own, or else the package's.
        target: The machine to predict for.
        settings: The settings to predict for.
        budget_s: Time limit for measuring operators, in seconds; 0 to measure nothing.
        is_asked: Whether measuring was requested explicitly, so that it has to be possible.
    """

    path: Path
    sizes: Mapping[str, int]
    database: Path | None
    target: Origin
    settings: Sequence[Setting]
    budget_s: float
    is_asked: bool = False


def read(request: Request, say: Say) -> tuple[OperatorLatencyModel, Basis]:
    """Return the latency model, after measuring what is unknown if that is possible.

    Raises:
        ConfigError: A model or a database cannot be used.
    """
    database, writable = _database(request, say)
    return _Reading(request, database, say, writable=writable).result()


def _database(request: Request, say: Say) -> tuple[Path, bool]:
    """Return the database, and whether measurements can be stored in it."""
    if not request.budget_s:
        return request.database or usual_database(), False
    path = request.database or own_database()
    try:
        begin_database(path)
    except ConfigError as error:
        if request.is_asked or not path.is_file():
            raise
        say(f"nothing is measured, because the result could not be stored: {error}")
        return path, False
    return path, True


class _Reading:
    """Reads one request's model from the database, measuring what is missing.

    Args:
        request: The request.
        database: The profile database.
        say: Called with progress messages.
        writable: Whether measurements can be stored, and so may be made.
    """

    def __init__(self, request: Request, database: Path, say: Say, *, writable: bool) -> None:
        self._request, self._database, self._writable = request, database, writable
        self._say = say
        self._best: Optimised | None = None

    def result(self) -> tuple[OperatorLatencyModel, Basis]:
        """Return the latency model, and the basis of its predictions."""
        model, origin = self._read(self._graph())
        basis = Basis(origin, self._request.target)
        if not self._writable:
            return model, basis
        settings = self._settings()
        lacking = {setting.threads for setting in settings} - model.overheads
        if not lacking and not model.unmeasured(settings):
            return model, basis
        began = time.monotonic()
        fresh = self._measure(lacking, settings)
        model, _ = self._read(self._optimised().graph)
        return model, basis._replace(measuring_s=time.monotonic() - began, fresh=fresh)

    def _settings(self) -> list[Setting]:
        """Return the settings to measure: those for which this machine has enough cores."""
        there = len(os.sched_getaffinity(0))
        return [setting for setting in self._request.settings if setting.threads <= there]

    def _measure(self, lacking: set[int], settings: Sequence[Setting]) -> set[tuple[str, str]]:
        # These need the runtime.
        from watchdog_plugin.profiling.run_overhead import measure_overhead  # noqa: PLC0415
        from watchdog_plugin.profiling.single_operators import (  # noqa: PLC0415
            Wanted,
            measure_alone,
        )

        overheads = {threads: measure_overhead(threads) for threads in sorted(lacking)}
        write_alone(self._database, self._request.target, (), overheads)
        best = self._optimised()
        model, _ = self._read(best.graph)
        wanted = [Wanted(*each) for each in model.unmeasured(settings)]
        profiled_s = {u.threads: -s for u, s in model.fit.per_operator_s.items() if not u.gpu}
        budget_s = self._request.budget_s
        self._say(f"measuring {len(wanted)} operators alone, for {budget_s:g} s at most")
        rows = self._kept(measure_alone(best, wanted, profiled_s, budget_s, self._say))
        return {(row.case.op_type, row.case.shapes) for row in rows}

    def _kept(self, measured: Iterable[Alone | RefusedOperator]) -> list[Alone | RefusedOperator]:
        """Return the measurements, storing them in chunks, and the rest even if interrupted."""
        rows: list[Alone | RefusedOperator] = []
        kept = 0
        try:
            for row in measured:
                rows.append(row)
                if len(rows) - kept >= _CHUNK:
                    write_alone(self._database, self._request.target, rows[kept:], {})
                    kept = len(rows)
        finally:
            write_alone(self._database, self._request.target, rows[kept:], {})
        return rows

    def _read(self, graph: Graph) -> tuple[OperatorLatencyModel, Origin]:
        target = self._request.target
        model, origin = read_model(
            self._database, graph, target.hardware, target.runtime, calibration=read_calibration
        )
        if self._request.is_asked:  # what was refused before is tried again
            model = replace(model, refused=())
        return model, origin

    def _graph(self) -> Graph:
        request = self._request
        key = (self._database, request.path, request.sizes, request.target.runtime)
        graph = known_graph(*key)
        if graph is None:
            graph = self._optimised().graph
            if self._writable:
                write_graph(*key, graph)
        return graph

    def _optimised(self) -> Optimised:
        from carpool.onnx_graph import optimised  # noqa: PLC0415  it needs the runtime
        from carpool.onnx_graph.model_file import read_onnx  # noqa: PLC0415

        if self._best is None:
            model = read_onnx(self._request.path, self._request.sizes)
            self._best = optimised.optimised(self._request.path, model)
        return self._best
