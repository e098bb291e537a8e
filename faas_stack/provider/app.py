"""Assembles a provider from access control, REST API and proxy over an orchestrator."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from carpool.errors import NotFound
from carpool.http.server import Limits, serve
from faas_stack.provider.access_control import AccessControl, is_call
from faas_stack.provider.log_route import LogRoute
from faas_stack.provider.metrics import Metrics
from faas_stack.provider.proxy import PREFIX, Proxy
from faas_stack.provider.routes import Routes

if TYPE_CHECKING:
    from carpool.http.server import Exchange, Server
    from faas_stack.provider.basic_auth_check import BasicAuth
    from faas_stack.provider.orchestrator import Orchestrator

__all__ = ["Provider", "ProviderOptions"]


@dataclass(frozen=True, slots=True)
class ProviderOptions:
    """Settings of a provider.

    Attributes:
        listen: ``HOST:PORT`` (port 0: chosen by the system) or ``unix:PATH``.
        calls: Address at which functions call others, which serves only calls; empty: none.
        auth: Credentials for everything but function calls; None: open.
        hosts: Further host names accepted in requests.
        grace_s: How long requests may take to finish when the provider stops.
        retire_s: How long before that it serves clients while telling them to reconnect elsewhere.
    """

    listen: str = "127.0.0.1:8080"
    calls: str = ""
    auth: BasicAuth | None = None
    hosts: tuple[str, ...] = ()
    grace_s: float = 10.0
    retire_s: float = 0.0


class Provider:
    """An OpenFaaS provider over an orchestrator that `listen` opens and `drain` closes."""

    def __init__(self, orchestrator: Orchestrator[Any], options: ProviderOptions) -> None:
        self._options = options
        self._unready = "starting"
        self._servers: list[Server] = []
        self.orchestrator = orchestrator
        self._metrics = Metrics(orchestrator, self._servers)
        self._logs = LogRoute(orchestrator)
        self._proxy = Proxy(orchestrator, self._metrics)
        self._access_control = AccessControl(options.listen, options.hosts, options.auth)
        self._routes = Routes(
            orchestrator,
            self._logs,
            self._metrics,
            lambda: self._unready,
            login=options.auth is not None,
        )

    @property
    def address(self) -> str:
        """Address at which it listens. Empty before `listen`."""
        return self._servers[0].address if self._servers else ""

    async def listen(self) -> None:
        """Start to accept requests for the functions that are already deployed.

        Raises:
            ConfigError: If the address is invalid.
            CarpoolError: If the orchestrator cannot be opened.
            OSError: If the address cannot be bound.
        """
        limits, options = Limits(), self._options
        self._servers.append(await serve(self._accept, listen=options.listen, limits=limits))
        if options.calls:
            calls = await serve(self._accept_call, listen=options.calls, limits=limits)
            self._servers.append(calls)
        await self.orchestrator.open()
        self._unready = ""

    async def drain(self) -> None:
        """Report unready, finish accepted requests, then end functions unless they outlive it."""
        self._unready = "draining"
        self._logs.close()
        for server in self._servers:
            server.retire()
        await self._drained(self._options.retire_s)
        for server in self._servers:
            server.close()
        await self._drained(self._options.grace_s)
        await self.orchestrator.close()
        for server in self._servers:
            await server.stop()

    async def _drained(self, timeout_s: float) -> None:
        await asyncio.gather(*(server.drain(timeout_s) for server in self._servers))

    def _accept(self, exchange: Exchange) -> None:
        if (refused := self._access_control.refuse(exchange)) is not None:
            self._metrics.observe(refused, exchange.method, "refused", 0.0)
        elif exchange.target.startswith(PREFIX):
            self._proxy.accept(exchange)
        else:
            self._routes.accept(exchange)

    def _accept_call(self, exchange: Exchange) -> None:
        if not is_call(exchange.target):
            message = f"no route {exchange.path!r}: only {PREFIX}NAME is served here"
            raise NotFound(message)
        self._proxy.accept(exchange)
