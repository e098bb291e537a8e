"""Results of cells, one JSON object per line, written immediately so that a run can be resumed."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from carpool.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Row", "Rows"]


@dataclass(frozen=True, slots=True)
class Row:
    """Result of one policy in one cell with one seed.

    Attributes:
        cell: Name of the cell.
        horizon_s: Simulated time, in seconds.
        seed: Seed of the requests.
        policy: Name of the policy.
        requests: Number of requests.
        cost: Cost under the policy.
        bound: Lower bound of the cost.
        missed: Share of requests that were late or not served.
        mean_batch: Mean batch size; None if no batch ran.
        p99_ms: 99th percentile latency of served requests; None if there were none.
        planning_ms: Mean duration of a planning round.
        cpu_s: CPU time of the simulation.
        failure: Why the policy failed before anything ran; empty if it did not. Such a row has no
            cost and misses every request.
        unplaced: Which rates were not served and why, as sentences.
        commit: Commit of the code; empty if unknown, as in rows of earlier versions.
    """

    cell: str
    horizon_s: float
    seed: int
    policy: str
    requests: int
    cost: float
    bound: float
    missed: float
    mean_batch: float | None
    p99_ms: float | None
    planning_ms: float
    cpu_s: float
    failure: str = ""
    unplaced: str = ""
    commit: str = ""

    @property
    def over_bound(self) -> float:
        """Cost relative to the bound; infinity if the policy failed or the bound is zero."""
        nothing = self.failure or not (self.cost > 0 and self.bound > 0)
        return math.inf if nothing else self.cost / self.bound


class Rows:
    """The rows of a results file, which are not computed again.

    Args:
        path: Path of the file; None to keep the rows in memory only.
        commit: Commit of the running code, which is noted in added rows; empty if unknown.

    Raises:
        ConfigError: the file holds something else.
    """

    def __init__(self, path: Path | None, commit: str = "") -> None:
        self._path, self._commit = path, commit
        self.all: list[Row] = []
        if path is not None and path.exists():
            text = path.read_text(encoding="utf-8", errors="replace")
            whole = text[: text.rfind("\n") + 1]  # less a line torn by a sudden end
            self.all = [_read(path, at, line) for at, line in enumerate(whole.splitlines(), 1)]
            if whole != text:
                path.write_text(whole)

    def add(self, row: Row) -> None:
        """Add a row and append it to the file immediately."""
        row = replace(row, commit=self._commit)
        self.all.append(row)
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(asdict(row), separators=(",", ":"), allow_nan=False) + "\n")

    def find(self, cell: str, horizon_s: float, seed: int) -> Sequence[Row]:
        """Return the rows of one cell and seed."""
        return [
            row
            for row in self.all
            if (row.cell, row.horizon_s, row.seed) == (cell, horizon_s, seed)
        ]


def _read(path: Path, number: int, line: str) -> Row:
    try:
        return Row(**json.loads(line))
    except (TypeError, ValueError) as error:
        expected = "a row that an earlier run has written"
        raise ConfigError([Problem(f"{path}:{number}", line[:60], expected, str(error))]) from error
