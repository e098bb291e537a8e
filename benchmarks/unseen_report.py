"""Report on models composed of operators measured alone, with every point."""

from __future__ import annotations

import math
from collections import defaultdict
from operator import attrgetter
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.operators_unseen import UnseenPoint
    from carpool.predictor.profile import Origin

__all__ = ["unseen_report"]

_MS = 1000.0


def unseen_report(
    points: Sequence[UnseenPoint],
    lists: Mapping[str, Sequence[str]],
    origin: Origin,
    commit: str,
    note: str,
) -> str:
    """Return the report as Markdown.

    Args:
        points: All measured points.
        lists: Names of the models used to choose the composition, and of those left out.
        origin: Where the points were measured.
        commit: Commit of the code.
        note: Remark on the machine; may be empty.
    """
    lines = [
        "# Latency composed of operators measured alone",
        "",
        (
            f"`python -m benchmarks operators --unseen`, commit {commit or 'unknown'}, "
            f"{origin.hardware}, {origin.runtime}. Every operator of a model is measured after "
            "its predecessor, within a minute a model; what the package's profiles know of it is "
            "not used. Meanwhile the model is run in visits, on one thread timed by the thread's "
            "own clock. Of these, and of measurements of operators, the median of those that "
            "nothing disturbed counts, if there are any. Every point that was measured is "
            f"shown.{_missing(points, lists)}"
        ),
        *(["", note] if note else []),
        "",
        (
            "| models | mean absolute error | 90th percentile | bias | within the interval of 90 % "
            "| points | one measured run, on one thread: mean | 90th percentile "
            "| on two threads instead: mean | 90th percentile |"
        ),
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [_summary(name, _of(points, models)) for name, models in lists.items()]
    lines += [
        _summary(f"{name}, {threads} thread{'s' * (threads > 1)}", some)
        for name, models in lists.items()
        for threads in (1, 2)
        for some in [[p for p in _of(points, models) if p.setting.threads == threads]]
    ]
    lines += ["", *(_bounds(_of(points, models), name) for name, models in lists.items())]
    lines += ["", "## By model", "", "| model | list | 1 thread | 2 threads | inside |"]
    lines.append("|---|---|---:|---:|---:|")
    lines += [_by_model(each, name, points) for name, models in lists.items() for each in models]
    lines += ["", "## Every point", ""]
    lines += ["Milliseconds; `!` where the median is outside the interval.", ""]
    lines += ["| model | threads | batch | measured | predicted | error | interval |"]
    lines += ["|---|---:|---:|---:|---:|---:|---|", *map(_line, points)]
    return "\n".join(lines) + "\n"


def _missing(points: Sequence[UnseenPoint], lists: Mapping[str, Sequence[str]]) -> str:
    """Return which models of the lists were not measured."""
    known = {point.model for point in points}
    lacking = [
        f"{len(names)} of {len(models)} models {name} ({', '.join(names)})"
        for name, models in lists.items()
        if (names := [model for model in models if model not in known])
    ]
    return f" Not measured, and in no figure: {'; '.join(lacking)}." if lacking else ""


def _of(points: Sequence[UnseenPoint], models: Sequence[str]) -> list[UnseenPoint]:
    return [point for point in points if point.model in models]


def _summary(name: str, points: Sequence[UnseenPoint]) -> str:
    if not points:
        return f"| {name} | | | | | 0 | | | | |"
    errors = np.array([_off(p) for p in points])
    after = [
        np.array([abs(seconds / p.measured_s - 1) for p in points if (seconds := of(p))])
        for of in (attrgetter("after_one_s"), attrgetter("after_two_s"))
    ]
    inside = np.mean([_inside(p) for p in points])
    return (
        f"| {name} | {np.abs(errors).mean():.1%} | {np.quantile(np.abs(errors), 0.9):.1%} "
        f"| {errors.mean():+.1%} | {inside:.1%} | {len(points)} "
        + "".join(
            f"| {each.mean():.1%} | {np.quantile(each, 0.9):.1%} " if each.size else "| | "
            for each in after
        )
        + "|"
    )


def _bounds(points: Sequence[UnseenPoint], name: str) -> str:
    """Return what the interval for models with measured operators would have to be.

    A further model lies between the least and the largest error of n models with a probability of
    (n - 1) / (n + 1), whatever the distribution of errors. Percentiles of all points would be too
    narrow, because the errors of one model's points are similar.
    """
    bounds = []
    for threads in (1, 2):
        of_batch: defaultdict[int, list[float]] = defaultdict(list)
        for p in points:
            if p.setting.threads == threads:
                of_batch[p.setting.batch].append(-math.log(1 + _off(p)))
        if of_batch:
            low, high = (fmean(map(end, of_batch.values())) for end in (min, max))
            bounds.append(f"{low:+.3f} to {high:+.3f} on {threads}")
    return (
        "log(measured / predicted), least and largest of the models, in the mean over batch "
        f"sizes, {name}: {'; '.join(bounds)}.\n"
    )


def _by_model(model: str, name: str, points: Sequence[UnseenPoint]) -> str:
    own = _of(points, [model])
    if not own:
        return f"| {model} | {name} | not measured | | |"
    parts = [
        np.mean([abs(_off(p)) for p in own if p.setting.threads == threads]) for threads in (1, 2)
    ]
    inside = sum(_inside(p) for p in own)
    return f"| {model} | {name} | {parts[0]:.1%} | {parts[1]:.1%} | {inside} of {len(own)} |"


def _line(p: UnseenPoint) -> str:
    mark = "" if _inside(p) else " !"
    cells = (
        *(p.model, f"{p.setting.threads}", f"{p.setting.batch}", f"{p.measured_s * _MS:.4g}"),
        *(f"{p.predicted_s * _MS:.4g}", f"{_off(p):+.1%}"),
        f"{p.low_s * _MS:.4g} to {p.high_s * _MS:.4g}{mark}",
    )
    return f"| {' | '.join(cells)} |"


def _off(point: UnseenPoint) -> float:
    return point.predicted_s / point.measured_s - 1


def _inside(point: UnseenPoint) -> bool:
    return point.low_s <= point.measured_s <= point.high_s
