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
from scaler.control.calibration.measured_model import MeasuredModel
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
    """A plan that spreads evenly."""
    weights = {kind.name: 1 / len(kinds) for kind in kinds}
    return Plan("f", version, "p", kinds, (Route("*", weights, 0.01),))


# -- senders and pace --------------------------------------------------------------------------


def test_a_message_is_taken_once() -> None:
    """Only higher numbers of a sender are new; senders do not disturb each other."""
    senders = MessageOrder()
    taken = [senders.admits("a", n, 0.0) for n in (1, 2, 2, 1, 5, 4)]
    assert [True, True, False, False, True, False] == taken
    assert senders.admits("b", 1, 0.0)


def test_what_was_taken_is_known_after_a_restart() -> None:
    """Only what has changed is to be kept; what was kept refuses what was taken before."""
    before, after = MessageOrder(), MessageOrder()
    before.admits("a", 7, 0.0)
    kept = before.changed()
    assert {} == before.changed()
    after.absorb(kept, 0.0)
    assert not after.admits("a", 7, 1.0)
    assert after.admits("a", 8, 1.0)


def test_silent_senders_are_forgotten() -> None:
    """An hour after its last word a sender takes no memory."""
    senders = MessageOrder()
    senders.admits("a", 1, 0.0)
    senders.admits("b", 1, 3000.0)
    assert ["a"] == senders.forget(3700.0)
    assert 1 == len(senders)


def test_the_interval_grows_with_what_messages_cost() -> None:
    """Few sidecars speak often; many, or costly ones, as seldom as half a core allows."""
    pace = Pace(0.5)
    assert 0.5 == pace.interval_s(10)
    assert 2.0 < pace.interval_s(10_000) < 6.0
    for _ in range(50):
        pace.measured(1000, 1.0)
    assert pace.interval_s(10_000) == pytest.approx(20.0, rel=0.1)
    assert 60.0 == pace.interval_s(10**9)


# -- orders ------------------------------------------------------------------------------------


def test_versions_grow_with_what_fronts_have_to_do_only() -> None:
    """Another explanation is no change; addresses change the revision; routes the version."""
    config = SidecarConfig(7)
    config.give(plan(SMALL), (), {"small": ("a",)})
    first = (config.version, config.revision)
    config.give(replace(plan(SMALL), explain=("because",)), (), {"small": ("a",)})
    assert first == (config.version, config.revision)
    kept = replace(plan(SMALL), keep_alive_s=300.0, last_only=True)
    config.give(kept, (), {"small": ("a",)})
    assert first == (config.version, config.revision)
    config.give(plan(SMALL), (), {"small": ("a", "b")})
    assert first[0] == config.version
    assert first[1] != config.revision
    config.give(plan(SMALL, LARGE), (), {})
    assert first[0] + 1 == config.version


def test_fronts_take_the_plan_of_a_later_start_for_newer() -> None:
    """Its term is higher, whatever the versions are."""
    before, after = SidecarConfig(7, version=57), SidecarConfig(8)
    for config in (before, after):
        config.give(plan(SMALL), (), {})
        assert config.plan is not None
        assert (config.term, config.version) == config.plan.full_version
    assert before.plan
    assert after.plan
    assert after.plan.full_version > before.plan.full_version
    assert after.revision != before.revision


def test_instances_of_an_old_class_stand_in() -> None:
    """While new ones load, the old are in the plan with the share of what they can take."""
    config = SidecarConfig(7)
    config.give(plan(LARGE), [SMALL, SMALL], {"small": ("a", "b"), "other": ("c",)})
    assert config.plan is not None
    assert {"large": 0.8, "small": 0.2} == pytest.approx(dict(config.plan.routes[0].weights))
    assert {"small": ("a", "b")} == config.instances


# -- roll --------------------------------------------------------------------------------------


def report(sender: str = "a" * 8, **fields: Any) -> FrontReport:
    """A front's report."""
    return FrontReport("f", sender, 1, period_s=1.0, **fields)


def said(address: str, state: Any = "ready", sender: str = "i" * 8) -> Announcement:
    """An instance's announcement."""
    return Announcement("f", sender, 1, "small", address, state, 1.5)


def test_an_instance_counts_while_it_or_a_front_says_so() -> None:
    """Silence ends it, unless a front still reaches it; leaving ends it at once."""
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


def test_who_does_not_announce_himself_loads() -> None:
    """What the gateway has and the sidecars do not say is on its way."""
    reports = SidecarReports(Rates())
    reports.announced(said("a"), 0.0)
    found = reports.present(2.0, {"small": 3, "new": 1})
    assert {"small": ClassInstances((2.0,), 2), "new": ClassInstances((), 1)} == found


def test_idle_times_are_those_of_the_busiest_front() -> None:
    """An instance, or the function, is idle only if it is so for every front."""
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


def test_how_long_instances_load_is_known_when_they_have_gone() -> None:
    """A prewarm begins so much before its time, when there has been no instance for long."""
    reports = SidecarReports(Rates())
    reports.announced(Announcement("f", "i" * 8, 1, "a", "a:1", "ready", 3.0), 0.0)
    assert 3.0 == reports.load_s()
    reports.announced(Announcement("f", "i" * 8, 2, "a", "a:1", "leaving", 3.0), 1.0)
    reports.forget(100.0)
    assert (0, 3.0) == (len(reports), reports.load_s())


def test_starts_and_waits_are_counted_once() -> None:
    """An instance starts when it first says that it is ready; a wait lasts until it is over."""
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


def test_counts_and_lines_add_up() -> None:
    """Arrivals, ends and execution times of all fronts."""
    reports = SidecarReports(Rates())
    lines = (ClassReport("small", 3, 6, 0.3, 0.02, 0.01),)
    for sender in ("a" * 8, "b" * 8):
        apps = (AppReport("web", 10),)
        reports.reported(
            report(sender, apps=apps, classes=lines, fates={"done": 9, "late": 1}), 5.0
        )
    assert {"web": pytest.approx(20.0)} == reports.rates.at(5.0)
    assert ({"web": 20}, {"done": 18, "late": 2}) == (dict(reports.arrivals), dict(reports.fates))
    assert {"small": (0.02, 0.01)} == reports.lines


def test_a_restart_takes_instances_for_ready_until_they_speak() -> None:
    """No sidecar is cut off because the scaler was away."""
    before, after = SidecarReports(Rates()), SidecarReports(Rates())
    before.announced(said("a"), 0.0)
    after.absorb(before.to_dict(), 100.0)
    assert {"small": ("a",)} == after.ready(101.0)
    after.announced(said("a", "loading", "k" * 8), 102.0)
    assert {} == after.ready(102.5)


# -- models, documents, shadows ----------------------------------------------------------------


def test_a_learned_model_is_the_same_object_until_it_moves() -> None:
    """Planners remember sizes by the model, so noise must not make a new one."""
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


def test_shares_of_a_canary_are_not_of_its_classes() -> None:
    """Calls are divided before they reach a front, and other shares make no other instances."""
    label = {"com.carpool.canary": "g=10%"}
    for kind in ("labels", "annotations"):
        text = {**BASE.document[kind], **label}
        divided = Status.of({**BASE.document, kind: text})
        assert class_function(BASE, LARGE) == class_function(divided, LARGE)


def test_a_class_is_the_users_function_in_another_size() -> None:
    """What the user said stays, but for size and scaling; the settings can be read again."""
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


def test_an_instance_knows_its_variant() -> None:
    """A class of a variant names it in its instances' environment, and is told by that again."""
    kind = InstanceClass("tiny-b4", cpu=1, batch_size=4, replicas=0, variant="tiny")
    document = class_function(BASE, kind)
    assert "tiny" == document["envVars"]["model_variant"]
    assert kind == class_of(Status.of({**document, "name": "f--tiny-b4"}))


def test_memory_that_was_measured_of_a_variant_is_no_limit() -> None:
    """It is placed by that; the limit is the user's: larger requests take more."""
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


def test_what_a_class_was_made_from_tells_changes() -> None:
    """Another image, another size: another mark; how many there are makes none."""

    def mark(base: Status, kind: InstanceClass) -> str:
        return str(class_function(base, kind)["labels"][MADE_FROM_LABEL])

    same = mark(BASE, LARGE)
    newer = Status.of({**BASE.document, "image": "y"})
    assert same == mark(BASE, replace(LARGE, replicas=0))
    assert 3 == len({same, mark(newer, LARGE), mark(BASE, replace(LARGE, cpu=5))})


def test_why_a_function_is_not_ready_is_no_part_of_what_classes_are_made_from() -> None:
    """A provider says it among the annotations, and for a while: no instance is replaced for it."""
    said = {**BASE.document, "annotations": {**BASE.annotations, REASON: "fn-1: Unschedulable"}}
    assert class_function(BASE, LARGE) == class_function(Status.of(said), LARGE)


def test_names_are_what_openfaas_admits() -> None:
    """A name that would be too long says so."""
    assert 63 == len(name_of("f" * 50, "k" * 11))
    with pytest.raises(ConfigError, match="at most 63"):
        name_of("f" * 50, "k" * 12)


class _Twice:
    """Wants two of what there is a plan for, whatever is shown."""

    def plan(self, seen: Snapshot) -> PlanningResult:
        return PlanningResult({v.name: plan(replace(SMALL, cpu=2.0)) for v in seen.functions})


def test_a_shadow_is_counted_beside_what_is_real() -> None:
    """It sees its own plans carried out at once, and both are added up over time."""
    shadow = Shadow("twice", _Twice())
    there = {"large": Instances(ready=1)}
    live = load(20.0, name="f", plan=plan(LARGE), there=there)
    for now_s in (0.0, 10.0, 20.0):
        shadow.plan(replace(snapshot(live, now_s=now_s), prices=Prices("reserved", cpu_core_s=1.0)))
    assert 80.0 == shadow.live["f"].core_s
    assert 80.0 == shadow.own["f"].core_s  # two of two cores
    assert (80.0, 0.0) == (shadow.own["f"].cost, shadow.own["f"].short_s)


def test_a_trouble_that_changes_its_numbers_is_told_once() -> None:
    """What goes on is in the notes; the decisions say when it began, and when it came back."""
    decisions = Decisions()
    for second in range(5):
        decisions.note([f"batches take 0.6{second} times what was foretold"], float(second))
    decisions.note([], 5.0)
    decisions.note(["batches take 0.7 times what was foretold"], 6.0)
    assert [0.0, 6.0] == [decision.at_s for decision in decisions]
