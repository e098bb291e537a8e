"""The stage for the provider's stories with containers."""

from __future__ import annotations

import secrets as randomness
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from faas_stack.provider.local.containers.docker_backend import DockerBackend, DockerOptions
from tests.faas_stack.rig import GRACE_S, MachineStage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from faas_stack.provider.secrets import SecretStore

__all__ = ["DockerStage"]


class DockerStage(MachineStage):
    """Instances as containers; each story has its own stack.

    Args:
        keep: Whether containers are kept when a story ends.
    """

    def __init__(self, *, keep: bool = False) -> None:
        self._keep = keep

    @asynccontextmanager
    async def open(
        self, folder: Path, secrets: SecretStore, **options: Any
    ) -> AsyncIterator[DockerBackend]:
        stack = options.pop("stack", f"carpool-test-{randomness.token_hex(4)}")
        chosen = DockerOptions(
            state=folder / "state", stack=stack, network=stack, grace_s=GRACE_S, **options
        )
        backend = DockerBackend(secrets, chosen)
        await backend.open()
        try:
            yield backend
        finally:
            await backend.close()
            if not self._keep:
                await _clear(DockerBackend(secrets, chosen))


async def _clear(backend: DockerBackend) -> None:
    await backend.open()
    await backend.clear()
    await backend.close()
