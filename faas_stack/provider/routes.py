"""The REST API of an OpenFaaS provider: its routes and their responses.

Statuses follow what faas-cli and the gateway accept (202 for changes, never 201 or 204; 404 for an
update of a function that does not exist). Independent of how functions are run.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl

import carpool
from carpool import errors, setting_types
from carpool.errors import CarpoolError
from carpool.prometheus_text import CONTENT_TYPE
from carpool.setting_spec import read_value
from carpool.task_set import TaskSet
from carpool.validation.problems import Problems
from faas_stack.provider import openapi
from faas_stack.provider.canaries import refuse_chains
from faas_stack.provider.deployment import Deployment, take
from faas_stack.provider.namespace_routes import NamespaceRoutes
from faas_stack.provider.request import Body, Request
from faas_stack.provider.secret_routes import SecretRoutes
from faas_stack.provider.targets import replica_metrics, targets
from faas_stack.revision import revision

if TYPE_CHECKING:
    from collections.abc import Callable

    from carpool.http.server import Exchange
    from faas_stack.provider.log_route import LogRoute
    from faas_stack.provider.metrics import Metrics
    from faas_stack.provider.orchestrator import Orchestrator
    from faas_stack.provider.request import Answer

__all__ = ["Routes"]

log = logging.getLogger(__name__)

_READY = "120s"  # loading a model may take long
_READY_TIME = setting_types.duration("a duration such as 90s", lambda _: True)
_NAME = r"[-a-zA-Z_0-9.]+"


class _Route(NamedTuple):
    pattern: re.Pattern[str]
    label: str
    answers: dict[str, Answer]


class Routes:
    """Routes for everything except ``/function/``."""

    def __init__(
        self,
        orchestrator: Orchestrator[Any],
        logs: LogRoute,
        metrics: Metrics,
        unready: Callable[[], str],
        *,
        login: bool,
    ) -> None:
        self._orchestrator = orchestrator
        self._secrets = SecretRoutes(orchestrator.secrets)
        self._namespace_routes = NamespaceRoutes(orchestrator.namespace_store)
        self._logs = logs
        self._metrics = metrics
        self._unready = unready
        self._login = login
        self._tasks = TaskSet()
        self._table = [
            _Route(re.compile(path.replace("{name}", f"(?P<name>{_NAME})")), path, answers)
            for path, answers in self._routes().items()
        ]

    def accept(self, exchange: Exchange) -> None:
        """Start to respond to a request."""
        self._tasks.start(self._observed(exchange))

    async def _observed(self, exchange: Exchange) -> None:
        label, status = await self._answer(exchange)
        seconds = asyncio.get_running_loop().time() - exchange.received
        self._metrics.observe(status, exchange.method, label, seconds)

    async def _answer(self, exchange: Exchange) -> tuple[str, int]:
        """Respond to a request, and return its route and the status."""
        path = exchange.path
        for route in self._table:
            if match := route.pattern.fullmatch(path):
                name = match.groupdict().get("name", "")
                return route.label, await self._call(route, name, exchange)
        exchange.reply(404, errors.body(f"no route {path!r}"))
        return "unknown", 404

    async def _call(self, route: _Route, name: str, exchange: Exchange) -> int:
        answer = route.answers.get("GET" if exchange.method == "HEAD" else exchange.method)
        if answer is None:
            allowed = ("allow", ", ".join(sorted(route.answers)))
            exchange.reply(
                405, errors.body(f"method {exchange.method} is not allowed"), headers=[allowed]
            )
            return 405
        query = dict(parse_qsl(exchange.query, keep_blank_values=True))  # the last one wins
        try:
            default = self._orchestrator.default_namespace
            status = await answer(Request(exchange, name, query, default))
        except CarpoolError as error:
            exchange.fail(error)
            return error.status
        except Exception:
            log.exception("%s %s failed", exchange.method, exchange.path)
            exchange.reply(500, errors.body("internal error"))
            return 500
        exchange.reply(status)  # no effect if a body has been sent
        return status

    def _routes(self) -> dict[str, dict[str, Answer]]:
        return {
            "/system/functions": {
                "GET": self._list,
                "POST": self._deploy,
                "PUT": self._update,
                "DELETE": self._remove,
            },
            "/system/function/{name}": {"GET": self._status},
            "/system/scale-function/{name}": {"POST": self._scale},
            "/system/reload-function/{name}": {"POST": self._reload},
            "/system/info": {"GET": self._info},
            "/system/namespaces": {"GET": self._namespaces},
            "/system/namespace/{name}": self._namespace_routes.answers,
            "/system/namespace/": {"POST": self._namespace_routes.answers["POST"]},
            "/system/secrets": self._secrets.answers,
            "/system/logs": {"GET": self._read_logs},
            openapi.PATH: {"GET": self._describe},
            "/healthz": {"GET": self._health},
            "/metrics": {"GET": self._render_metrics},
            "/metrics/targets": {"GET": self._targets},
            "/metrics/replicas/{name}": {"GET": self._render_replica_metrics},
        }

    # -- functions --------------------------------------------------------------------------

    async def _list(self, request: Request) -> int:
        functions = self._orchestrator.all(request.namespace or None)
        return request.reply([function.status() for function in functions])

    async def _status(self, request: Request) -> int:
        name, namespace = request.split(request.name, request.namespace)
        return request.reply(self._orchestrator.find(name, namespace).status())

    async def _deploy(self, request: Request) -> int:
        await self._orchestrator.deploy(self._deployment(request))
        return 202

    async def _update(self, request: Request) -> int:
        await self._orchestrator.update(self._deployment(request))
        return 202

    def _deployment(self, request: Request) -> Deployment:
        default = self._orchestrator.default_namespace
        deployment = Deployment.from_json(request.exchange.body, default)
        refuse_chains(deployment, self._orchestrator.all(deployment.namespace))
        return deployment

    async def _remove(self, request: Request) -> int:
        body = request.body()
        await self._orchestrator.remove(
            *request.split(body.required("functionName"), body.namespace)
        )
        return 202

    async def _scale(self, request: Request) -> int:
        body, problems = request.body(), Problems()
        replicas = take(body.document, "replicas", -1, problems)
        if replicas < 0 and not problems:
            given = body.document.get("replicas", "")
            problems.add("replicas", given, "a whole number of at least 0")
        problems.raise_if_any()
        name, namespace = request.split(request.name, body.namespace)
        await self._orchestrator.scale(name, namespace, replicas)
        return 202

    async def _reload(self, request: Request) -> int:
        body, problems = request.body() if request.exchange.body else Body({}, request), Problems()
        timeout = take(body.document, "timeout", _READY, problems)
        ready_s = read_value(_READY_TIME, "timeout", timeout, problems)
        problems.raise_if_any()
        name, namespace = request.split(request.name, body.namespace)
        began_s = asyncio.get_running_loop().time()
        done = await self._orchestrator.reload(name, namespace, ready_s)
        took_s = round(asyncio.get_running_loop().time() - began_s, 3)
        return request.reply({"name": name, **done._asdict(), "seconds": took_s})

    # -- the provider -----------------------------------------------------------------------

    async def _info(self, request: Request) -> int:
        version = {"release": carpool.__version__, "sha": await asyncio.to_thread(revision)}
        return request.reply(
            {"provider": "carpool", "version": version, **self._orchestrator.about()}
        )

    async def _namespaces(self, request: Request) -> int:
        return request.reply(self._orchestrator.namespaces())

    async def _describe(self, request: Request) -> int:
        routes = {route.label: route.answers for route in self._table}
        functions, default = self._orchestrator.all(), self._orchestrator.default_namespace
        return request.reply(openapi.document(routes, functions, default, login=self._login))

    async def _health(self, request: Request) -> int:
        reason = self._unready()
        status = 503 if reason else 200
        request.exchange.reply(status, (reason or self._health_text()).encode(), "text/plain")
        return status

    def _health_text(self) -> str:
        """Return the text for a healthy provider.

        A provider that receives no changes stays in service, as calls continue with the known
        state.
        """
        return "OK, but changes are currently not received" if self._orchestrator.behind else "OK"

    async def _render_metrics(self, request: Request) -> int:
        request.exchange.reply(200, self._metrics.render(), CONTENT_TYPE)
        return 200

    async def _targets(self, request: Request) -> int:
        here = request.exchange.header(b"host") or b""
        return request.reply(targets(self._orchestrator, here.decode("latin-1")))

    async def _render_replica_metrics(self, request: Request) -> int:
        metrics = await replica_metrics(self._orchestrator, request.name)
        request.exchange.reply(200, metrics, CONTENT_TYPE)
        return 200

    async def _read_logs(self, request: Request) -> int:
        self._logs.accept(request.exchange, request.query)
        return 200
