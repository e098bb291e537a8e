"""The live scaler's loop: runs rounds repeatedly, and stores what must be kept.

What a round does is in `scaler.control.round`. Slow steps, such as calls of the gateway, planning
and writing the store, run in threads beside the event loop, which answers sidecars meanwhile.
Changes of several functions are made concurrently, everything else in sequence. An error of one
function or round is logged, and the next ones continue.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from carpool.errors import CarpoolError, ConfigError
from scaler.control.action import ProviderError
from scaler.control.decisions import without_numbers
from scaler.control.round import Driver, Round
from scaler.control.sync_pace import LEAST_PAUSE_S
from scaler.openfaas_client import CALLS, nodes_of
from scaler.slow_planning import reported_if_slow
from scaler.variant_lists import VariantLists

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from carpool.scaling import FunctionLoad
    from scaler.control.action import Action
    from scaler.control.controller import Controller
    from scaler.control.functions import Functions
    from scaler.control.planning_result import FunctionResult
    from scaler.live_planner import Planner
    from scaler.metrics import Metrics
    from scaler.openfaas_client import GatewayClient
    from scaler.persistence import Persistence

__all__ = ["Loop"]

log = logging.getLogger(__name__)

Item = TypeVar("Item")
T = TypeVar("T")


class Loop(Driver):
    """Runs the rounds of a live scaler.

    Args:
        functions: The scaled functions.
        gateway: The gateway where changes are made.
        planner: The planner with its policies.
        persistence: Stores the state.
        metrics: Metrics of the scaler.

    Attributes:
        lists: Registered variants of functions.
        store_error: Why the store cannot be written; empty if it can.
    """

    def __init__(
        self,
        functions: Functions,
        gateway: GatewayClient,
        planner: Planner,
        persistence: Persistence,
        metrics: Metrics,
    ) -> None:
        self._functions = functions
        self._gateway = gateway
        self._planner = planner
        self._persistence = persistence
        self._metrics = metrics
        self._threads = ThreadPoolExecutor(CALLS, thread_name_prefix="scaler")
        self._due = asyncio.Event()
        self._told: set[str] = set()
        self._rounds = Round(functions, gateway, self._plan, self)
        self.store_error = ""
        self.lists = VariantLists({})
        functions.wake = self._due.set

    @property
    def unreachable(self) -> str:
        """Why the gateway cannot be reached; empty if it can."""
        return self._rounds.unreachable

    async def run(self, interval_s: float) -> None:
        """Run rounds until cancelled, then store the state."""
        try:
            while True:
                began_s = time.monotonic()
                try:
                    await self._round()
                except Exception:
                    log.exception("a round failed")
                took_s = time.monotonic() - began_s
                self._metrics.rounded(took_s)
                pause_s = max(LEAST_PAUSE_S, min(took_s, interval_s - took_s))
                await asyncio.sleep(pause_s)
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, interval_s - took_s - pause_s)):
                        await self._due.wait()
                self._due.clear()
        finally:
            self._threads.shutdown(wait=True, cancel_futures=True)
            await self._persistence.collect(whole=True)
            self._persistence.keep()

    async def call(self, work: Callable[[], T]) -> T:
        """As `Driver.call`, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def each(self, items: Iterable[Item], work: Callable[[Item], Awaitable[T]]) -> list[T]:
        """As `Driver.each`, with at most as many at a time as there are gateway connections."""
        at_once = asyncio.Semaphore(CALLS)

        async def one(item: Item) -> T:
            async with at_once:
                return await work(item)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(item)) for item in items]
        return [task.result() for task in tasks]

    async def pause(self) -> None:
        """As `Driver.pause`: lets the event loop answer sidecars."""
        await asyncio.sleep(0)

    async def on_reachable(self) -> None:
        """As `Driver.on_reachable`: asks the provider for its servers if none are configured."""
        if self._planner.nodes_configured:
            return
        with suppress(ProviderError):  # one that has no such page, which is none of its duties
            self._planner.nodes = nodes_of(await self.call(self._gateway.info))

    def on_new_function(self, controller: Controller) -> None:
        """As `Driver.on_new_function`: restores the controller's stored state."""
        self._persistence.absorb(controller)

    def on_action_end(self, action: Action, error: ProviderError | None) -> None:
        """As `Driver.on_action_end`: logs and counts the action."""
        self._metrics.actions[action.verb, "failed" if error else "done"] += 1
        if error:
            self.report(f"{action} failed: {error}", once=True)
        else:
            log.info("%s", action)

    def on_error(self, function: str, error: Exception) -> None:
        """As `Driver.on_error`: logs the error, with a traceback if unexpected, and continues."""
        if isinstance(error, CarpoolError):
            self.report(f"{function}: {error}", once=True)
        else:
            log.error(
                "%s: planning or carrying out its plan failed in this round",
                function,
                exc_info=error,
            )

    def report(self, text: str, *, once: bool = False) -> None:
        """As `Driver.report`: writes to the log."""
        if once and text in self._told:
            return
        if once:
            self._told.add(text)
        log.warning("%s", text)

    async def _round(self) -> None:
        self._metrics.measure(self._functions.pace, self._functions.count())
        for name, variants in (await self.call(self.lists.news)).items():
            self._functions.set_variants(name, variants)
        if await self._rounds.run():
            await self._persistence.collect()
            await self._keep()

    async def _keep(self) -> None:
        """Write what was collected; if that fails, a later round writes it."""
        why = ""
        try:
            await self.call(self._persistence.keep)
        except ConfigError as error:
            why = f"state is not saved for a restart: {error}"
        if without_numbers(why) != without_numbers(self.store_error):
            log.warning("%s", why or "the store can be written again")
        self.store_error = why

    def _plan(
        self, by_name: Mapping[str, Controller], loads: Mapping[str, FunctionLoad], now_s: float
    ) -> dict[str, FunctionResult]:
        began_s = time.perf_counter()
        with reported_if_slow(self.report):
            outcomes = self._planner.plan(by_name, loads, now_s)
        self._metrics.planning_s += time.perf_counter() - began_s
        return outcomes
