"""The profile database: measured operators and models in an SQLite file.

A model that is measured again on the same hardware and runtime replaces its earlier measurements
there. Times are stored as measured, in whole nanoseconds; conclusions are drawn elsewhere. An
operator's shapes are stored once for all batch sizes if they begin with the batch, as in
``f32[1b,64,56,56]``.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from carpool.onnx_graph.operator_graph import Case
from carpool.predictor.profile import OperatorRow, Origin, Profile, RunRow, Setting
from carpool.predictor.profile_file import opened

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from carpool.onnx_graph.operator_graph import Operator, SymbolicShape

__all__ = [
    "Numbers",
    "case_id",
    "case_ids",
    "new_case_id",
    "read_profiles",
    "rows_of",
    "write_profile",
]

Numbers = Mapping[tuple[int, int], Case]  # cases by their numbers in a database and batch sizes

_NS_PER_S = 1e9
_FIRST_SIZE = re.compile(r"(\w+\[)(\d+)([\],][^;>=]*)(?=[;>]|$)")
_FIRST_BATCHES = re.compile(r"(\w+\[)(\d+)b")


def read_profiles(path: Path) -> list[Profile]:
    """Return all profiles of a database.

    Raises:
        ConfigError: the file is missing, or is not a profile database.
    """
    with opened(path) as connection:
        runs = _grouped(connection.execute("SELECT * FROM runs ORDER BY 1, 3, 2, 4"))
        operators = _grouped(
            connection.execute(
                "SELECT o.model, k.kind, attributes, shapes, batch, threads, gpu, count, median_ns,"
                ' spread_ns FROM operators o JOIN cases c ON c.id = o."case"'
                " JOIN kinds k ON k.id = c.kind ORDER BY 1, 6, 5, c.id"
            )
        )
        models = connection.execute(
            "SELECT id, model, fingerprint, hardware, runtime, device, load_s, memory_mb"
            " FROM models ORDER BY id"
        ).fetchall()
    cases: dict[tuple[str, str, str], Case] = {}
    return [
        Profile(
            model,
            Origin(hardware, runtime, device),
            tuple(_run(row) for row in runs.get(number, ())),
            tuple(_operator(row, cases) for row in operators.get(number, ())),
            load_s,
            memory_mb,
            fingerprint,
        )
        for number, model, fingerprint, hardware, runtime, device, load_s, memory_mb in models
    ]


def write_profile(path: Path, profile: Profile) -> None:
    """Store a model's measurements in a database, which is created if missing.

    Raises:
        ConfigError: the file is not a profile database, or cannot be written.
    """
    with opened(path, write=True) as connection:
        key = (profile.model, *profile.origin)
        connection.execute(
            "DELETE FROM models WHERE (model, hardware, runtime, device) = (?, ?, ?, ?)", key
        )
        number = connection.execute(
            "INSERT INTO models (model, hardware, runtime, device, fingerprint, load_s, memory_mb)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*key, profile.fingerprint, profile.load_s, profile.memory_mb),
        ).lastrowid
        connection.executemany(
            "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (number, *r.setting, *map(_ns, times), r.samples)
                for r in profile.runs
                for times in [(r.median_s, r.p90_s, r.p95_s, r.p99_s, r.spread_s)]
            ],
        )
        for row in profile.operators:
            _write_operator(connection, number, row)


def case_id(connection: sqlite3.Connection, case: Case, batch: int) -> int | None:
    """Return the number of an operator in a database; None if it is not stored there."""
    row = connection.execute(
        "SELECT c.id FROM kinds k JOIN cases c ON c.kind = k.id"
        " WHERE (k.kind, attributes, shapes) = (?, ?, ?)",
        (case.op_type, case.attributes, _any_batch(case.shapes, batch)),
    ).fetchone()
    return None if row is None else int(row[0])


def case_ids(
    connection: sqlite3.Connection, operators: Iterable[Operator], batches: Sequence[int]
) -> Numbers:
    """Return the cases that a database contains, by their numbers and batch sizes."""
    query = (
        "SELECT j.key, c.id FROM json_each(?) j"
        " CROSS JOIN kinds k ON k.kind = json_extract(j.value, '$[0]')"
        " AND k.attributes = json_extract(j.value, '$[1]')"
        " CROSS JOIN cases c ON c.kind = k.id AND c.shapes = json_extract(j.value, '$[2]')"
    )
    wanted: defaultdict[tuple[str, str, str], dict[int, Case]] = defaultdict(dict)
    for operator in operators:
        for batch, shapes in _stored_shapes(operator, batches):
            wanted[operator.op_type, operator.attributes, shapes][batch] = operator.at(batch)
    cases = list(wanted.values())
    rows = connection.execute(query, (json.dumps(list(wanted)),))
    return {(number, batch): case for at, number in rows for batch, case in cases[at].items()}


def _stored_shapes(operator: Operator, batches: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Yield the shapes as they are stored, for each batch size.

    They are mostly the same for all sizes, and then need to be written only once.
    """
    is_same = all(map(_is_multiple, (*operator.inputs, *operator.outputs)))
    once = _any_batch(operator.at(batches[0]).shapes, batches[0]) if batches else ""
    for batch in batches:
        yield batch, once if is_same else _any_batch(operator.at(batch).shapes, batch)


def _is_multiple(tensor: tuple[str, SymbolicShape, bool]) -> bool:
    """Return whether a tensor's first size is a multiple of the batch, and the others are fixed."""
    _, shape, is_constant = tensor
    if not shape or is_constant:
        return not any(each for _, each in shape)
    (fixed, each), *others = shape
    return not fixed and each > 0 and not any(each for _, each in others)


def rows_of(
    connection: sqlite3.Connection, query: str, numbers: Numbers, origin: Sequence[str]
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows that a query finds: the case, its batch size and further columns.

    Args:
        connection: Connection to the database.
        query: Query with placeholders for a JSON list of numbers and for the origin; its first
            columns are the number of a case and the batch size.
        numbers: Numbers of the cases.
        origin: Origin of the measurements.
    """
    every = json.dumps(sorted({number for number, _ in numbers}))
    for number, batch, *rest in connection.execute(query, (every, *origin)):
        case = numbers.get((number, batch))
        if case is not None:
            yield case, batch, *rest


def new_case_id(connection: sqlite3.Connection, case: Case, batch: int) -> int:
    """Return the number of an operator as `case_id` does, and insert the operator if missing."""
    known = case_id(connection, case, batch)
    if known is None:
        kind = (case.op_type, case.attributes)
        connection.execute("INSERT OR IGNORE INTO kinds (kind, attributes) VALUES (?, ?)", kind)
        (known,) = connection.execute("SELECT ifnull(max(id), 0) + 1 FROM cases").fetchone()
        connection.execute(
            "INSERT INTO cases SELECT id, ?, ? FROM kinds WHERE (kind, attributes) = (?, ?)",
            (_any_batch(case.shapes, batch), known, *kind),
        )
    return int(known)


def _write_operator(connection: sqlite3.Connection, number: int | None, row: OperatorRow) -> None:
    known = new_case_id(connection, row.case, row.setting.batch)
    times = (_ns(row.median_s), _ns(row.spread_s))
    connection.execute(
        "INSERT INTO operators VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (known, number, *row.setting, row.count, *times),
    )


def _any_batch(shapes: str, batch: int) -> str:
    """Return the shapes with first sizes as multiples of the batch; constants stay as they are."""

    def written(match: re.Match[str]) -> str:
        size = int(match[2])
        first = match[2] if size % batch or not size else f"{size // batch}b"
        return match[1] + first + match[3]

    return _FIRST_SIZE.sub(written, shapes)


def _with_batch(shapes: str, batch: int) -> str:
    return _FIRST_BATCHES.sub(lambda match: f"{match[1]}{int(match[2]) * batch}", shapes)


def _ns(seconds: float) -> int:
    return round(seconds * _NS_PER_S)


def _run(row: Sequence[Any]) -> RunRow:
    median_s, p90_s, p95_s, p99_s, spread_s = (ns / _NS_PER_S for ns in row[3:8])
    return RunRow(Setting(*row[:3]), median_s, p90_s, p95_s, p99_s, spread_s, row[8])


def _operator(row: Sequence[Any], cases: dict[tuple[str, str, str], Case]) -> OperatorRow:
    key = (row[0], row[1], _with_batch(row[2], row[3]))
    if key not in cases:
        cases[key] = Case.parse(*key)
    median_s, spread_s = (ns / _NS_PER_S for ns in row[7:9])
    return OperatorRow(cases[key], Setting(*row[3:6]), row[6], median_s, spread_s)


def _grouped(rows: Iterable[Sequence[Any]]) -> dict[int, list[Sequence[Any]]]:
    groups: dict[int, list[Sequence[Any]]] = {}
    for number, *rest in rows:
        groups.setdefault(number, []).append(tuple(rest))
    return groups
