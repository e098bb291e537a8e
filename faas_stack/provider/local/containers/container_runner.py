"""An instance as a container: created, started, its log followed, removed before the next run.

Theory of operation: the first run continues with the container of an earlier provider, if there is
one and it runs. Every other run gets a new container with a new name, so that no run sees what
another wrote, and a container that the engine cannot remove does not block the next run. The end of
the log is the end of the container. While the engine does not respond, the state of the container
is unknown and it may still be serving, so it is left alone.
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

    from faas_stack.provider.local.containers.docker_engine import Container, DockerEngine
    from faas_stack.provider.logs import LogRing

__all__ = ["ContainerRunner"]

log = logging.getLogger(__name__)

_NOWHERE = "0.0.0.0"  # noqa: S104 - no server there: it had ended before we could ask
_LOOK_AGAIN_S = 0.02  # the log ends a moment before the engine notes the container's end
_ENGINE_AWAY_S = 1.0
_BY_SIGNAL = 128


class ContainerRunner:
    """Runs one container at a time.

    Args:
        name: Name of the instance, with which the names of its containers begin.
        engine: Docker Engine that runs the containers.
        network: Network on which they are called.
        document: Returns the description of a container for the engine; called for each run.
        log: Log for their output.
        adopted: Container of an earlier provider; empty if there is none.
    """

    def __init__(
        self,
        name: str,
        engine: DockerEngine,
        network: str,
        document: Callable[[], Mapping[str, Any]],
        log: LogRing,
        adopted: str,
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
        """Empty, as ``docker inspect`` shows the limits."""
        return ""

    async def start(self) -> str:
        """Continue with a running container or start a new one, and return its address."""
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
        """Pass on the container's log until it ends, and return how it ended."""
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
        """Send SIGTERM."""
        await self._attempt(self._engine.signal(self.container, "SIGTERM"))

    async def kill(self) -> None:
        """Send SIGKILL."""
        await self._attempt(self._engine.signal(self.container, "SIGKILL"))

    async def clear(self) -> None:
        """Remove the containers of all runs; failed removals are retried next time."""
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
        """Await a call to the engine, and return whether it succeeded.

        Failures are only logged, as the next provider removes the containers that are left.
        """
        try:
            await call
        except CarpoolError as error:
            log.warning("%s: %s", self.container, error)
            return False
        return True


class _ContainerLog:
    """Converts a container's output to log lines, each with the engine's own timestamp."""

    def __init__(self, name: str, log: LogRing) -> None:
        self._name = name
        self._log = log
        self._cutter = LineCutter()
        self._heard = self._known = ""  # the time of the last piece, now and when listening began
        self._printed: datetime | None = None

    def resume(self) -> float:
        """Return the time from which to read on; 0 if nothing was read before."""
        self._known = self._heard
        return self._printed.timestamp() if self._printed else 0.0

    def feed(self, piece: bytes) -> None:
        """Add a piece: a timestamp, a space, and a line or a part of a long one."""
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
        """Add the remaining text as a line."""
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
