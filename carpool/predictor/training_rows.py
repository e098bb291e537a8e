"""Operators of profiles as columns of numbers, one table per class, ready to be fitted."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from carpool.predictor.features import sized
from carpool.predictor.fit import ThreadsAndGpu, cold_share

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from numpy.typing import NDArray

    from carpool.predictor.profile import OperatorRow, Profile, Setting

    Array = NDArray[np.float64]
    Whole = NDArray[np.int64]
    Flags = NDArray[np.bool_]

__all__ = ["Rows", "tabled", "together"]

_US_PER_S = 1e6


@dataclass(frozen=True, slots=True)
class Rows:
    """Measured operators of one family, as columns.

    Attributes:
        family: Family of their class.
        profile: Positions of their profiles.
        setting: Positions of their settings.
        unit: Positions of their units.
        count: Number of occurrences of each in its model.
        sizes: Sizes, one row per operator.
        cold: As for `terms`.
        median_us: Median microseconds of one operator.
        spread_us: Spread of its measurements, in microseconds.
    """

    family: str
    profile: Whole
    setting: Whole
    unit: Whole
    count: Array
    sizes: Array
    cold: Array
    median_us: Array
    spread_us: Array

    def where(self, chosen: Flags) -> Rows:
        """Return the chosen rows."""
        return Rows(self.family, *(column[chosen] for column in self.columns()))

    def __len__(self) -> int:
        return len(self.profile)

    def columns(self) -> tuple[Any, ...]:
        """Return all attributes except the family, in order."""
        return (
            *(self.profile, self.setting, self.unit, self.count),
            *(self.sizes, self.cold, self.median_us, self.spread_us),
        )


def together(tables: Sequence[Rows]) -> Rows:
    """Return the rows of several classes of one family in one table."""
    columns = zip(*(table.columns() for table in tables), strict=True)
    return Rows(tables[0].family, *map(np.concatenate, columns))


def tabled(
    profiles: Sequence[Profile],
) -> tuple[Mapping[str, Rows], Sequence[Setting], Sequence[ThreadsAndGpu]]:
    """Return the operators of all profiles by class, and their settings and units."""
    settings = sorted({row.setting for profile in profiles for row in profile.operators})
    units = sorted({ThreadsAndGpu(*setting[1:]) for setting in settings})
    at = {setting: number for number, setting in enumerate(settings)}
    families: dict[str, str] = {}
    lines: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for number, profile in enumerate(profiles):
        traffic: defaultdict[Setting, float] = defaultdict(float)
        for row in profile.operators:
            traffic[row.setting] += row.count * _moved_bytes(row)
        for row in profile.operators:
            features = sized(row.case)
            families[features.operator_class] = features.family
            unit = units.index(ThreadsAndGpu(*row.setting[1:]))
            times = (cold_share(traffic[row.setting]), row.median_s, row.spread_s)
            lines[features.operator_class].append(
                (number, at[row.setting], unit, row.count, features.sizes, times)
            )
    return (
        {name: _rows(families[name], its_lines) for name, its_lines in lines.items()},
        settings,
        units,
    )


def _rows(family: str, lines: Sequence[tuple[Any, ...]]) -> Rows:
    profile, setting, unit, count, sizes, times = zip(*lines, strict=True)
    cold, median_s, spread_s = np.array(times, float).T
    return Rows(
        family,
        np.array(profile, np.int64),
        np.array(setting, np.int64),
        np.array(unit, np.int64),
        np.array(count, float),
        np.array(sizes, float).reshape(len(lines), -1),
        cold,
        median_s * _US_PER_S,
        spread_s * _US_PER_S,
    )


def _moved_bytes(row: OperatorRow) -> float:
    weights = sum(tensor.size_bytes for tensor in row.case.inputs if tensor.constant)
    return weights + sum(tensor.size_bytes for tensor in row.case.outputs)
