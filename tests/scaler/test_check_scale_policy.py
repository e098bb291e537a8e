"""The suite for scaling policies finds what it should, and nothing where there is nothing."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from carpool import plugins, policies_command
from carpool.plan import InstanceClass, Plan, Route
from carpool.testing import BrokenPromise, check_scale_policy
from scaler import conformance
from scaler.core.policy import Planning
from scaler.policies.infless import Infless
from tests.effort import scaled

if TYPE_CHECKING:
    from scaler.core.snapshot import FunctionView, Snapshot


class Broken:
    """A policy without parameters that wants one instance; others break it."""

    @dataclass(frozen=True)
    class Params:
        """None."""

    def __init__(self, params: Params) -> None:
        del params
        self.rounds = 0

    def plan(self, snapshot: Snapshot) -> Planning:
        self.rounds += 1
        plans = {view.name: self.wanted(view) for view in snapshot.functions}
        return Planning(
            plans, {view.name: view.rate_rps for view in snapshot.functions if view.rate_rps}
        )

    def wanted(self, view: FunctionView, replicas: int = 0) -> Plan:
        configuration = next(iter(view.model.configurations(1)))
        kind = InstanceClass(
            "one", cpu=configuration.cpu, gpu=configuration.gpu, batch_size=1, replicas=replicas
        )
        plan = Plan(view.name, 1, "broken", (kind,), (Route("*", {"one": 1.0}, 0.0),))
        if view.plan and dataclasses.replace(plan, version=view.plan.version) == view.plan:
            return view.plan
        return dataclasses.replace(plan, version=view.plan.version + 1 if view.plan else 1)


class Raises(Broken):
    """Divides by the rate."""

    def plan(self, snapshot: Snapshot) -> Planning:
        return Planning({}, {view.name: 1 / view.rate_rps for view in snapshot.functions})


class Places(Broken):
    """Plans on the servers themselves instead of on a copy."""

    def plan(self, snapshot: Snapshot) -> Planning:
        if snapshot.cluster is not None:
            size = snapshot.functions[0].model.resources(1, 0.5, 0.0)
            node = snapshot.cluster.best_fit(size)
            if node is not None:
                snapshot.cluster.place(size, node)
        return super().plan(snapshot)


class Greedy(Broken):
    """Wants a thousand of everything."""

    def wanted(self, view: FunctionView, replicas: int = 0) -> Plan:
        del replicas
        return super().wanted(view, view.max_instances or 1000)


class Unbounded(Broken):
    """Minds no bounds of functions."""

    def wanted(self, view: FunctionView, replicas: int = 0) -> Plan:
        del replicas
        return super().wanted(view, 4 if view.max_instances == 3 else 0)


class Guesses(Broken):
    """Invents a size."""

    def wanted(self, view: FunctionView, replicas: int = 0) -> Plan:
        if view.plan:
            return view.plan
        plan = super().wanted(view, replicas)
        (kind,) = plan.classes
        unknown = dataclasses.replace(kind, batch_size=1000)
        return dataclasses.replace(plan, classes=(unknown,))


class Silent(Broken):
    """Says that nothing is unplaced."""

    def plan(self, snapshot: Snapshot) -> Planning:
        return Planning(super().plan(snapshot).plans)


class Renumbers(Broken):
    """Changes plans and keeps the version."""

    def wanted(self, view: FunctionView, replicas: int = 0) -> Plan:
        del replicas
        plan = super().wanted(view, self.rounds % 2)
        return dataclasses.replace(plan, version=1)


class Restless(Broken):
    """Wants one more or one fewer every time."""

    def wanted(self, view: FunctionView, replicas: int = 0) -> Plan:
        del replicas
        return super().wanted(view, self.rounds % 2)


class Shared(Broken):
    """Keeps what it learned in its class."""

    rounds_of_all = 0

    def wanted(self, view: FunctionView, replicas: int = 0) -> Plan:
        del replicas
        Shared.rounds_of_all += 1
        plan = super().wanted(view)
        return (
            dataclasses.replace(plan, explain=(f"{Shared.rounds_of_all}",))
            if not view.plan
            else plan
        )


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


@pytest.mark.parametrize(
    ("policy", "promise"),
    [
        (Raises, conformance.SANE),
        (Places, conformance.READS),
        (Greedy, conformance.FITS),
        (Unbounded, conformance.BOUNDED),
        (Guesses, conformance.KNOWN),
        (Silent, conformance.HONEST),
        (Renumbers, conformance.VERSIONS),
        (Restless, conformance.RESTS),
        (Shared, conformance.SAME),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_broken_promise_is_found(policy: type[Any], promise: str) -> None:
    """With the seed and what was planned for."""
    with pytest.raises(BrokenPromise) as caught:
        check_scale_policy(policy)
    assert (policy.__name__, promise) == (caught.value.policy, caught.value.promise)
    assert caught.value.seed is not None
    assert "rates by round" in caught.value.scenario


def test_every_promise_has_somebody_who_breaks_it() -> None:
    """Nothing is promised that is not checked."""
    assert 9 == len(conformance.PROMISES)


def test_a_policy_that_does_nothing_wrong_is_left_alone() -> None:
    """The one that the broken ones are made from."""
    check_scale_policy(Broken, scenarios=scaled(100))


@pytest.mark.usefixtures("quick_checks")
def test_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The command finds out the kind by the class; where several have the name, it is asked."""
    assert 0 == policies_command.main(["--check", "fixed", "--kind", "scale", "--json"])
    assert json.loads(capsys.readouterr().out)["ok"]
    name = f"{__name__}:Silent"
    assert 1 == policies_command.main(["--check", name, "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (False, conformance.HONEST) == (told["ok"], told["promise"])
