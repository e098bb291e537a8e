"""One round: look, plan, act. The same live and in simulated time.

Theory of operation
-------------------
A round sees what the provider lists, has every function planned for, and asks the provider for what
brings each one nearer to its plan. A function that was deployed in this round gets its instances in
it, too. What is left of functions that are gone is deleted.

A round waits for nothing itself: whatever takes time, and what operators are to be told, it leaves
to its driver. A live scaler makes those calls in threads, for several functions at a time, and its
event loop answers sidecars meanwhile. In simulated time they are made at once, and a round is
over when it has begun (`at_once`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from carpool.errors import CarpoolError
from scaler.control.action import Action
from scaler.control.decisions import without_numbers
from scaler.control.provider_error import ProviderError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence

    from carpool.scaling import FunctionLoad
    from scaler.control.class_function import Status
    from scaler.control.controller import Controller
    from scaler.control.planning_result import FunctionResult
    from scaler.functions import Functions

__all__ = ["Driver", "Provider", "Round", "at_once"]

_SETTLE_S = 3.0

Item = TypeVar("Item")
T = TypeVar("T")


class Provider(Protocol):
    """What runs instances.

    Attributes:
        dry: It is to change nothing.
    """

    dry: bool

    def functions(self) -> Mapping[str, Status]:
        """All functions by name.

        Raises:
            ProviderError: they cannot be listed.
        """

    def carry_out(self, action: Action) -> None:
        """Make one change.

        Raises:
            ProviderError: it was not accepted.
        """


class Driver:
    """What a round leaves to others: as it stands, nothing takes time and nobody listens."""

    async def call(self, work: Callable[[], T]) -> T:
        """Do what may take time."""
        return work()

    async def each(self, items: Iterable[Item], work: Callable[[Item], Awaitable[T]]) -> list[T]:
        """Do the same for functions that need not wait for each other; the results of each."""
        return [await work(item) for item in items]

    async def pause(self) -> None:
        """Others may go first: this is between two functions."""

    async def reached(self) -> None:
        """The provider answers for the first time, or again."""

    def came(self, controller: Controller) -> None:
        """A function is new here."""

    def ended(self, action: Action, error: ProviderError | None) -> None:
        """The provider has accepted an action, or not."""

    def troubled(self, function: str, error: Exception) -> None:
        """Nothing can be asked for that function.

        Raises:
            Exception: that error, which ends the round.
        """
        del function
        raise error

    def say(self, text: str, *, once: bool = False) -> None:
        """Something has changed that an operator should know; ``once``: not again."""


class Round:
    """The rounds of one scaler.

    Args:
        functions: What is known.
        provider: Where changes are made.
        plan: Plans for functions, by their controllers, what they are asked for and the time.
        driver: Does what takes time, and listens.

    Attributes:
        unreachable: Why the provider cannot be asked; empty while it can.
    """

    def __init__(
        self,
        functions: Functions,
        provider: Provider,
        plan: Callable[
            [Mapping[str, Controller], Mapping[str, FunctionLoad], float],
            Mapping[str, FunctionResult],
        ],
        driver: Driver,
    ) -> None:
        self._functions = functions
        self._provider = provider
        self._planned = plan
        self._driver = driver
        self._began_s = functions.now()
        self._reached = self._heard = False
        self.unreachable = ""

    async def run(self) -> bool:
        """One round; False: it only looked, as instances have yet to say where they are."""
        functions = self._functions
        await self._look()
        if not self._settled():
            return False
        await self._plan()
        if new := await self._act_on(list(functions)):
            await self._look()  # what was deployed is listed now, and has no instances yet
            await self._act_on(new)
        if not self.unreachable:
            for deployed in functions.ownerless.values():
                for class_name, status in deployed.items():
                    await self._carry_out(None, Action("delete", class_name, status.name))
        functions.active = not self._provider.dry
        return True

    async def _act_on(self, controllers: Sequence[Controller]) -> list[Controller]:
        """Bring functions nearer to their plans; those with more to do at once."""
        more = await self._driver.each(controllers, self.act)
        return [each for each, is_more in zip(controllers, more, strict=True) if is_more]

    async def act(self, controller: Controller) -> bool:
        """Bring one function nearer to its plan; whether there is more to do at once."""
        await self._driver.pause()
        try:
            return await self._act(controller)
        except Exception as error:  # noqa: BLE001  calls of other functions are under way
            self._driver.troubled(controller.name, error)
            return False

    async def _act(self, controller: Controller) -> bool:
        actions = controller.step(self._functions.now(), self._functions.wall())
        if self.unreachable:
            return False
        for action in actions:
            await self._carry_out(controller, action)
        return any(action.verb == "deploy" for action in actions)

    async def _look(self) -> None:
        """See what the provider lists; without it sidecars are still heard and told."""
        try:
            listed = await self._driver.call(self._provider.functions)
        except ProviderError as error:
            if not self.unreachable:
                self._driver.say(f"{error}; nothing is changed until it can be reached")
            self.unreachable = str(error)
            return
        if self.unreachable:
            self._driver.say("the gateway can be reached again")
        if self.unreachable or not self._reached:
            self._reached = True
            await self._driver.reached()
        self.unreachable = ""
        for controller in self._functions.observe(listed):
            self._driver.came(controller)

    def _settled(self) -> bool:
        """Whether the instances have had time to say where they are, since this scaler started.

        Until then it would take what runs for missing, and fronts would be told so.
        """
        if not self._heard:
            now_s = self._functions.now()
            complete = all(controller.complete(now_s) for controller in self._functions)
            self._heard = complete or now_s >= self._began_s + _SETTLE_S
        return self._heard

    async def _plan(self) -> None:
        """Every function gets a plan from its policy; one without a model, a first one."""
        functions = self._functions
        now_s, wall_s = functions.now(), functions.wall()
        by_name = {controller.name: controller for controller in functions}
        loads: dict[str, FunctionLoad] = {}
        for name, controller in by_name.items():
            await self._driver.pause()
            try:
                load = controller.to_plan(now_s, wall_s)
            except CarpoolError as error:  # others are planned for all the same
                self._driver.troubled(name, error)
                continue
            if load is not None:
                loads[name] = load
        outcomes = await self._driver.call(partial(self._planned, by_name, loads, now_s))
        for name, outcome in outcomes.items():
            controller = by_name[name]
            if without_numbers(outcome.failure) != without_numbers(controller.failure):
                news = f"{outcome.failure}; it keeps its plan" if outcome.failure else "is planned"
                self._driver.say(f"{name}: {news}")
            controller.failure, controller.remarks = outcome.failure, outcome.notes
            controller.unplaced_rps = outcome.unplaced_rps
            if outcome.plan is not None:
                controller.follow(outcome.plan, wall_s)

    async def _carry_out(self, controller: Controller | None, action: Action) -> None:
        if self._provider.dry:
            self._driver.say(f"would {action}", once=True)
            return
        now_s = self._functions.now()
        try:
            await self._driver.call(partial(self._provider.carry_out, action))
        except ProviderError as error:
            self._driver.ended(action, error)
            if controller:
                controller.failed(action, error, now_s)
            return
        self._driver.ended(action, None)
        if controller:
            controller.done(action, now_s, self._functions.wall())


def at_once(steps: Coroutine[None, None, T]) -> T:
    """Do what waits for nothing, as all does whose driver does not.

    Raises:
        RuntimeError: it waits.
    """
    try:
        steps.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    steps.close()
    message = "a round waits for something that nothing will wake"
    raise RuntimeError(message)
