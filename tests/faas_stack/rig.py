"""A provider with real instances for tests: started, called over HTTP, and stopped again.

The same tests run for every backend: `story` turns each into a test with the backend as its
parameter (`conftest.py`). The differences between backends are in the `Stage` of each.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import uvloop

from carpool.http.client import Pool, Response
from faas_stack.provider.app import Provider, ProviderOptions
from faas_stack.provider.local.build_context import BuildContext
from faas_stack.provider.local.orchestrator import LocalOrchestrator
from faas_stack.provider.local.process_backend import ProcessBackend
from faas_stack.provider.logs import LogQuery
from faas_stack.provider.secrets import SecretStore
from tests.waiting import HANG_S, wait_until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

__all__ = ["IMAGE", "INSTANCE", "MachineStage", "ProcessStage", "Rig", "Stage", "story"]

IMAGE = "carpool-test-instance"
INSTANCE = (sys.executable, str(Path(__file__).parents[1] / "services" / "instance.py"))
GRACE_S = 3.0


class Stage(Protocol):
    """Place for tests: a backend that knows `IMAGE` and runs `INSTANCE` as its instances."""

    def open(
        self, folder: Path, secrets: SecretStore, **options: Any
    ) -> AbstractAsyncContextManager[Any]:
        """Open the backend; close and clean it up afterwards."""
        ...

    def orchestrator(self, backend: Any, secrets: SecretStore, **options: Any) -> Any:
        """Return an orchestrator for the open backend."""
        ...


class MachineStage:
    """Base of the stages that run instances on this machine."""

    def orchestrator(self, backend: Any, secrets: SecretStore, **options: Any) -> LocalOrchestrator:
        """Return a local orchestrator for a backend."""
        return LocalOrchestrator(backend, secrets, **options)


class ProcessStage(MachineStage):
    """Stage that runs instances as processes.

    Args:
        alone: The instances accept no bundled calls.
    """

    def __init__(self, *, alone: bool = False) -> None:
        self._command = (*INSTANCE, "alone") if alone else INSTANCE

    @asynccontextmanager
    async def open(
        self, folder: Path, secrets: SecretStore, **options: Any
    ) -> AsyncIterator[ProcessBackend]:
        context = folder / "context"
        context.mkdir()
        images = {
            IMAGE: BuildContext(IMAGE, context, "the command"),
            "bare": BuildContext("bare", context, ""),
        }
        backend = ProcessBackend(images, secrets, command=self._command, grace_s=GRACE_S, **options)
        await backend.open()
        try:
            yield backend
        finally:
            await backend.close()


class Rig:
    """A running provider and a client for it."""

    def __init__(self, provider: Provider, orchestrator: Any, backend: Any, folder: Path) -> None:
        self.provider = provider
        self.orchestrator = orchestrator
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
        """Send a request with ``document`` as JSON, or as it is if it is bytes."""
        body, sent = document if isinstance(document, bytes) else b"", [*(headers or ())]
        if document is not None and not isinstance(document, bytes):
            body = json.dumps(document).encode()
            sent.append(("content-type", "application/json"))
        return await self.client.request(method, path, sent, body, HANG_S)

    async def deploy(
        self,
        name: str,
        *,
        ready: bool = True,
        headers: list[tuple[str, str]] | None = None,
        **fields: Any,
    ) -> None:
        """Deploy a function of the image `IMAGE` and, by default, wait until it is ready."""
        document = {"service": name, "image": IMAGE, **fields}
        answer = await self.call("POST", "/system/functions", document, headers)
        assert (202, b"") == (answer.status, answer.body)
        if ready:
            await self.ready(name)

    async def ready(self, name: str, replicas: int = 1) -> None:
        """Wait until ``replicas`` of a function are ready."""
        function = self.function(name)
        await wait_until_async(lambda: function.available == replicas, what=f"{name} ready")

    def function(self, name: str) -> Any:
        """Return the provider's function."""
        return self.orchestrator.find(name, self.orchestrator.default_namespace)

    def instances(self, name: str) -> list[Any]:
        """Return the instances of a function that are not draining."""
        return [r.instance for r in self.function(name).running if not r.draining]

    async def printed(self, name: str, text: str, times: int = 1) -> None:
        """Wait until a function's log has a line this many times."""
        await self._until(name, lambda lines: lines.count(text) >= times)

    async def told(self, name: str, part: str) -> str:
        """Wait for a line with ``part`` in a function's log, and return the first one."""
        lines = await self._until(name, lambda lines: any(part in line for line in lines))
        return next(line for line in lines if part in line)

    async def _until(self, name: str, enough: Callable[[list[str]], bool]) -> list[str]:
        """Follow a function's log until it has enough lines, and return them."""
        printed: list[str] = []
        batches = self.orchestrator.lines(self.function(name), LogQuery(follow=True))
        async with asyncio.timeout(HANG_S), aclosing(batches):
            async for lines in batches:
                printed += [line.text for line in lines]
                if enough(printed):
                    return printed
        raise AssertionError(printed)

    async def logs(self, name: str, query: str = "") -> list[str]:
        """Return the lines that a function has printed."""
        answer = await self.call("GET", f"/system/logs?name={name}{query}")
        assert 200 == answer.status
        return [json.loads(line)["text"] for line in answer.body.splitlines()]


@asynccontextmanager
async def provider(stage: Stage, folder: Path, **options: Any) -> AsyncIterator[Rig]:
    """Run a provider on a stage, with options of the backend, the orchestrator and the provider."""
    of_provider = _taken(options, ProviderOptions)
    of_orchestrator = _taken(options, LocalOrchestrator)
    of_orchestrator["grace_s"] = of_provider.get("grace_s", ProviderOptions().grace_s)
    secrets = SecretStore(folder / "secrets")
    async with stage.open(folder, secrets, **options) as backend:
        orchestrator = stage.orchestrator(backend, secrets, **of_orchestrator)
        made = Provider(orchestrator, ProviderOptions(listen="127.0.0.1:0", **of_provider))
        await made.listen()
        rig = Rig(made, orchestrator, backend, folder)
        yield rig
        rig.client.close()
        await made.drain()


def _taken(options: dict[str, Any], by: Callable[..., object]) -> dict[str, Any]:
    """Remove the options that ``by`` accepts from ``options`` and return them."""
    known = inspect.signature(by).parameters
    return {key: options.pop(key) for key in list(options) if key in known}


def story(
    stage: Stage | None = None, **options: Any
) -> Callable[[Callable[[Rig], Awaitable[None]]], Callable[..., None]]:
    """Turn ``async def test(rig)`` into a test on ``stage``, or on each stage if it is None."""

    def decorate(test: Callable[[Rig], Awaitable[None]]) -> Callable[..., None]:
        def play(chosen: Stage, folder: Path) -> None:
            async def scene() -> None:
                async with provider(chosen, folder, **options) as rig:
                    await test(rig)

            uvloop.run(scene())

        def on_each(backend_stage: Stage, tmp_path: Path) -> None:
            play(backend_stage, tmp_path)

        def on_one(tmp_path: Path) -> None:
            assert stage is not None
            play(stage, tmp_path)

        run = on_one if stage else on_each
        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorate
