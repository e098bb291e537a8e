"""Rollouts of new revisions, which are rolled back if they do not become ready.

A reload is an update to the present deployment: new replicas read the image's files again, and old
ones end when the new ones are ready. The instances of a scaled function are functions of their own
(``NAME--CLASS``); either all of them are reloaded, or none.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import defaultdict
from typing import TYPE_CHECKING, Protocol

from carpool.errors import Conflict, FunctionFault
from faas_stack.provider.logs import LogQuery, last_words
from faas_stack.provider.orchestrator import Reloaded
from faas_stack.provider.scaler_access import model_runners

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from contextlib import AbstractAsyncContextManager

    from faas_stack.provider.deployment import Deployment
    from faas_stack.provider.local.local_function import LocalFunction
    from faas_stack.provider.local.replica_set import ReplicaSet
    from faas_stack.provider.replica import Replica
    from faas_stack.provider.scaler_access import ScalerAccess

    Rebuild = Callable[[str], AbstractAsyncContextManager[None]]
    TakeBack = Callable[[], None]

__all__ = ["Rollout", "until_rolled_out"]


class RolloutTarget(Protocol):
    """The parts of an orchestrator that a rollout needs; all as defined there."""

    scaler: ScalerAccess | None

    def find(self, name: str, namespace: str) -> LocalFunction: ...

    def get(self, name: str, namespace: str) -> LocalFunction | None: ...

    def all(self, namespace: str) -> list[LocalFunction]: ...

    async def replace(self, deployment: Deployment) -> TakeBack: ...

    async def renew(self, name: str, namespace: str) -> TakeBack: ...


class Rollout:
    """Rolls out new revisions through an orchestrator, one at a time per image.

    Attributes:
        rebuild: Context manager that rebuilds the named image for instances started within, and
            restores the previous image on an exception; by default images are not rebuilt.
    """

    def __init__(self, orchestrator: RolloutTarget) -> None:
        self._orchestrator = orchestrator
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.rebuild: Rebuild = lambda _: contextlib.nullcontext()

    async def reload(self, name: str, namespace: str, ready_s: float) -> Reloaded:
        """Replace a function's instances with new ones of the same deployment.

        Raises:
            CarpoolError: As for `roll_out`.
        """
        image = self._orchestrator.find(name, namespace).deployment.image
        async with self._locks[image]:
            again = functools.partial(self._orchestrator.renew, namespace=namespace)
            await self._roll_out(
                image, lambda: self._names(name, namespace), namespace, again, ready_s
            )
        functions = self._runners(name, namespace)  # a scaler may have changed the classes
        return Reloaded(sum(function.replicas for function in functions), finished=True)

    async def roll_out(self, deployment: Deployment, ready_s: float) -> None:
        """Replace a function with another deployment, with its image rebuilt.

        Raises:
            FunctionFault: The new function does not become ready; the old one continues to serve.
            Conflict: The function was updated by another caller in the meantime.
            NotFound: There is no function with that name.
            CarpoolError: The new function cannot run here; the old one stays.
        """
        self._orchestrator.find(deployment.service, deployment.namespace)
        async with self._locks[deployment.image]:
            name, namespace = deployment.service, deployment.namespace
            await self._roll_out(
                deployment.image,
                lambda: [name],
                namespace,
                lambda _: self._orchestrator.replace(deployment),
                ready_s,
            )

    async def _roll_out(
        self,
        image: str,
        names: Callable[[], list[str]],
        namespace: str,
        change: Callable[[str], Awaitable[TakeBack]],
        ready_s: float,
    ) -> None:
        taken_back: list[TakeBack] = []
        try:
            async with self.rebuild(image):  # later instances have the new image
                there = (name for name in names() if self._orchestrator.get(name, namespace))
                overtaken = await self._change_each(there, namespace, change, ready_s, taken_back)
        except BaseException:  # including cancellation
            for take_back in taken_back:  # the previous image has been restored already
                take_back()
            raise
        if overtaken:
            raise overtaken

    async def _change_each(
        self,
        names: Iterable[str],
        namespace: str,
        change: Callable[[str], Awaitable[TakeBack]],
        ready_s: float,
        taken_back: list[TakeBack],
    ) -> Conflict | None:
        """Change functions one after the other; return the conflict if one is updated meanwhile.

        Such an update starts instances of the rebuilt image. So the image stays, and so do the
        functions that have already been changed.
        """
        try:
            for name in names:
                taken_back.append(await change(name))
                replica_set = self._orchestrator.find(name, namespace).replica_set
                await until_rolled_out(name, replica_set, ready_s)
        except Conflict as error:
            return error
        return None

    def _names(self, name: str, namespace: str) -> list[str]:
        """Return the names of the functions that currently run a function's model."""
        return [function.deployment.service for function in self._runners(name, namespace)]

    def _runners(self, name: str, namespace: str) -> list[LocalFunction]:
        """Return the functions that currently run a function's model."""
        deployment = self._orchestrator.find(name, namespace).deployment
        there = {each.deployment.service: each for each in self._orchestrator.all(namespace)}
        others = (function.deployment for function in there.values())
        scaled = self._orchestrator.scaler is not None
        return [there[each.service] for each in model_runners(deployment, others, scaled=scaled)]


async def until_rolled_out(name: str, replica_set: ReplicaSet, ready_s: float) -> None:
    """Wait until the desired revision is ready, and then until all others have ended.

    Raises:
        FunctionFault: A replica of it keeps failing, or they are not ready in time.
        Conflict: Another revision became the desired one.
    """
    revision = replica_set.revision
    try:
        async with asyncio.timeout(ready_s):
            while not _is_ready(replica_set):
                _refuse_hopeless(name, replica_set, revision)
                await replica_set.change()
    except TimeoutError:
        how = f"{name} is not ready after {ready_s:g} s"
        raise FunctionFault(_failure_text(how, replica_set, _new(replica_set))) from None
    while any(replica.revision != revision for replica in replica_set.replicas):
        _refuse_hopeless(name, replica_set, revision)
        await replica_set.change()


def _is_ready(replica_set: ReplicaSet) -> bool:
    ready = sum(replica.ready for replica in _new(replica_set))
    old = [replica for replica in replica_set.replicas if replica.revision != replica_set.revision]
    return ready >= replica_set.wanted and all(replica.draining for replica in old)


def _new(replica_set: ReplicaSet) -> list[Replica]:
    return [each for each in replica_set.replicas if each.revision == replica_set.revision]


def _refuse_hopeless(name: str, replica_set: ReplicaSet, revision: int) -> None:
    if replica_set.revision != revision:
        message = f"function {name!r} was updated while it was reloaded; the update continues"
        raise Conflict(message)
    if failing := [replica for replica in _new(replica_set) if replica.instance.failing]:
        raise FunctionFault(_failure_text(f"{name} keeps failing", replica_set, failing))


def _failure_text(how: str, replica_set: ReplicaSet, replicas: Sequence[Replica]) -> str:
    """Describe a failure, with the reason and log of the first replica that is not ready."""
    unready = next((each.instance for each in replicas if not each.instance.ready), None)
    if unready is None:
        return how
    lines = LogQuery(instance=unready.name).choose(replica_set.log.since(0))
    return last_words(how, unready.reason, lines)
