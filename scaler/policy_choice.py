"""Resolves the names of scaling policies in a scenario's ``policies`` and on the command line.

A name may be a policy's own. Under ``policies`` it has its parameters; an entry with
``policy: NAME`` is that policy under another name, so that a scenario can compare one policy with
different parameters::

    policies:
      infless: {alpha: 0.8}
      published: {policy: infless, search: published}

An entry may also set the ``executor`` of the functions while it plans, instead of their own::

      lazybatching: {policy: fixed, executor: lazy}
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any

from carpool import plugins
from carpool.errors import ConfigError, Problem
from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.scaling import ScalePolicy
    from scaler.prewarm.contract import PrewarmPolicy
    from scaler.scenarios.scenario import Scenario

__all__ = ["PREWARM", "check_policies", "chosen_policy", "executed", "prewarm_maker"]

PREWARM = "breakeven"  # where none is named


def chosen_policy(
    name: str,
    policies: Mapping[str, Mapping[str, Any]],
    others: Mapping[str, Any] | None = None,
) -> ScalePolicy:
    """Create the policy with the name ``name``.

    Args:
        name: An entry of ``policies``, a policy's name, or ``pkg.module:Class``.
        policies: Parameters by name, as in a scenario.
        others: Parameters that override those.

    Raises:
        ConfigError: The name is unknown, or the policy does not accept the parameters.
    """
    params = dict(policies.get(name, {}))
    target = params.pop("policy", name)
    params.pop("executor", None)
    if not isinstance(target, str):
        expected = "a policy's name or pkg.module:Class"
        raise ConfigError([Problem(f"policies.{name}.policy", str(target), expected)])
    policy_class = plugins.resolve("scale", target)
    if not callable(getattr(policy_class, "propose", None)):
        expected = "a scaling policy: a class with the method propose of carpool.scaling"
        hint = "derive it from PerFunctionPolicy if it has propose_one; see docs/scaling.md"
        raise ConfigError([Problem("scale.policy", target, expected, hint)])
    made: ScalePolicy = plugins.build(policy_class, {**params, **(others or {})})
    return made


def prewarm_maker(name: str, params: Mapping[str, Any]) -> partial[PrewarmPolicy]:
    """Return a factory of prewarm policies, one for each function.

    Raises:
        ConfigError: The name is unknown, or the policy does not accept the parameters.
    """
    policy_class = plugins.resolve("prewarm", name)
    plugins.build(policy_class, params)  # a first one, so that mistakes show
    return partial(plugins.build, policy_class, params)


def check_policies(scenario: Scenario) -> None:
    """Check that every entry under ``policies`` is valid, even those that are not used.

    Raises:
        ConfigError: All problems of the entries.
    """
    problems = Problems()
    for name in scenario.policies:
        try:
            chosen_policy(name, scenario.policies)
            executed(name, scenario)
        except ConfigError as error:
            problems.extend(f"policies.{name}: ", error)
    problems.raise_if_any()


def executed(name: str, scenario: Scenario) -> Scenario:
    """Return the scenario with the executor that its entry for the policy ``name`` sets.

    Raises:
        ConfigError: The executor is unknown.
    """
    executor = scenario.policies.get(name, {}).get("executor")
    if executor is None:
        return scenario
    if executor not in ("graph", "lazy"):
        problem = Problem(f"policies.{name}.executor", str(executor), "graph or lazy")
        raise ConfigError([problem])
    functions = tuple(dataclasses.replace(each, executor=executor) for each in scenario.functions)
    return dataclasses.replace(scenario, functions=functions)
