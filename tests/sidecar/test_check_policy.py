"""The conformance suite for batch policies passes sound ones and catches each broken one."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from carpool import __main__ as command
from carpool import plugins
from carpool.errors import ConfigError
from carpool.testing import BrokenPromise, check_policy
from sidecar.conformance import promises, suite
from sidecar.conformance.scenarios import random_scenario
from sidecar.policies.planned import Planned
from tests.effort import scaled
from tests.sidecar import broken_policies as broken

if TYPE_CHECKING:
    from collections.abc import Mapping


pytestmark = pytest.mark.usefixtures("quick_checks")

HERE = "tests.sidecar.broken_policies"
SIZES = {"preferred_batch_size": [2, 4], "max_queue_delay_microseconds": 500}
BUILT_IN = [
    pytest.param(name, {}, marks=[] if name == "deadline" else [pytest.mark.slow])
    for name in plugins.BUILT_IN["batch"]
] + [pytest.param("fixed", SIZES, marks=pytest.mark.slow)]

CASES: list[tuple[type[Any], Any, str, str]] = [
    (broken.Raising, None, promises.SANE, "by zero (broken_policies.py:"),
    (broken.Exiting, None, promises.SANE, "raised SystemExit: 7 (broken_policies.py:"),
    (broken.Departing, math.nan, promises.SANE, "returned nan"),
    (broken.Departing, "soon", promises.SANE, "returned 'soon'"),
    (broken.Departing, None, promises.SANE, "returned None"),
    (broken.Deciding, None, promises.SANE, "returned None"),
    (broken.Deciding, (1.5, 0), promises.SANE, "returned (1.5, 0)"),
    (broken.Deciding, (math.nan, 0), promises.SANE, "returned (nan, 0)"),
    (broken.Deciding, (0, 0), promises.SANE, "returned (0, 0)"),
    (broken.Deciding, (1, -1), promises.SANE, "returned (1, -1)"),
    (broken.Deciding, 3, promises.SANE, "returned 3"),
    (broken.Unlearned, None, promises.SANE, "observe("),
    (broken.Postponing, None, promises.READS, "depart("),
    (broken.Cancelling, None, promises.READS, "decide("),
    (broken.Hoarding, None, promises.LEAVES, "no further event is due"),
    (broken.Counting, None, promises.LEAVES, "no further event is due"),
    (broken.Dawdling, None, promises.LEAVES, "after 7200 s"),
    (broken.Gambling, None, promises.SAME, "the other decide("),
    (broken.Sharing, None, promises.SAME, "the other depart("),
    (broken.Remembering, None, promises.FORGETS, "still referenced by it"),
]


@pytest.mark.parametrize(("name", "params"), BUILT_IN)
def test_the_built_in_policies_keep_every_promise(name: str, params: Mapping[str, Any]) -> None:
    """The built-in policies keep every promise."""
    report = check_policy(name, params, scenarios=scaled(150))
    assert (name, promises.PROMISES) == (report.policy, report.promises)
    assert report.requests > report.batches > 0
    assert str(report).startswith(f"{name} keeps every promise ({scaled(150)} scenarios, ")


@pytest.mark.parametrize(("policy", "answer", "promise", "detail"), CASES)
def test_a_broken_policy_is_caught(
    policy: type[Any], answer: object, promise: str, detail: str
) -> None:
    """The report names the broken promise, what the policy did and a scenario of a few arrivals."""
    with pytest.raises(AssertionError) as caught:
        check_policy(policy, {"answer": answer})
    fault = caught.value
    assert isinstance(fault, BrokenPromise)
    assert (policy.__name__, promise) == (fault.policy, fault.promise)
    assert detail in fault.detail
    assert f"seed {fault.seed}, " in str(fault)
    assert fault.scenario in str(fault)
    assert 1 <= fault.scenario.count("Arrival(") <= 3


@pytest.mark.parametrize("policy", [broken.Logging, broken.Sorting])
def test_slow_leak_is_found_in_long_run(policy: type[Any]) -> None:
    """A few bytes per request that are never released are found as a leak."""
    with pytest.raises(BrokenPromise, match="bytes a request") as caught:
        check_policy(policy, scenarios=1)
    assert (promises.BOUNDED, None) == (caught.value.promise, caught.value.seed)


def test_exception_in_long_run_is_named() -> None:
    """A policy that works for hundreds of requests and then raises breaks a promise, too."""
    with pytest.raises(
        BrokenPromise, match=r"decide raised RuntimeError: tired \(broken_po"
    ) as caught:
        check_policy(broken.Tiring, scenarios=1)
    assert (promises.SANE, None) == (caught.value.promise, caught.value.seed)


class Waits(Planned):
    """The policy of a plan, with parameters that can be set from outside."""

    @dataclass(frozen=True)
    class Params:
        """Parameters."""

        max_wait_s: dict[str, float] = field(default_factory=lambda: {"web": 0.0, "*": 0.01})


@pytest.mark.parametrize("policy", [broken.Sound, broken.Windowed, Waits])
def test_a_sound_policy_passes(policy: type[Any]) -> None:
    """A sound policy passes, even with a bounded window of the past."""
    assert policy.__name__ == check_policy(policy, scenarios=scaled(50)).policy


def test_wait_bound_can_be_raised() -> None:
    """The bound on waits can be raised."""
    params = {"wait_s": 100.0}
    with pytest.raises(BrokenPromise, match="after 100 s"):
        check_policy("fixed", params, scenarios=5)
    check_policy("fixed", params, scenarios=5, wait_max_s=100.0)


def test_failure_is_reproduced_by_seed() -> None:
    """The seed alone reproduces the scenario of a failure."""
    with pytest.raises(BrokenPromise) as first:
        check_policy(broken.Counting)
    assert first.value.seed is not None
    with pytest.raises(BrokenPromise) as second:
        check_policy(f"{HERE}:Counting", seed=first.value.seed, scenarios=1)
    assert first.value.scenario == second.value.scenario
    assert random_scenario(first.value.seed) == random_scenario(first.value.seed)


def test_exception_of_policy_is_kept_as_cause() -> None:
    """The exception of the policy is kept as the cause, with its traceback."""
    with pytest.raises(BrokenPromise) as caught:
        check_policy(broken.Raising)
    reason = caught.value.__cause__
    assert reason is not None
    assert isinstance(reason.__cause__, ZeroDivisionError)


def test_scenarios_cover_all_requests_faults_and_limits() -> None:
    """The scenarios cover every kind of request, function, fault and limit."""
    scenarios = [random_scenario(seed) for seed in range(300)]
    arrivals = [arrival for scenario in scenarios for arrival in scenario.arrivals]
    assert {"*", "web", "fails", "breaks"} == {arrival.app for arrival in arrivals}
    assert {"x", "y", "z"} == {arrival.key for arrival in arrivals}
    assert {True, False} == {arrival.background for arrival in arrivals}
    assert {0.0, math.inf} < {arrival.budget_s for arrival in arrivals}
    assert any(arrival.patience_s < math.inf for arrival in arrivals)
    assert any(arrival.item_count > 32 for arrival in arrivals)
    assert {1, 2, 3} == {len(scenario.instances) for scenario in scenarios}
    assert 4 == len({scenario.fault for scenario in scenarios})
    assert 3 == len({scenario.shed for scenario in scenarios})
    assert {None, 9} == {scenario.slow_after for scenario in scenarios}


def test_unknown_policy_is_configuration_error() -> None:
    """An unknown policy and wrong parameters are configuration errors, not broken promises."""
    with pytest.raises(ConfigError, match="did you mean 'deadline'"):
        check_policy("dedline")
    with pytest.raises(ConfigError, match="the policy has no parameters"):
        check_policy("none", {"size": 3})


def test_suite_runs_without_development_packages() -> None:
    """The suite runs without hypothesis, pytest and numpy."""
    code = (
        "import sys; from carpool.testing import check_policy;"
        f"from sidecar.conformance import suite; suite._LONG = {suite._LONG};"
        "check_policy('none', scenarios=3);"
        "sys.exit(', '.join({'hypothesis', 'pytest', 'numpy'} & set(sys.modules)) or 0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (0, b"") == (ran.returncode, ran.stderr)


def test_the_command_checks_a_policy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`carpool policies --check` exits with 0 if every promise is kept."""
    params = '{"batch_timeout_micros": 500}'
    assert 0 == command.main(["policies", "--check", "fixed", "--params", params, "--json"])
    report = json.loads(capsys.readouterr().out)
    assert (True, "fixed") == (report["ok"], report["policy"])


def test_the_command_shows_a_broken_promise(capsys: pytest.CaptureFixture[str]) -> None:
    """`carpool policies --check` exits with 1 for a broken promise, with 2 for bad parameters."""
    check = ["policies", "--check", f"{HERE}:Hoarding"]
    assert 1 == command.main(check)
    assert promises.LEAVES in capsys.readouterr().out
    assert 1 == command.main([*check, "--json"])
    report = json.loads(capsys.readouterr().out)
    assert (False, promises.LEAVES, 0) == (report["ok"], report["promise"], report["seed"])
    assert 2 == command.main(["policies", "--check", "fixed", "--params", "[]"])
    assert 2 == command.main(["policies", "--check", "fixed", "--params", "{"])


def test_command_names_missing_methods(capsys: pytest.CaptureFixture[str]) -> None:
    """For a class that is no policy of the kind, the error names the missing methods."""
    assert 2 == command.main(["policies", "--check", f"{HERE}:Hoarding", "--kind", "scale"])
    assert "it lacks propose" in capsys.readouterr().err
    assert 2 == command.main(["policies", "--check", "collections:Counter"])
    assert "it lacks depart, decide, observe" in capsys.readouterr().err
