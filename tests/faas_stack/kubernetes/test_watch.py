"""Following a collection, whatever becomes of watches: over HTTP, from a scripted API server."""

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
    """Keeps objects as the API server does, and ends every watch after a few events.

    Attributes:
        objects: version by name.
        lists, watches: how often each was asked for.
        events: of one watch; it ends at the last with status 200, and without an error.
        oldest: a watch that goes on from before is told that it is forgotten.
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
        """An object is made, changed or deleted."""
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
        """Two objects at a time."""
        self.lists += 1
        names = sorted(self.objects)
        metadata: dict[str, str] = {"resourceVersion": str(self.version)}
        if start + self.page < len(names):
            metadata["continue"] = str(start + self.page)
        items = [self.object(name, self.objects[name]) for name in names[start:][: self.page]]
        exchange.reply(200, json.dumps({"metadata": metadata, "items": items}).encode())

    def watch(self, exchange: Exchange, since: int) -> None:
        """What has happened since, as far as one watch tells."""
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
        """One as it is sent."""
        return {"metadata": {"name": name, "resourceVersion": str(version)}}


class Known:
    """What a reader of the watch knows."""

    def __init__(self) -> None:
        self.objects: dict[str, int] = {}

    def listed(self, found: list[tuple[str, int]]) -> None:
        """All there is."""
        self.objects = dict(found)

    def changed(self, found: tuple[str, int]) -> None:
        """One is new or another."""
        self.objects[found[0]] = found[1]

    def gone(self, found: tuple[str, int]) -> None:
        """One is no more."""
        self.objects.pop(found[0], None)


def read(found: dict[str, Any]) -> tuple[str, int]:
    """Name and version."""
    return found["metadata"]["name"], int(found["metadata"]["resourceVersion"])


@asynccontextmanager
async def followed(folder: Path) -> AsyncIterator[tuple[Scripted, Known, Watch[tuple[str, int]]]]:
    """A scripted API server, and one that follows it."""
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


def test_a_watch_may_end_at_any_event(tmp_path: Path) -> None:
    """It is begun again from there: nothing is missed, and nothing is listed again."""

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


def test_a_version_that_was_forgotten(tmp_path: Path) -> None:
    """All is listed again, once; what has gone meanwhile is known to be gone."""

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


def test_an_api_server_that_is_unwell(tmp_path: Path) -> None:
    """What is known stays known, and is brought up to date as soon as it answers again."""

    async def scene(scripted: Scripted, known: Known, watch: Watch[Any]) -> None:
        scripted.unwell = 3
        await wait_until_async(lambda: watch.failed, what="a watch that fails")
        assert "etcdserver: leader changed" in watch.failed
        assert scripted.objects == known.objects
        scripted.change("a")
        await wait_until_async(lambda: scripted.objects == known.objects, what="the change")
        assert ("", 1) == (watch.failed, watch.listings)

    play(tmp_path, scene)


def test_refusals_have_the_api_servers_words() -> None:
    """And statuses that clients of OpenFaaS know."""
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


def test_paths_hold_what_they_are_given() -> None:
    """A name cannot lead elsewhere."""
    assert "/api/v1/namespaces/team/pods/p" == collection("v1/pods", "team", "p")
    assert "/apis/apps/v1/namespaces/n/deployments" == collection("apps/v1/deployments", "n")
    assert "/api/v1/namespaces/..%2Fup/secrets/a%2Fb" == collection("v1/secrets", "../up", "a/b")
