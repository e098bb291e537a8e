"""The Docker Engine from asyncio: the SDK's blocking calls in threads, its errors as ours.

The only file that imports the SDK. It handles containers, images and networks by name, and has no
notion of functions. The SDK chooses the engine, by ``DOCKER_HOST`` and related variables.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import requests
from docker.client import from_env
from docker.errors import APIError, DockerException
from docker.transport import unixconn
from docker.utils import parse_repository_tag
from urllib3.exceptions import HTTPError

from carpool.errors import CarpoolError, Overloaded
from faas_stack.provider.storage import NoSpace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from docker.api import APIClient
    from docker.types import CancellableStream

__all__ = ["Container", "DockerEngine", "EngineError", "refusal"]

_THREADS = 2048  # one reads each container's log, and is mostly idle
_FRAMES_AHEAD = 64  # output that may be queued for the event loop
_TAIL_LINES = 10_000  # of output before we attached
_TIMEOUT_S = 60
_PULL_TIMEOUT_S = 600
_MISSING = 404
_CONFLICT = 409
_SERVER_ERROR = 500
_SOCKET = "unix:///var/run/docker.sock"
_FULL = "no space left on device"
_STREAM_ENDS = (OSError, HTTPError, requests.RequestException)


class EngineError(CarpoolError):
    """Raised when the engine refuses a request; the message is the engine's own.

    Attributes:
        code: HTTP status.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Container(NamedTuple):
    """A container as the engine shows it."""

    name: str
    running: bool
    exit_code: int
    out_of_memory: bool
    addresses: Mapping[str, str]
    labels: Mapping[str, str]
    mounts: Mapping[str, str]


class _Connection(unixconn.UnixHTTPConnection):  # type: ignore[misc]
    """SDK connection that closes its socket on failure; the SDK's own leaves it open."""

    def connect(self) -> None:
        """Connect; close the socket if that fails."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(self.timeout)
            sock.connect(self.unix_socket)
        except OSError:
            sock.close()
            raise
        self.sock = sock


unixconn.UnixHTTPConnection = _Connection  # its adapter does not accept another class


class DockerEngine:
    """A Docker Engine; call `close` when done."""

    def __init__(self, client: APIClient) -> None:
        self._client = client
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="docker")

    @classmethod
    async def connect(cls) -> Self:
        """Connect to the engine that the environment names.

        Raises:
            Overloaded: It does not respond.
        """
        try:
            client = await asyncio.to_thread(_client)
        except DockerException as error:
            hint = _not_ours() or "start it, or set DOCKER_HOST"
            message = f"no Docker Engine answers: {error}; {hint}"
            raise Overloaded(message) from error
        return cls(client)

    def close(self) -> None:
        """Release the threads, which end with the streams that they read."""
        self._threads.shutdown(wait=False)
        self._client.close()

    # -- containers -------------------------------------------------------------------------

    async def create(self, name: str, document: Mapping[str, Any]) -> None:
        """Create a container from an Engine API document."""
        await self._call(self._client.create_container_from_config, document, name)

    async def start(self, name: str) -> None:
        """Start a container."""
        await self._call(self._client.start, name)

    async def signal(self, name: str, signal: str) -> None:
        """Send a signal to the container's first process, if it runs."""
        await self._call(self._client.kill, name, signal, unless=(_MISSING, _CONFLICT))

    async def remove(self, name: str) -> None:
        """Remove a container, running or not; do nothing if it does not exist."""

        def remove() -> None:
            self._client.remove_container(name, v=True, force=True)

        await self._call(remove, unless=(_MISSING, _CONFLICT))  # 409: it is being removed already

    async def find(self, name: str) -> Container | None:
        """Return the container with the given name; None if there is none."""
        shown = await self._call(self._client.inspect_container, name, unless=(_MISSING,))
        return _container(shown) if shown else None

    async def labelled(self, label: str, value: str) -> list[Container]:
        """Return all containers, running or not, with the given label."""
        filters = {"label": f"{label}={value}"}
        listed = await self._call(lambda: self._client.containers(all=True, filters=filters))
        containers = [await self.find(entry["Id"]) for entry in listed]
        return [container for container in containers if container]

    async def follow(self, name: str, since: float, frame: Callable[[bytes], None]) -> None:
        """Pass on a container's output until it ends, in pieces that begin with a timestamp."""
        loop = asyncio.get_running_loop()
        options: dict[str, Any] = {
            "stream": True,
            "follow": True,
            "timestamps": True,
            "tail": _TAIL_LINES,
        }
        options["since"] = since or None
        stream = await self._call(lambda: self._client.logs(name, **options), unless=(_MISSING,))
        if stream is None:
            return
        ahead = threading.Semaphore(_FRAMES_AHEAD)
        over = threading.Event()

        def deliver(data: bytes) -> None:
            ahead.release()
            if not over.is_set():
                frame(data)

        def read() -> None:
            # The event loop or the stream may have ended.
            with contextlib.suppress(RuntimeError, *_STREAM_ENDS):
                for data in stream:  # read to the end even when closed: only then its socket closes
                    if not over.is_set():
                        ahead.acquire()
                        loop.call_soon_threadsafe(deliver, data)

        reading = loop.run_in_executor(self._threads, read)
        try:
            await asyncio.shield(reading)
        finally:
            over.set()
            ahead.release()
            _shut(stream)
            await reading

    # -- images and networks ----------------------------------------------------------------

    async def fetch(self, image: str) -> None:
        """Pull an image from its registry unless the engine has it.

        Raises:
            NoSpace: The engine's disk is full.
            EngineError: The image cannot be pulled.
        """
        if await self._call(self._client.inspect_image, image, unless=(_MISSING,)):
            return
        over = threading.Event()
        try:
            async with asyncio.timeout(_PULL_TIMEOUT_S):
                await self._call(self._pull, image, over)
        except TimeoutError:
            message = f"it was not pulled within {_PULL_TIMEOUT_S:g} s"
            raise EngineError(message, _SERVER_ERROR) from None
        finally:
            over.set()

    def _pull(self, image: str, over: threading.Event) -> None:
        """Pull an image; stop at the next report of progress once ``over`` is set.

        Raises:
            NoSpace: The engine's disk is full.
            EngineError: The pull failed after it had begun.
        """
        repository, tag = parse_repository_tag(image)
        for progress in self._client.pull(repository, tag or "latest", stream=True, decode=True):
            if failure := progress.get("error"):  # sent with status 200
                raise _refused(failure, _SERVER_ERROR)
            if over.is_set():
                return

    async def ensure_network(self, name: str, labels: Mapping[str, str]) -> None:
        """Create a private network unless one with that name exists."""
        if await self._call(self._client.inspect_network, name, unless=(_MISSING,)):
            return
        create = self._client.create_network
        await self._call(lambda: create(name, driver="bridge", labels=labels))

    async def remove_network(self, name: str) -> None:
        """Remove a network if it exists and no container uses it."""
        await self._call(self._client.remove_network, name, unless=(_MISSING, 403))

    async def confine(self, name: str, cores: str) -> None:
        """Move a container to other cores, such as ``0-1``, if it exists."""
        update = self._client.update_container
        gone = (_MISSING, _CONFLICT)
        await self._call(lambda: update(name, cpuset_cpus=cores), unless=gone)

    async def size(self) -> tuple[int, int]:
        """Return the number of cores and the bytes of memory of the engine's machine."""
        shown = await self._call(self._client.info)
        return int(shown["NCPU"]), int(shown["MemTotal"])

    async def _call(self, call: Any, *args: Any, unless: tuple[int, ...] = ()) -> Any:  # noqa: ANN401
        """Call the SDK in a thread; return None if the response has a status in ``unless``."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, call, *args)
        except APIError as error:
            if error.status_code in unless:
                return None
            raise refusal(error) from error
        except (OSError, HTTPError, requests.RequestException) as error:
            message = f"the Docker Engine does not answer: {error}"
            raise Overloaded(message, 1.0) from error


def _shut(stream: CancellableStream) -> None:
    """Close a stream, so that the thread that reads it ends."""
    with contextlib.suppress(OSError, AttributeError):  # it has just ended by itself
        stream.close()


def _client() -> APIClient:
    """Return a client configured like the ``docker`` command, with a version both sides speak."""
    return from_env(version="auto", timeout=_TIMEOUT_S).api


def _not_ours() -> str:
    """Return advice if the engine's socket exists but this process may not open it; else empty."""
    path = Path(os.environ.get("DOCKER_HOST", _SOCKET).removeprefix("unix://"))
    if not path.is_socket() or os.access(path, os.R_OK | os.W_OK):
        return ""
    group = path.stat().st_gid
    return (
        f"{path} is open to group {group}, and this process (user {os.geteuid()}) is not in it: "
        f"set DOCKER_GID={group} for the compose stack, elsewhere add the user to that group"
    )


def refusal(error: APIError) -> CarpoolError:
    """Return the error for the engine's refusal: a full disk, or its own message and status."""
    return _refused(str(error.explanation or error), error.status_code or _SERVER_ERROR)


def _refused(text: str, code: int) -> CarpoolError:
    if _FULL in text:
        return NoSpace(f"the Docker Engine has no disk space left: {text}")
    return EngineError(text, code)


def _container(shown: Mapping[str, Any]) -> Container:
    state, networks = shown["State"], shown["NetworkSettings"]["Networks"] or {}
    return Container(
        name=shown["Name"].removeprefix("/"),
        running=state["Running"],
        exit_code=state["ExitCode"],
        out_of_memory=state["OOMKilled"],
        addresses={name: network["IPAddress"] for name, network in networks.items()},
        labels=shown["Config"]["Labels"] or {},
        mounts={mount["Destination"]: mount.get("Source", "") for mount in shown["Mounts"]},
    )
