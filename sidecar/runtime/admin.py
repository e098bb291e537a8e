"""The admin API for operators: the plan in force, the last batches, the instances.

It has an address of its own, because the gateway shows the responses of the main one to all
callers. A loopback address or a Unix socket needs no token; any other address does. Without a
token, pages of other sites are refused (`carpool.http.hosts`).

    GET /v1/plan               the plan in force, or null
    PUT /v1/plan               {"plan": PLAN, "instances": {CLASS: [ADDRESS, ...]}}
    GET /v1/batches?limit=100  the last batches, latest first (`sidecar.runtime.recent_batches`)
    GET /v1/instances          the instances, and their state
"""

from __future__ import annotations

import hmac
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from carpool import errors
from carpool.errors import BadRequest, ConfigError, NotFound, Problem
from carpool.http.hosts import Hosts
from carpool.plan import Plan
from carpool.validation import rules
from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Callable

    from carpool.http.server import Exchange
    from sidecar.runtime.recent_batches import RecentBatches
    from sidecar.runtime.upstreams import FunctionUpstreams

__all__ = ["Admin"]

_DEFAULT_LIMIT = 100
_FORBIDDEN = 403


class Admin:
    """The HTTP application of the admin API.

    Args:
        function: name that a plan must be for; empty if any.
        token: bearer token that callers must present; empty if none.
        listen: address that it is served at.
        upstreams: the instances and the plan.
        recent: the last batches.
        changed: called after a plan has come into force.
    """

    def __init__(
        self,
        function: str,
        token: str,
        listen: str,
        upstreams: FunctionUpstreams,
        recent: RecentBatches,
        changed: Callable[[], None],
    ) -> None:
        self._function = function
        self._token = token.encode()
        self._hosts = Hosts([listen], remedy="set sidecar_admin_token")
        self._upstreams = upstreams
        self._recent = recent
        self._changed = changed

    def __call__(self, exchange: Exchange) -> None:
        """Answer one request."""
        if self._token and not self._admits(exchange.header(b"authorization") or b""):
            reason = errors.body("expected 'Authorization: Bearer' and the admin token")
            exchange.reply(401, reason, headers=[("www-authenticate", "Bearer")])
            return
        if not self._token and (foreign := self._hosts.refusal(exchange)):
            exchange.reply(_FORBIDDEN, errors.body(foreign))
            return
        route = f"{exchange.method} {exchange.path}"
        if route == "GET /v1/plan":
            answer: Any = self._upstreams.plan.to_dict() if self._upstreams.plan else None
        elif route == "PUT /v1/plan":
            answer = self._replan(exchange.body)
        elif route == "GET /v1/batches":
            answer = self._recent.last(_limit(exchange.query))
        elif route == "GET /v1/instances":
            answer = self._instances()
        else:
            msg = f"{route}: expected GET or PUT /v1/plan, GET /v1/batches or GET /v1/instances"
            raise NotFound(msg)
        exchange.reply(200, json.dumps(answer).encode() + b"\n")

    def _admits(self, authorization: bytes) -> bool:
        return hmac.compare_digest(authorization, b"Bearer " + self._token)

    def _replan(self, body: bytes) -> dict[str, Any]:
        plan, instances = _proposal(body)
        if self._function and plan.function != self._function:
            msg = f"plan.function = {plan.function!r}: expected {self._function!r}"
            raise BadRequest(msg)
        self._upstreams.apply(plan, instances)
        self._changed()
        return {"version": plan.version}

    def _instances(self) -> list[dict[str, Any]]:
        return [
            {
                "address": instance.upstream.name,
                "class": instance.upstream.instance_class,
                "batch_max": instance.upstream.batch_max,
                "up": instance.up,
                "reason": instance.reason,
                "in_flight": instance.upstream.in_flight,
                "items_sent": instance.upstream.items_sent,
                "exec_s": instance.upstream.exec_time.mean(instance.upstream.batch_max) or None,
            }
            for instance in self._upstreams
        ]


_ADDRESSES = rules.mapping(rules.each(rules.text("an address")))
_BODY = rules.record({"plan": rules.anything, "instances": _ADDRESSES}, frozenset({"plan"}))


def _proposal(body: bytes) -> tuple[Plan, dict[str, list[str]] | None]:
    """Return the plan and the addresses that ``body`` proposes.

    Raises:
        ConfigError: all problems found, each with its path.
    """
    try:
        data = rules.checked(_BODY, rules.loads(body))
    except rules.NotJsonError as error:
        raise ConfigError([Problem("body", "", "a JSON document", str(error))]) from error
    try:
        plan = Plan.from_dict(data["plan"])
    except ConfigError as error:
        problems = Problems()
        problems.extend("plan.", error)
        problems.raise_if_any()
        raise
    return plan, data.get("instances")


def _limit(query: str) -> int:
    text = parse_qs(query).get("limit", [str(_DEFAULT_LIMIT)])[-1]
    if not (text.isdecimal() and len(text) <= 6):  # noqa: PLR2004 - no ring is that long
        msg = f"limit = {text[:80]!r}: expected a number of batches"
        raise BadRequest(msg)
    return int(text)
