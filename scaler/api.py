"""The scaler's HTTP API: syncs of sidecars, and what people and programs may look at.

    POST /v1/sync              sidecars (`scaler.sync_api`)
    GET  /v1/functions         every function in a line
    GET  /v1/functions/NAME    one in full: load, plan, instances, decisions, troubles
    GET  /v1/shadow            what another policy would have run meanwhile
    GET  /v1/history/NAME      its last minutes, a sample a second (`scaler.dashboard`)
    GET  /                     a page that shows all this
    GET  /metrics, /healthz    for Prometheus, and whoever starts the scaler

Where there is a token, all but the page's files and ``/healthz`` ask for it. What comes by another
name than the scaler's, or from another site's page, is refused. Sidecars may come by any name: no
such page has the token that they show.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from carpool import errors
from carpool.errors import NotFound
from carpool.sync import PATH
from carpool.validation.problems import nearest
from scaler.dashboard.watch import HISTORY
from scaler.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from carpool.http.server import Exchange
    from scaler.control.controller import Controller
    from scaler.dashboard.watch import Dashboard
    from scaler.functions import Functions
    from scaler.loop import Loop
    from scaler.metrics import Tally
    from scaler.planners import Planners
    from scaler.sync_api import SyncApi

__all__ = ["Api"]

_FUNCTIONS = "/v1/functions"


class Api:
    """The application.

    Args:
        sync: Answers sidecars.
        functions: What is shown.
        planners: Have the shadow.
        loop: Knows whether the gateway can be reached.
        tally: Counts.
        dashboard: Has the page, and the past.
    """

    def __init__(
        self,
        sync: SyncApi,
        functions: Functions,
        planners: Planners,
        loop: Loop,
        tally: Tally,
        dashboard: Dashboard,
    ) -> None:
        self._sync = sync
        self._functions = functions
        self._planners = planners
        self._loop = loop
        self._tally = tally
        self._dashboard = dashboard

    def __call__(self, exchange: Exchange) -> None:
        """Answer one request."""
        callers, is_sync = self._sync.callers, exchange.target == PATH
        if not (is_sync and callers.token) and (reason := callers.foreign(exchange)):
            exchange.reply(403, errors.body(reason))
            return
        if is_sync:
            self._sync.answer(exchange)
            return
        path = exchange.path
        if exchange.method not in ("GET", "HEAD"):
            allowed = [("allow", "GET, HEAD")]
            exchange.reply(405, errors.body(f"no method {exchange.method}"), headers=allowed)
        elif path == "/healthz":
            exchange.reply(200, b"OK", "text/plain")
        elif self._dashboard.show(exchange):
            return
        elif not callers.admits(exchange):
            text = errors.body("expected 'Authorization: Bearer' and the scaler's token")
            exchange.reply(401, text, headers=[("www-authenticate", "Bearer")])
        elif path == "/metrics":
            exchange.reply(200, self._tally.render(), CONTENT_TYPE)
        else:
            exchange.reply(200, json.dumps(self._document(path, exchange.query)).encode() + b"\n")

    def _document(self, path: str, query: str) -> Any:  # noqa: ANN401  JSON
        if path == _FUNCTIONS:
            loop, others = self._loop, self._functions.troubles.values()
            trouble = "; ".join(filter(None, [loop.unreachable, loop.unkept, *others]))
            lines = [self._line(control) for control in self._functions]
            return {"functions": lines, "trouble": trouble, "advice": self._planners.advice}
        if path.startswith(f"{_FUNCTIONS}/"):
            return self._whole(path.removeprefix(f"{_FUNCTIONS}/"))
        if path == "/v1/shadow":
            return self._shadow()
        if path.startswith(HISTORY):
            return self._dashboard.history(path.removeprefix(HISTORY), query)
        message = f"no route {path!r}: expected {_FUNCTIONS}, {_FUNCTIONS}/NAME or /v1/shadow"
        raise NotFound(message)

    def _line(self, control: Controller) -> dict[str, Any]:
        now_s, plan = self._functions.now(), control.plan
        rates = control.roll.rates.at(now_s)
        found = control.present(now_s)
        return {
            "name": control.name,
            "policy": self._planners.policy_of(control),
            "rate_rps": _number(sum(rates.values())),
            "queued": control.roll.queued(now_s),
            "planned": sum(kind.replicas for kind in plan.classes) if plan else 0,
            "ready": sum(each.ready for each in found.values()),
            "loading": sum(each.loading for each in found.values()),
            "unplaced_rps": control.unplaced_rps,
            "notes": control.notes,
        }

    def _whole(self, name: str) -> dict[str, Any]:
        control = next((c for c in self._functions if c.name == name), None)
        if control is None:
            names = [each.name for each in self._functions]
            hint = nearest(name, names) or f"there are {', '.join(names) or 'none'}"
            message = f"no function {name!r} that is scaled; {hint}"
            raise NotFound(message)
        now_s, roll = self._functions.now(), control.roll
        rates = roll.rates.at(now_s)
        return {
            **self._line(control),
            "plan": control.plan.to_dict() if control.plan else None,
            "orders": control.orders.plan.to_dict() if control.orders.plan else None,
            "wanted": dict(control.wanted),
            "instances": {name: list(where) for name, where in roll.ready(now_s).items()},
            "fronts": roll.fronts(now_s),
            "rates_rps": {app: _number(rate) for app, rate in rates.items()},
            "requests": dict(roll.fates),
            "batches": dict(roll.batches),
            "seats": dict(roll.seats),
            "exec_s": dict(roll.exec_s),
            "idle_s": roll.idle_s(now_s),
            "load_s": roll.load_s(),
            "exec": {name: list(line) for name, line in roll.lines.items()},
            "remarks": control.remarks,
            "reasons": roll.reasons(),
            "conditions": control.conditions.unwell,
            "decisions": [dataclasses.asdict(decision) for decision in control.decisions],
        }

    def _shadow(self) -> dict[str, Any]:
        shadow = self._planners.shadow
        if shadow is None:
            message = "no other policy is watched: start the scaler with --shadow POLICY"
            raise NotFound(message)
        return {
            "policy": shadow.name,
            "functions": {
                name: {
                    "live": dataclasses.asdict(shadow.live[name]),
                    "shadow": dataclasses.asdict(own),
                    "plan": shadow.plans[name].to_dict() if name in shadow.plans else None,
                }
                for name, own in shadow.own.items()
            },
        }


def _number(value: float) -> float | None:
    """A number, or null where it is none: JSON has no word for that."""
    return value if value == value else None  # noqa: PLR0124
