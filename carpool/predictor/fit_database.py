"""What a profile database has to say about one model: the fit, its operators, its own runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.errors import ConfigError, Problem
from carpool.predictor.fit import ThreadsAndGpu
from carpool.predictor.fit_json import from_json, to_json
from carpool.predictor.latency_model import OperatorLatencyModel
from carpool.predictor.profile import Origin, Setting
from carpool.predictor.profile_database import case_id
from carpool.predictor.profile_file import default_database, opened

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping

    from carpool.predictor.fit import Fit
    from carpool.predictor.graph import Case, Graph

__all__ = ["is_learnt", "own_database", "read_model", "usual_database", "write_fit"]

_NS_PER_S = 1e9


def own_database(env: Mapping[str, str] = os.environ) -> Path:
    """Where ``carpool profile`` keeps what it measures."""
    data = env.get("XDG_DATA_HOME") or str(
        Path(env.get("HOME") or "~").expanduser() / ".local/share"
    )
    return Path(data) / "carpool" / "profiles.sqlite"


def usual_database() -> Path:
    """The user's own database, or else the one that comes with the package."""
    own = own_database()
    return own if own.is_file() else default_database()


def write_fit(path: Path, origin: Origin, fit: Fit, models: int) -> None:
    """Keep what was learnt from the rows of an origin.

    Raises:
        ConfigError: the file is no profile database, or cannot be written.
    """
    with opened(path, write=True) as connection:
        connection.execute(
            "INSERT OR REPLACE INTO fits VALUES (?, ?, ?, ?, ?)", (*origin, models, to_json(fit))
        )


def is_learnt(path: Path, origin: Origin) -> bool:
    """Whether something was learnt from the rows of an origin, by this version.

    Raises:
        ConfigError: the file is no profile database.
    """
    query = "SELECT document FROM fits WHERE (hardware, runtime, device) = (?, ?, ?)"
    with opened(path) as connection:
        row = connection.execute(query, tuple(origin)).fetchone()
    try:
        return row is not None and bool(from_json(row[0]).batches)
    except ValueError:
        return False


def read_model(
    path: Path,
    graph: Graph,
    hardware: str = "",
) -> tuple[OperatorLatencyModel, Origin]:
    """The latency model of a graph, and what the database's times were measured on.

    Args:
        path: A profile database.
        graph: The model.
        hardware: The processor to predict for, where the database has several.

    Raises:
        ConfigError: the file is no profile database, or nothing was learnt from it.
    """
    with opened(path) as connection:
        origin, fit = _best_fit(connection, path, hardware)
        known = dict(_known(connection, origin, graph, fit))
        runs, load_s, memory_mb = _runs(connection, origin, graph, hardware)
    return OperatorLatencyModel(graph, fit, known, runs, load_s, memory_mb), origin


def _best_fit(connection: sqlite3.Connection, path: Path, hardware: str) -> tuple[Origin, Fit]:
    """The fit for this processor, or else the one of the most models."""
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
        expected = "what this version of carpool has learnt"
        fix = "carpool profile of any model learns anew from what the database holds"
        raise ConfigError([Problem("database", str(path), expected, fix)]) from error


def _known(
    connection: sqlite3.Connection, origin: Origin, graph: Graph, fit: Fit
) -> Iterable[tuple[tuple[Case, ThreadsAndGpu], float]]:
    query = (
        "SELECT threads, gpu, sum(o.count * o.median_ns) / sum(o.count) FROM operators o"
        ' JOIN models m ON m.id = o.model WHERE o."case" = ? AND batch = ?'
        " AND (hardware, runtime, device) = (?, ?, ?) GROUP BY threads, gpu"
    )
    cases = {
        operator.at(batch): batch
        for batch in fit.batches
        if graph.admits(batch)
        for operator in graph.operators
    }
    for case, batch in cases.items():
        number = case_id(connection, case, batch)
        for *unit, ns in connection.execute(query, (number, batch, *origin)):
            yield (case, ThreadsAndGpu(*unit)), ns / _NS_PER_S


def _runs(
    connection: sqlite3.Connection, origin: Origin, graph: Graph, hardware: str
) -> tuple[dict[Setting, float], float, float]:
    """The model's own runs: on this processor, or else where its operators were measured."""
    row = connection.execute(
        "SELECT id, load_s, memory_mb FROM models WHERE fingerprint = ?"
        " AND (hardware = ? OR (hardware, runtime, device) = (?, ?, ?))"
        " ORDER BY hardware = ? DESC, id DESC LIMIT 1",
        (graph.fingerprint, hardware, *origin, hardware),
    ).fetchone()
    if row is None:
        return {}, 0.0, 0.0
    runs = connection.execute(
        "SELECT batch, threads, gpu, median_ns FROM runs WHERE model = ?", row[:1]
    )
    return {Setting(*setting): ns / _NS_PER_S for *setting, ns in runs}, row[1], row[2]
