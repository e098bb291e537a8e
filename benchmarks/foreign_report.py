"""Report on models predicted from another processor's profiles, with every point."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.operators_unseen import LISTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.operators_foreign import ForeignPoint

__all__ = ["foreign_report"]

_MS = 1000.0


def foreign_report(points: Sequence[ForeignPoint], commit: str, note: str) -> str:
    """Return the report as Markdown."""
    lines = [
        "# Latency predicted from another processor's profiles",
        "",
        (
            f"`python -m benchmarks operators --foreign KERNELS`, commit {commit or 'unknown'}. "
            "The package's database was measured with the runtime's kernels for AVX-512; the "
            "runtime that the models run on is kept to those for AVX2, or to those for SSE. It was "
            "calibrated by `carpool calibrate`, and no operator of a model was measured on it. "
            "Medians of runs, on one thread by its own clock; every point is shown."
        ),
        *(["", note] if note else []),
        "",
        (
            "| kernels | models | threads | mean absolute error | 90th percentile | bias "
            "| within the interval of 90 % | width of the interval | without calibration "
            "| points | refused |"
        ),
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for kernels in dict.fromkeys(point.kernels for point in points):
        for name, models in LISTS.items():
            for threads in (1, 2):
                some = [
                    p
                    for p in points
                    if (p.kernels, p.setting.threads) == (kernels, threads) and p.model in models
                ]
                if some:
                    lines.append(f"| {kernels} | {name} | {threads} | {_summary(some)} |")
    lines += ["", "## Every point", ""]
    lines += ["Milliseconds; `!` where the median is outside the interval.", ""]
    lines += ["| kernels | model | threads | batch | measured | predicted | error | interval |"]
    lines += ["|---|---|---:|---:|---:|---:|---:|---|", *map(_line, points)]
    return "\n".join(lines) + "\n"


def _summary(points: Sequence[ForeignPoint]) -> str:
    every, points = points, [point for point in points if not _is_refused(point)]
    errors = np.array([p.predicted_s / p.measured_s - 1 for p in points])
    plain = np.array([p.unscaled_s / p.measured_s - 1 for p in points])
    inside = np.mean([_inside(p) for p in points])
    width = np.median([p.high_s / p.low_s for p in points])
    return (
        f"{np.abs(errors).mean():.1%} | {np.quantile(np.abs(errors), 0.9):.1%} | "
        f"{errors.mean():+.1%} | {inside:.1%} | {width:.2f} | {np.abs(plain).mean():.1%} | "
        f"{len(points)} | {len(every) - len(points)}"
    )


def _is_refused(point: ForeignPoint) -> bool:
    """Return whether there is no prediction, as no other operator's time yields this one's."""
    return math.isnan(point.predicted_s)


def _inside(point: ForeignPoint) -> bool:
    return point.low_s <= point.measured_s <= point.high_s


def _line(p: ForeignPoint) -> str:
    if _is_refused(p):
        measured = f"{p.measured_s * _MS:.4g}"
        start = (p.kernels, p.model, f"{p.setting.threads}", f"{p.setting.batch}", measured)
        return f"| {' | '.join(start)} | refused | | |"
    cells = (
        *(p.kernels, p.model, f"{p.setting.threads}", f"{p.setting.batch}"),
        *(f"{p.measured_s * _MS:.4g}", f"{p.predicted_s * _MS:.4g}"),
        f"{p.predicted_s / p.measured_s - 1:+.1%}",
        f"{p.low_s * _MS:.4g} to {p.high_s * _MS:.4g}{'' if _inside(p) else ' !'}",
    )
    return f"| {' | '.join(cells)} |"
