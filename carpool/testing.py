"""The door to the suites that every policy should pass, one for each kind of policy.

What a check reports is defined here; the suites themselves drive the sidecar's own core, or that of
the scaler, and are found by strings, as nothing here imports another part.
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
    """What a policy went through without breaking a promise.

    Attributes:
        policy: its name.
        promises: what held, in words.
        scenarios: how many it was driven through, each twice.
        requests: how many came in all of them.
        batches: how many it made of them.
    """

    policy: str
    promises: tuple[str, ...]
    scenarios: int
    requests: int
    batches: int

    def __str__(self) -> str:
        tally = f"{self.scenarios} scenarios, {self.requests} requests, {self.batches} batches"
        held = "".join(f"\n  - {promise}" for promise in self.promises)
        return f"{self.policy} keeps every promise ({tally}):{held}"


@dataclass(frozen=True, slots=True)
class ScaleReport:
    """What a scaling policy went through without breaking a promise.

    Attributes:
        policy: its name.
        promises: what held, in words.
        scenarios: how many it was driven through, each twice.
        rounds: how many rounds of planning there were in all of them.
        plans: how many plans it made in them.
    """

    policy: str
    promises: tuple[str, ...]
    scenarios: int
    rounds: int
    plans: int

    def __str__(self) -> str:
        tally = f"{self.scenarios} scenarios, {self.rounds} rounds, {self.plans} plans"
        held = "".join(f"\n  - {promise}" for promise in self.promises)
        return f"{self.policy} keeps every promise ({tally}):{held}"


class BrokenPromise(AssertionError):
    """A policy broke a promise.

    Attributes:
        policy: its name.
        promise: which, in words.
        detail: what it did.
        seed: of the scenario in which it was found; None: the long run.
        scenario: the shortest found that shows it, as Python.
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
        policy: a class, the name of one, or ``module:Class``.
        params: parameters that it gets, as in ``com.carpool.batch.params``.
        seed: of the first scenario; the others follow. The first are the shortest.
        scenarios: how many.
        wait_max_s: longest time that a request may be kept waiting beside an idle instance.

    Raises:
        BrokenPromise: an ``AssertionError`` with the seed and the shortest scenario that shows it.
        ConfigError: there is no such policy, or it does not take the parameters.
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
        policy: a class, the name of one, or ``module:Class``.
        params: parameters that it gets, as under ``policies`` in a scenario file.
        seed: of the first scenario; the others follow.
        scenarios: how many.

    Raises:
        BrokenPromise: an ``AssertionError`` with the seed and the snapshot that shows it.
        ConfigError: there is no such policy, or it does not take the parameters.
    """
    suite = importlib.import_module(_SCALE_SUITE)
    report: ScaleReport = suite.check_policy(policy, params or {}, seed=seed, scenarios=scenarios)
    return report
