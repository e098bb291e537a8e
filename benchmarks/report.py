"""The results as a page: medians over the rounds, each with its range."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.records import Records

    Point = dict[str, Any]

__all__ = ["markdown"]

_BASE = "carpool"
_RATES = (
    "server",
    "max req/s",
    "carpool is",
    "of raw batched",
    "p50 ms at half",
    "p99 ms at half",
    "CPU s per 1000",
    "memory MB",
    "mean batch, half / max",
    "wait ms",
    "rounds",
)
_FATES = (
    "server",
    "in time",
    "refused",
    "ms until refused, p99",
    "ms accepted, p50",
    "ms accepted, p99",
    "s to recover",
    "batch of a burst",
    "a value missing: correct, worst",
    "malformed: correct, worst",
)


def markdown(records: Records) -> str:
    """Return the page as Markdown."""
    parts = ["# Servers compared\n", *_runs(records)]
    for name in dict.fromkeys(case["name"] for case in records.find("case")):
        parts += [_Case(records, name).text(), ""]
    parts.append("## What each parses, and its versions\n")
    for server in {s["name"]: s for s in records.find("server")}.values():
        made_of = ", ".join(f"{package} {v}" for package, v in server["versions"].items())
        parts.append(f"- **{server['name']}**: {server['parses']} ({made_of}).")
    return "\n".join(parts) + "\n"


def _runs(records: Records) -> list[str]:
    lines = []
    for run in records.find("run"):
        about = run["machine"]
        lines.append(
            f"- `{run['command']}`\n  ({run['started']} UTC, commit {run['commit'] or 'unknown'};"
            f" {about['cores']} cores, {about['cpu']}; {about['system']}, Python {about['python']};"
            f" load average before: {about['load_before']})"
        )
    return [*lines, "", "Medians over the rounds, in brackets the lowest and the highest.", ""]


class _Case:
    """The part of the page about one case."""

    def __init__(self, records: Records, name: str) -> None:
        self._about = records.last("case", name=name) or {}
        self._tuning = records.find("tuning", case=name)
        points = records.find("point", case=name)
        self._failed = [point for point in points if point["error"]]
        self._points: dict[str, list[Point]] = {}
        for point in points:
            if not point["error"]:
                self._points.setdefault(point["server"], []).append(point)
        skipped = {s["server"]: s["why"] for s in records.find("skipped", case=name)}
        self._skipped = {s: why for s, why in skipped.items() if s not in self._points}
        self._ceiling = {c["repeat"]: c["rows_rps"] for c in records.find("ceiling", case=name)}
        self._base = {p["repeat"]: _max_rps(p) for p in self._points.get(_BASE, [])}

    def text(self) -> str:
        about = self._about
        slo_ms, batch_max = 1e3 * about["slo_s"], about["batch_max"]
        parts = [f"## {about['name']}: p99 within {slo_ms:g} ms, batches of at most {batch_max}\n"]
        if self._ceiling:
            sizes = next(iter(self._ceiling.values()))
            raw = ", ".join(
                f"{_median([rows[size] for rows in self._ceiling.values()], ',.0f')} at {size}"
                for size in sizes
            )
            parts.append(f"ONNX Runtime alone, one thread, rows a second by batch size: {raw}.\n")
        order = sorted(
            self._points, key=lambda s: -statistics.median(map(_max_rps, self._points[s]))
        )
        if order:
            parts.append(_table(_RATES, (self._rates(server) for server in order)))
        closer = [s for s in order if any(p["closer"] for p in self._points[s])]
        if closer:
            parts.append(
                "\nAt twice its own maximum (at best 50 % can be in time), and what the"
                f" {about['burst'] - 1} neighbours of one bad request get:\n"
            )
            parts.append(_table(_FATES, (self._fates(server) for server in closer)))
        parts += [f"\nSkipped: {server}: {why}." for server, why in self._skipped.items()]
        parts += [
            f"\nNo result: {p['server']}, round {p['repeat']}: {p['error']}." for p in self._failed
        ]
        return "\n".join([*parts, *self._waits()])

    def _rates(self, server: str) -> list[str]:
        points = self._points[server]
        closer = [p["closer"] for p in points if p["closer"]]
        batch_max = str(self._about["batch_max"])
        ratios = [
            self._base[p["repeat"]] / _max_rps(p) for p in points if p["repeat"] in self._base
        ]
        of_raw = [
            _max_rps(p) / self._ceiling[p["repeat"]][batch_max]
            for p in points
            if p["repeat"] in self._ceiling
        ]
        return [
            server,
            _range(map(_max_rps, points), ",.0f"),
            _range(ratios, ".2f", "x"),
            _range(of_raw, ".2f"),
            _range((c["half"]["p50_ms"] for c in closer), ".1f"),
            _range((c["half"]["p99_ms"] for c in closer), ".1f"),
            _range((c["cpu_s_per_1000"] for c in closer), ".3f"),
            _median((c["memory_mb"] for c in closer), ".0f"),
            f"{_median((c['mean_batch'] for c in closer), '.1f')} / "
            + _median((p["found"]["mean_batch"] for p in points), ".1f"),
            f"{points[-1]['wait_ms']:g}",
            str(len(points)),
        ]

    def _fates(self, server: str) -> list[str]:
        closer = [p["closer"] for p in self._points[server] if p["closer"]]
        over = [c["overload"] for c in closer]
        met = [c["neighbours"] for c in closer if c["neighbours"]]
        kinds = list(met[0]["harm"]) if met else []
        return [
            server,
            _range((o["in_time"] for o in over), ".0%"),
            _range((o["refused"] for o in over), ".0%"),
            _range((o["refused_p99_ms"] for o in over), ".0f"),
            _range((o["p50_ms"] for o in over), ".0f"),
            _range((o["p99_ms"] for o in over), ".0f"),
            _recovery([c["recovered_s"] for c in closer]),
            self._together(met) if met else "alone",
            *(_harm([n["harm"][kind] for n in met]) for kind in kinds),
            *("-" for _ in range(2 - len(kinds))),
        ]

    def _together(self, met: list[dict[str, Any]]) -> str:
        """Return the mean batch of a burst without an offender, and any errors in it."""
        right = min(n["control"] for n in met)
        words = _median((n["mean_batch"] for n in met), ".1f")
        return words if right == self._about["burst"] else f"{words}, yet only {right} right"

    def _waits(self) -> list[str]:
        tried: dict[str, list[str]] = {}
        for tuning in self._tuning:
            words = f"{tuning['max_rps']:,.0f}/s at {tuning['wait_ms']:g}"
            tried.setdefault(tuning["server"], []).append(words)
        return [f"\nWaiting times of {s}, in ms: {', '.join(each)}." for s, each in tried.items()]


def _recovery(seconds: list[float | None]) -> str:
    never = seconds.count(None)
    return _range(seconds, ".1f") + (f", {never} of {len(seconds)} never" if never else "")


def _harm(harm: list[dict[str, Any]]) -> str:
    return f"{_median((h['median'] for h in harm), 'g')}, {min(h['worst'] for h in harm)}"


def _max_rps(point: Point) -> float:
    return float(point["found"]["max_rps"])


def _range(values: Iterable[float | None], data: str, unit: str = "") -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    low, high = (format(bound, data) for bound in (min(known), max(known)))
    return _median(known, data) + unit + (f" ({low} to {high})" if len(known) > 1 else "")


def _median(values: Iterable[float | None], data: str) -> str:
    known = [value for value in values if value is not None]
    return format(statistics.median(known), data) if known else "-"


def _table(head: tuple[str, ...], rows: Iterable[list[str]]) -> str:
    lines = [head, ("---", *("---:" for _ in head[1:])), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
