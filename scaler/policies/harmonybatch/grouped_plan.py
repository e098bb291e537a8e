"""Groups as a proposal, and back from a plan: an instance size for each, and its applications.

A group is a function of its own in HarmonyBatch (IWQoS'24); here it is a class of the plan, to
which its applications are routed, each with its own longest wait. Routes to the same class share
batches, and no others do.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from carpool.scaling import Configuration, Predicted, Proposal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from carpool.scaling import FunctionLoad, Plan, Route, Size
    from scaler.policies.harmonybatch.settling import Group, Member, Settling

__all__ = ["groups_in", "proposal", "sized"]


def sized(load: FunctionLoad, groups: Sequence[Group]) -> dict[Size, Group]:
    """Return each group by its instance size; groups with the same size get separate pools."""
    pools: Counter[Configuration] = Counter()
    named = {}
    for group in groups:
        size = load.size(*group.configuration)
        assert size is not None  # noqa: S101  the group could not have been settled
        own = replace(size, pool=pools[group.configuration], min_rps=0.0)
        named[own] = group
        pools[group.configuration] += 1
    return named


def groups_in(plan: Plan, members: Sequence[Member], settling: Settling) -> list[Group] | None:
    """Return the groups of a plan, evaluated at the current load.

    Args:
        plan: A plan that the guard made from a `proposal`.
        members: The current applications, without those that cannot be served.
        settling: Evaluates the law of batches.

    Returns:
        None if the plan lacks some of them, or has instances that are no longer known.
    """
    routes = {route.app: route for route in plan.routes}
    classes = {instance_class.name: instance_class for instance_class in plan.classes}
    parts: dict[str, list[tuple[Member, float]]] = {}
    for member in members:
        led = {_target(routes.get(app) or routes.get("*")) for app in member.apps}
        if len(led) != 1 or None in led:
            return None
        ((name, window_s),) = (target for target in led if target)
        parts.setdefault(name, []).append((member, window_s))
    if not classes.keys() <= parts.keys():
        return None
    groups = []
    for name, part in parts.items():
        instance_class = classes[name]
        configuration = Configuration(
            instance_class.batch_size, instance_class.cpu, instance_class.gpu
        )
        if not settling.knows(configuration):
            return None
        group = settling.having(
            [member for member, _ in part], configuration, [window_s for _, window_s in part]
        )
        groups.append(group)
    return groups


def _target(route: Route | None) -> tuple[str, float] | None:
    if route is None or len(route.weights) != 1:
        return None
    return next(iter(route.weights)), route.max_wait_s


def proposal(
    groups: Mapping[Size, Group],
    counts: Sequence[int],
    explain: Sequence[str],
    unserved_rps: float,
) -> Proposal:
    """Return the proposal for these groups, each application with its own wait.

    Args:
        groups: Groups by instance size, the tightest first; at least one.
        counts: Number of instances of each, in the same order.
        explain: Sentences for an operator.
        unserved_rps: Requests per second that exceed these instances.
    """
    windows_s = {
        app: (size, window_s)
        for size, group in groups.items()
        for member, window_s in zip(group.members, group.windows_s, strict=True)
        for app in member.apps
    }
    # All others go with the tightest, which suits all of them.
    windows_s.setdefault("*", next(iter(windows_s.values())))
    return Proposal(
        dict(zip(groups, counts, strict=True)),
        wait_s={app: window_s for app, (_, window_s) in windows_s.items()},
        shares={app: {size: 1.0} for app, (size, _) in windows_s.items()},
        explain=explain,
        unserved_rps=unserved_rps,
        predicted=_predicted(list(groups.values())),
    )


def _predicted(groups: Sequence[Group]) -> Predicted:
    rate = math.fsum(group.rate_rps for group in groups)
    batches = math.fsum(group.rate_rps / group.mean_batch for group in groups)
    return Predicted(
        cost_per_request=math.fsum(group.cost * group.rate_rps for group in groups) / rate,
        mean_batch=rate / batches,
        slo_miss_ratio=math.fsum(group.late * group.rate_rps for group in groups) / rate,
    )
