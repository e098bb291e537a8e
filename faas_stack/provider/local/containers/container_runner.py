"""An instance as a container: created, started, its log followed, removed before the next one.

Theory of operation: the first run continues with the container of an earlier provider, if there is
one and it runs. Every other run gets a new container, of a new name, so that none sees what
another wrote, and one that the engine cannot remove is in nobody's way. The end of the log is the
end of the container. While the engine does not answer, nothing is known of the container, so
nothing is done about it: it may well serve on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import signal
from datetime import datetime
from typing import TYPE_CHECKING, Any

from carpool.errors import CarpoolError, Overloaded
from carpool.own_cgroup import OUT_OF_MEMORY
from carpool.process.lines import LineCutter
from faas_stack.provider.local.containers.spec import PORT
from faas_stack.provider.local.supervised_instance import StartFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from faas_stack.provider.local.containers.engine import Container, Engine
    from faas_stack.provider.logs import LogRing

__all__ = ["ContainerRunner"]

log = logging.getLogger(__name__)

_NOWHERE = "0.0.0.0"  # noqa: S104 - where nobody answers: it had ended before we could ask
_LOOK_AGAIN_S = 0.02  # the log ends a moment before the engine notes the container's end
_ENGINE_AWAY_S = 1.0
_BY_SIGNAL = 128


class ContainerRunner:
    """Runs one container at a time.

    Args:
        name: of the instance; names of its containers begin with it.
        engine: where they run.
        network: where they are called.
        document: makes what the engine is asked for, again for each run.
        log: where to put what they print.
        adopted: the container of an earlier provider; empty if there is none.
    """

    def __init__(
        self,
        name: str,
        engine: Engine,
        network: str,
        document: Callable[[], Mapping[str, Any]],
        log: LogRing,
        adopted: str = "",
    ) -> None:
        self.container = adopted
        self._over = {adopted} - {""}  # containers to remove before the next run
        self._name = name
        self._engine = engine
        self._network = network
        self._document = document
        self._log = log

    @property
    def confined(self) -> str:
        """Nothing: ``docker inspect`` says it."""
        return ""

    async def start(self) -> str:
        """Continue with a container that runs, or start a new one."""
        try:
            container = await self._engine.find(self.container) if self.container else None
            if container is None or not container.running:
                container = await self._start_new()
        except CarpoolError as error:
            message = f"cannot start the container: {error}"
            raise StartFailed(message, counts=not isinstance(error, Overloaded)) from error
        address = container.addresses.get(self._network, "") if container else ""
        return f"{address or _NOWHERE}:{PORT}"

    async def ended(self) -> str:
        """Pass its log on until it ends."""
        output = _ContainerLog(self._name, self._log)
        while True:
            try:
                await self._engine.follow(self.container, output.resume(), output.feed)
                container = await self._engine.find(self.container)
            except CarpoolError as error:
                log.warning("%s: %s", self.container, error)
                await asyncio.sleep(_ENGINE_AWAY_S)
                continue
            if container is None or not container.running:
                output.end()
                return _how(container)
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def terminate(self) -> None:
        """SIGTERM."""
        await self._attempt(self._engine.signal(self.container, "SIGTERM"))

    async def kill(self) -> None:
        """SIGKILL."""
        await self._attempt(self._engine.signal(self.container, "SIGKILL"))

    async def clear(self) -> None:
        """Remove the containers of all runs; one that cannot be removed now is tried next time."""
        for container in list(self._over):
            if await self._attempt(self._engine.remove(container)):
                self._over.discard(container)

    async def _start_new(self) -> Container | None:
        document = self._document()
        await self.clear()
        self.container = f"{self._name}-{secrets.token_hex(2)}"
        self._over.add(self.container)
        await self._engine.create(self.container, document)
        await self._engine.start(self.container)
        return await self._engine.find(self.container)

    async def _attempt(self, call: Any) -> bool:  # noqa: ANN401 - a coroutine
        """Whether it went well; a provider that starts looks for what is left for good."""
        try:
            await call
        except CarpoolError as error:
            log.warning("%s: %s", self.container, error)
            return False
        return True


class _ContainerLog:
    """Turns what a container printed into lines of the log, each with the engine's own time."""

    def __init__(self, name: str, log: LogRing) -> None:
        self._name = name
        self._log = log
        self._cutter = LineCutter()
        self._heard = self._known = ""  # the time of the last piece, now and when listening began
        self._printed: datetime | None = None

    def resume(self) -> float:
        """Listening begins, perhaps once more: from when; 0 if nothing was heard before."""
        self._known = self._heard
        return self._printed.timestamp() if self._printed else 0.0

    def feed(self, piece: bytes) -> None:
        """One piece: a time, a blank, and a line or the part of a long one."""
        stamp, _, text = piece.partition(b" ")
        time = stamp.decode("ascii", "replace")
        if time <= self._known:
            return
        with contextlib.suppress(ValueError):
            self._printed = datetime.fromisoformat(time)
            self._heard = time
        for line in self._cutter.feed(text):
            self._log.add(self._name, line, self._printed)

    def end(self) -> None:
        """What is left is a line, too."""
        for line in self._cutter.end():
            self._log.add(self._name, line, self._printed)


def _how(container: Container | None) -> str:
    if container is None:
        return "its removal by another program"
    if container.out_of_memory:
        return f"SIGKILL, {OUT_OF_MEMORY}"
    code = container.exit_code
    with contextlib.suppress(ValueError):
        return signal.Signals(code - _BY_SIGNAL).name
    return f"status {code}"
