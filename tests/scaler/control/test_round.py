"""A round: what is asked of a provider, what is told, and that it waits for nothing itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import pytest

from carpool.latency.linear import Linear
from scaler.control.class_function import Status
from scaler.control.dependencies import Dependencies
from scaler.control.planning_result import FunctionResult
from scaler.control.provider_error import ProviderError
from scaler.control.round import Driver, Round, at_once
from scaler.functions import Functions
from scaler.prewarm.contract import Windows
from scaler.prewarm.fixed import FixedKeepAlive
from tests.simulator.load import plan

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from carpool.scaling import FunctionLoad
    from scaler.control.action import Action
    from scaler.control.controller import Controller

LABELS = {"com.carpool.scale.policy": "infless", "com.carpool.scale.min": "0"}

Item = TypeVar("Item")
T = TypeVar("T")


class Shelf:
    """A provider that lists what it was given, and has room for so many replicas of a function."""

    def __init__(self, room: int = 9) -> None:
        self.dry = self.gone = False
        self.room = room
        self.listed = {"f": Status("f", 1, 1, {"name": "f", "labels": LABELS})}

    def functions(self) -> Mapping[str, Status]:
        """As `Provider.functions`."""
        if self.gone:
            message = "the shelf cannot be reached"
            raise ProviderError(message)
        return dict(self.listed)

    def carry_out(self, action: Action) -> None:
        """As `Provider.carry_out`."""
        if action.replicas > self.room:
            message = "no room"
            raise ProviderError(message, answered=True)
        if action.verb == "delete":
            del self.listed[action.name]
            return
        before = self.listed.get(action.name)
        document = action.document or (before.document if before else {})
        self.listed[action.name] = Status(action.name, action.replicas, 0, document)


class Notes(Driver):
    """A driver that writes down what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    async def reached(self) -> None:
        """As `Driver.reached`."""
        self.said.append("reached")

    def came(self, controller: Controller) -> None:
        """As `Driver.came`."""
        self.said.append(f"{controller.name} came")

    def ended(self, action: Action, error: ProviderError | None) -> None:
        """As `Driver.ended`."""
        self.said.append(f"{action}: {error or 'done'}")

    def troubled(self, function: str, error: Exception) -> None:
        """As `Driver.troubled`."""
        self.said.append(f"{function}: {error}")

    def say(self, text: str, *, once: bool = False) -> None:
        """As `Driver.say`."""
        del once
        self.said.append(text)


def two(
    by_name: Mapping[str, Controller], loads: Mapping[str, FunctionLoad], now_s: float
) -> dict[str, FunctionResult]:
    """Two instances, for a function without a plan."""
    del by_name, now_s
    return {
        name: FunctionResult(plan(name, 1, 2)) for name, load in loads.items() if load.plan is None
    }


def rounds(shelf: Shelf, notes: Driver, dependencies: Dependencies | None = None) -> Round:
    """A scaler of one function, at a time that stands still."""
    functions = Functions(dependencies or Dependencies(models={"f": Linear(0.01, 0.0)}))
    functions.now = functions.wall = lambda: 0.0
    return Round(functions, shelf, two, notes)


def test_what_was_deployed_gets_its_instances_in_the_same_round() -> None:
    """And a second round has nothing left to do."""
    shelf, notes = Shelf(), Notes()
    found = rounds(shelf, notes)
    assert at_once(found.run())
    assert ["reached", "f came", "deploy f--a: done", "scale f--a to 2: done"] == notes.said
    assert 2 == shelf.listed["f--a"].replicas
    at_once(found.run())
    assert 4 == len(notes.said)


def test_a_prewarm_policy_that_fails_stops_no_other_function() -> None:
    """Its function keeps what it has; what the policy did is told by name."""

    class Broken(FixedKeepAlive):
        """Learns, and then knows nothing."""

        def windows(self, now_s: float) -> Windows:
            """As `PrewarmPolicy.windows`."""
            return Windows(5.0, 1.0 / (now_s - now_s))

    shelf, notes = Shelf(), Notes()
    other = {**LABELS, "com.carpool.scale.min": "1"}  # it has no use for windows
    shelf.listed["g"] = Status("g", 1, 1, {"name": "g", "labels": other})
    known = Dependencies(
        models={"f": Linear(0.01, 0.0), "g": Linear(0.01, 0.0)},
        prewarm=lambda: Broken(Broken.Params()),
    )
    found = rounds(shelf, notes, known)
    at_once(found.run())
    assert "scale g--a to 2: done" in notes.said
    assert "f--a" not in shelf.listed
    (said,) = [text for text in notes.said if text.startswith("f: ")]
    assert "the prewarm policy has failed: ZeroDivisionError" in said


def test_an_unexpected_error_of_one_function_stops_no_other() -> None:
    """It is told with the function's name, and in the next round tried again."""

    class Faulty(Shelf):
        """A provider with a fault of its own, once."""

        well = False

        def carry_out(self, action: Action) -> None:
            """As `Provider.carry_out`, or not."""
            if action.name == "f--a" and not self.well:
                message = "a list of nothing"
                raise IndexError(message)
            super().carry_out(action)

    shelf, notes = Faulty(), Notes()
    shelf.listed["g"] = Status("g", 1, 1, {"name": "g", "labels": LABELS})
    models = {"f": Linear(0.01, 0.0), "g": Linear(0.01, 0.0)}
    found = rounds(shelf, notes, Dependencies(models=models))
    assert at_once(found.run())
    assert "f: a list of nothing" in notes.said
    assert "scale g--a to 2: done" in notes.said
    shelf.well = True
    at_once(found.run())
    assert "scale f--a to 2: done" in notes.said


def test_what_is_refused_is_told_and_nothing_else_ends() -> None:
    """The controller knows that it was refused, and waits before it asks again."""
    shelf, notes = Shelf(room=1), Notes()
    found = rounds(shelf, notes)
    at_once(found.run())
    assert "scale f--a to 2: no room" == notes.said[-1]
    at_once(found.run())
    assert "scale f--a to 2: no room" == notes.said[-1]
    assert 4 == len(notes.said)


def test_a_dry_provider_is_asked_for_nothing() -> None:
    """What would be done is said."""
    shelf, notes = Shelf(), Notes()
    shelf.dry = True
    at_once(rounds(shelf, notes).run())
    assert ["reached", "f came", "would deploy f--a", "would deploy f--a"] == notes.said
    assert ["f"] == list(shelf.listed)


def test_a_provider_that_is_away_is_told_once() -> None:
    """And once when it is back, with what has come meanwhile."""
    shelf, notes = Shelf(), Notes()
    found = rounds(shelf, notes)
    shelf.gone = True
    at_once(found.run())
    at_once(found.run())
    assert 1 == len(notes.said)
    assert "the shelf cannot be reached" == found.unreachable
    shelf.gone = False
    at_once(found.run())
    assert ["the gateway can be reached again", "reached", "f came"] == notes.said[1:4]


def test_classes_of_a_function_that_is_gone_are_deleted() -> None:
    """Also where a scaler before this one has left them."""
    shelf, notes = Shelf(), Notes()
    at_once(rounds(shelf, notes).run())
    del shelf.listed["f"]
    at_once(rounds(shelf, notes).run())
    assert {} == shelf.listed


def test_a_round_that_waits_cannot_be_over_at_once() -> None:
    """In simulated time nothing would wake it."""

    class Slow(Driver):
        """Has sidecars answered in between."""

        async def pause(self) -> None:
            """As `Driver.pause`."""
            await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="waits for something"):
        at_once(rounds(Shelf(), Slow()).run())


def test_functions_are_acted_on_together() -> None:
    """The driver is given all of them, and then those that have more to do at once."""

    class Crowd(Driver):
        """Writes down how many functions it is given at a time."""

        def __init__(self) -> None:
            self.given: list[int] = []

        async def each(
            self, items: Iterable[Item], work: Callable[[Item], Awaitable[T]]
        ) -> list[T]:
            """As `Driver.each`, in the other order."""
            found = list(items)
            self.given.append(len(found))
            return [await work(item) for item in reversed(found)][::-1]

    shelf, crowd = Shelf(), Crowd()
    models = {name: Linear(0.01, 0.0) for name in "fgh"}
    for name in "gh":
        shelf.listed[name] = Status(name, 1, 1, {"name": name, "labels": LABELS})
    at_once(rounds(shelf, crowd, Dependencies(models=models)).run())
    assert {"f--a": 2, "g--a": 2, "h--a": 2} == {
        name: status.replicas for name, status in shelf.listed.items() if "--" in name
    }
    assert [3, 3] == crowd.given
