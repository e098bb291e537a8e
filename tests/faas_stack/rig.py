"""A provider over real processes for tests: started, called over HTTP, and taken down again."""

from __future__ import annotations

import json
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from carpool.http.client import Pool, Response
from faas_stack.assemble import BuildContext
from faas_stack.provider.app import Options, Provider
from faas_stack.provider.process import ProcessBackend
from faas_stack.provider.secrets import SecretStore
from tests.waiting import wait_until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from faas_stack.provider.fleet import Function
    from faas_stack.provider.supervised import Supervised

__all__ = ["Rig", "provider", "story"]

INSTANCE = (sys.executable, str(Path(__file__).parents[1] / "services" / "instance.py"))


class Rig:
    """What a test holds of a running provider."""

    def __init__(self, provider: Provider, backend: ProcessBackend, folder: Path) -> None:
        self.provider = provider
        self.backend = backend
        self.folder = folder
        self.client = Pool(provider.address)

    async def call(
        self,
        method: str,
        path: str,
        document: object = None,
        headers: list[tuple[str, str]] | None = None,
    ) -> Response:
        """One request; ``document`` is sent as JSON unless it is bytes."""
        body = document if isinstance(document, bytes) else b""
        if document is not None and not isinstance(document, bytes):
            body = json.dumps(document).encode()
        return await self.client.request(method, path, headers or (), body, 20)

    async def deploy(self, name: str, *, ready: bool = True, **fields: Any) -> None:
        """Deploy a function of the image ``img`` and, by default, wait until it is ready."""
        document = {"service": name, "image": "img", **fields}
        answer = await self.call("POST", "/system/functions", document)
        assert (202, b"") == (answer.status, answer.body)
        if ready:
            await self.ready(name)

    async def ready(self, name: str, replicas: int = 1) -> None:
        """Wait until ``replicas`` of a function are ready."""
        running = self.function(name).running
        await wait_until_async(lambda: running.available == replicas, what=f"{name} ready")

    def function(self, name: str) -> Function:
        """The function as the fleet holds it."""
        return self.provider.fleet.find(name)

    def instances(self, name: str) -> list[Supervised]:
        """The instances of a function that are not on their way out."""
        replicas = self.function(name).running.replicas
        return [r.instance for r in replicas if not r.draining]  # type: ignore[misc]

    async def logs(self, name: str, query: str = "") -> list[str]:
        """The lines a function has printed."""
        answer = await self.call("GET", f"/system/logs?name={name}{query}")
        assert 200 == answer.status
        return [json.loads(line)["text"] for line in answer.body.splitlines()]


@asynccontextmanager
async def provider(folder: Path, **options: Any) -> AsyncIterator[Rig]:
    """A provider that knows the image ``img``, whose instances are `tests/services/instance.py`."""
    backend_options = {key: options.pop(key) for key in ("watchdog",) if key in options}
    context = folder / "context"
    context.mkdir()
    images = {
        "img": BuildContext("img", context, "the command"),
        "bare": BuildContext("bare", context, ""),
    }
    secrets = SecretStore(folder / "secrets")
    backend = ProcessBackend(images, secrets, command=INSTANCE, grace_s=3.0, **backend_options)
    made = Provider(backend, secrets, Options(listen="127.0.0.1:0", **options))
    await backend.open()
    try:
        await made.listen()
        rig = Rig(made, backend, folder)
        yield rig
        rig.client.close()
        await made.drain()
    finally:
        await backend.close()


def story(
    **options: Any,
) -> Callable[[Callable[[Rig], Awaitable[None]]], Callable[[Path], None]]:
    """Turns ``async def test(rig)`` into a test that runs it against a fresh provider."""

    def decorate(test: Callable[[Rig], Awaitable[None]]) -> Callable[[Path], None]:
        def run(tmp_path: Path) -> None:
            async def play() -> None:
                async with provider(tmp_path, **options) as rig:
                    await test(rig)

            uvloop.run(play())

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorate
