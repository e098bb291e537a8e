"""Serves ``inference.GRPCInferenceService`` beside the HTTP server, on the same event loop."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
from grpc import aio

from carpool.errors import CarpoolError, ConfigError, Problem
from sidecar.runtime.oip_grpc import answers, requests
from sidecar.runtime.oip_grpc.failures import Failed, Failure, passed_metadata
from sidecar.runtime.oip_grpc.messages import MESSAGES, SERVICE
from sidecar.runtime.oip_grpc.requests import HttpRequest
from sidecar.runtime.oip_grpc.rpc import Rpc

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from carpool.http.server import Server
    from sidecar.runtime.oip_grpc.answers import HttpAnswer

    Method = Callable[[Rpc, bytes], Awaitable[tuple[bytes, HttpAnswer | None]]]

__all__ = ["GrpcServer", "serve"]

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_OK = 200
_NOT_READY = (404, 503)
_READY = HttpRequest("GET", "/_/ready")
_MIB = 1024 * 1024
_OFF_LOOP_BYTES = _MIB  # larger messages are converted on another thread
_ALIVE_MS = 20_000  # until a client that answers no ping counts as gone


async def serve(server: Server, address: str) -> GrpcServer:
    """Serve the application of ``server`` at ``address`` as well.

    Raises:
        ConfigError: the address cannot be bound.
    """
    limits = server.limits
    idle_ms = int(limits.idle_s * 1000)
    own = aio.server(
        maximum_concurrent_rpcs=limits.connections,
        options=[
            ("grpc.max_receive_message_length", limits.body_bytes + _MIB),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_connection_idle_ms", idle_ms),
            ("grpc.keepalive_time_ms", idle_ms),
            ("grpc.keepalive_timeout_ms", _ALIVE_MS),
        ],
    )
    own.add_generic_rpc_handlers((_Methods(server).handler(),))
    try:
        port = own.add_insecure_port(address)
    except RuntimeError as error:
        raise ConfigError([Problem("sidecar_grpc", address, "an address that is free")]) from error
    await own.start()
    at = address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"
    return GrpcServer(own, at)


class GrpcServer:
    """The running service; created by `serve`.

    Attributes:
        address: Where it listens.
    """

    def __init__(self, server: Any, address: str) -> None:  # noqa: ANN401 - grpcio is untyped
        self._server = server
        self.address = address

    async def stop(self, timeout_s: float) -> None:
        """Accept no new calls, and wait until those under way have ended, at most ``timeout_s``."""
        await self._server.stop(timeout_s)


class _Methods:
    """The methods of the service."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def handler(self) -> Any:  # noqa: ANN401 - grpcio is untyped
        """Return the methods as grpcio takes them; messages are read and written here."""
        methods: dict[str, Method] = {
            "ServerLive": self._server_live,
            "ServerReady": self._server_ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server_metadata,
            "ModelMetadata": self._model_metadata,
            "ModelInfer": self._model_infer,
        }
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(self._answering(name, method))
            for name, method in methods.items()
        }
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    def _answering(
        self, name: str, method: Method
    ) -> Callable[[bytes, Any], Awaitable[bytes | None]]:
        """Return a method with its errors as statuses."""

        async def answer(message: bytes, context: Any) -> bytes | None:  # noqa: ANN401 - as above
            try:
                reply, source = await method(Rpc(self._server, context), message)
            except Failed as failed:
                failure = failed.failure
            except CarpoolError as error:
                failure = Failure.of_error(error)
            except Exception:
                log.exception("the gRPC method %s failed", name)
                failure = Failure(grpc.StatusCode.INTERNAL, "internal error")
            else:
                if source and (metadata := passed_metadata(source)):
                    context.set_trailing_metadata(metadata)
                return reply
            await context.abort(failure.code, failure.text, failure.metadata)
            return None

        return answer

    async def _server_live(self, _rpc: Rpc, _message: bytes) -> tuple[bytes, None]:
        return _said("ServerLiveResponse", live=True), None

    async def _server_ready(self, rpc: Rpc, _message: bytes) -> tuple[bytes, None]:
        ready = (await rpc.ask(_READY)).status == _OK
        return _said("ServerReadyResponse", ready=ready), None

    async def _model_ready(self, rpc: Rpc, message: bytes) -> tuple[bytes, None]:
        request = requests.parsed("ModelReadyRequest", message)
        target = requests.about_model(request.name, request.version, "/ready")
        answer = await rpc.ask(_READY)
        if answer.status == _OK:
            answer = await rpc.ask(HttpRequest("GET", target))
        if answer.status not in _NOT_READY:
            _check(answer)
        return _said("ModelReadyResponse", ready=answer.status == _OK), None

    async def _server_metadata(self, rpc: Rpc, _message: bytes) -> tuple[bytes, HttpAnswer]:
        answer = _check(await rpc.ask(HttpRequest("GET", "/v2")))
        return answers.server(answer), answer

    async def _model_metadata(self, rpc: Rpc, message: bytes) -> tuple[bytes, HttpAnswer]:
        request = requests.parsed("ModelMetadataRequest", message)
        target = requests.about_model(request.name, request.version)
        answer = _check(await rpc.ask(HttpRequest("GET", target)))
        return answers.model(answer), answer

    async def _model_infer(self, rpc: Rpc, message: bytes) -> tuple[bytes, HttpAnswer]:
        rpc.hold(len(message))
        limit_bytes = self._server.limits.body_bytes
        request, raw = await _off_loop(len(message), lambda: requests.infer(message, limit_bytes))
        answer = _check(await rpc.ask(request))
        reply = await _off_loop(len(answer.body), lambda: answers.inferred(answer, raw=raw))
        return reply, answer


def _said(name: str, **fields: bool) -> bytes:
    data: bytes = MESSAGES[name](**fields).SerializeToString()
    return data


def _check(answer: HttpAnswer) -> HttpAnswer:
    if answer.status != _OK:
        raise Failed(Failure.of(answer))
    return answer


async def _off_loop(size_bytes: int, convert: Callable[[], _T]) -> _T:
    """Convert a message, on another thread if it is so large that other requests would wait."""
    return convert() if size_bytes < _OFF_LOOP_BYTES else await asyncio.to_thread(convert)
