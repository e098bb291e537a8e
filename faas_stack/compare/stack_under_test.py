"""The stack to compare policies on: the user's own, or stand-ins for a scenario's models.

A user's stack file is used unchanged. Its functions must match the scenario's, or the comparison
would measure something else.
"""

from __future__ import annotations

import json
import pickle
import shutil
from typing import TYPE_CHECKING, Any

from carpool import durations
from carpool.settings import FunctionSettings
from carpool.validation.problems import Problems, nearest
from faas_stack.compare import stand_in
from faas_stack.stack import stack_file

if TYPE_CHECKING:
    from pathlib import Path

    from scaler.scenarios.scenario import Function, Scenario

__all__ = ["check", "write_stand_ins"]

_SCALED = "openfaas"  # any policy but fixed: the scaler's option sets the actual one


def write_stand_ins(scenario: Scenario, folder: Path) -> Path:
    """Write a stack with one function per function of the scenario that takes as long as its model.

    Returns:
        The stack file.
    """
    functions = {}
    for function in scenario.functions:
        home = folder / function.name
        home.mkdir(parents=True)
        shutil.copy(stand_in.__file__, home / "handler.py")
        (home / stand_in.FILE).write_bytes(pickle.dumps(function.model))
        functions[function.name] = {
            "lang": "python3-batch",
            "handler": f"./{function.name}",
            "image": f"stand-in/{function.name}",
            "labels": _labels(function),
            "annotations": {"com.carpool.apps": json.dumps(_apps(function))},
        }
    path = folder / "stack.yaml"
    path.write_text(json.dumps({"provider": {"name": "openfaas"}, "functions": functions}))
    return path


def check(scenario: Scenario, path: Path) -> None:
    """Check that a stack file's functions match the scenario's.

    Raises:
        ConfigError: If the file is invalid, or with all differences together.
    """
    stack = stack_file.load(path)
    known = {function.name: function for function in stack.functions}
    problems = Problems()
    for function in scenario.functions:
        deployed = known.get(function.name)
        if deployed is None:
            hint = nearest(function.name, known) or f"there are {', '.join(known) or 'none'}"
            problems.add(f"{path}: functions", function.name, "a function of the scenario", hint)
            continue
        settings = FunctionSettings.from_labels(deployed.labels, deployed.annotations)
        where = f"{path}: functions.{function.name}"
        for label, given, expected in _differences(function, settings):
            hint = "the stack file and the scenario must agree"
            problems.add(f"{where}: {label}", given, str(expected), hint)
    problems.raise_if_any()


def _differences(
    function: Function, settings: FunctionSettings
) -> list[tuple[str, object, object]]:
    """Return the label, the function's value and the scenario's for each difference."""
    names = sorted(app.name for app in settings.apps)
    differences: list[tuple[str, object, object]] = []
    if abs((settings.slo_s or 0.0) - function.slo_s) > 1e-9:  # noqa: PLR2004  seconds
        differences.append(("com.carpool.slo", settings.slo_s, f"{function.slo_s:g}s"))
    if settings.percentile != function.percentile:
        differences.append(("com.carpool.slo.percentile", settings.percentile, function.percentile))
    if settings.batch_max != function.max_batch:
        differences.append(("com.carpool.batch.max", settings.batch_max, function.max_batch))
    expected = sorted(app.name for app in function.apps)
    if names != expected and (names or len(expected) > 1):
        differences.append(("com.carpool.apps", ", ".join(names), ", ".join(expected)))
    if not settings.scaled:
        differences.append(
            ("com.carpool.scale.policy", "fixed", "any other policy: with fixed, nothing scales it")
        )
    return differences


def _labels(function: Function) -> dict[str, str]:
    return {
        "com.carpool.slo": durations.format(function.slo_s),
        "com.carpool.slo.percentile": f"{function.percentile:g}",
        "com.carpool.batch.max": str(function.max_batch),
        "com.carpool.scale.policy": _SCALED,
        "com.carpool.scale.min": "0",  # as in a simulation
    }


def _apps(function: Function) -> list[dict[str, Any]]:
    return [
        {"name": app.name, "slo": durations.format(app.slo_s)}
        | ({"accuracy": app.accuracy} if app.accuracy else {})
        for app in function.apps
    ]
