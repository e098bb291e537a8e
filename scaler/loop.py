"""The scaler's rounds: look, plan, act, keep, again and again.

What takes time, the gateway, the store and planning, happens in one thread beside the event loop,
which answers sidecars meanwhile. An error of one function, or of one round, is told and does not
end the next.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from carpool.errors import CarpoolError, ConfigError
from scaler.cluster_option import nodes_of
from scaler.control.action import Action
from scaler.control.decisions import kind_of
from scaler.control.sync_pace import LEAST_PAUSE_S
from scaler.openfaas_client import GatewayError
from scaler.variant_lists import VariantLists

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from carpool.scaling import FunctionLoad
    from scaler.control.controller import Controller
    from scaler.functions import Functions
    from scaler.metrics import Tally
    from scaler.openfaas_client import Gateway
    from scaler.persistence import Keeping
    from scaler.planner import Outcome, Planner

__all__ = ["Loop"]

log = logging.getLogger(__name__)

_SETTLE_S = 3.0

T = TypeVar("T")


class Loop:
    """Brings what runs to what should run.

    Args:
        functions: What is known.
        gateway: Where changes are made.
        planner: The policies.
        keeping: What is kept of it.
        tally: Counts.

    Attributes:
        lists: The variants of functions, as they are registered.
        unreachable: Why the gateway cannot be asked; empty while it can.
        unkept: Why the store cannot be written; empty while it can.
    """

    def __init__(
        self,
        functions: Functions,
        gateway: Gateway,
        planner: Planner,
        keeping: Keeping,
        tally: Tally,
    ) -> None:
        self._functions = functions
        self._gateway = gateway
        self._planner = planner
        self._keeping = keeping
        self._tally = tally
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="scaler")
        self._due = asyncio.Event()
        self._told: set[str] = set()
        self._began_s = functions.now()
        self._heard = self._informed = False
        self.unreachable = self.unkept = ""
        self.lists = VariantLists({})
        functions.wake = self._due.set

    async def run(self, interval_s: float) -> None:
        """Rounds until cancelled; what is known by then is kept."""
        try:
            while True:
                began_s = time.monotonic()
                try:
                    await self._round()
                except Exception:
                    log.exception("a round failed")
                took_s = time.monotonic() - began_s
                self._tally.rounded(took_s)
                pause_s = max(LEAST_PAUSE_S, min(took_s, interval_s - took_s))
                await asyncio.sleep(pause_s)
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, interval_s - took_s - pause_s)):
                        await self._due.wait()
                self._due.clear()
        finally:
            self._thread.shutdown(wait=True, cancel_futures=True)
            await self._keeping.collect(whole=True)
            self._keeping.keep()

    async def _round(self) -> None:
        """One round."""
        functions = self._functions
        self._tally.measure(functions.pace, functions.count())
        await self._look()
        if not self._settled():
            return
        await self._plan()
        new = [controller for controller in list(functions) if await self._act(controller)]
        if new:
            await self._look()  # what was deployed is listed now, and has no instances yet
            for controller in new:
                await self._act(controller)
        if not self.unreachable:
            for found in functions.ownerless.values():
                for kind, status in found.items():
                    await self._carry_out(None, Action("delete", kind, status.name))
        functions.active = not self._gateway.dry
        await self._keeping.collect()
        await self._keep()

    async def _keep(self) -> None:
        """Write what was collected; what cannot be written now is, with a later round."""
        why = ""
        try:
            await self._in_thread(self._keeping.keep)
        except ConfigError as error:
            why = f"what happens is not kept for a restart: {error}"
        if kind_of(why) != kind_of(self.unkept):
            log.warning("%s", why or "the store can be written again")
        self.unkept = why

    def _settled(self) -> bool:
        """Whether the instances have had time to say where they are, since this scaler started.

        Until then it would take what runs for missing, and fronts would be told so.
        """
        if not self._heard:
            now_s = self._functions.now()
            complete = all(controller.complete(now_s) for controller in self._functions)
            self._heard = complete or now_s >= self._began_s + _SETTLE_S
        return self._heard

    async def _look(self) -> None:
        """See what the gateway lists; without it sidecars are still heard and told."""
        try:
            listed = await self._in_thread(self._gateway.functions)
        except GatewayError as error:
            if not self.unreachable:
                log.warning("%s; nothing is changed until it can be", error)
            self.unreachable = str(error)
            return
        if self.unreachable:
            log.warning("the gateway can be reached again")
        if self.unreachable or not self._informed:
            await self._learn_servers()
        self.unreachable = ""
        for controller in self._functions.observe(listed):
            self._keeping.absorb(controller)

    async def _learn_servers(self) -> None:
        """Where no option says which servers there are, the provider may."""
        self._informed = True
        if self._planner.given:
            return
        with suppress(GatewayError):  # one that has no such page, which is none of its duties
            self._planner.nodes = nodes_of(await self._in_thread(self._gateway.info))

    async def _plan(self) -> None:
        """Every function gets a plan from its policy; one without a model, a first one."""
        functions = self._functions
        for name, variants in (await self._in_thread(self.lists.news)).items():
            functions.learned(name, variants)
        now_s, wall_s = functions.now(), functions.wall()
        by_name = {controller.name: controller for controller in functions}
        views: dict[str, FunctionLoad] = {}
        for name, controller in by_name.items():
            await asyncio.sleep(0)
            view = controller.to_plan(now_s, wall_s)
            if view is not None:
                views[name] = view
        outcomes = await self._in_thread(lambda: self._planned(by_name, views, now_s))
        for name, outcome in outcomes.items():
            controller = by_name[name]
            if kind_of(outcome.failure) != kind_of(controller.failure):
                news = f"{outcome.failure}; it keeps its plan" if outcome.failure else "is planned"
                log.warning("%s: %s", name, news)
            controller.failure, controller.remarks = outcome.failure, outcome.notes
            controller.unplaced_rps = outcome.unplaced_rps
            if outcome.plan is not None:
                controller.follow(outcome.plan, wall_s)

    def _planned(
        self, by_name: Mapping[str, Controller], views: Mapping[str, FunctionLoad], now_s: float
    ) -> dict[str, Outcome]:
        began_s = time.perf_counter()
        outcomes = self._planner.plan(by_name, views, now_s)
        self._tally.planning_s += time.perf_counter() - began_s
        return outcomes

    async def _act(self, controller: Controller) -> bool:
        """Bring one function nearer to its plan; whether there is more to do at once."""
        await asyncio.sleep(0)  # sidecars are answered in between
        try:
            actions = controller.step(self._functions.now(), self._functions.wall())
        except CarpoolError as error:
            self._tell_once(f"{controller.name}: {error}")
            return False
        if self.unreachable:
            return False
        for action in actions:
            await self._carry_out(controller, action)
        return any(action.verb == "deploy" for action in actions)

    async def _carry_out(self, controller: Controller | None, action: Action) -> None:
        if self._gateway.dry:
            self._tell_once(f"would {action}")
            return
        now_s = self._functions.now()
        try:
            await self._in_thread(lambda: self._gateway.carry_out(action))
        except GatewayError as error:
            self._tally.actions[action.verb, "failed"] += 1
            self._tell_once(f"{action} failed: {error}")
            if controller:
                controller.failed(action, str(error), now_s, refused=error.answered)
            return
        log.info("%s", action)
        self._tally.actions[action.verb, "done"] += 1
        if controller:
            controller.done(action, now_s, self._functions.wall())

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            log.warning("%s", text)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)
