"""``carpool up --watch``: running functions follow the stack file and their own files.

A function with a changed file is reloaded, and one whose entry in the stack file has changed is
deployed again, both through `Rollout`: errors are reported, and the previous version keeps running.
A further change cancels a reload in progress, as what it loads is outdated.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from typing import TYPE_CHECKING

from carpool.errors import CarpoolError
from faas_stack.interrupts import say
from faas_stack.provider.canaries import refuse_chains
from faas_stack.stack import stack_file
from faas_stack.stack.assemble import SKIPPED
from faas_stack.stack.changed_files import FileChanges, look
from faas_stack.stack.deploy_request import deployment_of
from faas_stack.stack.ready import until_ready

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from faas_stack.provider.local.orchestrator import LocalOrchestrator
    from faas_stack.stack.changed_files import Seen
    from faas_stack.stack.images import Images
    from faas_stack.stack.stack_file import StackFile, StackFunction

__all__ = ["Development"]

_PERIOD_S = 0.3
_REST = 10  # ratio of pause to a scan's CPU time, for folders with very many files


class Development:
    """Keeps a running stack up to date with its files; to be created before these are first read.

    Args:
        images: Images of the stack, with the stack.
        orchestrator: Orchestrator that runs it.
        ready_s: Time that a function may take to become ready.
        prepare: Called before a function is deployed, for the first time or again.
    """

    def __init__(
        self,
        images: Images,
        orchestrator: LocalOrchestrator,
        ready_s: float,
        prepare: Callable[[StackFunction], Awaitable[None]],
    ) -> None:
        self._images = images
        self._orchestrator = orchestrator
        self._ready_s = ready_s
        self._prepare = prepare
        self._running = {each.name: each for each in images.stack.functions}
        self._changes: dict[str, FileChanges] = {}
        self._work: dict[str, asyncio.Task[None]] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._stack_changes = FileChanges(_look_at_stack(images.stack))
        self._follow(images.stack)

    async def run(self) -> None:
        """Look for changes repeatedly until cancelled."""
        pause_s = _PERIOD_S
        try:
            while True:
                await asyncio.sleep(pause_s)
                pause_s = max(_PERIOD_S, _REST * await self._look())
        finally:
            for task in self._work.values():
                task.cancel()

    async def _look(self) -> float:
        """Start what files and the stack file ask for; return the CPU time of the scan.

        Its elapsed time says how busy the machine is, and not how many files there are.
        """
        stack_seen, seen, cpu_s = await asyncio.to_thread(_scan, self._images.stack)
        if changed := self._stack_changes.take(stack_seen):
            self._take_stack(changed)
        for function in self._images.stack.functions:
            if function.name not in seen:  # just added
                continue
            if changed := self._changes[function.name].take(seen[function.name]):
                self._start(function.name, self._named(changed))
        return cpu_s

    def _take_stack(self, changed: list[str]) -> None:
        """Start to apply the changes in the stack file."""
        what = self._named(changed)
        try:
            fresh = stack_file.load(self._images.stack.path)
        except CarpoolError as error:
            say(f"{what} changed and cannot be used; everything keeps running as before\n{error}")
            return
        self._images.stack = fresh
        functions = {each.name: each for each in fresh.functions}
        for name in sorted(self._running.keys() | functions.keys()):
            if functions.get(name) != self._running.get(name) or name in self._work:
                self._changes.pop(name, None)
                self._start(name, what)
        self._follow(fresh)

    def _follow(self, stack: StackFile) -> None:
        """Start to look at the files of functions that are not being watched yet."""
        for each in stack.functions:
            if each.name not in self._changes:
                self._changes[each.name] = FileChanges(_look_at(stack, each))

    def _start(self, name: str, what: str) -> None:
        """Start to update a function, replacing an earlier attempt."""
        if before := self._work.get(name):
            before.cancel()
        task = asyncio.get_running_loop().create_task(self._update(name, what))
        self._work[name] = task
        task.add_done_callback(lambda _: self._work.get(name) is task and self._work.pop(name))

    async def _update(self, name: str, what: str) -> None:
        async with self._locks[name]:  # a cancelled attempt may still have to clean up
            await self._update_now(name, what)

    async def _update_now(self, name: str, what: str) -> None:
        loop, there = asyncio.get_running_loop(), name in self._running
        began_s = loop.time()
        try:
            done = await self._bring_about(name)
        except Exception as error:  # noqa: BLE001 - nothing else would report it
            kept = "the previous version keeps serving" if there else "it is not deployed"
            reason = error if isinstance(error, CarpoolError) else repr(error)
            say(f"{name}: {what} changed; {kept}\n{reason}")
        else:
            say(f"{name}: {what} changed; {done} in {loop.time() - began_s:.1f} s")

    async def _bring_about(self, name: str) -> str:
        """Make a function match the stack file; return what was done, in a word."""
        functions = {each.name: each for each in self._images.stack.functions}
        running, wanted = self._running.get(name), functions.get(name)
        if wanted is None:
            await self._remove(name)
            return "removed"
        deployment = deployment_of(wanted)
        refuse_chains(deployment, self._orchestrator.all(deployment.namespace))
        if running != wanted:
            await self._prepare(wanted)
        if running is None:
            await self._deploy(wanted)
            done = "deployed"
        elif running != wanted:
            await self._orchestrator.rollout.roll_out(deployment, self._ready_s)
            done = "deployed again"
        else:
            await self._orchestrator.reload(name, deployment.namespace, self._ready_s)
            done = "reloaded"
        self._running[name] = wanted
        return done

    async def _deploy(self, function: StackFunction) -> None:
        """Add a function; remove it again if it does not become ready."""
        deployment = deployment_of(function)
        async with self._images.rebuilt(function.image):
            deployed = await self._orchestrator.deploy(deployment)
            try:
                await until_ready(deployed, self._ready_s)
            except BaseException:
                await self._orchestrator.remove(deployment.service, deployment.namespace)
                raise

    async def _remove(self, name: str) -> None:
        if function := self._running.pop(name, None):
            await self._orchestrator.remove(name, deployment_of(function).namespace)

    def _named(self, paths: Iterable[str]) -> str:
        """Summarize the paths of changed files."""
        first, *more = (os.path.relpath(path, self._images.stack.folder) for path in paths)
        return f"{first} and {len(more)} more" if more else first


def _scan(stack: StackFile) -> tuple[Seen, dict[str, Seen], float]:
    """Look at all files; return those of the stack, those of functions, and the CPU time."""
    began_s = time.thread_time()
    seen = {function.name: _look_at(stack, function) for function in stack.functions}
    return _look_at_stack(stack), seen, time.thread_time() - began_s


def _look_at(stack: StackFile, function: StackFunction) -> Seen:
    """Look at the files that a function is assembled from, except its template."""
    copied = (stack.folder / path for path in stack.copy)
    return look([*filter(None, [function.handler]), *copied], SKIPPED)


def _look_at_stack(stack: StackFile) -> Seen:
    """Look at the stack file and the environment files that it names."""
    files = (stack.folder / file for each in stack.functions for file in each.environment_files)
    return look([stack.path, *files])
