"""What is to be seen of a scaler, as documents by their paths; nothing here knows HTTP.

Documents are made when they are asked for, in the loop's process; values are copied, so that they
can be written elsewhere while the loop goes on.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scaler.control.controller import Controller
    from scaler.functions import Functions
    from scaler.loop import Loop
    from scaler.planners import Planners

__all__ = ["FUNCTIONS", "SHADOW", "Documents"]

FUNCTIONS = "/v1/functions"
SHADOW = "/v1/shadow"


class Documents:
    """The scaler's functions as people see them.

    Args:
        functions: What is shown.
        planners: Have the shadow.
        loop: Knows whether the gateway can be reached.
    """

    def __init__(self, functions: Functions, planners: Planners, loop: Loop) -> None:
        self._functions = functions
        self._planners = planners
        self._loop = loop

    def overview(self, lines: list[dict[str, Any]]) -> dict[str, Any]:
        """Every function in its line."""
        loop, others = self._loop, self._functions.troubles.values()
        trouble = "; ".join(filter(None, [loop.unreachable, loop.unkept, *others]))
        return {"functions": lines, "trouble": trouble, "advice": self._planners.advice}

    def whole(self, control: Controller, line: dict[str, Any]) -> dict[str, Any]:
        """One function in full, which begins with its line."""
        now_s, roll = self._functions.now(), control.roll
        rates = roll.rates.at(now_s)
        return {
            **line,
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
            "decisions": list(control.decisions),
        }

    def shadow(self) -> dict[str, Any] | None:
        """What the other policy would have held, beside what was held; None without one."""
        shadow = self._planners.shadow
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
                for name, own in shadow.own.items()
            },
        }

    def line(self, control: Controller) -> dict[str, Any]:
        """What matters most of one function."""
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


def _number(value: float) -> float | None:
    """A number, or null where it is none: JSON has no word for that."""
    return value if value == value else None  # noqa: PLR0124
