"""Puts a provider together: the edge, the REST API, the proxy, the functions and its backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from carpool.errors import NotFound
from carpool.http.server import Limits, serve
from faas_stack.provider.access_control import AccessControl, is_call
from faas_stack.provider.functions import Functions
from faas_stack.provider.log_route import LogRoute
from faas_stack.provider.metrics import Metrics
from faas_stack.provider.proxy import PREFIX, Proxy
from faas_stack.provider.routes import Routes

if TYPE_CHECKING:
    from carpool.http.server import Exchange, Server
    from faas_stack.provider.backend import Backend
    from faas_stack.provider.basic_auth_check import BasicAuth
    from faas_stack.provider.journal import Journal
    from faas_stack.provider.scaler_access import ScalerAccess
    from faas_stack.provider.secrets import SecretStore

__all__ = ["Options", "Provider"]


@dataclass(frozen=True, slots=True)
class Options:
    """How a provider runs.

    Attributes:
        listen: ``HOST:PORT`` (port 0: chosen by the system) or ``unix:PATH``.
        calls: where functions call others, and nothing else is answered; empty: nowhere.
        auth: credentials for all but calls of functions; None: open.
        hosts: further names by which requests may come.
        grace_s: how long requests may go on when their replica, or the provider, is to go.
        patience_s: how long a request waits for a replica to become ready.
        journal: where functions are written down, if their instances outlive the provider.
        scaler: how sidecars reach the scaler, if there is one.
    """

    listen: str = "127.0.0.1:8080"
    calls: str = ""
    auth: BasicAuth | None = None
    hosts: tuple[str, ...] = ()
    grace_s: float = 10.0
    patience_s: float = 60.0
    journal: Journal | None = None
    scaler: ScalerAccess | None = None


class Provider:
    """An OpenFaaS provider over ``backend``, which is open already and closed by the caller."""

    def __init__(self, backend: Backend, secrets: SecretStore, options: Options) -> None:
        self._options = options
        self._draining = False
        self._servers: list[Server] = []
        self.functions = Functions(
            backend,
            grace_s=options.grace_s,
            patience_s=options.patience_s,
            journal=options.journal,
        )
        self.functions.scaler = options.scaler
        self._metrics = Metrics(self.functions, self._servers)
        self._logs = LogRoute(self.functions)
        self._proxy = Proxy(self.functions, self._metrics)
        self._access_control = AccessControl(options.listen, options.hosts, options.auth)
        self._routes = Routes(
            self.functions, secrets, self._logs, self._metrics, lambda: self._draining
        )

    @property
    def address(self) -> str:
        """Where it listens."""
        return self._servers[0].address if self._servers else ""

    @property
    def calls_address(self) -> str:
        """Where functions call others; empty: nowhere."""
        return "".join(server.address for server in self._servers[1:])

    async def listen(self) -> None:
        """Start to accept requests, with the functions of the journal.

        Raises:
            ConfigError: the address is not one, or the journal cannot be read.
            OSError: it cannot be bound.
        """
        limits, options = Limits(), self._options
        self._servers.append(await serve(self._accept, listen=options.listen, limits=limits))
        if options.calls:
            calls = await serve(self._accept_call, listen=options.calls, limits=limits)
            self._servers.append(calls)
        self.functions.restore()

    async def drain(self) -> None:
        """Say unready, answer what was accepted, then end the functions, unless they last."""
        self._draining = True
        self._logs.close()
        for server in self._servers:
            server.close()
        for server in self._servers:
            await server.drain(self._options.grace_s)
        await self.functions.close()
        for server in self._servers:
            await server.stop()

    def _accept(self, exchange: Exchange) -> None:
        if (refused := self._access_control.refuse(exchange)) is not None:
            self._metrics.observe(refused, exchange.method, "refused", 0.0)
        elif exchange.target.startswith(PREFIX):
            self._proxy.accept(exchange)
        else:
            self._routes.accept(exchange)

    def _accept_call(self, exchange: Exchange) -> None:
        if not is_call(exchange.target):
            message = f"no route {exchange.path!r}: only {PREFIX}NAME is answered here"
            raise NotFound(message)
        self._proxy.accept(exchange)
