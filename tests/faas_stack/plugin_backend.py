"""A backend as another package would provide it: processes of one command for any image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from faas_stack.provider.local.build_context import BuildContext
from faas_stack.provider.local.process_backend import ProcessBackend
from tests.faas_stack.rig import INSTANCE

if TYPE_CHECKING:
    from pathlib import Path

    from faas_stack.provider.secrets import SecretStore

__all__ = ["Unfinished", "Workers"]


class Workers(ProcessBackend):
    """Runs the stand-in instance for one image."""

    @dataclass(frozen=True)
    class Params:
        """Parameters of the backend."""

        image: str

    def __init__(self, params: Params) -> None:
        self._image = params.image

    async def open(self, secrets: SecretStore, state: Path) -> None:  # type: ignore[override]
        """Make the build context and open the backend."""
        context = state / "context"
        context.mkdir(exist_ok=True)
        images = {self._image: BuildContext(self._image, context, "the command")}
        ProcessBackend.__init__(self, images, secrets, command=INSTANCE, grace_s=3.0)
        await ProcessBackend.open(self)

    async def sweep(self) -> None:
        """Do nothing, as no process outlives the provider."""


class Unfinished:
    """A backend that cannot stop what it starts."""

    def start(self) -> None:
        """Do nothing."""
