"""A provider that manages a cluster, called over HTTP."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import uvloop

from faas_stack.provider.app import Provider, ProviderOptions
from faas_stack.provider.kubernetes.api_server import ApiServer
from faas_stack.provider.kubernetes.options import KubernetesOptions
from faas_stack.provider.kubernetes.orchestrator import KubernetesOrchestrator
from tests.faas_stack.rig import Rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

__all__ = ["play", "provider"]


@asynccontextmanager
async def provider(kubeconfig: Path, **options: Any) -> AsyncIterator[Rig]:
    """Run a provider that listens, and drain it at the end; its functions stay."""
    api = ApiServer.connect(kubeconfig)
    orchestrator = KubernetesOrchestrator(api, KubernetesOptions(**options))
    made = Provider(orchestrator, ProviderOptions(listen="127.0.0.1:0"))
    await made.listen()
    rig = Rig(made, orchestrator, orchestrator, kubeconfig.parent)
    try:
        yield rig
    finally:
        rig.client.close()
        await made.drain()


def play(kubeconfig: Path, scene: Callable[[Rig], Awaitable[None]], **options: Any) -> None:
    """Run a scene with `provider`."""

    async def run() -> None:
        async with provider(kubeconfig, **options) as rig:
            await scene(rig)

    uvloop.run(run())
