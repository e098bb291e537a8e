"""Tests of following a collection across failing watches, over HTTP with a scripted API server."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import uvloop

from carpool.errors import BadRequest, BodyTooLarge, Conflict, NotFound, Overloaded
from carpool.http.server import Limits, serve
from faas_stack.provider.kubernetes.api_errors import Expired, Forbidden, refusal
from faas_stack.provider.kubernetes.api_server import ApiServer, collection
from faas_stack.provider.kubernetes.watch import Watch
from tests.waiting import wait_until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from carpool.http.server import Exchange

PATH = collection("v1/pods", "team")
CONFIG = """
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "http://{address}"}}}}]
users: [{{name: u, user: {{token: secret}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
current-context: c
"""


class Scripted:
    """Stores objects as the API server does, and ends every watch after a few events.

    Attributes:
        objects: version by name.
        lists, watches: number of requests for each.
        events: number of events after which a watch ends, with status 200 and without an error.
        oldest: watches that resume from an earlier version get an error that it has expired.
    """

    def __init__(self) -> None:
        self.objects: dict[str, int] = {}
        self.history: list[tuple[str, str, int]] = []
        self.version = 1
        self.events = 1
        self.oldest = 0
        self.page = 2
        self.lists = self.watches = 0
        self.unwell = 0

    def change(self, name: str, *, gone: bool = False) -> None:
        """Create, change or delete an object."""
        self.version += 1
        kind = "DELETED" if gone else "MODIFIED" if name in self.objects else "ADDED"
        self.history.append((kind, name, self.version))
        if gone:
            del self.objects[name]
        else:
            self.objects[name] = self.version

    def __call__(self, exchange: Exchange) -> None:
        query = dict(parse_qsl(exchange.query))
        assert ("/api/v1/namespaces/team/pods", b"Bearer secret") == (
            exchange.path,
            exchange.header(b"authorization"),
        )
        if self.unwell:
            self.unwell -= 1
            exchange.reply(500, b'{"message": "etcdserver: leader changed"}')
        elif query.get("watch"):
            self.watch(exchange, int(query["resourceVersion"]))
        else:
            self.list(exchange, int(query.get("continue", "0")))

    def list(self, exchange: Exchange, start: int) -> None:
        """Respond with a page of two objects."""
        self.lists += 1
        names = sorted(self.objects)
        metadata: dict[str, str] = {"resourceVersion": str(self.version)}
        if start + self.page < len(names):
            metadata["continue"] = str(start + self.page)
        items = [self.object(name, self.objects[name]) for name in names[start:][: self.page]]
        exchange.reply(200, json.dumps({"metadata": metadata, "items": items}).encode())

    def watch(self, exchange: Exchange, since: int) -> None:
        """Send the next events since a version, as many as one watch may have."""
        self.watches += 1
        exchange.start(200, [("content-type", "application/json")])
        if since < self.oldest:
            status = {"code": 410, "reason": "Expired", "message": "too old resource version"}
            exchange.write(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
        else:
            later = [each for each in self.history if each[2] > since]
            for kind, name, version in later[: self.events]:
                event = {"type": kind, "object": self.object(name, version)}
                exchange.write(json.dumps(event).encode() + b"\n")
        exchange.end()

    def object(self, name: str, version: int) -> dict[str, Any]:
        """Return an object as it is sent."""
        return {"metadata": {"name": name, "resourceVersion": str(version)}}


class Known:
    """Objects known to a reader of the watch."""

    def __init__(self) -> None:
        self.objects: dict[str, int] = {}

    def listed(self, found: list[tuple[str, int]]) -> None:
        """Replace all objects."""
        self.objects = dict(found)

    def changed(self, found: tuple[str, int]) -> None:
        """Add or replace an object."""
        self.objects[found[0]] = found[1]

    def gone(self, found: tuple[str, int]) -> None:
        """Remove an object."""
        self.objects.pop(found[0], None)


def read(found: dict[str, Any]) -> tuple[str, int]:
    """Return the name and version of an object."""
    return found["metadata"]["name"], int(found["metadata"]["resourceVersion"])


@asynccontextmanager
async def followed(folder: Path) -> AsyncIterator[tuple[Scripted, Known, Watch[tuple[str, int]]]]:
    """Open a scripted API server and a watch that follows it."""
    scripted, known = Scripted(), Known()
    server = await serve(scripted, listen="127.0.0.1:0", limits=Limits())
    config = folder / "config"
    config.write_text(CONFIG.format(address=server.address))
    api = ApiServer.connect(config)
    for name in "abcde":
        scripted.change(name)
    watch = Watch(api, PATH, "", read)
    known.listed(await watch.first())
    task = asyncio.ensure_future(watch.follow(known.listed, known.changed, known.gone))
    try:
        yield scripted, known, watch
        assert not task.done()
    finally:
        task.cancel()
        await api.close()
        server.close()
        await server.stop()


def play(folder: Path, scene: Callable[..., Awaitable[None]]) -> None:
    """Run a scene with `followed`."""

    async def run() -> None:
        async with followed(folder) as parts:
            await scene(*parts)

    uvloop.run(run())


def test_watch_resumes_at_last_event(tmp_path: Path) -> None:
    """A watch that ends resumes at its last event, without missing one or listing again."""

    async def scene(scripted: Scripted, known: Known, watch: Watch[Any]) -> None:
        assert scripted.objects == known.objects
        for round_ in range(10):
            scripted.events = 1 + round_ % 3
            for name in ("a", "b", "f"):
                scripted.change(name)
            scripted.change("f", gone=True)
        await wait_until_async(lambda: scripted.objects == known.objects, what="the last change")
        assert (1, 3) == (watch.listings, scripted.lists)  # five objects, two of a page
        assert scripted.watches >= 20

    play(tmp_path, scene)


def test_expired_version_causes_new_list(tmp_path: Path) -> None:
    """After an expired version, objects are listed again once, so that deletions are noticed."""

    async def scene(scripted: Scripted, known: Known, watch: Watch[Any]) -> None:
        scripted.change("a", gone=True)
        scripted.change("z")
        scripted.oldest = scripted.version
        scripted.history.clear()
        await wait_until_async(lambda: scripted.objects == known.objects, what="the new list")
        scripted.change("y")
        await wait_until_async(lambda: scripted.objects == known.objects, what="a change after it")
        assert 2 == watch.listings

    play(tmp_path, scene)


def test_objects_stay_known_while_api_server_fails(tmp_path: Path) -> None:
    """Objects stay known while the API server fails, and are updated when it responds again."""

    async def scene(scripted: Scripted, known: Known, watch: Watch[Any]) -> None:
        scripted.unwell = 3
        await wait_until_async(lambda: watch.failed, what="a watch that fails")
        assert "etcdserver: leader changed" in watch.failed
        assert scripted.objects == known.objects
        scripted.change("a")
        await wait_until_async(lambda: scripted.objects == known.objects, what="the change")
        assert ("", 1) == (watch.failed, watch.listings)

    play(tmp_path, scene)


def test_refusals_have_api_server_message() -> None:
    """Refusals have the API server's message and statuses that OpenFaaS clients know."""
    body = json.dumps({"message": 'pods "fn" is forbidden: exceeded quota'}).encode()
    kinds = {
        400: BadRequest,
        401: Overloaded,
        403: Forbidden,
        404: NotFound,
        409: Conflict,
        410: Expired,
        413: BodyTooLarge,
        422: BadRequest,
        429: Overloaded,
        500: Overloaded,
        503: Overloaded,
    }
    for status, kind in kinds.items():
        error = refusal(status, body)
        assert kind is type(error), status
        assert "exceeded quota" in str(error)
    assert "no route" in str(refusal(404, b"no route"))
    assert "status 404" in str(refusal(404, b""))
    assert [403, 400, 503] == [refusal(each, body).status for each in (403, 422, 500)]


def test_names_are_escaped_in_paths() -> None:
    """Names are escaped in paths, so that they cannot lead elsewhere."""
    assert "/api/v1/namespaces/team/pods/p" == collection("v1/pods", "team", "p")
    assert "/apis/apps/v1/namespaces/n/deployments" == collection("apps/v1/deployments", "n")
    assert "/api/v1/namespaces/..%2Fup/secrets/a%2Fb" == collection("v1/secrets", "../up", "a/b")
