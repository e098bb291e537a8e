"""Rollouts keep capacity, retry failed actions and leave nothing behind."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carpool.plan import InstanceClass
from scaler.control.action import Action, ObservedState
from scaler.control.class_function import Status
from scaler.control.reconciler import Reconciler
from tests.effort import scaled

BASE = Status.of({"name": "f", "image": "x", "replicas": 1, "availableReplicas": 1})


def kind(name: str, cpu: float = 1.0) -> InstanceClass:
    """Return an instance class of this name."""
    return InstanceClass(name, cpu=cpu, batch_size=4, replicas=0)


class World:
    """A simulated gateway, whose instances become ready on request, and a rollout on it."""

    def __init__(
        self, most: int = 99, least: int = 0, functions: int = 99, places: int = 99
    ) -> None:
        self.rollout = Reconciler("f", patience_s=60)
        self.documents: dict[str, dict[str, Any]] = {}
        self.replicas: dict[str, int] = {}
        self.ready: dict[str, int] = {}
        self.broken = ""
        self.most = most
        self.least = least
        self.functions = functions
        self.places = places
        self.now_s = 0.0
        self.done: list[str] = []

    def step(self, wanted: dict[str, int], *, settled: bool = True) -> list[Action]:
        """Run one round, a second later, and carry out its actions."""
        self.now_s += 1
        deployed = {
            name: Status.of({**document, "name": f"f--{name}", "replicas": self.replicas[name]})
            for name, document in self.documents.items()
        }
        observed = ObservedState(BASE, deployed, dict(self.ready), settled)
        kinds = {name: kind(name) for name in wanted}
        actions = self.rollout.step(kinds, wanted, observed, self.now_s)
        for action in actions:
            if self.broken:
                refused = self.broken != "down"
                self.rollout.failed(action, self.broken, self.now_s, refused=refused)
            elif self.replicas.get(action.class_name, 0) < action.replicas and not self.room(
                action
            ):
                self.rollout.failed(action, "no room", self.now_s)
            elif action.verb == "deploy" and len(self.documents) >= self.functions:
                self.rollout.failed(action, "no more functions", self.now_s)
            else:
                self.carry_out(action)
                self.rollout.succeeded(action, self.now_s)
                self.done.append(str(action))
        return actions

    def room(self, action: Action) -> bool:
        """Return whether there is room for all instances after this action."""
        others = sum(count for name, count in self.replicas.items() if name != action.class_name)
        return others + action.replicas <= self.places

    def carry_out(self, action: Action) -> None:
        """Carry out an action as a provider would, removing ready instances first."""
        name = action.class_name
        if action.verb in ("deploy", "update"):
            self.documents[name] = dict(action.document)
            self.replicas.setdefault(name, self.least)
            self.ready.setdefault(name, 0)
        elif action.verb == "scale":
            self.replicas[name] = max(self.least, min(action.replicas, self.most))
            self.ready[name] = min(self.ready[name], self.replicas[name])
        else:
            del self.documents[name], self.replicas[name], self.ready[name]

    def load(self) -> None:
        """Make all instances ready."""
        self.ready = dict(self.replicas)

    def until_rest(self, wanted: dict[str, int]) -> None:
        """Run rounds until there are no more actions."""
        for _ in range(100):
            self.load()
            if not self.step(wanted) and not self.step(wanted):
                return
        raise AssertionError(self.done)


def test_class_is_deployed_scaled_and_deleted() -> None:
    """A class is deployed and scaled to two instances, and deleted when none is wanted."""
    world = World()
    world.until_rest({"a": 2})
    world.until_rest({})
    assert ["deploy f--a", "scale f--a to 2", "delete f--a"] == world.done


def test_old_classes_stay_until_new_ones_are_ready() -> None:
    """Old classes stay until all wanted instances have announced themselves."""
    world = World()
    world.until_rest({"a": 2})
    for _ in range(10):
        world.step({"b": 1})
    assert {"a": 2, "b": 1} == world.replicas
    world.until_rest({"b": 1})
    assert {"b": 1} == world.replicas


def test_fronts_are_updated_before_instance_is_removed() -> None:
    """Instances stay while a front follows an older plan; a silent front delays for a while."""
    world = World()
    world.until_rest({"a": 3})
    waited = 0
    while world.replicas["a"] == 3:
        world.step({"a": 1}, settled=False)
        waited += 1
    assert 10 <= waited <= 13


def test_lasting_failures_are_reported_separately() -> None:
    """A lasting failure is reported separately until the action succeeds."""
    world = World()
    (deploy,) = world.step({"a": 1})
    for lasting in (False, True):
        world.rollout.failed(deploy, "no GPU is here", 2.0, lasting=lasting)
        expected = ["a: deploy f--a failed: no GPU is here."] if lasting else []
        assert expected == world.rollout.refused
    world.rollout.succeeded(deploy, 3.0)
    assert [] == world.rollout.refused


def test_failed_calls_are_retried_with_backoff() -> None:
    """A refused action is retried after growing pauses, and the reason is reported."""
    world = World()
    world.broken = "no more than 15 functions"
    tries = [bool(world.step({"a": 1})) for _ in range(60)]
    assert 5 <= sum(tries) <= 7
    assert "no more than 15 functions" in world.rollout.notes[0]
    world.broken = ""
    world.now_s += 100
    world.until_rest({"a": 1})
    assert {"a": 1} == world.ready


def test_gateway_replica_limit_is_reported_and_respected() -> None:
    """A count that the gateway limits to five is reported and not requested again and again."""
    world = World(most=5)
    for _ in range(40):
        world.load()
        world.step({"a": 9})
    assert 5 == world.replicas["a"]
    assert world.done.count("scale f--a to 9") <= 2
    assert "when asked for 9" in world.rollout.notes[0]


def test_raised_gateway_limit_is_noticed() -> None:
    """After ten minutes, a count above the gateway's limit is requested again."""
    world = World(most=5)
    for _ in range(40):
        world.load()
        world.step({"a": 9})
    world.most = 99
    world.now_s += 600
    world.until_rest({"a": 9})
    assert {"a": 9} == world.ready


def test_count_is_not_compared_with_older_list() -> None:
    """A list from before a request, as of an unreachable gateway, is not taken for a limit."""
    world = World()
    world.until_rest({"a": 2})
    before = dict(world.replicas)
    (scale,) = world.step({"a": 6})
    deployed = {
        "a": Status.of({**world.documents["a"], "name": scale.name, "replicas": before["a"]})
    }
    stale = ObservedState(BASE, deployed, before, listed_s=world.now_s)
    for second in range(20):
        world.rollout.step({"a": kind("a")}, {"a": 6}, stale, world.now_s + second)
    world.now_s += 20
    assert [] == world.rollout.notes
    world.until_rest({"a": 10})
    assert {"a": 10} == world.ready


def test_class_is_deleted_if_gateway_does_not_scale_to_zero() -> None:
    """If the gateway does not scale to 0, the function of the class is deleted instead."""
    world = World(least=1)
    world.until_rest({"a": 1})
    for _ in range(20):
        world.load()
        world.step({"a": 0})
    assert {} == world.replicas


@pytest.mark.parametrize("limit", [{"functions": 1}, {"places": 3}])
def test_old_instances_make_room_for_new_ones(limit: dict[str, int]) -> None:
    """If there is no room for new instances, those no longer planned go, one at a time."""
    world = World(**limit)
    world.until_rest({"a": 3})
    least = 3
    for _ in range(60):
        world.load()
        world.step({"b": 3})
        least = min(least, sum(world.ready.values()))
    assert {"b": 3} == world.ready
    assert least >= (0 if limit.get("functions") else 2)


def test_old_instances_stay_if_their_removal_would_not_help() -> None:
    """If new instances fail for another reason than capacity, old ones are not removed."""
    world = World()
    world.until_rest({"a": 1})
    world.broken = "down"
    for _ in range(60):
        world.load()
        assert {"b"} >= {action.class_name for action in world.step({"b": 1})}


def test_wanted_instances_stay_if_gateway_has_no_room() -> None:
    """Instances that are still wanted stay if the gateway has no room for another class."""
    world = World(functions=1)
    world.until_rest({"a": 2})
    for _ in range(60):
        world.load()
        world.step({"a": 2, "b": 1})
    assert {"a": 2} == world.ready
    assert "no more functions" in world.rollout.notes[0]


def test_foreign_replica_changes_are_reported_and_corrected() -> None:
    """Replica counts set by another writer are reported and corrected at a limited pace."""
    world = World()
    world.until_rest({"a": 2})
    changed = calm = 0
    for _ in range(120):
        calm = 0 if world.replicas["a"] != 2 else calm + 1
        if calm == 3:
            world.replicas["a"] = 7
            changed += 1
        world.load()
        world.step({"a": 2})
    assert "something else has set f--a to 7 replicas instead of 2" in world.rollout.notes[0]
    assert 3 <= changed <= 12


def test_instances_that_never_become_ready_are_retried_later() -> None:
    """Instances that never become ready are removed and tried again, and the old ones stay."""
    world = World()
    world.until_rest({"a": 2})
    seen = set()
    for _ in range(300):
        world.ready["a"] = 2
        world.step({"b": 3})
        seen.add(world.replicas.get("b"))
        assert 2 == world.replicas["a"]
    assert {0, 3} <= seen
    assert "3 of 3 instances are not ready" in world.rollout.notes[0]


def test_unwanted_labelled_classes_are_deleted() -> None:
    """Classes left by an earlier scaler are deleted, and all classes when the function is gone."""
    world = World()
    world.until_rest({"a": 1, "b": 1})
    world.rollout = Reconciler("f")
    world.until_rest({"a": 1})
    assert {"a": 1} == world.replicas
    deployed = {"a": Status.of({"name": "f--a", "replicas": 1})}
    gone = world.rollout.step({}, {}, ObservedState(None, deployed, {}), 1e6)
    assert ["delete f--a"] == [str(action) for action in gone]


def test_a_changed_function_is_rolled_out() -> None:
    """A new image of the user's function updates its classes."""
    world = World()
    world.until_rest({"a": 1})
    newer = Status.of({"name": "f", "image": "y"})
    deployed = {"a": Status.of({**world.documents["a"], "name": "f--a", "replicas": 1})}
    observed = ObservedState(newer, deployed, {"a": 1})
    (action,) = world.rollout.step({"a": kind("a")}, {"a": 1}, observed, 1e6)
    assert ("update", "y") == (action.verb, action.document["image"])


def test_too_long_name_is_reported() -> None:
    """A name over the 63 characters that OpenFaaS permits is reported."""
    rollout = Reconciler("f" * 60)
    base = Status.of({"name": "f" * 60, "image": "x"})
    assert [] == rollout.step({"long": kind("long")}, {"long": 1}, ObservedState(base, {}, {}), 0.0)
    assert "at most 63 characters" in rollout.notes[0]


WANTED = st.dictionaries(st.sampled_from("abc"), st.integers(0, 4), min_size=1)


@settings(max_examples=scaled(150))
@given(st.data())
def test_rollout_never_reduces_wanted_capacity(data: st.DataObject) -> None:
    """Ready instances are removed only if they are not wanted and no wanted one is missing."""
    world = World()
    wanted: dict[str, int] = {"a": 1}
    for _ in range(data.draw(st.integers(1, 25))):
        if data.draw(st.booleans()):
            wanted = data.draw(WANTED)
        if data.draw(st.booleans()):
            world.load()
        world.broken = data.draw(st.sampled_from(["", "", "down"]))
        before = dict(world.ready)
        missing = any(before.get(name, 0) < count for name, count in wanted.items())
        world.step(wanted)
        for name, ready in before.items():
            least = min(ready, wanted.get(name, 0))
            assert world.ready.get(name, 0) >= (ready if missing else least)
    world.broken = ""
    world.now_s += 1000
    world.until_rest(wanted)
    assert {name: count for name, count in wanted.items() if count} == {
        name: count for name, count in world.ready.items() if count
    }


@pytest.mark.parametrize("verb", ["deploy", "update", "scale", "delete"])
def test_action_has_text(verb: Any) -> None:
    """An action has a text for logs and explanations."""
    expected = f"{verb} f--a" + (" to 3" if verb == "scale" else "")
    assert expected == str(Action(verb, "a", "f--a", 3))
