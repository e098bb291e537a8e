"""One round of the scaler: read the state, plan, act. It is the same live and in simulated time.

Theory of operation
-------------------
A round reads the provider's list, has every function planned for, and makes the provider calls that
bring each function closer to its plan. A function that is deployed in this round also gets its
instances in it. The remaining classes of removed functions are deleted.

A round itself waits for nothing: its driver does everything that takes time, and informs operators.
A live scaler makes those calls in threads, for several functions at a time, while its event loop
answers sidecars. In simulated time they return at once, and a round is over when it has begun
(`at_once`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from carpool.errors import CarpoolError
from carpool.policy_errors import PolicyFailed
from scaler.control.action import Action, ProviderError
from scaler.control.decisions import without_numbers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence

    from carpool.scaling import FunctionLoad
    from scaler.control.class_function import Status
    from scaler.control.controller import Controller
    from scaler.control.functions import Functions
    from scaler.control.planning_result import FunctionResult

__all__ = ["Driver", "Platform", "Round", "at_once"]

_SETTLE_S = 3.0

Item = TypeVar("Item")
T = TypeVar("T")


class Platform(Protocol):
    """A platform that runs instances.

    Attributes:
        dry: Whether it must not change anything.
    """

    dry: bool

    def functions(self) -> Mapping[str, Status]:
        """Return all functions by name.

        Raises:
            ProviderError: The functions cannot be listed.
        """

    def carry_out(self, action: Action) -> None:
        """Make one change.

        Raises:
            ProviderError: The change was not accepted.
        """


class Driver:
    """Waiting and reporting for a round; by default nothing takes time or is reported."""

    async def call(self, work: Callable[[], T]) -> T:
        """Run work that may take time."""
        return work()

    async def each(self, items: Iterable[Item], work: Callable[[Item], Awaitable[T]]) -> list[T]:
        """Run ``work`` for every item, independently, and return the results."""
        return [await work(item) for item in items]

    async def pause(self) -> None:
        """Let other tasks run; called between two functions."""

    async def on_reachable(self) -> None:
        """Called when the provider answers for the first time, or again."""

    def on_new_function(self, controller: Controller) -> None:
        """Called when a function is new to this scaler."""

    def on_action_end(self, action: Action, error: ProviderError | None) -> None:
        """Called when the provider has accepted an action, or failed to."""

    def on_error(self, function: str, error: Exception) -> None:
        """Called when a function could not be processed.

        Raises:
            Exception: That error, which ends the round.
        """
        del function
        raise error

    def report(self, text: str, *, once: bool = False) -> None:
        """Report a change to the operator; with ``once``, do not repeat it."""


class Round:
    """The rounds of one scaler.

    Args:
        functions: The functions of the scaler.
        provider: The platform where changes are made.
        plan: Plans for functions, given their controllers, their loads and the time.
        driver: Runs what takes time, and reports.

    Attributes:
        unreachable: Why the provider cannot be reached; empty if it can.
    """

    def __init__(
        self,
        functions: Functions,
        provider: Platform,
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
        """Run one round; return False if it planned nothing, as instances have yet to report."""
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
        """Bring functions closer to their plans; return those with more to do at once."""
        more = await self._driver.each(controllers, self.act)
        return [each for each, is_more in zip(controllers, more, strict=True) if is_more]

    async def act(self, controller: Controller) -> bool:
        """Bring one function closer to its plan; return whether there is more to do at once."""
        await self._driver.pause()
        try:
            return await self._act(controller)
        except Exception as error:  # noqa: BLE001  calls of other functions are under way
            self._driver.on_error(controller.name, error)
            return False

    async def _act(self, controller: Controller) -> bool:
        actions = controller.step(self._functions.now(), self._functions.wall())
        if self.unreachable:
            return False
        for action in actions:
            await self._carry_out(controller, action)
        return any(action.verb == "deploy" for action in actions)

    async def _look(self) -> None:
        """Read the provider's list; if it fails, sidecars are still served."""
        try:
            listed = await self._driver.call(self._provider.functions)
        except ProviderError as error:
            if not self.unreachable:
                self._driver.report(f"{error}; nothing is changed until it can be reached")
            self.unreachable = str(error)
            return
        if self.unreachable:
            self._driver.report("the gateway can be reached again")
        if self.unreachable or not self._reached:
            self._reached = True
            await self._driver.on_reachable()
        self.unreachable = ""
        for controller in self._functions.observe(listed):
            self._driver.on_new_function(controller)

    def _settled(self) -> bool:
        """Return whether instances have had time to report since this scaler started.

        Before that, it would consider running instances missing, and tell fronts so.
        """
        if not self._heard:
            now_s = self._functions.now()
            complete = all(controller.complete(now_s) for controller in self._functions)
            self._heard = complete or now_s >= self._began_s + _SETTLE_S
        return self._heard

    async def _plan(self) -> None:
        """Plan for every function by its policy; without a model, use a first plan."""
        functions = self._functions
        now_s, wall_s = functions.now(), functions.wall()
        by_name = {controller.name: controller for controller in functions}
        loads: dict[str, FunctionLoad] = {}
        for name, controller in by_name.items():
            await self._driver.pause()
            try:
                load = controller.to_plan(now_s, wall_s)
            except CarpoolError as error:  # the others are still planned for
                self._driver.on_error(name, error)
                continue
            if controller.prewarm_failure:
                self._driver.on_error(name, PolicyFailed(controller.prewarm_failure))
            if load is not None:
                loads[name] = load
        outcomes = await self._driver.call(partial(self._planned, by_name, loads, now_s))
        for name, outcome in outcomes.items():
            controller = by_name[name]
            if without_numbers(outcome.failure) != without_numbers(controller.failure):
                news = f"{outcome.failure}; it keeps its plan" if outcome.failure else "is planned"
                self._driver.report(f"{name}: {news}")
            controller.failure, controller.remarks = outcome.failure, outcome.notes
            controller.unplaced_rps = outcome.unplaced_rps
            if outcome.plan is not None:
                controller.follow(outcome.plan, wall_s)

    async def _carry_out(self, controller: Controller | None, action: Action) -> None:
        if self._provider.dry:
            self._driver.report(f"would {action}", once=True)
            return
        now_s = self._functions.now()
        try:
            await self._driver.call(partial(self._provider.carry_out, action))
        except ProviderError as error:
            self._driver.on_action_end(action, error)
            if controller:
                controller.failed(action, error, now_s)
            return
        self._driver.on_action_end(action, None)
        if controller:
            controller.done(action, now_s, self._functions.wall())


def at_once(steps: Coroutine[None, None, T]) -> T:
    """Run a coroutine that does not wait for anything, and return its result.

    Raises:
        RuntimeError: The coroutine waits.
    """
    try:
        steps.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    steps.close()
    message = "a round waits for something other than its driver"
    raise RuntimeError(message)
