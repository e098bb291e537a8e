"""Calibrations as files, one for each machine and runtime, next to the user's profile database.

A file may be copied to another machine, to make predictions there for the calibrated one.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from carpool.errors import ConfigError, Problem
from carpool.onnx_graph.operator_graph import Case
from carpool.predictor.calibration import Calibration
from carpool.predictor.fit_database import own_database
from carpool.predictor.profile import Alone, Origin, Overhead, Setting

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["calibration_path", "from_dict", "read_calibration", "to_dict", "write_calibration"]

_FORM = 1


def calibration_path(origin: Origin) -> Path:
    """Return the path of the calibration of a machine and its runtime."""
    name = re.sub(r"[^A-Za-z0-9.]+", "-", f"{origin.hardware} {origin.runtime}").strip("-")
    return own_database().parent / "calibrations" / f"{name}.json"


def read_calibration(origin: Origin) -> Calibration | None:
    """Read the calibration of a machine and its runtime; None if there is none.

    Raises:
        ConfigError: the file is not a calibration.
    """
    path = calibration_path(origin)
    try:
        return from_dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        problem = Problem(
            str(path), str(error), "a calibration", "delete it; carpool calibrate creates a new one"
        )
        raise ConfigError([problem]) from error


def write_calibration(calibration: Calibration) -> Path:
    """Save a calibration, replacing an earlier one of its machine.

    Raises:
        ConfigError: the file cannot be written.
    """
    path = calibration_path(calibration.origin)
    whole = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        whole.write_text(json.dumps(to_dict(calibration), indent=1) + "\n", encoding="utf-8")
        whole.replace(path)
    except OSError as error:
        problem = Problem(str(path), str(error), "a file that can be written", "see XDG_DATA_HOME")
        raise ConfigError([problem]) from error
    return path


def to_dict(calibration: Calibration) -> dict[str, Any]:
    """Return the calibration as the dictionary that is stored in a file."""
    hardware, runtime, device = calibration.origin
    return {
        "form": _FORM,
        "hardware": hardware,
        "runtime": runtime,
        "device": device,
        "overheads": {str(threads): list(each) for threads, each in calibration.overheads.items()},
        "operators": [
            [
                *(row.case.op_type, row.case.attributes, row.case.shapes),
                *(row.setting.batch, row.setting.threads, row.moved_mb, row.seconds),
            ]
            for row in calibration.rows
        ],
    }


def from_dict(data: dict[str, Any]) -> Calibration:
    """Return the calibration that `to_dict` wrote.

    Raises:
        ValueError: the file is from another version; KeyError or TypeError: it is not a
            calibration.
    """
    if data["form"] != _FORM:
        msg = f"a calibration of format {data['form']}, not {_FORM}"
        raise ValueError(msg)
    return Calibration(
        Origin(data["hardware"], data["runtime"], data["device"]),
        tuple(
            Alone(
                Case.parse(op_type, attributes, shapes), Setting(batch, threads), moved_mb, seconds
            )
            for op_type, attributes, shapes, batch, threads, moved_mb, seconds in data["operators"]
        ),
        {int(threads): Overhead(*each) for threads, each in data["overheads"].items()},
    )
