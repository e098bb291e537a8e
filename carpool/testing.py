"""Entry points to the test suites that every policy should pass, one for each kind of policy.

The reports of the checks are defined here. The suites themselves drive the core of the sidecar or
of the scaler, and are found by name, as this package imports no other part.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BrokenPromise", "Report", "ScaleReport", "check_policy", "check_scale_policy"]

_SUITE = "sidecar.conformance"
_SCALE_SUITE = "scaler.conformance"


@dataclass(frozen=True, slots=True)
class Report:
    """Result of driving a policy that broke no promise.

    Attributes:
        policy: name of the policy.
        promises: the promises that were kept, in words.
        scenarios: number of scenarios, each run twice.
        requests: number of requests in all scenarios.
        batches: number of batches that the policy made of them.
    """

    policy: str
    promises: tuple[str, ...]
    scenarios: int
    requests: int
    batches: int

    def __str__(self) -> str:
        tally = f"{self.scenarios} scenarios, {self.requests} requests, {self.batches} batches"
        promises = "".join(f"\n  - {promise}" for promise in self.promises)
        return f"{self.policy} keeps every promise ({tally}):{promises}"


@dataclass(frozen=True, slots=True)
class ScaleReport:
    """Result of driving a scaling policy that broke no promise.

    Attributes:
        policy: name of the policy.
        promises: the promises that were kept, in words.
        scenarios: number of scenarios, each run twice.
        rounds: number of planning rounds in all scenarios.
        plans: number of plans made in them.
    """

    policy: str
    promises: tuple[str, ...]
    scenarios: int
    rounds: int
    plans: int

    def __str__(self) -> str:
        tally = f"{self.scenarios} scenarios, {self.rounds} rounds, {self.plans} plans"
        promises = "".join(f"\n  - {promise}" for promise in self.promises)
        return f"{self.policy} keeps every promise ({tally}):{promises}"


class BrokenPromise(AssertionError):
    """Raised when a policy breaks a promise.

    Attributes:
        policy: name of the policy.
        promise: the broken promise, in words.
        detail: what the policy did.
        seed: seed of the scenario in which it was found; None for the long run.
        scenario: the shortest scenario found that shows it; for a batch policy as Python code.
    """

    def __init__(
        self, policy: str, promise: str, detail: str, seed: int | None = None, scenario: str = ""
    ) -> None:
        self.policy = policy
        self.promise = promise
        self.detail = detail
        self.seed = seed
        self.scenario = scenario
        where = f"\nseed {seed}, made as short as possible:\n{scenario}" if scenario else ""
        super().__init__(f"{policy} breaks a promise: {promise}\n{detail}{where}")


def check_policy(
    policy: type[Any] | str,
    params: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    scenarios: int = 300,
    wait_max_s: float = 60.0,
) -> Report:
    """Drive a batch policy through many scenarios in simulated time and check every promise.

    Args:
        policy: a class, its name, or ``module:Class``.
        params: parameters of the policy, as in ``com.carpool.batch.params``.
        seed: seed of the first scenario; the others follow. The first scenarios are the shortest.
        scenarios: number of scenarios.
        wait_max_s: longest time that a request may wait while an instance is idle.

    Raises:
        BrokenPromise: an ``AssertionError`` with the seed and the shortest scenario that shows it.
        ConfigError: there is no such policy, or it does not accept the parameters.
    """
    suite = importlib.import_module(_SUITE)
    report: Report = suite.check_policy(
        policy, params or {}, seed=seed, scenarios=scenarios, wait_max_s=wait_max_s
    )
    return report


def check_scale_policy(
    policy: type[Any] | str,
    params: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    scenarios: int = 100,
) -> ScaleReport:
    """Drive a scaling policy through rounds of planning and check every promise.

    Args:
        policy: a class, its name, or ``module:Class``.
        params: parameters of the policy, as under ``policies`` in a scenario file.
        seed: seed of the first scenario; the others follow.
        scenarios: number of scenarios.

    Raises:
        BrokenPromise: an ``AssertionError`` with the seed and the shortest scenario that shows it.
        ConfigError: there is no such policy, or it does not accept the parameters.
    """
    suite = importlib.import_module(_SCALE_SUITE)
    report: ScaleReport = suite.check_policy(policy, params or {}, seed=seed, scenarios=scenarios)
    return report
