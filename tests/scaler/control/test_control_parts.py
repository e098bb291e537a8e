"""The smaller parts of a live scaler: message order, sync pace, sidecar configuration, reports."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from carpool.errors import ConfigError
from carpool.function_status import REASON
from carpool.latency.linear import Linear
from carpool.plan import InstanceClass, Plan, Route
from carpool.scaling import Instances
from carpool.settings import FunctionSettings
from carpool.sync import Announcement, AppReport, ClassReport, FrontReport, InstanceReport
from scaler.control.calibration.latency_source import MeasuredModel
from scaler.control.class_function import (
    MADE_FROM_LABEL,
    Status,
    class_function,
    class_of,
    name_of,
)
from scaler.control.decisions import Decisions
from scaler.control.desired_replicas import ClassInstances
from scaler.control.measured_rates import Rates
from scaler.control.message_order import MessageOrder
from scaler.control.planning_result import PlanningResult
from scaler.control.shadow_policy import Shadow
from scaler.control.sidecar_config import SidecarConfig
from scaler.control.sidecar_reports import SidecarReports
from scaler.control.sync_pace import Pace
from scaler.planning.cost import Prices
from tests.scaler.loads import load, snapshot

if TYPE_CHECKING:
    from scaler.planning.snapshot import Snapshot

SMALL = InstanceClass("small", cpu=1, batch_size=2, replicas=2, rate_high=10.0)
LARGE = InstanceClass("large", cpu=4, batch_size=8, replicas=1, rate_high=80.0)


def plan(*kinds: InstanceClass, version: int = 1) -> Plan:
    """Return a plan that divides requests evenly among the classes."""
    weights = {kind.name: 1 / len(kinds) for kind in kinds}
    return Plan("f", version, "p", kinds, (Route("*", weights, 0.01),))


# -- senders and pace --------------------------------------------------------------------------


def test_message_is_accepted_once() -> None:
    """Messages count only with increasing numbers per sender, independently of other senders."""
    senders = MessageOrder()
    taken = [senders.admits("a", n, 0.0) for n in (1, 2, 2, 1, 5, 4)]
    assert [True, True, False, False, True, False] == taken
    assert senders.admits("b", 1, 0.0)


def test_message_numbers_are_restored_after_restart() -> None:
    """Only changed numbers need saving, and saved ones refuse old messages after a restart."""
    before, after = MessageOrder(), MessageOrder()
    before.admits("a", 7, 0.0)
    kept = before.changed()
    assert {} == before.changed()
    after.absorb(kept, 0.0)
    assert not after.admits("a", 7, 1.0)
    assert after.admits("a", 8, 1.0)


def test_silent_senders_are_forgotten() -> None:
    """A sender is forgotten an hour after its last message."""
    senders = MessageOrder()
    senders.admits("a", 1, 0.0)
    senders.admits("b", 1, 3000.0)
    assert ["a"] == senders.forget(3700.0)
    assert 1 == len(senders)


def test_interval_grows_with_message_cost() -> None:
    """The interval grows with the number and cost of messages to use at most half a core."""
    pace = Pace(0.5)
    assert 0.5 == pace.interval_s(10)
    assert 2.0 < pace.interval_s(10_000) < 6.0
    for _ in range(50):
        pace.measured(1000, 1.0)
    assert pace.interval_s(10_000) == pytest.approx(20.0, rel=0.1)
    assert 60.0 == pace.interval_s(10**9)


# -- orders ------------------------------------------------------------------------------------


def test_version_changes_only_with_routes_and_addresses() -> None:
    """Routes change the version and addresses the revision; explanations change neither."""
    config = SidecarConfig(7)
    config.update(plan(SMALL), (), {"small": ("a",)})
    first = (config.version, config.revision)
    config.update(replace(plan(SMALL), explain=("because",)), (), {"small": ("a",)})
    assert first == (config.version, config.revision)
    kept = replace(plan(SMALL), keep_alive_s=300.0, last_only=True)
    config.update(kept, (), {"small": ("a",)})
    assert first == (config.version, config.revision)
    config.update(plan(SMALL), (), {"small": ("a", "b")})
    assert first[0] == config.version
    assert first[1] != config.revision
    config.update(plan(SMALL, LARGE), (), {})
    assert first[0] + 1 == config.version


def test_plan_with_higher_term_is_newer() -> None:
    """A plan of a later start is newer by its higher term, whatever the versions are."""
    before, after = SidecarConfig(7, version=57), SidecarConfig(8)
    for config in (before, after):
        config.update(plan(SMALL), (), {})
        assert config.plan is not None
        assert (config.term, config.version) == config.plan.full_version
    assert before.plan
    assert after.plan
    assert after.plan.full_version > before.plan.full_version
    assert after.revision != before.revision


def test_old_instances_stay_in_plan_while_new_ones_load() -> None:
    """While new instances load, old ones stay in the plan with a weight by their capacity."""
    config = SidecarConfig(7)
    config.update(plan(LARGE), [SMALL, SMALL], {"small": ("a", "b"), "other": ("c",)})
    assert config.plan is not None
    assert {"large": 0.8, "small": 0.2} == pytest.approx(dict(config.plan.routes[0].weights))
    assert {"small": ("a", "b")} == config.instances


# -- roll --------------------------------------------------------------------------------------


def report(sender: str = "a" * 8, **fields: Any) -> FrontReport:
    """Return a front's report."""
    return FrontReport("f", sender, 1, period_s=1.0, **fields)


def said(address: str, state: Any = "ready", sender: str = "i" * 8) -> Announcement:
    """Return an instance's announcement."""
    return Announcement("f", sender, 1, "small", address, state, 1.5)


def test_silent_instance_is_ready_while_front_reaches_it() -> None:
    """A silent instance is ready only while a front reaches it; one that leaves is gone at once."""
    reports = SidecarReports(Rates())
    reports.announced(said("a"), 0.0)
    reports.announced(said("b", "loading", "j" * 8), 0.0)
    assert {"small": ("a",)} == reports.ready(1.0)
    assert {} == reports.ready(20.0)
    seen = InstanceReport("a", "small", up=True, in_flight=0, idle_s=3.0, item_count=0)
    reports.reported(report(instances=(seen,)), 20.0)
    assert {"small": ("a",)} == reports.ready(21.0)
    reports.announced(said("a", "leaving"), 21.5)
    assert {} == reports.ready(22.0)


def test_unannounced_replicas_count_as_loading() -> None:
    """Replicas that the gateway lists but that have not announced themselves count as loading."""
    reports = SidecarReports(Rates())
    reports.announced(said("a"), 0.0)
    found = reports.present(2.0, {"small": 3, "new": 1})
    assert {"small": ClassInstances((2.0,), 2), "new": ClassInstances((), 1)} == found


def test_idle_time_is_minimum_over_fronts() -> None:
    """An instance or function is idle only if it is idle for every front."""
    reports = SidecarReports(Rates())
    reports.announced(said("a"), 0.0)
    idle = InstanceReport("a", "small", up=True, in_flight=0, idle_s=60.0, item_count=0)
    reports.reported(report("a" * 8, instances=(idle,), idle_s=60.0), 100.0)
    assert ClassInstances((60.0,), 0) == reports.present(100.0, {})["small"]
    assert 61.0 == reports.idle_s(101.0)
    busy = structs.replace(idle, in_flight=1, idle_s=0.0)
    reports.reported(report("b" * 8, instances=(busy,), queued=2), 101.0)
    assert ClassInstances((0.0,), 0) == reports.present(101.0, {})["small"]
    assert reports.idle_s(101.0) is None
    assert (2, 2) == (reports.queued(101.0), reports.fronts(101.0))


def test_loading_time_stays_known_after_last_instance() -> None:
    """The loading time stays known after the last instance is forgotten, for prewarming."""
    reports = SidecarReports(Rates())
    reports.announced(Announcement("f", "i" * 8, 1, "a", "a:1", "ready", 3.0), 0.0)
    assert 3.0 == reports.load_s()
    reports.announced(Announcement("f", "i" * 8, 2, "a", "a:1", "leaving", 3.0), 1.0)
    reports.forget(100.0)
    assert (0, 3.0) == (len(reports), reports.load_s())


def test_starts_and_waits_are_counted_once() -> None:
    """A start counts at an instance's first ready message, and a wait once until it has ended."""
    reports = SidecarReports(Rates())
    reports.absorb({"ready": {"kept": "small"}}, 0.0)
    reports.announced(said("kept"), 1.0)  # it was ready before this scaler was
    assert 0 == reports.starts
    for state in ("loading", "ready", "ready", "leaving"):
        reports.announced(said("a", state), 2.0)
    assert 1 == reports.starts
    reports.announced(said("a", "ready", "k" * 8), 3.0)  # another, at the same address
    assert 2 == reports.starts
    for starving in (True, True, False, True):
        reports.reported(report(starving=starving, latency={40: 2}), 4.0)
    assert (2, {40: 8}) == (reports.waits, dict(reports.latency))


def test_counts_of_all_fronts_add_up() -> None:
    """Arrivals and outcomes of all fronts add up, and execution times are kept per class."""
    reports = SidecarReports(Rates())
    lines = (ClassReport("small", 3, 6, 0.3, 0.02, 0.01),)
    for sender in ("a" * 8, "b" * 8):
        apps = (AppReport("web", 10),)
        reports.reported(
            report(sender, apps=apps, classes=lines, outcomes={"done": 9, "late": 1}), 5.0
        )
    assert {"web": pytest.approx(20.0)} == reports.rates.at(5.0)
    assert ({"web": 20}, {"done": 18, "late": 2}) == (
        dict(reports.arrivals),
        dict(reports.outcomes),
    )
    assert {"small": (0.02, 0.01)} == reports.lines


def test_a_waiting_request_keeps_its_demand_until_an_instance_can_take_it() -> None:
    """A stranded application counts as if it had one request in the window."""
    reports = SidecarReports(Rates(10.0))
    reports.reported(report(apps=(AppReport("web", 1),)), 1.0)
    for second in range(2, 100):
        reports.reported(report(stranded=("web", "new")), float(second))
    assert {"web": 0.1, "new": 0.1} == reports.demanded_rps(99.0)
    assert not any(reports.rates_rps(99.0).values())
    reports.reported(report(), 100.0)
    assert not any(reports.demanded_rps(100.0).values())


def test_ready_instances_stay_ready_after_restart_until_reported() -> None:
    """After a restart, instances that were ready stay ready until they report another state."""
    before, after = SidecarReports(Rates()), SidecarReports(Rates())
    before.announced(said("a"), 0.0)
    after.absorb(before.to_dict(), 100.0)
    assert {"small": ("a",)} == after.ready(101.0)
    after.announced(said("a", "loading", "k" * 8), 102.0)
    assert {} == after.ready(102.5)


# -- models, documents, shadows ----------------------------------------------------------------


def test_learned_model_object_is_kept_for_small_changes() -> None:
    """Small changes keep the same model object, as planners cache sizes by it."""
    learned = MeasuredModel(2.0)
    assert learned.model({}, {}, 1.0) is None
    first = learned.model({"a": (0.02, 0.002)}, {"a": 9}, 1.0)
    assert Linear(0.02, 0.002, 2.0, 0.0, 1.0) == first
    assert learned.model({"a": (0.0205, 0.002)}, {"a": 9}, 1.2) is first
    moved = learned.model({"a": (0.02, 0.002), "b": (0.05, 0.002)}, {"a": 9, "b": 10}, 1.0)
    assert Linear(0.05, 0.002, 2.0, 0.0, 1.0) == moved


BASE = Status.of(
    {
        "name": "f",
        "image": "x",
        "envVars": {"word": "hello"},
        "secrets": ["s"],
        "limits": {"cpu": "8", "nvidia.com/gpu": "1"},
        "labels": {
            "com.carpool.slo": "100ms",
            "com.carpool.cpu": "8",
            "com.carpool.scale.policy": "infless",
            "com.carpool.scale.min": "3",
            "com.openfaas.scale.min": "3",
            "team": "a",
        },
        "annotations": {"com.carpool.apps": '[{"name": "web", "slo": "90ms"}]'},
    }
)


def test_canary_shares_do_not_affect_classes() -> None:
    """Canary shares do not affect classes, as calls are divided before they reach a front."""
    label = {"com.carpool.canary": "g=10%"}
    for kind in ("labels", "annotations"):
        text = {**BASE.document[kind], **label}
        divided = Status.of({**BASE.document, kind: text})
        assert class_function(BASE, LARGE) == class_function(divided, LARGE)


def test_class_keeps_function_settings_except_size_and_scaling() -> None:
    """A class keeps the user's settings except size and scaling, and can be read back."""
    document = class_function(BASE, LARGE)
    assert "f--large" == document["service"]
    assert ["s"] == document["secrets"]
    assert {"cpu": "4", "nvidia.com/gpu": "1"} == document["limits"]
    assert {"word": "hello", "sidecar_function": "f", "sidecar_class": "large"} == document[
        "envVars"
    ]
    read = FunctionSettings.from_labels(document["labels"], document["annotations"])
    found = (read.slo_s, read.cpu, read.batch_max, read.scale_policy, read.scale_min)
    assert (0.1, 4.0, 8, "fixed", 0) == found
    assert "a" == document["labels"]["team"]
    assert "com.openfaas.scale.min" not in document["labels"]
    listed = Status.of({**document, "name": "f--large"})
    assert replace(LARGE, replicas=0, rate_high=None) == class_of(listed)


def test_variant_is_passed_in_instance_environment() -> None:
    """A class of a variant names it in its instances' environment and is read back with it."""
    kind = InstanceClass("tiny-b4", cpu=1, batch_size=4, replicas=0, variant="tiny")
    document = class_function(BASE, kind)
    assert "tiny" == document["envVars"]["model_variant"]
    assert kind == class_of(Status.of({**document, "name": "f--tiny-b4"}))


def test_measured_memory_of_variant_is_not_its_limit() -> None:
    """A variant's measured memory leaves the user's limit, as larger requests need more."""
    label = "com.carpool.memory"
    kind = InstanceClass("tiny-b4", cpu=1, batch_size=4, replicas=0, memory_mb=68, variant="tiny")
    assert label not in class_function(BASE, kind)["labels"]
    limited = Status.of(
        {
            **BASE.document,
            "labels": {**BASE.labels, label: "1GB"},
            "limits": {"cpu": "4", "memory": "1G"},
        }
    )
    document = class_function(limited, kind)
    assert ("1GB", "1G") == (document["labels"][label], document["limits"]["memory"])
    sized = class_function(limited, replace(kind, variant=""))
    assert ("68MB", "68M") == (sized["labels"][label], sized["limits"]["memory"])


def test_class_mark_changes_with_image_and_size() -> None:
    """A class's mark changes with image and size, but not with the number of replicas."""

    def mark(base: Status, kind: InstanceClass) -> str:
        return str(class_function(base, kind)["labels"][MADE_FROM_LABEL])

    same = mark(BASE, LARGE)
    newer = Status.of({**BASE.document, "image": "y"})
    assert same == mark(BASE, replace(LARGE, replicas=0))
    assert 3 == len({same, mark(newer, LARGE), mark(BASE, replace(LARGE, cpu=5))})


def test_not_ready_annotation_does_not_change_class_mark() -> None:
    """An annotation that says why a function is not ready replaces no instance."""
    said = {**BASE.document, "annotations": {**BASE.annotations, REASON: "fn-1: Unschedulable"}}
    assert class_function(BASE, LARGE) == class_function(Status.of(said), LARGE)


def test_too_long_names_are_refused() -> None:
    """A name of more than 63 characters is refused with an error that says so."""
    assert 63 == len(name_of("f" * 50, "k" * 11))
    with pytest.raises(ConfigError, match="at most 63"):
        name_of("f" * 50, "k" * 12)


class _Twice:
    """A policy that always plans two instances of two cores for each function."""

    def plan(self, seen: Snapshot) -> PlanningResult:
        return PlanningResult({v.name: plan(replace(SMALL, cpu=2.0)) for v in seen.functions})


def test_shadow_usage_is_counted_separately() -> None:
    """A shadow sees its plans in effect at once; its usage and the real one add up over time."""
    shadow = Shadow("twice", _Twice())
    there = {"large": Instances(ready=1)}
    live = load(20.0, name="f", plan=plan(LARGE), there=there)
    for now_s in (0.0, 10.0, 20.0):
        shadow.plan(replace(snapshot(live, now_s=now_s), prices=Prices("reserved", cpu_core_s=1.0)))
    assert 80.0 == shadow.live["f"].core_s
    assert 80.0 == shadow.own["f"].core_s  # two of two cores
    assert (80.0, 0.0) == (shadow.own["f"].cost, shadow.own["f"].short_s)


def test_note_with_changing_numbers_is_logged_once() -> None:
    """A note whose numbers change is one decision, with another one when it returns."""
    decisions = Decisions()
    for second in range(5):
        decisions.note([f"batches take 0.6{second} times what was foretold"], float(second))
    decisions.note([], 5.0)
    decisions.note(["batches take 0.7 times what was foretold"], 6.0)
    assert [0.0, 6.0] == [decision.at_s for decision in decisions]
