"""An API server with what a provider uses: objects in memory, versions, watches and logs."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from carpool.http.server import Limits, serve
from faas_stack.provider.kubernetes.api_server import ApiServer
from faas_stack.provider.kubernetes.options import KubernetesOptions
from faas_stack.provider.kubernetes.orchestrator import KubernetesOrchestrator

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from carpool.http.server import Exchange

    Answer = Callable[[Exchange], bool]

CONFIG = """
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "http://{address}"}}}}]
users: [{{name: u, user: {{{user}}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
current-context: c
"""
TOKEN = "token: secret"
NAMESPACE = "/api/v1/namespaces/openfaas-fn"
DEPLOYMENTS = "/apis/apps/v1/namespaces/openfaas-fn/deployments"
_COLLECTIONS = ("daemonsets", "deployments", "pods", "namespaces", "secrets")


class ScriptedCluster:
    """Stores objects by path and sends each watch the events that follow its start.

    Attributes:
        objects: stored objects by path.
        asked: method, path and query of each request, in order.
        first: handlers that answer requests of a method and path instead, once each; a handler that
            returns False leaves the request to the cluster.
        watchers: open watches, by collection.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.first: dict[tuple[str, str], list[Answer]] = {}
        self.watchers: dict[str, list[Exchange]] = {}
        self._versions = iter(range(1, 1_000_000))

    def put(self, path: str, document: dict[str, Any]) -> dict[str, Any]:
        """Store an object and notify watchers."""
        kind = "MODIFIED" if path in self.objects else "ADDED"
        version = next(self._versions)
        metadata = {
            "uid": f"u{version}",
            "creationTimestamp": "2026-01-02T03:04:05Z",
            **document["metadata"],
            "resourceVersion": str(version),
        }
        self.objects[path] = {**document, "metadata": metadata}
        self.tell(path.rpartition("/")[0], kind, self.objects[path])
        return self.objects[path]

    def tell(self, collection: str, kind: str, stored: dict[str, Any]) -> None:
        """Send an event to the watchers of a collection."""
        for watcher in self.watchers.get(collection, ()):
            watcher.write(json.dumps({"type": kind, "object": stored}).encode() + b"\n")

    def end_watches(self) -> None:
        """End all watches, as the API server may do at any time."""
        for watcher in chain(*self.watchers.values()):
            watcher.end()
        self.watchers.clear()

    def requests(self, method: str, path: str) -> int:
        """Return the number of requests with this method and path."""
        return sum((method, path) == each[:2] for each in self.asked)

    def __call__(self, exchange: Exchange) -> None:
        path, query = exchange.path, dict(parse_qsl(exchange.query))
        self.asked.append((exchange.method, path, query))
        instead = self.first.get((exchange.method, path))
        if instead and instead.pop(0)(exchange):
            return
        getattr(self, f"_{exchange.method.lower()}")(exchange, path, query)

    def _get(self, exchange: Exchange, path: str, query: dict[str, str]) -> None:
        if query.get("watch"):
            exchange.start(200, [("content-type", "application/json")])
            self.watchers.setdefault(path, []).append(exchange)
        elif path in self.objects:
            answer(exchange, self.objects[path])
        elif path.rpartition("/")[2] in _COLLECTIONS:
            items = [
                each
                for at, each in self.objects.items()
                if path == at.rpartition("/")[0] and chosen(each, query)
            ]
            metadata = {"resourceVersion": str(next(self._versions))}
            answer(exchange, {"metadata": metadata, "items": items})
        else:
            refuse(exchange, 404, "NotFound")

    def _post(self, exchange: Exchange, path: str, _query: dict[str, str]) -> None:
        document = json.loads(exchange.body)
        at = f"{path}/{document['metadata']['name']}"
        if at in self.objects:
            refuse(exchange, 409, "AlreadyExists")
        else:
            answer(exchange, self.put(at, document))

    def _put(self, exchange: Exchange, path: str, _query: dict[str, str]) -> None:
        document = json.loads(exchange.body)
        if self._overtaken(path, document):
            refuse(exchange, 409, "Conflict")
        else:
            uid = self.objects[path]["metadata"]["uid"]
            document["metadata"]["uid"] = uid
            answer(exchange, self.put(path, document))

    def _patch(self, exchange: Exchange, path: str, _query: dict[str, str]) -> None:
        change, at = json.loads(exchange.body), path.removesuffix("/scale")
        if (
            at not in self.objects
            and exchange.header(b"content-type") == b"application/apply-patch+yaml"
        ):
            answer(exchange, self.put(at, change))
        elif at not in self.objects:
            refuse(exchange, 404, "NotFound")
        elif self._overtaken(at, change):
            refuse(exchange, 409, "Conflict")
        else:
            answer(exchange, self.put(at, merged(self.objects[at], change)))

    def _delete(self, exchange: Exchange, path: str, _query: dict[str, str]) -> None:
        stored = self.objects.pop(path)
        self.tell(path.rpartition("/")[0], "DELETED", stored)
        answer(exchange, stored)

    def _overtaken(self, path: str, document: dict[str, Any]) -> bool:
        wanted = document.get("metadata", {}).get("resourceVersion")
        return wanted not in (None, self.objects[path]["metadata"]["resourceVersion"])


def chosen(stored: dict[str, Any], query: dict[str, str]) -> bool:
    """Return whether the selectors of a query match an object."""
    metadata = stored["metadata"]
    fields = {"type": stored.get("type", "Opaque"), "metadata.name": metadata["name"]}
    return all(
        f"{key}={there.get(key)}" == part
        for name, there in (
            ("fieldSelector", fields),
            ("labelSelector", metadata.get("labels", {})),
        )
        for part in filter(None, query.get(name, "").split(","))
        for key in [part.partition("=")[0]]
    )


def merged(stored: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return an object changed by a merge patch."""
    both = dict(stored)
    for key, value in change.items():
        both[key] = merged(both.get(key, {}), value) if isinstance(value, dict) else value
    return both


def answer(exchange: Exchange, document: dict[str, Any]) -> None:
    """Respond with an object."""
    exchange.reply(200, json.dumps(document).encode())


def refuse(exchange: Exchange, status: int, reason: str, message: str = "no") -> bool:
    """Respond with an error as a ``Status`` object."""
    document = {"kind": "Status", "code": status, "reason": reason, "message": message}
    exchange.reply(status, json.dumps(document).encode())
    return True


def keep_in(late: list[Exchange]) -> Answer:
    """Return a handler that puts the request into ``late``, to be answered later."""

    def keep(exchange: Exchange) -> bool:
        late.append(exchange)
        return True

    return keep


@asynccontextmanager
async def connected(
    cluster: Callable[[Exchange], None], folder: Path, user: str = TOKEN
) -> AsyncIterator[ApiServer]:
    """Open a connection to a scripted cluster."""
    server = await serve(cluster, listen="127.0.0.1:0", limits=Limits())
    config = folder / "config"
    config.write_text(CONFIG.format(address=server.address, user=user))
    api = ApiServer.connect(config)
    try:
        yield api
    finally:
        await api.close()
        server.close()
        await server.stop()


@asynccontextmanager
async def orchestrated(
    cluster: ScriptedCluster, folder: Path, options: KubernetesOptions | None = None
) -> AsyncIterator[KubernetesOrchestrator]:
    """Open an orchestrator on a scripted cluster."""
    async with connected(cluster, folder) as api:
        orchestrator = KubernetesOrchestrator(api, options or KubernetesOptions())
        await orchestrator.open()
        try:
            yield orchestrator
        finally:
            await orchestrator.close()
