"""The matrix in one table: each policy's cost and misses, beside the bound and the other policies.

Figures of a cell are means over its seeds. Intervals are 95 % by Student's t over the seeds, with
one figure per seed for the whole matrix; a single seed has no interval. A policy *holds* a cell
if it misses at most three percent of requests. One that fails in a cell before anything runs has
no cost there and misses every request.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from simulator.confidence_intervals import half_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from simulator.matrix.rows import Row

__all__ = [
    "COLUMNS",
    "HELD",
    "Outcome",
    "Standing",
    "as_dict",
    "by_part",
    "outcomes",
    "standings",
    "table",
]

HELD = 0.03
_NEAR = 1.03  # relative cost that counts as equal to the cheapest
_COSTLY = 1.05
_AIM = 0.01  # share of misses that an objective of 99 % allows


@dataclass(frozen=True, slots=True)
class Outcome:
    """A policy in a cell: means over seeds.

    Attributes:
        cost: Cost; infinity if it failed.
        over_bound: Cost relative to the bound; infinity if it failed or the bound is zero.
        missed: Share of requests missed.
    """

    cost: float
    over_bound: float
    missed: float


@dataclass(frozen=True, slots=True)
class Standing:
    """A policy over all cells.

    Attributes:
        policy: Name of the policy.
        cells: Number of cells it ran in.
        over_bound, over_bound_interval: Geometric mean of cost over the bound, and half its
            interval; NaN for a single seed.
        missed, missed_interval: Mean share of requests missed, and half its interval.
        failed: Cells in which it failed with some seed; they are not part of `over_bound`.
        held: Cells in which it misses at most 3 %.
        cheapest: Cells it holds in which no other policy that holds is more than 3 % cheaper.
        costs_more: Cells in which it costs over 1.05 times the cheapest other policy that holds.
        misses_more: Cells in which it misses over 1 %, and more than another policy.
        kept: Cells in which it neither `misses_more` nor `costs_more`.
    """

    policy: str
    cells: int
    over_bound: float
    over_bound_interval: float
    missed: float
    missed_interval: float
    failed: int
    held: int
    cheapest: int
    costs_more: int
    misses_more: int
    kept: int


def standings(rows: Sequence[Row]) -> list[Standing]:
    """Return one standing per policy, in order of first appearance."""
    by_cell = outcomes(rows)
    return [_standing(policy, rows, by_cell) for policy in dict.fromkeys(r.policy for r in rows)]


def by_part(rows: Sequence[Row], part: int) -> Mapping[str, list[Standing]]:
    """Return standings per trace (0), model (1), objective (2) or billing rule (3)."""
    names = dict.fromkeys(row.cell.split("/")[part] for row in rows)
    return {
        name: standings([row for row in rows if row.cell.split("/")[part] == name])
        for name in names
    }


def table(standing_rows: Sequence[Standing]) -> str:
    """Return standings as a Markdown table."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|---|" + "---:|" * (len(COLUMNS) - 1)]
    lines += [
        f"| {' | '.join(show(each) for show in COLUMNS.values())} |" for each in standing_rows
    ]
    return "\n".join(lines) + "\n"


def as_dict(standing: Standing) -> dict[str, Any]:
    """Return a standing for JSON, with null in place of NaN and infinity."""
    values = {name: getattr(standing, name) for name in Standing.__slots__}
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }


def outcomes(rows: Sequence[Row]) -> Mapping[str, Mapping[str, Outcome]]:
    """Return outcomes by cell and policy, in order of first appearance."""
    grouped: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        grouped.setdefault(row.cell, {}).setdefault(row.policy, []).append(row)
    return {
        cell: {
            policy: Outcome(
                math.inf if any(row.failure for row in of) else fmean(row.cost for row in of),
                _geometric(row.over_bound for row in of),
                fmean(row.missed for row in of),
            )
            for policy, of in policies.items()
        }
        for cell, policies in grouped.items()
    }


def _standing(
    policy: str, rows: Sequence[Row], by_cell: Mapping[str, Mapping[str, Outcome]]
) -> Standing:
    own = [row for row in rows if row.policy == policy]
    seeds = dict.fromkeys(row.seed for row in own)
    costs = [_geometric(r.over_bound for r in own if r.seed == seed) for seed in seeds]
    misses = [fmean(r.missed for r in own if r.seed == seed) for seed in seeds]
    cells = [(cell[policy], cell) for cell in by_cell.values() if policy in cell]
    costs_more = [one.cost > _COSTLY * _cheapest(cell, policy) for one, cell in cells]
    more = [one.missed > max(_AIM, _fewest(cell, policy)) for one, cell in cells]
    return Standing(
        policy,
        len(cells),
        _geometric(one.over_bound for one, _ in cells),
        half_interval(costs),
        fmean(one.missed for one, _ in cells),
        half_interval(misses),
        failed=len({row.cell for row in own if row.failure}),
        held=sum(one.missed <= HELD for one, _ in cells),
        cheapest=sum(
            one.missed <= HELD and one.cost <= _NEAR * _cheapest(cell, policy)
            for one, cell in cells
        ),
        costs_more=sum(costs_more),
        misses_more=sum(more),
        kept=sum(not (a or b) for a, b in zip(costs_more, more, strict=True)),
    )


def _cheapest(cell: Mapping[str, Outcome], but: str) -> float:
    """Return the cost of the cheapest other policy that holds the cell; infinity if none does."""
    holding = [one.cost for name, one in cell.items() if name != but and one.missed <= HELD]
    return min(holding, default=math.inf)


def _fewest(cell: Mapping[str, Outcome], but: str) -> float:
    return min((one.missed for name, one in cell.items() if name != but), default=math.inf)


def _geometric(values: Iterable[float]) -> float:
    """Return the geometric mean of the finite values; infinity if there are none."""
    logs = [math.log(value) for value in values if value < math.inf]
    return math.exp(fmean(logs)) if logs else math.inf


def _with_interval(value: float, half: float, form: str) -> str:
    return f"{value:{form}}" if math.isnan(half) else f"{value:{form}} ± {half:{form}}"


COLUMNS: dict[str, Callable[[Standing], str]] = {  # columns of the table, as text
    "policy": lambda s: f"`{s.policy}`",
    "cost over bound": lambda s: _with_interval(s.over_bound, s.over_bound_interval, ".2f"),
    "missed": lambda s: _with_interval(s.missed, s.missed_interval, ".2%"),
    "failed": lambda s: str(s.failed),
    "held": lambda s: f"{s.held} of {s.cells}",
    "cheapest": lambda s: str(s.cheapest),
    "costs more": lambda s: str(s.costs_more),
    "misses more": lambda s: str(s.misses_more),
    "neither": lambda s: str(s.kept),
}
