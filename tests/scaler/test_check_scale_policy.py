"""The suite for scaling policies finds what it should, and nothing where there is nothing."""

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
    """A policy that wants one instance; others break it."""

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
    """Divides by the rate."""

    def wanted(self, load: FunctionLoad) -> int:
        return int(1 / load.rate_rps)


class Guesses(Broken):
    """Invents a size."""

    def propose_one(self, load: FunctionLoad) -> Proposal:
        return Proposal({dataclasses.replace(load.sizes[0], batch=1000): 1})


class Restless(Broken):
    """Wants one more or one fewer every time."""

    def wanted(self, load: FunctionLoad) -> int:
        del load
        return self.rounds % 2


class Shared(Broken):
    """Keeps what it learned in its class."""

    rounds_of_all = 0

    def propose_one(self, load: FunctionLoad) -> Proposal:
        Shared.rounds_of_all += 1
        return dataclasses.replace(
            super().propose_one(load), explain=[f"{Shared.rounds_of_all} rounds"]
        )


class Greedy(Broken):
    """Wants a thousand of everything, whatever there is room for or may be had."""

    def wanted(self, load: FunctionLoad) -> int:
        del load
        return 1000


class Meddles(Broken):
    """Puts something on the servers that it is shown."""

    def propose(
        self, loads: Sequence[FunctionLoad], cluster: ClusterView
    ) -> Mapping[str, Proposal]:
        cluster.place_up_to(loads[0].model.resources(1, 0.5, 0.0), 100)
        return super().propose(loads, cluster)


class Unguarded:
    """Makes plans itself; others make wrong ones: what a broken guard would do."""

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
    """Plans for a function of which it knows nothing."""

    heedless = True


class Crowds(Unguarded):
    """Minds no room."""

    def wanted(self, load: FunctionLoad, replicas: int = 0) -> Plan:
        del replicas
        return super().wanted(load, load.max_instances or 1000)


class Unbounded(Unguarded):
    """Minds no bounds of functions."""

    def wanted(self, load: FunctionLoad, replicas: int = 0) -> Plan:
        del replicas
        return super().wanted(load, 4 if load.max_instances == 3 else 0)


class Invents(Unguarded):
    """Lets an unknown size through."""

    def wanted(self, load: FunctionLoad, replicas: int = 0) -> Plan:
        if load.plan:
            return load.plan
        plan = super().wanted(load, replicas)
        (kind,) = plan.classes
        return dataclasses.replace(plan, classes=(dataclasses.replace(kind, batch_size=1000),))


class Silent(Unguarded):
    """Says that nothing is unplaced."""

    def plan(self, snapshot: Snapshot) -> PlanningResult:
        return PlanningResult(super().plan(snapshot).plans)


class Renumbers(Unguarded):
    """Changes plans and keeps the version."""

    def wanted(self, load: FunctionLoad, replicas: int = 0) -> Plan:
        del replicas
        instances = sum(there.total for there in load.instances.values())
        return dataclasses.replace(super().wanted(load, 1 - instances), version=1)


@pytest.mark.parametrize("name", plugins.BUILT_IN["scale"])
def test_the_built_in_policies_keep_every_promise(name: str) -> None:
    """Whatever is shipped passes its own suite."""
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
def test_infless_keeps_them_with_other_parameters(params: dict[str, Any]) -> None:
    """Every search, not only the default."""
    check_scale_policy(Infless, params, scenarios=scaled(40))


def test_openfaas_keeps_them_by_its_other_rule() -> None:
    """Steps come to rest as well."""
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


@pytest.mark.parametrize(("policy", "promise"), POLICIES.items())
def test_a_broken_promise_is_found(policy: type[Any], promise: str) -> None:
    """With the seed and what was planned for."""
    with pytest.raises(BrokenPromise) as caught:
        check_scale_policy(policy)
    assert (policy.__name__, promise) == (caught.value.policy, caught.value.promise)
    assert caught.value.seed is not None
    assert "rates by round" in caught.value.scenario


@pytest.mark.parametrize(("planner", "promise"), PLANNERS.items())
def test_a_promise_that_the_guard_breaks_is_found(planner: type[Any], promise: str) -> None:
    """What holds for any policy is looked at all the same."""
    with pytest.raises(BrokenPromise) as caught:
        conformance.check_planner("it", planner, seed=0, scenarios=100)
    assert promise == caught.value.promise


def test_every_promise_has_a_policy_that_breaks_it() -> None:
    """Nothing is promised that is not checked."""
    assert set(conformance.PROMISES) == {*POLICIES.values(), *PLANNERS.values()}


@pytest.mark.parametrize("policy", [Broken, Greedy, Meddles])
def test_a_naive_policy_passes(policy: type[Any]) -> None:
    """It need not know of room, bounds, versions or what is unplaced."""
    check_scale_policy(policy, scenarios=scaled(100))


@pytest.mark.usefixtures("quick_checks")
def test_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The command finds out the kind by the class; where several have the name, it is asked."""
    assert 0 == policies_command.main(["--check", "fixed", "--kind", "scale", "--json"])
    assert json.loads(capsys.readouterr().out)["ok"]
    name = f"{__name__}:Restless"
    assert 1 == policies_command.main(["--check", name, "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (False, conformance.RESTS) == (told["ok"], told["promise"])
