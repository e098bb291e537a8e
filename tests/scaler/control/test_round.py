"""A planning round: its calls to the provider, its messages, and that it never waits itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import pytest

from carpool.latency.linear import Linear
from carpool.sync import Announcement, FrontReport
from scaler.control.action import ProviderError
from scaler.control.class_function import Status
from scaler.control.dependencies import Dependencies
from scaler.control.functions import Functions
from scaler.control.planning_result import FunctionResult
from scaler.control.round import Driver, Round, at_once
from scaler.live_planner import Planner, PlannerSettings
from scaler.planning.cost import Prices
from scaler.policies.fixed import Fixed
from scaler.prewarm.contract import Windows
from scaler.prewarm.fixed import FixedKeepAlive
from tests.simulator.load import plan

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from carpool.scaling import FunctionLoad
    from scaler.control.action import Action
    from scaler.control.controller import Controller

MIN = "com.carpool.scale.min"
LABELS = {"com.carpool.scale.policy": "infless", MIN: "0"}

Item = TypeVar("Item")
T = TypeVar("T")


class Shelf:
    """A provider that lists what it was given, with room for ``room`` replicas of each function."""

    def __init__(self, room: int = 9) -> None:
        self.dry = self.gone = False
        self.room = room
        self.listed = {"f": Status("f", 1, 1, {"name": "f", "labels": LABELS})}

    def functions(self) -> Mapping[str, Status]:
        """See `Platform.functions`."""
        if self.gone:
            message = "the shelf cannot be reached"
            raise ProviderError(message)
        return dict(self.listed)

    def announcements(self) -> list[Announcement]:
        """Return an announcement of each instance, all of which are ready."""
        return [
            Announcement("f", f"{number:08}", 1, name[3:], f"{name}:{number}", "ready", 1.0)
            for name, status in self.listed.items()
            for number in range(status.replicas if "--" in name else 0)
        ]

    def carry_out(self, action: Action) -> None:
        """See `Platform.carry_out`."""
        if action.replicas > self.room:
            message = "no room"
            raise ProviderError(message, refused=True)
        if action.verb == "delete":
            del self.listed[action.name]
            return
        before = self.listed.get(action.name)
        document = action.document or (before.document if before else {})
        self.listed[action.name] = Status(action.name, action.replicas, 0, document)


class Notes(Driver):
    """A driver that records what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    async def on_reachable(self) -> None:
        """See `Driver.on_reachable`."""
        self.said.append("reached")

    def on_new_function(self, controller: Controller) -> None:
        """See `Driver.on_new_function`."""
        self.said.append(f"{controller.name} came")

    def on_action_end(self, action: Action, error: ProviderError | None) -> None:
        """See `Driver.on_action_end`."""
        self.said.append(f"{action}: {error or 'done'}")

    def on_error(self, function: str, error: Exception) -> None:
        """See `Driver.on_error`."""
        self.said.append(f"{function}: {error}")

    def report(self, text: str, *, once: bool = False) -> None:
        """See `Driver.report`."""
        del once
        self.said.append(text)


def two(
    by_name: Mapping[str, Controller], loads: Mapping[str, FunctionLoad], now_s: float
) -> dict[str, FunctionResult]:
    """Plan two instances for each function without a plan."""
    del by_name, now_s
    return {
        name: FunctionResult(plan(name, 1, 2)) for name, load in loads.items() if load.plan is None
    }


def zero() -> float:
    """Return the time of a clock that stands still."""
    return 0.0


def later_rounds(shelf: Shelf, seconds_s: Iterable[float], *, fronts: bool) -> None:
    """Run rounds of another scaler without state, whose instances and idle ``fronts`` report."""
    functions = Functions(Dependencies(5, models={"f": Linear(0.01, 0.0)}), now=zero, wall=zero)
    planner = Planner(PlannerSettings(Prices(), policy="infless"))
    found = Round(functions, shelf, planner.plan, Notes())
    for now_s in seconds_s:
        functions.now = functions.wall = lambda: now_s  # noqa: B023
        functions.observe(shelf.listed)
        (controller,) = functions
        for said in shelf.announcements():
            functions.announced(controller, said)
        if fronts:
            version = controller.sidecar_config.version
            report = FrontReport("f", "a" * 8, 1, term=5, version=version, period_s=1.0)
            functions.reported(controller, report)
        at_once(found.run())


def rounds(shelf: Shelf, notes: Driver, dependencies: Dependencies | None = None) -> Round:
    """Return the rounds of a scaler whose clock stands still."""
    dependencies = dependencies or Dependencies(models={"f": Linear(0.01, 0.0)})
    functions = Functions(dependencies, now=zero, wall=zero)
    return Round(functions, shelf, two, notes)


def test_class_is_deployed_and_scaled_in_one_round() -> None:
    """A class is deployed and scaled in one round, and the next round has nothing to do."""
    shelf, notes = Shelf(), Notes()
    found = rounds(shelf, notes)
    assert at_once(found.run())
    assert ["reached", "f came", "deploy f--a: done", "scale f--a to 2: done"] == notes.said
    assert 2 == shelf.listed["f--a"].replicas
    at_once(found.run())
    assert 4 == len(notes.said)


def test_scaler_without_state_keeps_instances_until_fronts_report() -> None:
    """Instances of an earlier scaler are kept while the load is unknown, and then follow it."""
    shelf = Shelf()
    shelf.listed["f"] = Status("f", 1, 1, {"name": "f", "labels": {**LABELS, MIN: "1"}})
    at_once(rounds(shelf, Notes()).run())
    before = dict(shelf.listed)
    later_rounds(shelf, range(0, 400, 20), fronts=False)
    assert before == shelf.listed
    later_rounds(shelf, range(0, 400, 20), fronts=True)
    assert 1 == sum(status.replicas for name, status in shelf.listed.items() if "--" in name)


def test_failing_prewarm_policy_does_not_affect_other_functions() -> None:
    """If a prewarm policy fails, its function and others are planned for without it."""

    class Broken(FixedKeepAlive):
        """A prewarm policy whose windows raise an error."""

        def windows(self, now_s: float) -> Windows:
            """See `PrewarmPolicy.windows`."""
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
    assert "scale f--a to 2: done" in notes.said
    (said,) = [text for text in notes.said if text.startswith("f: ")]
    assert "the prewarm policy has failed: ZeroDivisionError" in said


class Unusable(Fixed):
    """A scaling policy whose other names for parameters are no list."""

    knobs = 5


def test_unusable_policy_does_not_affect_other_functions() -> None:
    """A policy that cannot be created is reported with its function; others are planned for."""
    name = f"{__name__}:Unusable"
    shelf, notes = Shelf(), Notes()
    for function, policy in (("f", name), ("g", "infless")):
        labels = {"com.carpool.scale.policy": policy, MIN: "1"}
        shelf.listed[function] = Status(function, 1, 1, {"name": function, "labels": labels})
    models = {function: Linear(0.01, 0.0) for function in shelf.listed}
    planner = Planner(PlannerSettings(Prices()))
    found = Round(
        Functions(Dependencies(models=models), now=zero, wall=zero), shelf, planner.plan, notes
    )
    at_once(found.run())
    (said,) = [text for text in notes.said if text.startswith("f: ")]
    assert f"its policy {name} cannot be used: TypeError" in said
    assert ["g"] == [deployed[0] for deployed in shelf.listed if "--" in deployed]


def test_unexpected_error_does_not_affect_other_functions() -> None:
    """An unexpected error is reported with its function, which is tried again in the next round."""

    class Faulty(Shelf):
        """A provider that raises an unexpected error for ``f--a`` until ``well`` is set."""

        well = False

        def carry_out(self, action: Action) -> None:
            """See `Platform.carry_out`."""
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


def test_refused_action_is_reported_and_not_retried_at_once() -> None:
    """A refused action is reported and not tried again in the next round."""
    shelf, notes = Shelf(room=1), Notes()
    found = rounds(shelf, notes)
    at_once(found.run())
    assert "scale f--a to 2: no room" == notes.said[-1]
    at_once(found.run())
    assert "scale f--a to 2: no room" == notes.said[-1]
    assert 4 == len(notes.said)


def test_dry_run_only_reports_actions() -> None:
    """In a dry run, actions are only reported."""
    shelf, notes = Shelf(), Notes()
    shelf.dry = True
    at_once(rounds(shelf, notes).run())
    assert ["reached", "f came", "would deploy f--a", "would deploy f--a"] == notes.said
    assert ["f"] == list(shelf.listed)


def test_unreachable_provider_is_reported_once() -> None:
    """An unreachable provider is reported once, and once more when it is back."""
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


def test_classes_of_deleted_function_are_deleted() -> None:
    """Classes of a deleted function are deleted, even those left by an earlier scaler."""
    shelf, notes = Shelf(), Notes()
    at_once(rounds(shelf, notes).run())
    del shelf.listed["f"]
    at_once(rounds(shelf, notes).run())
    assert {} == shelf.listed


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("policy", [{}, {"com.carpool.scale.policy": "fixed"}])
def test_classes_of_function_that_is_no_longer_scaled_are_deleted(
    policy: dict[str, str], *, restarted: bool
) -> None:
    """Classes of a function without a scaling policy are deleted, after a restart too."""
    shelf, notes = Shelf(), Notes()
    found = rounds(shelf, notes)
    at_once(found.run())
    shelf.listed["f"] = Status("f", 1, 1, {"name": "f", "labels": policy})
    found = rounds(shelf, notes) if restarted else found
    at_once(found.run())
    assert ["f"] == list(shelf.listed)


def test_waiting_round_raises_in_simulated_time() -> None:
    """Running a round that waits raises an error, as nothing would wake it in simulated time."""

    class Slow(Driver):
        """A driver that waits for sidecars between actions."""

        async def pause(self) -> None:
            """See `Driver.pause`."""
            await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="waits for something"):
        at_once(rounds(Shelf(), Slow()).run())


def test_functions_are_processed_together() -> None:
    """The driver gets all functions at once, and then those that have more to do."""

    class Crowd(Driver):
        """A driver that records how many functions it gets at a time."""

        def __init__(self) -> None:
            self.given: list[int] = []

        async def each(
            self, items: Iterable[Item], work: Callable[[Item], Awaitable[T]]
        ) -> list[T]:
            """Process the items as `Driver.each` does, in reverse order."""
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
