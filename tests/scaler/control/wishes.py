"""Wanted plans, and loads of functions with a plan in force."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from carpool.plan import InstanceClass, Plan, Route
from carpool.scaling import Instances
from tests.scaler.loads import load

if TYPE_CHECKING:
    from carpool.scaling import FunctionLoad

__all__ = ["in_force", "wanted"]


def wanted(replicas: int, *, large: int = 0, name: str = "classify") -> Plan:
    """Return a plan of instances on two cores and on a GPU."""
    classes = (
        InstanceClass("b4-c4-g20", cpu=4.0, gpu=20.0, batch_size=4, replicas=large, rate_high=45.0),
        InstanceClass("b1-c2", cpu=2.0, batch_size=1, replicas=replicas, rate_high=6.0),
    )
    return Plan(name, 1, "wishes", classes, (Route("*", {"b1-c2": 1.0}, 0.0),))


def in_force(plan: Plan, **others: object) -> FunctionLoad:
    """Return the load of a function with this plan and all of its instances."""
    there = {kind.name: Instances(ready=kind.replicas) for kind in plan.classes}
    return dataclasses.replace(load(50), plan=plan, instances=there, **others)  # type: ignore[arg-type]
