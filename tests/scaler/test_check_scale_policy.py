"""The conformance suite for scaling policies finds faults and gives no false alarms."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest

from carpool import plugins, policies_command
from carpool.plan import InstanceClass, Plan, Route
from carpool.scaling import PerFunctionPolicy, Proposal
from carpool.testing import BrokenPromise, check_scale_policy
from scaler import conformance
from scaler.control.planning_result import PlanningResult
from scaler.policies.infless.policy import Infless
from tests.effort import scaled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carpool.scaling import ClusterView, FunctionLoad
    from scaler.planning.snapshot import Snapshot


class Broken(PerFunctionPolicy):
    """Policy that proposes one instance; subclasses break it."""

    def __init__(self, params: PerFunctionPolicy.Params) -> None:
        super().__init__(params)
        self.rounds = 0

    def propose_one(self, load: FunctionLoad) -> Proposal:
        self.rounds += 1
        return Proposal({load.sizes[0]: self.wanted(load)})

    def wanted(self, load: FunctionLoad) -> int:
        del load
        return 1


class Raises(Broken):
    """Policy that divides by the rate."""

    def wanted(self, load: FunctionLoad) -> int:
        return int(1 / load.rate_rps)


class Guesses(Broken):
    """Policy that proposes a size that was not offered."""

    def propose_one(self, load: FunctionLoad) -> Proposal:
        return Proposal({dataclasses.replace(load.sizes[0], batch=1000): 1})


class Restless(Broken):
    """Policy that alternates between one instance and none."""

    def wanted(self, load: FunctionLoad) -> int:
        del load
        return self.rounds % 2


class Shared(Broken):
    """Policy that keeps its state in the class."""

    rounds_of_all = 0

    def propose_one(self, load: FunctionLoad) -> Proposal:
        Shared.rounds_of_all += 1
        return dataclasses.replace(
            super().propose_one(load), explain=[f"{Shared.rounds_of_all} rounds"]
        )


class Greedy(Broken):
    """Policy that proposes a thousand instances, regardless of room and bounds."""

    def wanted(self, load: FunctionLoad) -> int:
        del load
        return 1000


class Meddles(Broken):
    """Policy that places something on the servers that it is shown."""

    def propose(
        self, loads: Sequence[FunctionLoad], cluster: ClusterView
    ) -> Mapping[str, Proposal]:
        cluster.place_up_to(loads[0].model.resources(1, 0.5, 0.0), 100)
        return super().propose(loads, cluster)


class Unguarded:
    """Planner without a guard; subclasses make wrong plans, as with a broken guard."""

    heedless = False

    def plan(self, snapshot: Snapshot) -> PlanningResult:
        shown = [load for load in snapshot.functions if load.rate_rps >= 0 or self.heedless]
        plans = {load.name: self.wanted(load) for load in shown}
        return PlanningResult(
            plans, {load.name: load.rate_rps for load in snapshot.functions if load.rate_rps > 0}
        )

    def wanted(self, load: FunctionLoad, replicas: int = 0) -> Plan:
        configuration = next(iter(load.model.configurations(1)))
        kind = InstanceClass(
            "one", cpu=configuration.cpu, gpu=configuration.gpu, batch_size=1, replicas=replicas
        )
        plan = Plan(load.name, 1, "broken", (kind,), (Route("*", {"one": 1.0}, 0.0),))
        if load.plan and dataclasses.replace(plan, version=load.plan.version) == load.plan:
            return load.plan
        return dataclasses.replace(plan, version=load.plan.version + 1 if load.plan else 1)


class Heedless(Unguarded):
    """Planner that plans for a function with an unknown rate."""

    heedless = True


class Crowds(Unguarded):
    """Planner that ignores the room on the servers."""

    def wanted(self, load: FunctionLoad, replicas: int = 0) -> Plan:
        del replicas
        return super().wanted(load, load.max_instances or 1000)


class Unbounded(Unguarded):
    """Planner that ignores the bounds of functions."""

    def wanted(self, load: FunctionLoad, replicas: int = 0) -> Plan:
        del replicas
        return super().wanted(load, 4 if load.max_instances == 3 else 0)


class Invents(Unguarded):
    """Planner that accepts an unknown size."""

    def wanted(self, load: FunctionLoad, replicas: int = 0) -> Plan:
        if load.plan:
            return load.plan
        plan = super().wanted(load, replicas)
        (kind,) = plan.classes
        return dataclasses.replace(plan, classes=(dataclasses.replace(kind, batch_size=1000),))


class Silent(Unguarded):
    """Planner that reports nothing as unplaced."""

    def plan(self, snapshot: Snapshot) -> PlanningResult:
        return PlanningResult(super().plan(snapshot).plans)


class Renumbers(Unguarded):
    """Planner that changes plans without a new version."""

    def wanted(self, load: FunctionLoad, replicas: int = 0) -> Plan:
        del replicas
        instances = sum(there.total for there in load.instances.values())
        return dataclasses.replace(super().wanted(load, 1 - instances), version=1)


@pytest.mark.parametrize("name", plugins.BUILT_IN["scale"])
def test_the_built_in_policies_keep_every_promise(name: str) -> None:
    """All built-in policies pass the suite."""
    report = check_scale_policy(name, scenarios=scaled(60))
    assert (name, scaled(60)) == (report.policy, report.scenarios)
    assert conformance.PROMISES == report.promises
    assert report.plans > 0


@pytest.mark.parametrize(
    "params",
    [
        {"search": "published"},
        {"aim": "servers"},
        {"search": "published", "rounded": True, "keep_alive_s": 60.0},
    ],
)
def test_infless_keeps_promises_with_other_parameters(params: dict[str, Any]) -> None:
    """Searches other than the default pass the suite."""
    check_scale_policy(Infless, params, scenarios=scaled(40))


def test_openfaas_keeps_promises_with_alert_rule() -> None:
    """The steps of the alert rule also come to rest."""
    check_scale_policy("openfaas", {"rule": "alert"}, scenarios=scaled(40))


POLICIES = {
    Raises: conformance.SANE,
    Guesses: conformance.SANE,
    Restless: conformance.RESTS,
    Shared: conformance.SAME,
}
PLANNERS = {
    Heedless: conformance.SILENT,
    Crowds: conformance.FITS,
    Unbounded: conformance.BOUNDED,
    Invents: conformance.KNOWN,
    Silent: conformance.HONEST,
    Renumbers: conformance.VERSIONS,
}


def test_a_policy_without_its_method_is_told_which() -> None:
    """A policy whose only method is misspelt is told which are expected."""
    with pytest.raises(BrokenPromise, match="PerFunctionPolicy defines neither propose_one nor"):
        check_scale_policy(PerFunctionPolicy)


@pytest.mark.parametrize(("policy", "promise"), POLICIES.items())
def test_a_broken_promise_is_found(policy: type[Any], promise: str) -> None:
    """The error has the seed and the scenario."""
    with pytest.raises(BrokenPromise) as caught:
        check_scale_policy(policy)
    assert (policy.__name__, promise) == (caught.value.policy, caught.value.promise)
    assert caught.value.seed is not None
    assert "requests/s by round" in caught.value.scenario


class DreadsChange(Broken):
    """Policy for several functions that cannot bear that a rate differs from the first one."""

    def __init__(self, params: PerFunctionPolicy.Params) -> None:
        super().__init__(params)
        self.rates_rps: set[float] = set()

    def propose(
        self, loads: Sequence[FunctionLoad], cluster: ClusterView
    ) -> Mapping[str, Proposal]:
        if len(loads) > 1:
            self.rates_rps.add(loads[0].rate_rps)
        assert len(self.rates_rps) < 2, "another rate"
        return super().propose(loads, cluster)


def test_scenario_has_only_what_breaks_the_promise() -> None:
    """Functions, servers and rounds that the error does not need are left out."""
    with pytest.raises(BrokenPromise, match="another rate") as caught:
        check_scale_policy(DreadsChange)
    *functions, rates = caught.value.scenario.splitlines()
    assert ["f", "f"] == [line[0] for line in functions]
    assert 1 == rates.count(";")


@pytest.mark.parametrize(("planner", "promise"), PLANNERS.items())
def test_promise_broken_by_guard_is_reported(planner: type[Any], promise: str) -> None:
    """Promises that the guard keeps for every policy are checked too."""
    with pytest.raises(BrokenPromise) as caught:
        conformance.check_planner("it", planner, seed=0, scenarios=100)
    assert promise == caught.value.promise


def test_every_promise_is_broken_by_a_test_policy() -> None:
    """No promise is unchecked."""
    assert set(conformance.PROMISES) == {*POLICIES.values(), *PLANNERS.values()}


@pytest.mark.parametrize("policy", [Broken, Greedy, Meddles])
def test_a_naive_policy_passes(policy: type[Any]) -> None:
    """A policy need not handle room, bounds, versions or unplaced load."""
    check_scale_policy(policy, scenarios=scaled(100))


@pytest.mark.usefixtures("quick_checks")
def test_suite_runs_from_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The class determines the kind; ``--kind`` chooses if several policies have the name."""
    assert 0 == policies_command.main(["--check", "fixed", "--kind", "scale", "--json"])
    assert json.loads(capsys.readouterr().out)["ok"]
    name = f"{__name__}:Restless"
    assert 1 == policies_command.main(["--check", name, "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (False, conformance.RESTS) == (told["ok"], told["promise"])
