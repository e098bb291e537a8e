"""Results of cells, a JSON object a line, written at once: a run can be taken up again."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from carpool.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Row", "Rows"]


@dataclass(frozen=True, slots=True)
class Row:
    """One policy in one cell with one seed.

    Attributes:
        cell: Its name.
        horizon_s: Seconds that were simulated.
        seed: Of the requests.
        policy: Its name.
        requests: How many came.
        cost: What the policy paid.
        bound: What nobody can pay less than.
        missed: Share of requests later than their objective, or not done.
        mean_batch: Requests in a batch; None: none ran.
        p99_ms: Of those done; None: there are none.
        planning_ms: A round, mean.
        cpu_s: What simulating it took.
        failure: What the policy did wrong where nothing ran yet; empty: nothing. Such a row costs
            nothing and misses everything.
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

    @property
    def over_bound(self) -> float:
        """Cost, times the bound; infinite where a policy failed or nothing had to be paid."""
        nothing = self.failure or not (self.cost > 0 and self.bound > 0)
        return math.inf if nothing else self.cost / self.bound


class Rows:
    """The rows of a file, which are not made again.

    Args:
        path: Of the file; None: nothing is kept.

    Raises:
        ConfigError: the file holds something else.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.all: list[Row] = []
        if path is not None and path.exists():
            text = path.read_text()
            whole = text[: text.rfind("\n") + 1]  # less a line torn by a sudden end
            self.all = [_read(path, at, line) for at, line in enumerate(whole.splitlines(), 1)]
            if whole != text:
                path.write_text(whole)

    def add(self, row: Row) -> None:
        """Keep one more, in the file at once."""
        self.all.append(row)
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(asdict(row), separators=(",", ":"), allow_nan=False) + "\n")

    def find(self, cell: str, horizon_s: float, seed: int) -> Sequence[Row]:
        """Those of one cell and seed."""
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
