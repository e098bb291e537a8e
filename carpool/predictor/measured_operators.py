"""Operators measured alone, in a profile database, and the overheads of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool.predictor.profile import Alone, Overhead, RefusedOperator, Setting
from carpool.predictor.profile_database import new_case_id, rows_of
from carpool.predictor.profile_file import has_table, opened

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from carpool.predictor.profile import Origin
    from carpool.predictor.profile_database import Numbers

__all__ = ["measured_batches", "read_alone", "read_overheads", "read_refused", "write_alone"]

_NS_PER_S = 1e9
_OF_CASES = (
    'SELECT t."case", {columns} FROM json_each(?) j'
    ' CROSS JOIN {table} t ON t."case" = j.value WHERE (hardware, runtime) = (?, ?)'
)


def write_alone(
    path: Path,
    origin: Origin,
    rows: Iterable[Alone | RefusedOperator],
    overheads: Mapping[int, Overhead],
) -> None:
    """Store measurements; later times replace earlier ones.

    Args:
        path: A profile database.
        origin: Machine and runtime of the measurements.
        rows: Operators that were measured or refused; a time replaces a refusal.
        overheads: Overheads by number of threads.

    Raises:
        ConfigError: the file is not a profile database, or cannot be written.
    """
    place = origin[:2]
    with opened(path, write=True) as connection:
        for row in rows:
            batch, threads, _ = row.setting
            key = (new_case_id(connection, row.case, batch), *place, batch, threads)
            connection.execute(
                'DELETE FROM refused_alone WHERE ("case", hardware, runtime, batch, threads)'
                " = (?, ?, ?, ?, ?)",
                key,
            )
            if isinstance(row, RefusedOperator):
                connection.execute("INSERT INTO refused_alone VALUES (?, ?, ?, ?, ?)", key)
            else:
                time = (row.moved_mb, _ns(row.seconds))
                connection.execute(
                    "INSERT OR REPLACE INTO measured_alone VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (*key, *time),
                )
        connection.executemany(
            "INSERT OR REPLACE INTO overheads VALUES (?, ?, ?, ?, ?)",
            [
                (*place, threads, *(s * _NS_PER_S for s in each))
                for threads, each in overheads.items()
            ],
        )


def read_alone(connection: sqlite3.Connection, origin: Origin, numbers: Numbers) -> Iterator[Alone]:
    """Yield the operators measured alone, of the cases numbered in ``numbers``."""
    if not has_table(connection, "measured_alone"):
        return
    columns = "batch, threads, moved_mb, median_ns"
    query = _OF_CASES.format(columns=columns, table="measured_alone")
    for case, batch, threads, moved_mb, ns in rows_of(connection, query, numbers, origin[:2]):
        yield Alone(case, Setting(batch, threads), moved_mb, ns / _NS_PER_S)


def read_refused(
    connection: sqlite3.Connection, origin: Origin, numbers: Numbers
) -> Iterator[RefusedOperator]:
    """Yield the operators that the runtime refused to run alone; arguments as in `read_alone`."""
    if not has_table(connection, "refused_alone"):
        return
    query = _OF_CASES.format(columns="batch, threads", table="refused_alone")
    for case, batch, threads in rows_of(connection, query, numbers, origin[:2]):
        yield RefusedOperator(case, Setting(batch, threads))


def measured_batches(connection: sqlite3.Connection, origin: Origin) -> list[int]:
    """Return batch sizes at which any operator was measured alone, or refused."""
    batches: set[int] = set()
    for table in ("measured_alone", "refused_alone"):
        if has_table(connection, table):
            query = f"SELECT DISTINCT batch FROM {table} WHERE (hardware, runtime) = (?, ?)"  # noqa: S608
            batches.update(batch for (batch,) in connection.execute(query, origin[:2]))
    return sorted(batches)


def read_overheads(connection: sqlite3.Connection, origin: Origin) -> dict[int, Overhead]:
    """Return the overheads of runs, by number of threads."""
    if not has_table(connection, "overheads"):
        return {}
    query = (
        "SELECT threads, per_run_ns, per_operator_ns FROM overheads"
        " WHERE (hardware, runtime) = (?, ?)"
    )
    rows = connection.execute(query, origin[:2])
    return {threads: Overhead(*(ns / _NS_PER_S for ns in times)) for threads, *times in rows}


def _ns(seconds: float) -> int:
    return round(seconds * _NS_PER_S)
