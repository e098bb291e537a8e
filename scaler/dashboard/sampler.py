"""Sample every function once a second for the dashboard, and list the dashboard's files.

The files are the same for every reader and hold no secrets; the data requires the token, as the
whole API does. Memory is bounded whatever the number of functions: with very many of them, each has
a shorter history.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carpool.latency import Resources
from scaler.dashboard.comparison import Comparison
from scaler.dashboard.history import History, Reading
from scaler.planning import cost

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from scaler.control.controller import Controller
    from scaler.control.functions import Functions
    from scaler.live_planner import Planner
    from scaler.planning.cost import Prices

__all__ = ["FILES", "FOLDER", "HEADERS", "HISTORY", "Sampler"]

log = logging.getLogger(__name__)

HISTORY = "/v1/history/"
FOLDER = Path(__file__).parent
FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/charts.css": ("charts.css", "text/css; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/tip.js": ("tip.js", "text/javascript; charset=utf-8"),
    "/drawing.js": ("drawing.js", "text/javascript; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    ("content-security-policy", _POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-cache"),
)
_EVERY_S = 1.0
_MOST = 600  # samples of a function: ten minutes
_LEAST = 60
_MOST_IN_ALL = 60_000  # some 40 MB


class Sampler:
    """Samples every function, and keeps the history that the page shows.

    Args:
        functions: The known functions.
        planner: Planner that holds the shadow policy, if any.
        prices: What instances and executions cost.
    """

    def __init__(self, functions: Functions, planner: Planner, prices: Prices) -> None:
        self._functions = functions
        self._planner = planner
        self._priced = any(value for value in dataclasses.astuple(prices)[1:])
        self._rule = cost.billing(prices)
        self._histories: dict[str, History] = {}
        self._sizes: dict[str, dict[str, Resources]] = {}
        self._comparisons: dict[str, Comparison] = {}

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            try:
                for _ in self._sampling():
                    await asyncio.sleep(0)  # sidecars are answered in between
            except Exception:  # an error must not end the sampling
                log.exception("a sample failed")
            await asyncio.sleep(_EVERY_S)

    def sample(self) -> None:
        """Take one sample of every function, and forget functions that no longer exist."""
        for _ in self._sampling():
            pass

    def _sampling(self) -> Iterator[None]:
        """Sample the functions one by one, yielding after each."""
        functions = list(self._functions)
        names = {controller.name for controller in functions}
        for gone in self._histories.keys() - names:
            del self._histories[gone], self._sizes[gone]
        most = max(_LEAST, min(_MOST, _MOST_IN_ALL // max(1, len(functions))))
        now_s, wall_s = self._functions.now(), self._functions.wall()
        readings: dict[str, Reading] = {}
        for controller in functions:
            history = self._histories.setdefault(controller.name, History(self._rule, most))
            history.keep(most)
            readings[controller.name] = self._reading(controller, now_s)
            history.note(readings[controller.name], now_s, wall_s)
            yield
        self._compare(functions, readings, now_s, wall_s)

    def _compare(
        self,
        functions: Iterable[Controller],
        readings: Mapping[str, Reading],
        now_s: float,
        wall_s: float,
    ) -> None:
        """Update the comparisons of versions, restarting those whose shares have changed."""
        percents = {each.name: each.settings.canary for each in functions if each.settings.canary}
        known = self._comparisons
        self._comparisons = {
            name: known[name]
            if name in known and known[name].percents == canary
            else Comparison(name, canary, now_s, wall_s)
            for name, canary in percents.items()
        }
        for comparison in self._comparisons.values():
            comparison.note(readings, self._histories, now_s)

    def past(self, name: str) -> History | None:
        """Return the samples of a function, or None before the first."""
        return self._histories.get(name)

    def head(self, controller: Controller) -> dict[str, Any]:
        """Return the settings and status that accompany a function's samples."""
        history, settings = self._histories.get(controller.name), controller.settings
        comparison = self._comparisons.get(controller.name)
        objectives = [app.slo_s for app in settings.apps] + [settings.slo_s or 0.0]
        return {
            "slo_s": min((slo_s for slo_s in objectives if slo_s), default=None),
            "percentile": settings.percentile,
            "priced": self._priced,
            "every_s": _EVERY_S,
            "kept": _MOST,
            "last": history.last if history else 0,
            "shadow": self._shadow(controller.name),
            "comparison": comparison.to_dict() if comparison else None,
        }

    def _shadow(self, name: str) -> dict[str, Any] | None:
        """Return what the shadow policy would have held and what was held; None without one."""
        shadow = self._planner.shadow
        if shadow is None or name not in shadow.own or name not in shadow.live:
            return None
        plan = shadow.plans.get(name)
        return {
            "policy": shadow.name,
            "live": dataclasses.asdict(shadow.live[name]),
            "shadow": dataclasses.asdict(shadow.own[name]),
            "plan": plan.to_dict() if plan else None,
        }

    def _reading(self, controller: Controller, now_s: float) -> Reading:
        reports, instances = controller.reports, controller.present(now_s)
        rate_rps = sum(reports.rates_rps(now_s).values())
        return Reading(
            rate_rps if rate_rps == rate_rps else None,  # noqa: PLR0124  not a number: unknown
            reports.queued(now_s),
            instances,
            self._seen(controller, set(instances)),
            dict(reports.batches),
            dict(reports.item_count),
            dict(reports.exec_s),
            dict(reports.outcomes),
            dict(reports.latency),
            reports.starts,
            reports.waits,
        )

    def _seen(self, controller: Controller, present: set[str]) -> dict[str, Resources]:
        """Return the sizes of the plan's classes and of remaining classes of earlier plans."""
        classes = controller.plan.classes if controller.plan else ()
        new = {each.name: Resources(each.cpu, each.gpu, each.memory_mb or 0.0) for each in classes}
        old = self._sizes.get(controller.name, {})
        left = {name: size for name, size in old.items() if name in present}
        self._sizes[controller.name] = {**left, **new}
        return self._sizes[controller.name]
