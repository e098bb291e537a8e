"""Checks a deployment's settings together with its batch policy, to report all errors at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool import plugins
from carpool.settings import LABEL_PREFIX, FunctionSettings
from carpool.validation.problems import Problems
from sidecar.policies.choice import build_policy

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["read"]

_POLICY = LABEL_PREFIX + "batch.policy"


def read(
    labels: Mapping[str, str], annotations: Mapping[str, str], env: Mapping[str, str] | None = None
) -> FunctionSettings:
    """Return the settings of a function; its environment overrides its labels.

    A policy given as ``pkg.module:Class`` may be importable only beside the function; its sidecar
    checks it.

    Raises:
        ConfigError: With every invalid setting, unknown policy and unknown parameter.
    """
    problems = Problems()

    def settings_of() -> FunctionSettings:
        from_labels = FunctionSettings.from_labels(labels, annotations)
        return FunctionSettings.from_env({**from_labels.to_env(), **(env or {})})

    settings = problems.attempt(settings_of)
    if settings is None:
        policy = labels.get(_POLICY) or annotations.get(_POLICY, "")
        if policy and ":" not in policy:
            problems.attempt(lambda: plugins.resolve("batch", policy))
    elif ":" not in settings.batch_policy:
        problems.attempt(lambda: build_policy(settings))
    problems.raise_if_any()
    return settings or FunctionSettings()
