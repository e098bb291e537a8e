"""The controller of one function: loads for policies, and actions and settings from plans."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from carpool.latency.linear import Linear
from carpool.log_histogram import bin_of
from carpool.prewarm_windows import Windows
from carpool.sync import Announcement, AppReport, ClassReport, FrontReport
from scaler.control.class_function import CLASS_LABEL, Status
from scaler.control.controller import Controller
from scaler.control.dependencies import Dependencies
from scaler.control.functions import Functions
from scaler.control.plan_builder import with_windows
from scaler.prewarm.fixed import FixedKeepAlive

LABELS = {
    "com.carpool.slo": "200ms",
    "com.carpool.scale.policy": "infless",
    "com.carpool.scale.min": "0",
    "com.carpool.batch.max": "8",
    "com.carpool.cpu": "2",
}
MODEL = Linear(0.02, 0.002, cpu=2.0)


def base(**labels: str) -> Status:
    """Return the status of the user's function."""
    return Status.of({"name": "f", "image": "x", "replicas": 1, "labels": {**LABELS, **labels}})


def report(**fields: Any) -> FrontReport:
    """Return a front's report of one second."""
    return FrontReport("f", "a" * 8, 1, period_s=1.0, **fields)


def deployed(controller: Controller, kind: str, replicas: int) -> dict[str, Status]:
    """Return what a gateway lists after the controller's first action for the class ``kind``."""
    (action,) = [a for a in controller.step(0.0, 0.0) if a.class_name == kind]
    document = {**action.document, "name": action.name, "replicas": replicas}
    return {kind: Status.of({**document, "availableReplicas": replicas})}


def test_a_function_without_a_model_is_measured_first() -> None:
    """Without a model there is one class as labelled and no load until batches were measured."""
    controller = Controller(base(**{"com.carpool.scale.min": "1"}), Dependencies())
    assert controller.load(0.0) is None
    first = controller.first_plan()
    assert ("first", 2.0, 8, 1) == (
        first.classes[0].name,
        first.classes[0].cpu,
        first.classes[0].batch_size,
        first.classes[0].replicas,
    )
    controller.reported(report(classes=(ClassReport("first", 9, 9, 0.2, 0.02, 0.002),)), 1.0, 1.0)
    seen = controller.load(1.0)
    assert seen is not None
    assert MODEL == seen.model


def test_learned_state_is_kept_while_labels_are_unchanged() -> None:
    """A changed invocation count in the gateway's list does not reset what was learned."""
    controller = Controller(base(), Dependencies())
    controller.reported(report(classes=(ClassReport("first", 9, 9, 0.2, 0.02, 0.002),)), 1.0, 1.0)
    before = controller.load(1.0)
    controller.observe(Status.of({**base().document, "invocationCount": 7.0}), {})
    after = controller.load(1.0)
    assert before is not None
    assert after is not None
    assert before.model is after.model


def test_instance_size_is_from_labels_limits_or_defaults() -> None:
    """Cores are those of the label, else of a valid platform limit, else one."""
    for cores, labels, limits in (
        (2.0, {"com.carpool.cpu": "2"}, {"cpu": "500m"}),
        (0.5, {}, {"cpu": "500m"}),
        (1.0, {}, {"cpu": "much", "memory": "1Gi"}),
        (1.0, {}, {}),
    ):
        own = {name: t for name, t in base().labels.items() if name != "com.carpool.cpu"} | labels
        status = Status.of({**base().document, "labels": own, "limits": limits})
        controller = Controller(status, Dependencies())
        assert cores == controller.first_plan().classes[0].cpu
        controller.observe(Status.of({**status.document, "limits": {"cpu": "3"}}), {})
        assert (cores if labels else 3.0) == controller.first_plan().classes[0].cpu


def test_a_load_has_rates_and_bounds() -> None:
    """A load has the rates of each application and of requests without one, and the bounds."""
    labels = {"com.carpool.scale.min": "1", "com.carpool.scale.max": "9"}
    status = base(**labels)
    annotations = {"com.carpool.apps": '[{"name": "web", "slo": "90ms"}]'}
    status = Status.of({**status.document, "annotations": annotations})
    controller = Controller(status, Dependencies(models={"f": MODEL}))
    apps = (AppReport("web", 30), AppReport("*", 10))
    controller.reported(report(apps=apps, queued=4), 1.0, 1.0)
    seen = controller.load(1.0)
    assert seen is not None
    rates = {app.name: app.rate_rps for app in seen.apps}
    assert {"web": 0.09, "(no application)": 0.2} == {app.name: app.slo_s for app in seen.apps}
    assert pytest.approx({"web": 30.0, "(no application)": 10.0}) == rates
    assert (4, 1, 9, 8) == (seen.queued, seen.min_instances, seen.max_instances, seen.max_batch)


def test_unknown_application_counts_with_requests_that_name_none() -> None:
    """Load that a front of an earlier version reports under an unknown name is planned for."""
    annotations = {"com.carpool.apps": '[{"name": "web", "slo": "90ms"}]'}
    status = Status.of({**base().document, "annotations": annotations})
    controller = Controller(status, Dependencies(models={"f": MODEL}))
    apps = (AppReport("web", 30), AppReport("made-up", 7), AppReport("*", 10))
    controller.reported(report(apps=apps), 1.0, 1.0)
    seen = controller.load(1.0)
    assert seen is not None
    rates = {app.name: app.rate_rps for app in seen.apps}
    assert pytest.approx({"web": 30.0, "(no application)": 17.0}) == rates


def test_plan_is_deployed_and_sent_to_fronts() -> None:
    """A plan is deployed and scaled, and fronts get the addresses of announced instances."""
    controller = Controller(
        base(**{"com.carpool.scale.min": "1"}), Dependencies(models={"f": MODEL})
    )
    controller.follow(controller.first_plan(), 0.0)
    listed = deployed(controller, "first", 0)
    assert "first" == listed["first"].labels[CLASS_LABEL]
    controller.observe(base(**{"com.carpool.scale.min": "1"}), listed)
    assert ["scale f--first to 1"] == [str(action) for action in controller.step(1.0, 1.0)]
    listed = {"first": replace(listed["first"], replicas=1, available=1)}
    controller.observe(base(**{"com.carpool.scale.min": "1"}), listed)
    assert not controller.complete(2.0)
    controller.reports.announced(Announcement("f", "i" * 8, 1, "first", "a:1", "ready", 1.0), 2.0)
    assert controller.complete(2.0)
    assert [] == controller.step(2.0, 2.0)
    assert {"first": ("a:1",)} == controller.sidecar_config.instances
    assert not controller.changing


def test_only_new_decisions_are_recorded() -> None:
    """Reasons that differ only in numbers are recorded only if instances change, too."""
    controller = Controller(base(), Dependencies(models={"f": MODEL}))
    first = controller.first_plan()
    two = tuple(replace(each, replicas=2) for each in first.classes)
    plans = [
        replace(first, explain=("48 requests/s: 1 x first.",)),
        replace(first, explain=("49.2 requests/s: 1 x first.", "There is no capacity for 1 more.")),
        replace(first, explain=("50 requests/s: 1 x first.", "There is no capacity for 2 more.")),
        replace(first, explain=("51 requests/s: 2 x first.",), classes=two),
    ]
    for time_s, plan in enumerate(plans):
        controller.follow(plan, time_s)
    told = [(each.at_s, each.text) for each in controller.decisions if "Start" not in each.text]
    assert [
        (0, "48 requests/s: 1 x first."),
        (1, "There is no capacity for 1 more."),
        (3, "51 requests/s: 2 x first."),
    ] == told


def test_running_instances_are_found_and_not_replaced() -> None:
    """A scaler without saved state continues with the existing instances."""
    controller = Controller(base(), Dependencies())
    controller.follow(controller.first_plan(), 0.0)
    controller.reported(report(starving=True, queued=1), 0.0, 0.0)
    listed = deployed(controller, "first", 3)
    other = Controller(base(), Dependencies())
    other.observe(base(), listed)
    found = other.first_plan()
    assert ("deployed", 3, 8) == (
        found.policy,
        found.classes[0].replicas,
        found.classes[0].batch_size,
    )
    other.follow(found, 0.0)
    assert [] == other.step(0.0, 0.0)


def test_scale_to_zero_follows_prewarm_windows() -> None:
    """The last instance ends with the prewarm policy's window, and a request starts one again."""
    keep = FixedKeepAlive(FixedKeepAlive.Params(keep_alive_s=30))
    controller = Controller(base(), Dependencies(models={"f": MODEL}, prewarm=lambda: keep))
    seen = controller.to_plan(0.0, 0.0)
    assert seen is not None
    assert Windows(0.0, 30) == seen.windows
    controller.follow(with_windows(controller.first_plan(), seen.windows), 0.0)
    controller.reported(report(idle_s=10.0), 1.0, 1.0)
    controller.step(1.0, 1.0)
    assert 1 == sum(controller.wanted.values())
    controller.reported(report(idle_s=31.0), 22.0, 22.0)
    controller.step(22.0, 22.0)
    assert 0 == sum(controller.wanted.values())
    controller.reported(report(queued=1, starving=True), 23.0, 23.0)
    controller.step(23.0, 23.0)
    assert 1 == sum(controller.wanted.values())


def test_windows_apply_before_latency_model_exists() -> None:
    """The first plan has the windows, and gets a new version when they change."""
    policies = [FixedKeepAlive(FixedKeepAlive.Params(keep_alive_s=each)) for each in (30, None)]
    controller = Controller(base(), Dependencies(5, prewarm=lambda: _Changing(policies)))
    assert controller.to_plan(0.0, 0.0) is None
    assert controller.plan is not None
    assert (5, 1) == controller.plan.full_version
    assert (30, True) == (controller.plan.keep_alive_s, controller.plan.last_only)
    controller.to_plan(1.0, 1.0)
    assert (5, 2) == controller.plan.full_version
    assert (None, True) == (controller.plan.keep_alive_s, controller.plan.last_only)
    told = [decision.text for decision in controller.decisions]
    assert ["The last idle instance stays permanently instead of 30 s."] == told[1:]


class _Changing(FixedKeepAlive):
    """A prewarm policy that returns the windows of each of the given policies in turn."""

    def __init__(self, policies: list[FixedKeepAlive]) -> None:
        super().__init__(FixedKeepAlive.Params())
        self._policies = iter(policies)

    def windows(self, now_s: float) -> Windows:
        """See `PrewarmPolicy.windows`."""
        return next(self._policies).windows(now_s)


class _Failing(FixedKeepAlive):
    """A prewarm policy that fails to observe, and then learns what JSON does not have."""

    error: BaseException | None = None

    def observe(self, idle_s: float, now_s: float) -> None:
        """See `PrewarmPolicy.observe`."""
        if self.error is not None:
            raise self.error
        super().observe(idle_s, now_s)

    def to_dict(self) -> dict[str, Any]:
        """See `PrewarmPolicy.to_dict`."""
        return {"seen": np.int64(3)}


@pytest.mark.parametrize("error", [LookupError(60.0), SystemExit(7)], ids=["error", "exit"])
def test_failure_of_prewarm_policy_is_reported_and_loses_no_report(error: BaseException) -> None:
    """A report is processed although the prewarm policy fails, which is in the function's notes."""
    policy = _Failing(FixedKeepAlive.Params())
    policy.error = error
    known = Dependencies(models={"f": MODEL}, prewarm=lambda: policy)
    controller = Controller(base(), known)
    controller.follow(controller.first_plan(), 0.0)
    controller.reported(report(apps=(AppReport("*", 7),), idle={bin_of(60.0): 1}), 9.0, 9.0)
    controller.step(9.0, 9.0)
    assert {"*": 7} == controller.reports.arrivals
    assert f"the prewarm policy has failed: {type(error).__name__}" in controller.notes[0]
    policy.error = None
    controller.reported(report(idle={bin_of(60.0): 1}), 10.0, 10.0)
    controller.step(10.0, 10.0)
    assert [] == controller.notes
    assert controller.prewarm_dict() is None
    controller.step(11.0, 11.0)
    assert "int64 is not JSON serializable" in controller.notes[0]


def test_unannounced_replicas_are_reported_after_a_while() -> None:
    """Available replicas without announcements are reported after a quarter of a minute."""
    controller = Controller(base(), Dependencies(models={"f": MODEL}))
    controller.follow(controller.first_plan(), 0.0)
    controller.reported(report(starving=True, queued=1), 0.0, 0.0)
    controller.observe(base(), deployed(controller, "first", 1))
    controller.step(1.0, 1.0)
    assert [] == controller.notes
    controller.reported(report(starving=True, queued=1), 17.0, 17.0)
    controller.step(17.0, 17.0)
    assert "1 of f--first available, 0 have announced themselves" in controller.notes[0]
    assert controller.notes[0] in [decision.text for decision in controller.decisions]


def test_saved_state_is_restored() -> None:
    """Plan and version are restored from the saved state."""

    def made() -> Controller:
        return Controller(base(), Dependencies(models={"f": MODEL}, prewarm=_fixed))

    before, after = made(), made()
    before.follow(before.first_plan(), 0.0)
    before.reported(report(starving=True, queued=1), 0.0, 0.0)
    before.step(0.0, 0.0)
    after.absorb(before.to_dict(), before.prewarm_dict(), 100.0)
    assert before.plan == after.plan
    assert before.sidecar_config.version == after.sidecar_config.version
    ready = {"10.0.0.1:8080": "first"}
    after.absorb({"roll": {"ready": ready}}, None, 100.0)  # its name in 0.1
    assert ready == after.to_dict()["reports"]["ready"]


def test_scaler_does_not_act_if_fronts_follow_later_scaler() -> None:
    """Of two scalers at the same time, only the one that was started last acts."""
    status = base(**{"com.carpool.scale.min": "1"})
    old, new = (Controller(status, Dependencies(term, models={"f": MODEL})) for term in (4, 5))
    for controller in (old, new):
        controller.follow(controller.first_plan(), 0.0)
        assert ["deploy"] == [action.verb for action in controller.step(0.0, 0.0)]
    for controller in (old, new):
        controller.reported(report(version=1, term=5), 1.0, 1.0)
    assert [] == old.step(1.0, 1.0)
    assert "its fronts follow a scaler that was started later" in old.notes[0]
    assert ["deploy"] == [action.verb for action in new.step(1.0, 1.0)]
    assert [] == new.notes
    assert 5 == old.to_dict()["term"], "so that the next start has a later one"
    old.reported(report(version=1, term=2**53 - 1), 1.0, 1.0)
    assert 4 == old.to_dict()["term"], "what is years ahead is no term"


def _fixed() -> FixedKeepAlive:
    return FixedKeepAlive(FixedKeepAlive.Params())


def test_invalid_labels_are_reported() -> None:
    """A function with invalid settings gets a note and does not stop the scaler."""
    controller = Controller(base(**{"com.carpool.slo": "soon"}), Dependencies(models={"f": MODEL}))
    assert "com.carpool.slo" in controller.notes[0]


class _Listener(FixedKeepAlive):
    """A prewarm policy that records the idle times that it observes."""

    def __init__(self, seen: list[float]) -> None:
        super().__init__(FixedKeepAlive.Params())
        self._seen = seen

    def observe(self, idle_s: float, now_s: float) -> None:
        """See `PrewarmPolicy.observe`."""
        del now_s
        self._seen.append(idle_s)


def test_a_function_is_idle_while_all_of_its_fronts_are() -> None:
    """Only the time during which all fronts are idle is idle time of the function."""
    seen: list[float] = []
    controller = Controller(
        base(), Dependencies(models={"f": MODEL}, prewarm=lambda: _Listener(seen))
    )
    minute = {bin_of(60.0): 1}

    def other(**fields: Any) -> FrontReport:
        return structs.replace(report(**fields), sender="b" * 8)

    controller.reported(report(idle=minute), 100.0, 100.0)
    assert 1 == len(seen)
    controller.reported(other(idle_s=None), 101.0, 101.0)
    controller.reported(report(idle=minute), 102.0, 102.0)
    assert 1 == len(seen)  # the other one was busy
    controller.reported(other(idle_s=9.0), 103.0, 103.0)
    controller.reported(report(idle=minute), 104.0, 104.0)
    assert 10.0 == seen[-1]  # the other one had only just fallen idle


def test_differing_invocation_count_is_reported() -> None:
    """A difference between the gateway's invocation count and the sidecars' count is reported."""
    controller = Controller(base(), Dependencies(models={"f": MODEL}))
    controller.follow(controller.first_plan(), 0.0)
    for second in range(90):
        controller.reported(report(apps=(AppReport("*", 10),)), float(second), float(second))
        listed = Status.of({**base().document, "invocationCount": 30.0 * second})
        controller.observe(listed, {}, float(second))
        controller.step(float(second), float(second))
    assert any("the gateway counts 30/s where" in note for note in controller.notes)


def test_gateway_count_is_ignored_for_canaries() -> None:
    """Canary shares give no count warning, as the gateway counts by the name that was called."""
    seconds = 0.0
    models = {"f": MODEL, "g": MODEL}
    functions = Functions(Dependencies(models=models), now=lambda: seconds, wall=lambda: seconds)
    shares = base(**{"com.carpool.canary": "g=10%"}).document
    for second in range(90):
        seconds = float(second)
        called = Status.of({**shares, "invocationCount": 30.0 * second})
        canary = Status.of({**base().document, "name": "g", "invocationCount": 1.0})
        functions.observe({"f": called, "g": canary})
        for controller in functions:
            controller.follow(controller.first_plan(), 0.0)
            controller.reported(report(apps=(AppReport("*", 10),)), seconds, seconds)
            controller.step(seconds, seconds)
    assert ["f", "g"] == [controller.name for controller in functions]
    assert not [note for each in functions for note in each.notes if "counts" in note]
