"""Groups as a plan and back: one class of instances for each group, one route for each application.

A group is a function of its own in HarmonyBatch (IWQoS'24); here it is a class of the plan, to
which the routes of its applications lead, each with its own longest wait. Routes that lead to one
class share batches, and no others do.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from carpool.latency import Configuration
from carpool.plan import InstanceClass, Plan, Predicted, Route
from scaler.core.sizing import class_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler.core.harmony.settling import Group, Member, Settling
    from scaler.core.snapshot import FunctionView

__all__ = ["grouped_plan", "groups_in", "named"]


def named(groups: Sequence[Group]) -> dict[str, Group]:
    """Each group under the name of its class; those of one size are numbered."""
    seen: Counter[str] = Counter()
    names: dict[str, Group] = {}
    for group in groups:
        name = class_name(*group.configuration)
        seen[name] += 1
        names[name if seen[name] == 1 else f"{name}-{seen[name]}"] = group
    return names


def groups_in(plan: Plan, members: Sequence[Member], settling: Settling) -> list[Group] | None:
    """The groups of a plan as they do under the load of today.

    Args:
        plan: As `grouped_plan` made it.
        members: Today's applications, those that can be served.
        settling: Knows the law of batches.

    Returns:
        None where the plan does not have them all, or has instances that are not known any more.
    """
    routes = {route.app: route for route in plan.routes}
    classes = {kind.name: kind for kind in plan.classes}
    parts: dict[str, list[tuple[Member, float]]] = {}
    for member in members:
        led = {_target(routes.get(app)) for app in member.apps}
        if len(led) != 1 or None in led:
            return None
        ((name, window_s),) = (target for target in led if target)
        parts.setdefault(name, []).append((member, window_s))
    if not classes.keys() <= parts.keys():
        return None
    groups = []
    for name, part in parts.items():
        kind = classes[name]
        configuration = Configuration(kind.batch_size, kind.cpu, kind.gpu)
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


def grouped_plan(
    view: FunctionView, groups: Mapping[str, Group], counts: Sequence[int], explain: Sequence[str]
) -> Plan:
    """The plan of these groups; the one in force if nothing but words has changed.

    Args:
        view: The function.
        groups: By the name of the class, the tightest first; at least one.
        counts: How many instances of each, in the same order.
        explain: Sentences for an operator.
    """
    before = view.plan
    plan = Plan(
        function=view.name,
        version=before.version + 1 if before else 1,
        policy="harmonybatch",
        classes=tuple(
            _class(view, name, group, count)
            for (name, group), count in zip(groups.items(), counts, strict=True)
        ),
        routes=tuple(_routes(groups)),
        predicted=_predicted(list(groups.values())),
        explain=tuple(explain),
    )
    return before if before and _silent(before) == _silent(plan) else plan


def _silent(plan: Plan) -> Plan:
    return replace(plan, version=0, predicted=Predicted(), explain=())


def _class(view: FunctionView, name: str, group: Group, count: int) -> InstanceClass:
    batch, cpu, gpu = group.configuration
    exec_s = view.model.predict(batch, cpu, gpu, view.percentile)
    assert exec_s is not None  # noqa: S101  the group could not have been settled
    return InstanceClass(
        name=name,
        cpu=cpu,
        gpu=gpu,
        memory_mb=group.resources.memory_mb or None,
        batch_size=batch,
        replicas=count,
        exec_s=exec_s,
        rate_high=batch / exec_s,
    )


def _routes(groups: Mapping[str, Group]) -> list[Route]:
    """One an application, and for all others that of the tightest, which suits everybody."""
    routes = [
        Route(app, {name: 1.0}, window_s)
        for name, group in groups.items()
        for member, window_s in zip(group.members, group.windows_s, strict=True)
        for app in member.apps
    ]
    if any(route.app == "*" for route in routes):
        return routes
    return [replace(routes[0], app="*"), *routes]


def _predicted(groups: Sequence[Group]) -> Predicted:
    rate = math.fsum(group.rate_rps for group in groups)
    batches = math.fsum(group.rate_rps / group.mean_batch for group in groups)
    return Predicted(
        cost_per_request=math.fsum(group.cost * group.rate_rps for group in groups) / rate,
        mean_batch=rate / batches,
        slo_miss_ratio=math.fsum(group.late * group.rate_rps for group in groups) / rate,
    )
