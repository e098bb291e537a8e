"""Both edges that clients reach, as real parts: a provider, and behind it a function's sidecar.

The provider runs in the test's process, the sidecar and its handler are processes of their own; the
function answers with what it was asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from carpool import address as addresses
from faas_stack.partition.machine import Capacity
from faas_stack.provider.local.build_context import BuildContext
from faas_stack.provider.local.process_backend import ProcessBackend
from tests.faas_stack.rig import GRACE_S, IMAGE, MachineStage, provider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from faas_stack.provider.secrets import SecretStore
    from tests.faas_stack.rig import Rig

__all__ = ["Edge", "Edges", "SidecarStage", "connect"]

_CONTEXT = Path(__file__).parent  # the handler is in its folder `function`
_HANDLER = f"{sys.executable} -m watchdog_plugin"


class SidecarStage(MachineStage):
    """Instances as they are in a stack: a sidecar that starts a handler."""

    @contextlib.asynccontextmanager
    async def open(
        self, folder: Path, secrets: SecretStore, **options: Any
    ) -> AsyncIterator[ProcessBackend]:
        del folder
        images = {IMAGE: BuildContext(IMAGE, _CONTEXT, _HANDLER)}
        backend = ProcessBackend(
            images, secrets, grace_s=GRACE_S, watchdog=False, capacity=Capacity(), **options
        )
        await backend.open()
        try:
            yield backend
        finally:
            await backend.close()


class Edge(NamedTuple):
    """Where requests come in, and what stands before the function's own paths there."""

    address: str
    prefix: bytes


class Edges:
    """A running provider with one function; edges by name.

    Args:
        folder: for the provider's files.
        env: of the function.
    """

    def __init__(self, folder: Path, **env: str) -> None:
        self._runner = asyncio.Runner()
        self._running = provider(SidecarStage(), folder)
        self._env = env
        self.rig: Rig

    def run(self, scene: Coroutine[Any, Any, Any]) -> Any:
        """Play ``scene`` on the event loop of the provider."""
        return self._runner.run(scene)

    def __getitem__(self, name: str) -> Edge:
        if name == "provider":
            return Edge(self.rig.provider.address, b"/function/fn")
        (sidecar,) = self.rig.instances("fn")
        return Edge(sidecar.address, b"")

    def __enter__(self) -> Self:
        self.run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._running.__aexit__(None, None, None))
        self._runner.close()

    async def _open(self) -> None:
        self.rig = await self._running.__aenter__()
        await self.rig.deploy("fn", envVars=self._env)


async def connect(edge: Edge) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client's side of a new connection."""
    where = addresses.parse(edge.address)
    if where.path:
        return await asyncio.open_unix_connection(where.path)
    return await asyncio.open_connection(where.host, where.port)
