"""Requests to the API server in plain JSON: objects are dictionaries, read by the pure modules.

lightkube's models would cost time and memory on every event of a watch, so they are not used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import httpx2 as httpx
import orjson

from carpool.errors import NotFound, Overloaded
from carpool.kubernetes_login import LOGIN_ERRORS, read_login
from faas_stack.provider.kubernetes.api_errors import refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

__all__ = ["APPLY", "MERGE", "METADATA", "ApiServer", "Lines", "collection"]

APPLY = "application/apply-patch+yaml"  # JSON is valid YAML
MERGE = "application/merge-patch+json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_JSON = "application/json"
_TIMEOUT_S = 30.0
_PAGE = 500  # objects in one response
_LONGEST = 16 * 1024 * 1024  # bytes of a line; no object is larger
_ERROR_STATUS = 400
_MANAGER = {"fieldManager": "carpool", "force": "true"}

Object = dict[str, Any]
T = TypeVar("T")


def collection(kind: str, namespace: str, name: str = "") -> str:
    """Return the path of a kind, such as ``apps/v1/deployments``, or of one object of it."""
    group, _, resource = kind.rpartition("/")
    root = "/api/v1" if group == "v1" else f"/apis/{group}"
    parts = [root, "namespaces", quote(namespace, safe=""), resource]
    return "/".join([*parts, quote(name, safe="")] if name else parts)


class Lines:
    """Splits a stream into lines, keeping the first ``longest`` bytes of each. Pure."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._begun = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the lines that end in the next chunk."""
        *ends, begun = piece.split(b"\n")
        lines = []
        for end in ends:
            self._add(end)
            lines.append(self.take())
        self._add(begun)
        return lines

    def take(self) -> bytes:
        """Return and clear the incomplete last line."""
        line = bytes(self._begun)
        self._begun.clear()
        return line

    def _add(self, part: bytes) -> None:
        self._begun += part[: self._longest - len(self._begun)]


class ApiServer:
    """A connection to a cluster.

    Args:
        client: Client with the parameters of lightkube.
    """

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    @classmethod
    def connect(cls, kubeconfig: Path | None = None, context: str | None = None) -> ApiServer:
        """Connect by a kubeconfig file, the pod's service account, ``KUBECONFIG`` or its default.

        The first of these that exists is used. Nothing is sent.

        Raises:
            ConfigError: If none of these locates the cluster.
        """
        login = read_login("--kubeconfig", _TIMEOUT_S, kubeconfig, context)
        limits = httpx.Limits(max_connections=None)  # each watch and log needs its own
        return cls(httpx.AsyncClient(**login.client, limits=limits))

    async def get(self, path: str, accept: str = _JSON) -> Object:
        """Return an object.

        Raises:
            NotFound: If it does not exist.
            CarpoolError: If the API server refuses or cannot be reached.
        """
        return await self._call("GET", path, accept=accept)

    async def find(self, path: str, accept: str = _JSON) -> Object | None:
        """Return an object. None if it does not exist."""
        try:
            return await self.get(path, accept)
        except NotFound:
            return None

    async def create(self, path: str, document: Object) -> Object:
        """Add an object to a collection and return it as stored."""
        return await self._call("POST", path, document, params={"fieldManager": "carpool"})

    async def replace(self, path: str, document: Object) -> Object:
        """Replace an object of the same name and version and return it as stored."""
        return await self._call("PUT", path, document, params={"fieldManager": "carpool"})

    async def apply(self, path: str, document: Object) -> Object:
        """Create an object or update an existing one to match, and return it as stored."""
        return await self._call("PATCH", path, document, content_type=APPLY, params=_MANAGER)

    async def merge(self, path: str, document: Object) -> Object:
        """Change some fields of an object and return it as stored."""
        return await self._call("PATCH", path, document, content_type=MERGE)

    async def remove(self, path: str) -> None:
        """Delete an object and then, in the background, what it owns."""
        await self._call("DELETE", path, params={"propagationPolicy": "Background"})

    async def names(self, path: str, selector: str = "", fields: str = "") -> list[str]:
        """Return the names of the objects that match the selectors, reading only their metadata.

        Args:
            path: Path of the collection.
            selector: Label selector.
            fields: Field selector such as ``type=Opaque``.
        """
        chosen = {"labelSelector": selector, "fieldSelector": fields}
        params = {name: text for name, text in chosen.items() if text}
        listed = await self._call("GET", path, accept=_METADATA_LIST, params=params)
        return sorted(item["metadata"]["name"] for item in listed["items"] or ())

    async def list(
        self, path: str, selector: str, read: Callable[[Object], T]
    ) -> tuple[list[T], str]:
        """Return ``read`` of all objects that match a selector, and the version to watch from.

        Raises:
            Expired: If it took too long.
        """
        items: list[T] = []
        params = {"labelSelector": selector, "limit": str(_PAGE)}
        while True:
            page = await self._call("GET", path, params=params)
            items += map(read, page["items"] or ())  # an empty list is null
            going_on = page["metadata"].get("continue", "")
            if not going_on:
                return items, page["metadata"]["resourceVersion"]
            params["continue"] = going_on

    async def lines(
        self,
        path: str,
        params: Mapping[str, str],
        silence_s: float | None,
        longest: int = _LONGEST,
        opened: Callable[[], object] = lambda: None,
    ) -> AsyncIterator[bytes]:
        """Yield a response line by line as it arrives: a watch's events, or a container's output.

        Args:
            path: Path of the request.
            params: Parameters of the query.
            silence_s: Maximum time without data; None: unlimited.
            longest: Maximum bytes of a line; the rest of a longer one is dropped.
            opened: Called when the API server has begun to respond.

        Raises:
            CarpoolError: If the API server refuses, cannot be reached, or breaks off.
        """
        timeout = httpx.Timeout(_TIMEOUT_S, read=silence_s)
        try:
            async with self._client.stream("GET", path, params=params, timeout=timeout) as answer:
                if answer.status_code >= _ERROR_STATUS:
                    raise refusal(answer.status_code, await answer.aread())
                opened()
                lines = Lines(longest)
                async for piece in answer.aiter_bytes():
                    for line in lines.feed(piece):
                        yield line
                if rest := lines.take():
                    yield rest
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise _unreachable(error) from error
        except LOGIN_ERRORS as error:
            raise _no_login(error) from error

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _call(
        self,
        method: str,
        path: str,
        document: Object | None = None,
        *,
        accept: str = _JSON,
        content_type: str = _JSON,
        params: Mapping[str, str] | None = None,
    ) -> Object:
        headers = {"accept": accept}
        body = None
        if document is not None:
            body, headers["content-type"] = orjson.dumps(document), content_type
        try:
            answer = await self._client.request(
                method, path, content=body, headers=headers, params=params
            )
        except httpx.HTTPError as error:
            raise _unreachable(error) from error
        except LOGIN_ERRORS as error:
            raise _no_login(error) from error
        if answer.status_code >= _ERROR_STATUS:
            raise refusal(answer.status_code, answer.content)
        read: Object = orjson.loads(answer.content)
        return read


def _unreachable(error: Exception) -> Overloaded:
    return Overloaded(f"the API server cannot be reached: {error or type(error).__name__}", 1.0)


def _no_login(error: Exception) -> Overloaded:
    return Overloaded(f"no credentials for the API server: {error!r}", 1.0)
