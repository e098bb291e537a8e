"""``carpool calibrate``: measures this machine's processor, for predictions on it.

The result scales laws that were learned on another processor or for another number of threads.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from carpool.errors import ConfigError, Problem
from carpool.predictor import grid_arguments
from carpool.predictor.calibration_file import read_calibration, write_calibration
from carpool.predictor.roofs import Roofs, roofs
from watchdog_plugin.profiling.calibrating import calibrate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from carpool.predictor.calibration import Calibration
    from carpool.predictor.profile import Origin

__all__ = ["main"]

_HEADINGS = {
    "threads": "cores",
    "f32_gflops": "f32 GFLOP/s",
    "i8_gops": "i8 GOP/s",
    "cache_gb_s": "cache GB/s",
    "memory_gb_s": "memory GB/s",
    "per_run_us": "us a run",
    "per_operator_us": "us an operator",
}


def main(argv: list[str]) -> int:
    """Measure the machine, store the result and print it.

    Raises:
        ConfigError: More threads than cores are requested, there is no time to measure an operator,
            or the result cannot be stored.
    """
    parser = argparse.ArgumentParser(
        prog="carpool calibrate",
        description="Measure this machine, for predictions from profiles of another one.",
    )
    parser.add_argument(
        "--cpu",
        type=grid_arguments.counts,
        help="cores (default: 1, 2, 4 and so on, and all)",
        metavar="SIZES",
    )
    parser.add_argument(
        "--budget",
        type=grid_arguments.seconds,
        default=60.0,
        help="time limit for measuring (default: 60s)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    arguments = parser.parse_args(argv)
    began = time.monotonic()
    calibration = calibrate(_threads(arguments.cpu), arguments.budget, _say)
    if not calibration.rows:  # must not replace an earlier one that has some
        expected = "time for at least one operator"
        hint = "the budget is too small: the default of 60s is enough on most machines"
        raise ConfigError([Problem("--budget", f"{arguments.budget:g}s", expected, hint)])
    path = write_calibration(calibration.with_others_of(_earlier(calibration.origin)))
    spent_s = time.monotonic() - began
    if arguments.json:
        sys.stdout.write(json.dumps(_document(calibration, path, spent_s), indent=2) + "\n")
    else:
        sys.stdout.write(_table(calibration, path, spent_s))
    return 0


def _earlier(origin: Origin) -> Calibration | None:
    """Return the earlier calibration; None if it cannot be read."""
    try:
        return read_calibration(origin)
    except ConfigError:
        return None


def _threads(wanted: Sequence[int] | None) -> list[int]:
    there = len(os.sched_getaffinity(0))
    if wanted is None:
        doubled = [1 << power for power in range(there.bit_length())]
        return sorted({*doubled, there})
    if wanted[-1] > there:
        expected = f"at most {there}, the cores that this process may use"
        raise ConfigError([Problem("--cpu", f"{wanted[-1]}", expected)])
    return list(wanted)


def _document(calibration: Calibration, path: Path, spent_s: float) -> dict[str, Any]:
    return {
        "hardware": calibration.origin.hardware,
        "runtime": calibration.origin.runtime,
        "roofs": [each._asdict() for each in roofs(calibration)],
        "operators": len(calibration.rows),
        "spent_s": round(spent_s, 1),
        "file": str(path),
    }


def _table(calibration: Calibration, path: Path, spent_s: float) -> str:
    hardware, runtime, _ = calibration.origin
    cells = [tuple(_HEADINGS.values()), *map(_cells, roofs(calibration))]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [f"{hardware}, {runtime}: {len(calibration.rows)} times in {spent_s:.0f} s"]
    lines += ["  ".join(c.rjust(w) for c, w in zip(each, widths, strict=True)) for each in cells]
    return "\n".join([*lines, f"kept in {path}"]) + "\n"


def _cells(each: Roofs) -> tuple[str, ...]:
    return (f"{each.threads}", *(f"{value:.3g}" for value in each[1:]))


def _say(message: str) -> None:
    sys.stderr.write(f"carpool calibrate: {message}\n")
    sys.stderr.flush()
