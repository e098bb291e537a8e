"""Builds the batch policy that a function's settings name."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from carpool import durations, plugins
from carpool.errors import ConfigError
from carpool.settings import LABEL_PREFIX
from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.settings import FunctionSettings
    from sidecar.core.policy import BatchPolicy

__all__ = ["build_policy"]

_LABEL = LABEL_PREFIX + "batch.policy"


def build_policy(settings: FunctionSettings) -> BatchPolicy:
    """Return the batch policy that ``settings`` name, with their parameters.

    Raises:
        ConfigError: unknown policy, parameters that it does not take, a window given twice or to a
            policy without one, or a batch larger than ``batch.max``.
    """
    policy_class = _policy_class(settings.batch_policy)
    policy: BatchPolicy = plugins.build(policy_class, _params(policy_class, settings))
    largest = getattr(policy, "largest", 0)
    if largest > settings.batch_max:
        problems = Problems()
        expected = f"batches of at most batch.max, which is {settings.batch_max}"
        problems.add(
            "batch.params", _params_text(settings), expected, f"set batch.max to {largest}"
        )
        problems.raise_if_any()
    return policy


def _policy_class(name: str) -> type[Any]:
    try:
        return plugins.resolve("batch", name)
    except ConfigError as error:
        if not isinstance(error.__cause__, ModuleNotFoundError):
            raise
        (problem,) = error.problems
        fix = "put its file into the function's folder or on PYTHONPATH, or install its package"
        named = dataclasses.replace(problem, name=_LABEL, hint=f"{problem.hint}; {fix}")
        raise ConfigError([named]) from error.__cause__


def _params(policy_class: type[Any], settings: FunctionSettings) -> Mapping[str, Any]:
    """Return the parameters given, including the window of ``batch.wait``."""
    if settings.batch_wait_s is None:
        return settings.batch_params
    problems = Problems()
    wait = durations.format(settings.batch_wait_s)
    data = getattr(policy_class, "Params", None)
    fields = dataclasses.fields(data) if dataclasses.is_dataclass(data) else ()
    known = plugins.knobs(policy_class)
    windows_given = [
        name
        for name in settings.batch_params
        if name == "wait_s" or (name in known and known[name].parameter == "wait_s")
    ]
    if "wait_s" not in {field.name for field in fields}:
        expected = f"nothing, because the policy {settings.batch_policy!r} has no window"
        problems.add("batch.wait", wait, expected, "use batch.policy fixed, or remove it")
    elif windows_given:
        expected = f"only one of the two, and batch.params has {windows_given[0]} too"
        problems.add("batch.wait", wait, expected, "give one of them")
    problems.raise_if_any()
    return {**settings.batch_params, "wait_s": settings.batch_wait_s}


def _params_text(settings: FunctionSettings) -> str:
    return ", ".join(f"{name}: {value}" for name, value in settings.batch_params.items())
