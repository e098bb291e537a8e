"""The first plan of a function, before there is a latency model to plan with.

It consists of the classes that are deployed already, if any, so a scaler that has lost its state
replaces nothing. Otherwise it has instances of the one size that the function's settings name, so
that the execution times of its batches can be measured.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from carpool.plan import InstanceClass, Plan, Route
from scaler.control.class_function import class_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.settings import FunctionSettings
    from scaler.control.class_function import Status

__all__ = ["deployed_plan", "first_plan"]


def first_plan(function: str, settings: FunctionSettings) -> Plan:
    """Return a plan with the minimum number of instances, of the function's own size."""
    each = InstanceClass(
        "first",
        cpu=settings.cpu or 1.0,
        batch_size=settings.batch_max,
        replicas=settings.scale_min,
        gpu=settings.gpu,
        memory_mb=settings.memory_mb,
    )
    why = "The execution time of its batches is not known yet: it is measured first."
    return Plan(function, 1, "first", (each,), (Route("*", {"first": 1.0}, 0.0),), explain=(why,))


def deployed_plan(function: str, deployed: Mapping[str, Status]) -> Plan | None:
    """Return a plan of the deployed instances, weighted by batch slots; None without any."""
    classes = tuple(
        replace(each, replicas=status.replicas)
        for status in deployed.values()
        if (each := class_of(status)) is not None
    )
    slots = {each.name: each.replicas * each.batch_size for each in classes}
    if not sum(slots.values()):
        return None
    weights = {name: count / sum(slots.values()) for name, count in slots.items()}
    why = "These instances existed before the scaler started."
    return Plan(function, 1, "deployed", classes, (Route("*", weights, 0.0),), explain=(why,))
