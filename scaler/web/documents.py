"""The visible state of a scaler as documents; independent of HTTP.

Documents are created on demand, in the loop's process; values are copied, so that they can be
serialized elsewhere while the loop continues.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scaler.control.controller import Controller
    from scaler.control.functions import Functions
    from scaler.live_planner import Planner
    from scaler.loop import Loop

__all__ = ["FUNCTIONS", "SHADOW", "UNLISTED", "Documents"]

FUNCTIONS = "/v1/functions"
SHADOW = "/v1/shadow"
UNLISTED = "unlisted"  # cannot be requested, as it is not a path


class Documents:
    """Creates documents about the scaler's functions.

    Args:
        functions: The functions to show.
        planner: Provides the shadow policy and advice.
        loop: Knows whether the gateway can be reached.
    """

    def __init__(self, functions: Functions, planner: Planner, loop: Loop) -> None:
        self._functions = functions
        self._planner = planner
        self._loop = loop

    def overview(self, lines: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the summaries of all functions, with the scaler's problems and advice."""
        loop, others = self._loop, self._functions.troubles.values()
        unseen = loop.unreachable or self._functions.unlisted
        trouble = "; ".join(filter(None, [unseen, loop.store_error, *others]))
        return {"functions": lines, "trouble": trouble, "advice": self._planner.advice}

    def whole(self, controller: Controller, line: dict[str, Any]) -> dict[str, Any]:
        """Return the details of one function, starting with its summary."""
        now_s, reports = self._functions.now(), controller.reports
        given = controller.sidecar_config.plan
        rates = reports.rates_rps(now_s)
        return {
            **line,
            "plan": controller.plan.to_dict() if controller.plan else None,
            "sidecar_config": given.to_dict() if given else None,
            "wanted": dict(controller.wanted),
            "instances": {name: list(where) for name, where in reports.ready(now_s).items()},
            "fronts": reports.fronts(now_s),
            "rates_rps": {app: _number(rate) for app, rate in rates.items()},
            "requests": dict(reports.outcomes),
            "batches": dict(reports.batches),
            "item_count": dict(reports.item_count),
            "exec_s": dict(reports.exec_s),
            "idle_s": reports.idle_s(now_s),
            "load_s": reports.load_s(),
            "exec": {name: list(line) for name, line in reports.lines.items()},
            "remarks": controller.remarks,
            "reasons": reports.reasons(),
            "conditions": controller.interference.conditions,
            "decisions": list(controller.decisions),
        }

    def unlisted(self) -> str:
        """Return why a function may exist although it is not shown; empty if it cannot."""
        why, unreachable = self._functions.unlisted, self._loop.unreachable
        return f"{why} ({unreachable})" if why and unreachable else why

    def shadow(self) -> dict[str, Any] | None:
        """Return what the shadow policy would have run, beside what ran; None without one."""
        shadow = self._planner.shadow
        if shadow is None:
            return None
        return {
            "policy": shadow.name,
            "functions": {
                name: {
                    "live": dataclasses.asdict(shadow.live[name]),
                    "shadow": dataclasses.asdict(own),
                    "plan": shadow.plans[name].to_dict() if name in shadow.plans else None,
                }
                for name, own in list(shadow.own.items())  # planning, in a thread, adds to it
            },
        }

    def line(self, controller: Controller) -> dict[str, Any]:
        """Return the summary of one function."""
        now_s, plan = self._functions.now(), controller.plan
        rates = controller.reports.rates_rps(now_s)
        counts = controller.present(now_s)
        return {
            "name": controller.name,
            "policy": self._planner.policy_of(controller),
            "rate_rps": _number(sum(rates.values())),
            "queued": controller.reports.queued(now_s),
            "planned": sum(each.replicas for each in plan.classes) if plan else 0,
            "ready": sum(each.ready for each in counts.values()),
            "loading": sum(each.loading for each in counts.values()),
            "unplaced_rps": controller.unplaced_rps,
            "notes": controller.notes,
            "refused": controller.refused,
        }


def _number(value: float) -> float | None:
    """Return the number, or None for NaN, which JSON cannot express."""
    return value if value == value else None  # noqa: PLR0124
