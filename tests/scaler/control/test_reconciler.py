"""Rollouts: capacity is never lost on the way, failures are retried, nothing is left behind."""

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
    """A class."""
    return InstanceClass(name, cpu=cpu, batch_size=4, replicas=0)


class World:
    """A gateway whose instances become ready when they are told to, and a rollout towards it."""

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
        """One round, a second later; what it asks for is done."""
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
        """Whether there is a place for each instance, with this one done."""
        others = sum(count for name, count in self.replicas.items() if name != action.class_name)
        return others + action.replicas <= self.places

    def carry_out(self, action: Action) -> None:
        """As a provider would; instances that go are the ready ones first."""
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
        """All instances become ready."""
        self.ready = dict(self.replicas)

    def until_rest(self, wanted: dict[str, int]) -> None:
        """Rounds until nothing is asked for."""
        for _ in range(100):
            self.load()
            if not self.step(wanted) and not self.step(wanted):
                return
        raise AssertionError(self.done)


def test_a_class_is_deployed_scaled_and_gone() -> None:
    """From nothing to two instances, and to nothing again."""
    world = World()
    world.until_rest({"a": 2})
    world.until_rest({})
    assert ["deploy f--a", "scale f--a to 2", "delete f--a"] == world.done


def test_the_old_stay_until_the_new_are_ready() -> None:
    """A change of classes takes nothing away before all that is wanted has announced itself."""
    world = World()
    world.until_rest({"a": 2})
    for _ in range(10):
        world.step({"b": 1})
    assert {"a": 2, "b": 1} == world.replicas
    world.until_rest({"b": 1})
    assert {"b": 1} == world.replicas


def test_fronts_are_told_before_an_instance_goes() -> None:
    """While a front follows an older plan nothing goes; one that is silent holds it up a while."""
    world = World()
    world.until_rest({"a": 3})
    waited = 0
    while world.replicas["a"] == 3:
        world.step({"a": 1}, settled=False)
        waited += 1
    assert 10 <= waited <= 13


def test_what_waiting_does_not_change_is_told_apart() -> None:
    """Until the provider accepts it."""
    world = World()
    (deploy,) = world.step({"a": 1})
    for lasting in (False, True):
        world.rollout.failed(deploy, "no GPU is here", 2.0, lasting=lasting)
        expected = ["a: deploy f--a failed: no GPU is here."] if lasting else []
        assert expected == world.rollout.refused
    world.rollout.succeeded(deploy, 3.0)
    assert [] == world.rollout.refused


def test_failed_calls_are_repeated_with_pauses_that_grow() -> None:
    """A gateway that refuses is asked less and less often, and it is said."""
    world = World()
    world.broken = "no more than 15 functions"
    tries = [bool(world.step({"a": 1})) for _ in range(60)]
    assert 5 <= sum(tries) <= 7
    assert "no more than 15 functions" in world.rollout.notes[0]
    world.broken = ""
    world.now_s += 100
    world.until_rest({"a": 1})
    assert {"a": 1} == world.ready


def test_a_limit_of_the_gateway_is_said_and_kept_to() -> None:
    """Asked for nine, the Community Edition sets five: this is not requested again and again."""
    world = World(most=5)
    for _ in range(40):
        world.load()
        world.step({"a": 9})
    assert 5 == world.replicas["a"]
    assert world.done.count("scale f--a to 9") <= 2
    assert "when asked for 9" in world.rollout.notes[0]


def test_a_gateway_that_keeps_one_of_everything_still_gets_to_none() -> None:
    """Where zero is not taken, the class's function goes instead."""
    world = World(least=1)
    world.until_rest({"a": 1})
    for _ in range(20):
        world.load()
        world.step({"a": 0})
    assert {} == world.replicas


@pytest.mark.parametrize("limit", [{"functions": 1}, {"places": 3}])
def test_where_there_is_no_room_the_old_make_it(limit: dict[str, int]) -> None:
    """As many functions or instances as are admitted: what is not planned goes, one at a time."""
    world = World(**limit)
    world.until_rest({"a": 3})
    least = 3
    for _ in range(60):
        world.load()
        world.step({"b": 3})
        least = min(least, sum(world.ready.values()))
    assert {"b": 3} == world.ready
    assert least >= (0 if limit.get("functions") else 2)


def test_a_full_gateway_gives_nothing_up_for_what_it_will_not_have() -> None:
    """Where what goes makes no room, what is wanted of it stays."""
    world = World(functions=1)
    world.until_rest({"a": 2})
    for _ in range(60):
        world.load()
        world.step({"a": 2, "b": 1})
    assert {"a": 2} == world.ready
    assert "no more functions" in world.rollout.notes[0]


def test_who_else_changes_a_count_is_named_and_outdone() -> None:
    """Another writer is told from our own changes; it is put right, at a pace that is no fight."""
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


def test_instances_that_never_become_ready_are_given_up_for_a_while() -> None:
    """They hold nothing up for good, take nothing away, and are tried again."""
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


def test_what_carries_our_labels_and_is_not_wanted_goes() -> None:
    """Classes that an earlier scaler has left are cleared away, and so is all once f is gone."""
    world = World()
    world.until_rest({"a": 1, "b": 1})
    world.rollout = Reconciler("f")
    world.until_rest({"a": 1})
    assert {"a": 1} == world.replicas
    deployed = {"a": Status.of({"name": "f--a", "replicas": 1})}
    gone = world.rollout.step({}, {}, ObservedState(None, deployed, {}), 1e6)
    assert ["delete f--a"] == [str(action) for action in gone]


def test_a_changed_function_is_rolled_out() -> None:
    """A new image of the user's function is an update of its classes."""
    world = World()
    world.until_rest({"a": 1})
    newer = Status.of({"name": "f", "image": "y"})
    deployed = {"a": Status.of({**world.documents["a"], "name": "f--a", "replicas": 1})}
    observed = ObservedState(newer, deployed, {"a": 1})
    (action,) = world.rollout.step({"a": kind("a")}, {"a": 1}, observed, 1e6)
    assert ("update", "y") == (action.verb, action.document["image"])


def test_a_name_that_is_too_long_is_said() -> None:
    """OpenFaaS admits 63 characters."""
    rollout = Reconciler("f" * 60)
    base = Status.of({"name": "f" * 60, "image": "x"})
    assert [] == rollout.step({"long": kind("long")}, {"long": 1}, ObservedState(base, {}, {}), 0.0)
    assert "at most 63 characters" in rollout.notes[0]


WANTED = st.dictionaries(st.sampled_from("abc"), st.integers(0, 4), min_size=1)


@settings(max_examples=scaled(150))
@given(st.data())
def test_capacity_never_falls_below_what_is_wanted_and_was_there(data: st.DataObject) -> None:
    """Whatever is wanted, becomes ready, or fails: ready instances go only when they may."""
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
def test_an_action_says_what_it_is(verb: Any) -> None:
    """For logs and explanations."""
    expected = f"{verb} f--a" + (" to 3" if verb == "scale" else "")
    assert expected == str(Action(verb, "a", "f--a", 3))
