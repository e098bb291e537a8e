"""Report on predictions from operators, with every point."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.operator_models import MODELS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.predictor.profile import Origin, Setting

__all__ = ["Point", "Speed", "report"]

_MS = 1000.0


class Point(NamedTuple):
    """One model at one setting, in seconds; calibrated fields are None where it was used."""

    model: str
    setting: Setting
    measured_s: float
    spread_s: float
    predicted_s: float
    low_s: float
    high_s: float
    calibrated_s: float | None
    calibrated_low_s: float | None
    calibrated_high_s: float | None


class Speed(NamedTuple):
    """Time that a prediction takes, in seconds: the quickest, median or slowest of many."""

    model: str
    quickest_load_s: float
    load_s: float
    predict_s: float
    slowest_s: float


def report(
    points: Sequence[Point], speeds: Sequence[Speed], origin: Origin, models: int, commit: str
) -> str:
    """Return the report as Markdown."""
    lines = [
        "# Latency predicted from operators",
        "",
        (
            f"`python -m benchmarks operators`, commit {commit or 'unknown'}, {origin.hardware}, "
            f"{origin.runtime}. Each of {len({p.model for p in points})} models is left out in "
            f"turn: the fit knows the other {models - 1} of the database. The calibrated one knows "
            "the model's median at one point, batch 4 on one thread, which does not count there. "
            "Medians of runs; no point is left out."
        ),
        "",
        *_summary(points),
        "",
        "## By model",
        "",
        *_by_model(points),
        "",
        "## Speed of predicting",
        "",
        (
            "| model | graph read and optimised, quickest | median | one prediction, median "
            "| slowest |"
        ),
        "|---|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {s.model} | {s.quickest_load_s * _MS:.0f} ms | {s.load_s * _MS:.0f} ms "
        f"| {s.predict_s * _MS:.2f} ms "
        f"| {s.slowest_s * _MS:.2f} ms |"
        for s in speeds
    ]
    lines += [
        "",
        "## Every point",
        "",
        ("Milliseconds; the interval is the stated one of 90 %, `!` where the median is outside."),
        "",
        (
            "| model | threads | batch | measured | spread | predicted | error | interval "
            "| calibrated | error | interval |"
        ),
        "|---|---:|---:|---:|---:|---:|---:|---|---:|---:|---|",
    ]
    return "\n".join(lines + [_line(point) for point in points]) + "\n"


def _summary(points: Sequence[Point]) -> list[str]:
    plain = np.array([_off(p) for p in points])
    after = np.array([_off_after(p) for p in points if p.calibrated_s])
    inside = [p.low_s <= p.measured_s <= p.high_s for p in points]
    inside_after = [_inside_after(p) for p in points if p.calibrated_s]
    rows = [
        "| | mean absolute error | 90th percentile | bias | within the 90 % interval | points |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, errors, within in (
        ("uncalibrated", plain, inside),
        ("calibrated with one point", after, inside_after),
    ):
        mean, p90 = np.abs(errors).mean(), np.quantile(np.abs(errors), 0.9)
        rows.append(
            f"| {name} | {mean:.1%} | {p90:.1%} | {errors.mean():+.1%} | {np.mean(within):.1%} "
            f"| {len(errors)} |"
        )
    for threads in sorted({p.setting.threads for p in points}):
        some = np.array([_off(p) for p in points if p.setting.threads == threads])
        rows.append(
            f"| uncalibrated, {threads} threads | {np.abs(some).mean():.1%} "
            f"| {np.quantile(np.abs(some), 0.9):.1%} | {some.mean():+.1%} | | {len(some)} |"
        )
    return rows


def _by_model(points: Sequence[Point]) -> list[str]:
    models: defaultdict[str, list[Point]] = defaultdict(list)
    for point in points:
        models[point.model].append(point)
    rows = [
        "| model | kind | 1 thread | 2 threads | calibrated |",
        "|---|---|---:|---:|---:|",
    ]
    for name, found in models.items():
        parts = [np.mean([abs(_off(p)) for p in found if p.setting.threads == n]) for n in (1, 2)]
        after = np.mean([abs(_off_after(p)) for p in found if p.calibrated_s])
        rows.append(
            f"| {name} | {MODELS[name].description} "
            f"| {parts[0]:.1%} | {parts[1]:.1%} | {after:.1%} |"
        )
    return rows


def _inside_after(point: Point) -> bool:
    low_s, high_s = point.calibrated_low_s or 0.0, point.calibrated_high_s or 0.0
    return low_s <= point.measured_s <= high_s


def _line(p: Point) -> str:
    cells = [
        p.model,
        f"{p.setting.threads}",
        f"{p.setting.batch}",
        f"{p.measured_s * _MS:.4g}",
        f"{p.spread_s / p.measured_s:.0%}",
        f"{p.predicted_s * _MS:.4g}",
        f"{_off(p):+.1%}",
        _interval(p.low_s, p.high_s, p.measured_s),
    ]
    if p.calibrated_s is None or p.calibrated_low_s is None or p.calibrated_high_s is None:
        cells += ["known", "", ""]
    else:
        cells += [
            f"{p.calibrated_s * _MS:.4g}",
            f"{_off_after(p):+.1%}",
            _interval(p.calibrated_low_s, p.calibrated_high_s, p.measured_s),
        ]
    return f"| {' | '.join(cells)} |"


def _off(point: Point) -> float:
    return point.predicted_s / point.measured_s - 1


def _off_after(point: Point) -> float:
    return (point.calibrated_s or point.predicted_s) / point.measured_s - 1


def _interval(low_s: float, high_s: float, measured_s: float) -> str:
    mark = "" if low_s <= measured_s <= high_s else " !"
    return f"{low_s * _MS:.4g} to {high_s * _MS:.4g}{mark}"
