"""Finds what a function runs under BATCH's last plan, and the cost of changing it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from carpool.scaling import Billing, FunctionLoad
    from scaler.policies.batch.search import Choice
    from scaler.policies.batch.sizes import InstanceSize

__all__ = ["in_force", "loading_cost"]


def in_force(
    load: FunctionLoad, instance_sizes: Sequence[InstanceSize]
) -> tuple[InstanceSize, int, float] | None:
    """Return the instance size, batch size and window in force; None if the plan has no such."""
    plan = load.plan
    if plan is None or len(plan.classes) != 1 or not plan.routes:
        return None
    (there,) = plan.classes
    for instance_size in instance_sizes:
        known = instance_size.known[: there.batch_size]
        same = (instance_size.cpu, instance_size.gpu) == (there.cpu, there.gpu)
        if same and len(known) == there.batch_size and known[-1]:
            return instance_size, there.batch_size, plan.routes[0].max_wait_s
    return None


def loading_cost(load: FunctionLoad, choice: Choice, billing: Billing) -> float:
    """Return the cost of loading as many instances of another size as exist now."""
    resources, load_s = choice.instance_size.resources[choice.batch_size - 1], load.model.load_s
    one = billing.lifetime(resources, load_s)
    if load_s and not one:
        one = billing.execution(resources, load_s)
    there = sum(each.total for each in load.running.values())
    return max(there, 1) * one
