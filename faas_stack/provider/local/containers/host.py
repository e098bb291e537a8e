"""Path of a provider's folder on the engine's machine, if the provider runs in a container."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.errors import ConfigError, Problem

if TYPE_CHECKING:
    from faas_stack.provider.local.containers.docker_engine import DockerEngine

__all__ = ["on_host"]

_MARK = "/.dockerenv"  # the engine puts it into every container


async def on_host(folder: Path, engine: DockerEngine) -> Path:
    """Return the path of the absolute ``folder`` on the engine's machine.

    Raises:
        ConfigError: The folder exists only in the provider's container, out of the engine's reach.
    """
    in_container = os.path.exists(_MARK)  # noqa: ASYNC240, PTH110 - waits for no disk
    own = await engine.find(socket.gethostname()) if in_container else None
    if own is None:
        return folder
    for target, source in sorted(own.mounts.items(), key=lambda mount: -len(mount[0])):
        if folder.is_relative_to(target):
            return Path(source) / folder.relative_to(target)
    expected = "a folder in a volume or a mounted folder"
    raise ConfigError([Problem("--state", str(folder), expected, "mount one there")])
