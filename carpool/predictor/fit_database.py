"""Contents of a profile database for one model: the fit, its operators and its own runs."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.errors import ConfigError, Problem
from carpool.predictor.calibration import scaled
from carpool.predictor.composition import composed
from carpool.predictor.fit import ThreadsAndGpu
from carpool.predictor.fit_json import from_json, to_json
from carpool.predictor.latency_model import OperatorLatencyModel
from carpool.predictor.measured_operators import (
    measured_batches,
    read_alone,
    read_overheads,
    read_refused,
)
from carpool.predictor.operator_groups import Groups
from carpool.predictor.profile import Origin, Setting
from carpool.predictor.profile_database import case_ids, rows_of
from carpool.predictor.profile_file import default_database, opened

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Iterable, Mapping

    from carpool.onnx_graph.operator_graph import Case, Graph, Operator
    from carpool.predictor.calibration import Calibration
    from carpool.predictor.fit import Fit
    from carpool.predictor.profile_database import Numbers

__all__ = ["own_database", "read_fit", "read_model", "usual_database", "write_fit"]

_NS_PER_S = 1e9


def own_database(env: Mapping[str, str] = os.environ) -> Path:
    """Return the path where ``carpool profile`` stores its measurements."""
    data = env.get("XDG_DATA_HOME") or str(
        Path(env.get("HOME") or "~").expanduser() / ".local/share"
    )
    return Path(data) / "carpool" / "profiles.sqlite"


def usual_database() -> Path:
    """Return the user's own database, or the package's if there is none."""
    own = own_database()
    return own if own.is_file() else default_database()


def write_fit(path: Path, origin: Origin, fit: Fit, models: int) -> None:
    """Store the fit learned from the rows of an origin.

    Raises:
        ConfigError: the file is not a profile database, or cannot be written.
    """
    with opened(path, write=True) as connection:
        connection.execute(
            "INSERT OR REPLACE INTO fits VALUES (?, ?, ?, ?, ?)", (*origin, models, to_json(fit))
        )


def read_fit(path: Path, origin: Origin) -> Fit | None:
    """Return the fit that this version learned from the rows of an origin; None if there is none.

    Raises:
        ConfigError: the file is not a profile database.
    """
    query = "SELECT document FROM fits WHERE (hardware, runtime, device) = (?, ?, ?)"
    with opened(path) as connection:
        row = connection.execute(query, tuple(origin)).fetchone()
    try:
        return from_json(row[0]) if row else None
    except ValueError:
        return None


def read_model(
    path: Path,
    graph: Graph,
    hardware: str = "",
    runtime: str = "",
    *,
    alone: bool = False,
    calibration: Callable[[Origin], Calibration | None] = lambda _: None,
) -> tuple[OperatorLatencyModel, Origin]:
    """Return the latency model of a graph, and the origin of the database's times.

    Args:
        path: A profile database.
        graph: The model.
        hardware: The processor to predict for, if the database has several.
        runtime: The runtime to predict for; empty for the runtime of the times.
        alone: Whether to use operators measured alone only, and not those measured in other models.
        calibration: Returns the calibration of a machine; None if there is none.

    Raises:
        ConfigError: the file is not a profile database, or nothing was learned from it.
    """
    with opened(path) as connection:
        origin, fit = _best_fit(connection, path, hardware)
        target = Origin(hardware or origin.hardware, runtime or origin.runtime)
        overheads = read_overheads(connection, target)
        batches = {*fit.batches, *measured_batches(connection, target)}
        numbers = _case_ids(connection, graph, batches)
        rows = list(read_alone(connection, target, numbers))
        refused = frozenset(
            (row.case, ThreadsAndGpu(*row.setting[1:]))
            for row in read_refused(connection, target, numbers)
        )
        known = {} if alone else _known(connection, origin, numbers)
        runs, load_s, memory_mb = _runs(connection, origin, graph, hardware)
    here = origin == target
    calibrated = calibration(target)
    overheads = dict(calibrated.overheads if calibrated else {}) | overheads
    own = composed(graph, rows) | (known if here else {})
    slower, quicker = _branches(graph, own)
    groups = Groups(slower)
    fit = _complete(fit, groups, path)
    learnt = fit.on_machine(overheads, {row.setting.batch for row in rows})
    model = OperatorLatencyModel(
        slower,
        _scaled(learnt, groups, fit.units if here else (), calibrated),
        own,
        None if here else known,
        frozenset({unit.threads for unit in learnt.units} if here else overheads),
        runs,
        load_s,
        memory_mb,
        refused=refused,
        groups=groups,
        learnt=learnt,
        calibrated=frozenset(row.setting.threads for row in calibrated.rows)
        if calibrated
        else frozenset(),
    )
    if quicker != slower:
        model = replace(model, least=replace(model, graph=quicker))
    return model, origin


def _scaled(
    fit: Fit, groups: Groups, own: Collection[ThreadsAndGpu], calibration: Calibration | None
) -> Fit:
    """Return the fit scaled to the calibrated machine; unchanged without a calibration."""
    if calibration is None:
        return fit
    families = {group.operator_class: group.family for group in groups.all}
    return scaled(fit, calibration, families, own)


def _branches(
    graph: Graph, known: Mapping[tuple[Case, ThreadsAndGpu], float]
) -> tuple[Graph, Graph]:
    """Return the graph with the slower branch of each If, and the graph with the quicker one."""
    if not any(operator.otherwise for operator in graph.operators):
        return graph, graph
    spent_s: defaultdict[str, float] = defaultdict(float)
    for (case, _), seconds in known.items():
        spent_s[case.attributes] += seconds
    slower, quicker = (
        replace(graph, operators=[pick(o.branches, key=_spent(spent_s)) for o in graph.operators])
        for pick in (max, min)
    )
    return slower, quicker


def _spent(spent_s: Mapping[str, float]) -> Callable[[Operator], float]:
    return lambda operator: spent_s[operator.attributes]


def _complete(fit: Fit, groups: Groups, path: Path) -> Fit:
    """Return the fit, with the package's laws for classes of the graph that it lacks."""
    default = default_database()
    units = fit.units
    wanted_classes = {(group.operator_class, unit) for group in groups.all for unit in units}
    if wanted_classes <= set(fit.laws) or path == default:
        return fit
    with opened(default) as connection:
        _, other = _best_fit(connection, default, "")
    return fit.with_laws_of(other)


def _case_ids(connection: sqlite3.Connection, graph: Graph, batches: Iterable[int]) -> Numbers:
    """Return the operators of a graph in a database, at each batch size that the graph admits."""
    every = [branch for operator, _ in graph.alike for branch in operator.branches]
    return case_ids(connection, every, [batch for batch in sorted(batches) if graph.admits(batch)])


def _best_fit(connection: sqlite3.Connection, path: Path, hardware: str) -> tuple[Origin, Fit]:
    """Return the fit for this processor, or else the fit of the most models."""
    row = connection.execute(
        "SELECT hardware, runtime, device, document FROM fits"
        " ORDER BY hardware = ? DESC, models DESC, runtime DESC LIMIT 1",
        (hardware,),
    ).fetchone()
    if row is None:
        expected = "profiles of enough models; carpool profile adds one"
        raise ConfigError([Problem("database", str(path), expected)])
    try:
        return Origin(*row[:3]), from_json(row[3])
    except ValueError as error:
        expected = "a fit made by this version of carpool"
        fix = "run carpool profile on any model, which fits the database again"
        raise ConfigError([Problem("database", str(path), expected, fix)]) from error


def _known(
    connection: sqlite3.Connection, origin: Origin, numbers: Numbers
) -> dict[tuple[Case, ThreadsAndGpu], float]:
    """Return the in-place seconds of operators, averaged over all models that contain them."""
    query = (
        'SELECT o."case", batch, threads, gpu, sum(o.count * o.median_ns) / sum(o.count)'
        ' FROM json_each(?) j CROSS JOIN operators o ON o."case" = j.value'
        " JOIN models m ON m.id = o.model"
        " WHERE (hardware, runtime, device) = (?, ?, ?) GROUP BY 1, 2, 3, 4"
    )
    return {
        (case, ThreadsAndGpu(*unit)): ns / _NS_PER_S
        for case, _, *unit, ns in rows_of(connection, query, numbers, origin)
    }


def _runs(
    connection: sqlite3.Connection, origin: Origin, graph: Graph, hardware: str
) -> tuple[dict[Setting, float], float, float]:
    """Return the model's own runs on this processor, its load time and its memory.

    Load time and memory may be from another processor.
    """
    row = connection.execute(
        "SELECT id, load_s, memory_mb, hardware FROM models WHERE fingerprint = ?"
        " AND (hardware = ? OR (hardware, runtime, device) = (?, ?, ?))"
        " ORDER BY hardware = ? DESC, id DESC LIMIT 1",
        (graph.fingerprint, hardware, *origin, hardware),
    ).fetchone()
    if row is None:
        return {}, 0.0, 0.0
    if hardware and row[3] != hardware:  # another processor's runs correct nothing here
        return {}, row[1], row[2]
    runs = connection.execute(
        "SELECT batch, threads, gpu, median_ns FROM runs WHERE model = ?", row[:1]
    )
    return {Setting(*setting): ns / _NS_PER_S for *setting, ns in runs}, row[1], row[2]
